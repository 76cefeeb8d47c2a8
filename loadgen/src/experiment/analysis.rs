//! What the blocks of a session say of one arm against another.

use std::collections::BTreeSet;

use hdrhistogram::Histogram;

use super::session::{Line, Session, decode};
use crate::statistics::{Analysis, MARGIN};

/// One thing that is compared.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    kind: Kind,
    pub(super) digits: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Of the response times of a phase, in ms.
    Quantile(&'static str, f64),
    /// The mean of a value over runs; compared by its logarithm, as all the above.
    Ratio { key: &'static str, scale: f64 },
    /// A time in S that may be never; compared by its difference.
    Time(&'static str),
}

const fn measure(key: &'static str, name: &'static str, kind: Kind, digits: usize) -> Measure {
    Measure {
        key,
        name,
        kind,
        digits,
    }
}

const fn ratio(key: &'static str, scale: f64) -> Kind {
    Kind::Ratio { key, scale }
}

pub(super) const MEASURES: [Measure; 11] = [
    measure(
        "regret_healthy",
        "regret, healthy",
        ratio("regret_healthy", 1.0),
        3,
    ),
    measure(
        "regret_trouble",
        "regret, trouble",
        ratio("regret_trouble", 1.0),
        3,
    ),
    measure(
        "healthy_p99_ms",
        "p99 healthy, ms",
        Kind::Quantile("healthy", 0.99),
        2,
    ),
    measure(
        "trouble_p99_ms",
        "p99 trouble, ms",
        Kind::Quantile("trouble", 0.99),
        2,
    ),
    measure(
        "trouble_p999_ms",
        "p99.9 trouble, ms",
        Kind::Quantile("trouble", 0.999),
        1,
    ),
    measure(
        "first_100_s_p99_ms",
        "p99 first 100 S, ms",
        Kind::Quantile("first_100_s", 0.99),
        1,
    ),
    measure("share_percent", "sick share, %", ratio("share", 100.0), 2),
    measure("detect_s", "detect, S", Kind::Time("detect_s"), 1),
    measure("recover_s", "recover, S", Kind::Time("recover_s"), 0),
    measure("failed_percent", "failed, %", ratio("failed", 100.0), 3),
    measure("cpu_us", "CPU, us/request", ratio("cpu_us", 1.0), 1),
];

/// One measure of B against A.
pub(super) struct Compared {
    pub(super) measure: Measure,
    /// Over all blocks; `None` for never in more than half of the runs.
    pub(super) a: Option<f64>,
    pub(super) b: Option<f64>,
    /// Runs that never came there.
    pub(super) never: (usize, usize),
    /// `None` with no block that can be compared.
    pub(super) analysis: Option<Analysis>,
    /// Runs of the same arm against each other, as noisy as the above.
    pub(super) noise: Option<Analysis>,
}

impl Compared {
    /// An effect as it is shown: percent where logarithms are compared, S where times are.
    pub(super) fn shown(&self, effect: f64) -> String {
        match self.measure.kind {
            Kind::Time(_) => format!("{effect:+.0}"),
            Kind::Quantile(..) | Kind::Ratio { .. } => {
                format!("{:+.1} %", (effect.exp() - 1.0) * 100.0)
            }
        }
    }
}

/// Both arms of all blocks, block by block.
struct Blocks<'s> {
    a: Vec<Vec<&'s Line>>,
    b: Vec<Vec<&'s Line>>,
}

pub(super) fn compare(session: &Session<'_>, a: &str, b: &str) -> Vec<Compared> {
    let of = |arm| {
        let blocks = session.blocks().into_iter();
        blocks.map(|block| session.pair(block, arm)).collect()
    };
    let blocks = Blocks { a: of(a), b: of(b) };
    let seed = session.header.seed;
    MEASURES
        .into_iter()
        .map(|measure| blocks.compare(measure, seed))
        .filter(|compared| compared.a != Some(0.0) || compared.b != Some(0.0))
        .collect()
}

impl Blocks<'_> {
    fn compare(&self, measure: Measure, seed: u64) -> Compared {
        match measure.kind {
            Kind::Quantile(phase, quantile) => self.quantile(measure, phase, quantile, seed),
            Kind::Ratio { key, scale } => self.ratio(measure, key, scale, seed),
            Kind::Time(key) => self.time(measure, key, seed),
        }
    }

    fn quantile(&self, measure: Measure, phase: &str, quantile: f64, seed: u64) -> Compared {
        let histograms = |blocks: &[Vec<&Line>]| -> Vec<Vec<Histogram<u64>>> {
            let block = |runs: &Vec<&Line>| runs.iter().map(|run| decode(run, phase)).collect();
            blocks.iter().map(block).collect()
        };
        let (a, b) = (histograms(&self.a), histograms(&self.b));
        let logs = |blocks: &[Vec<Histogram<u64>>]| -> Vec<Vec<f64>> {
            let run = |times: &Histogram<u64>| (times.value_at_quantile(quantile) as f64).ln();
            blocks
                .iter()
                .map(|runs| runs.iter().map(run).collect())
                .collect()
        };
        let (log_a, log_b) = (logs(&a), logs(&b));
        let (pool_a, pool_b) = (Pool::new(&a), Pool::new(&b));
        let all: Vec<usize> = (0..a.len()).collect();
        let statistic =
            |blocks: &[usize]| (pool_b.at(blocks, quantile) / pool_a.at(blocks, quantile)).ln();
        Compared {
            measure,
            a: (!all.is_empty()).then(|| pool_a.at(&all, quantile) / 1e6),
            b: (!all.is_empty()).then(|| pool_b.at(&all, quantile) / 1e6),
            never: (0, 0),
            analysis: some(differences(&log_a, &log_b))
                .map(|found| Analysis::with(&found, statistic, MARGIN, seed)),
            noise: some(noise(&log_a, &log_b)).map(|found| Analysis::of(&found, MARGIN, seed)),
        }
    }

    fn ratio(&self, measure: Measure, key: &str, scale: f64, seed: u64) -> Compared {
        let (a, b) = (values(&self.a, key), values(&self.b, key));
        let mean = |blocks: &[Vec<f64>]| {
            let all: Vec<f64> = blocks.concat();
            (!all.is_empty()).then(|| scale * all.iter().sum::<f64>() / all.len() as f64)
        };
        let (mean_a, mean_b) = (mean(&a), mean(&b));
        let positive = |blocks: &[Vec<f64>]| blocks.iter().flatten().all(|value| *value > 0.0);
        let comparable = positive(&a) && positive(&b);
        let logs = |blocks: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let run = |runs: &Vec<f64>| runs.iter().map(|value| value.ln()).collect();
            blocks.iter().map(run).collect()
        };
        let (log_a, log_b) = (logs(&a), logs(&b));
        let sum = |blocks: &[Vec<f64>], drawn: &[usize]| -> f64 {
            drawn.iter().flat_map(|&block| &blocks[block]).sum()
        };
        let statistic = |drawn: &[usize]| (sum(&b, drawn) / sum(&a, drawn)).ln();
        let found = some(differences(&log_a, &log_b)).filter(|_| comparable);
        let floor = some(noise(&log_a, &log_b)).filter(|_| comparable);
        Compared {
            measure,
            a: mean_a,
            b: mean_b,
            never: (0, 0),
            analysis: found.map(|found| Analysis::with(&found, statistic, MARGIN, seed)),
            noise: floor.map(|floor| Analysis::of(&floor, MARGIN, seed)),
        }
    }

    /// Blocks in which a run never came there cannot be subtracted; they are counted.
    fn time(&self, measure: Measure, key: &str, seed: u64) -> Compared {
        let never = |blocks: &[Vec<&Line>]| {
            let runs = blocks.iter().flatten();
            runs.filter(|run| run.values.get(key).is_none_or(Option::is_none))
                .count()
        };
        let median = |blocks: &[Vec<&Line>]| {
            let runs = blocks.iter().flatten();
            let mut all: Vec<f64> = runs
                .map(|run| run.values.get(key).copied().flatten())
                .map(|time| time.unwrap_or(f64::INFINITY))
                .collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().filter(|t| t.is_finite())
        };
        let whole: Vec<usize> = (0..self.a.len())
            .filter(|&block| {
                let mut runs = self.a[block].iter().chain(&self.b[block]);
                runs.all(|run| run.values.get(key).copied().flatten().is_some())
            })
            .collect();
        let kept = |blocks: &[Vec<&Line>]| {
            let whole = whole.iter().map(|&block| blocks[block].clone());
            values(&whole.collect::<Vec<_>>(), key)
        };
        let (a, b) = (kept(&self.a), kept(&self.b));
        Compared {
            measure,
            a: median(&self.a),
            b: median(&self.b),
            never: (never(&self.a), never(&self.b)),
            analysis: some(differences(&a, &b)).map(|found| Analysis::of(&found, 0.0, seed)),
            noise: some(noise(&a, &b)).map(|floor| Analysis::of(&floor, 0.0, seed)),
        }
    }
}

fn some(values: Vec<f64>) -> Option<Vec<f64>> {
    (!values.is_empty()).then_some(values)
}

fn values(blocks: &[Vec<&Line>], key: &str) -> Vec<Vec<f64>> {
    let of = |run: &&Line| run.values.get(key).copied().flatten();
    let block = |runs: &Vec<&Line>| runs.iter().filter_map(of).collect();
    blocks.iter().map(block).collect()
}

/// Per block, the mean of B's runs less that of A's.
fn differences(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<f64> {
    let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
    a.iter().zip(b).map(|(a, b)| mean(b) - mean(a)).collect()
}

/// Per block, the difference within each arm, so weighed that it is as noisy as [`differences`]; the
/// sign alternates from block to block, so that a drift of the machine does not add up.
fn noise(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<f64> {
    let within = |runs: &[f64]| match runs {
        [first, second] => second - first,
        _ => 0.0,
    };
    let block = |(at, (a, b)): (usize, (&Vec<f64>, &Vec<f64>))| {
        let sign = if at % 2 == 0 { 0.5 } else { -0.5 };
        sign * (within(a) + within(b))
    };
    a.iter().zip(b).enumerate().map(block).collect()
}

/// Counts of values by block, for quantiles of any selection of blocks together.
struct Pool {
    /// All values that occur, in ascending order.
    values: Vec<u64>,
    /// By block: how many are at most `values[i]`.
    cumulative: Vec<Vec<u64>>,
}

impl Pool {
    fn new(blocks: &[Vec<Histogram<u64>>]) -> Pool {
        let recorded = |times: &Histogram<u64>| -> Vec<(u64, u64)> {
            let steps = times.iter_recorded();
            steps
                .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
                .collect()
        };
        let counts: Vec<Vec<(u64, u64)>> = blocks
            .iter()
            .map(|runs| runs.iter().flat_map(recorded).collect())
            .collect();
        let values: BTreeSet<u64> = counts.iter().flatten().map(|(value, _)| *value).collect();
        let values: Vec<u64> = values.into_iter().collect();
        let cumulative = counts.iter().map(|counts| {
            let mut sums = vec![0; values.len()];
            for (value, count) in counts {
                sums[values.partition_point(|v| v < value)] += count;
            }
            let mut sum = 0;
            for slot in &mut sums {
                sum += *slot;
                *slot = sum;
            }
            sums
        });
        Pool {
            cumulative: cumulative.collect(),
            values,
        }
    }

    /// The quantile of everything in these blocks, each as often as it is named; 1 without values.
    fn at(&self, blocks: &[usize], quantile: f64) -> f64 {
        let Some(last) = self.values.len().checked_sub(1) else {
            return 1.0;
        };
        let up_to = |at: usize| -> u64 { blocks.iter().map(|&b| self.cumulative[b][at]).sum() };
        let wanted = (quantile * up_to(last) as f64).ceil() as u64;
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = usize::midpoint(low, high);
            if up_to(middle) >= wanted {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.values[low] as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::client::histogram;
    use crate::statistics::Call;

    #[test]
    fn a_pooled_quantile_is_that_of_all_values_together() {
        let times = |values: std::ops::Range<u64>| {
            let mut times = histogram();
            for ms in values {
                times.record(ms * 1_000_000).unwrap();
            }
            times
        };
        let pool = Pool::new(&[vec![times(1..51), times(51..101)], vec![times(101..201)]]);
        let near = |value: f64, ms: f64| (value / 1e6 - ms).abs() < 0.2;
        assert!(near(pool.at(&[0], 0.5), 50.0) && near(pool.at(&[0, 1], 0.99), 198.0));
        // The first block twice: 300 values, of which rank 297 is in the second block.
        assert!(near(pool.at(&[0, 0, 1], 0.99), 197.0));
        assert_eq!(Pool::new(&[]).at(&[], 0.5), 1.0);
    }

    fn run(regret: f64, recover: Option<f64>) -> Line {
        Line {
            block: 0,
            arm: String::new(),
            discarded: 0,
            schedule_hash: String::new(),
            values: [
                ("regret_trouble".to_owned(), Some(regret)),
                ("recover_s".to_owned(), recover),
            ]
            .into(),
            histograms: BTreeMap::new(),
        }
    }

    fn find(key: &str) -> Measure {
        MEASURES.into_iter().find(|m| m.key == key).unwrap()
    }

    #[test]
    fn a_difference_is_found_and_noise_is_not() {
        let mut rng = evenkeel_base::Rng::stream(1, 1);
        let mut noisy = |mean: f64| mean * (1.0 + 0.05 * rng.normal());
        let runs: Vec<[Line; 4]> = (0..20)
            .map(|_| [0.5, 0.5, 0.4, 0.4].map(|mean| run(noisy(mean), Some(noisy(400.0)))))
            .collect();
        let of = |from: usize| -> Vec<Vec<&Line>> {
            let pair = |block: &'static [Line; 4]| vec![&block[from], &block[from + 1]];
            let runs: &'static Vec<[Line; 4]> = Box::leak(Box::new(runs.clone()));
            runs.iter().map(pair).collect()
        };
        let blocks = Blocks { a: of(0), b: of(2) };
        let regret = blocks.compare(find("regret_trouble"), 1);
        assert_eq!(regret.analysis.unwrap().call, Call::Better);
        assert!((regret.analysis.unwrap().estimate - (0.8f64).ln()).abs() < 0.03);
        assert!(!matches!(
            regret.noise.unwrap().call,
            Call::Better | Call::Worse
        ));
        let recover = blocks.compare(find("recover_s"), 1);
        assert_eq!(recover.analysis.unwrap().call, Call::Inconclusive);
    }

    #[test]
    fn never_is_counted_and_not_subtracted() {
        let (came, never) = (run(1.0, Some(100.0)), run(1.0, None));
        let blocks = Blocks {
            a: vec![vec![&came, &came], vec![&never, &came]],
            b: vec![vec![&came, &came], vec![&never, &never]],
        };
        let recover = blocks.compare(find("recover_s"), 1);
        assert_eq!(recover.never, (1, 2));
        assert_eq!(recover.analysis.unwrap().pairs, 1);
        assert_eq!(recover.a, Some(100.0));
    }
}
