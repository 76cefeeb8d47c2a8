//! Pairs of runs: how much they differ, and whether that can be told from noise.
//!
//! The difference of a pair is that of the logarithms of its p99, so that "10 % slower" is the same
//! number at every speed. Hodges and Lehmann's estimate is the median of all pairwise means; Wilcoxon's
//! signed-rank test is exact (its null distribution is counted, ties share their mean rank); the
//! interval is a bootstrap over pairs, which are the independent units.

use evenkeel_base::Rng;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;

/// Differences within this part of one another are equal for all purposes.
pub const MARGIN: f64 = 0.03;

/// What pairs of runs say of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// B is faster.
    Better,
    Worse,
    Equivalent,
    Inconclusive,
}

impl Call {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Call::Better => "better",
            Call::Worse => "worse",
            Call::Equivalent => "equivalent",
            Call::Inconclusive => "inconclusive",
        }
    }
}

/// An analysis of differences of logarithms, B less A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Analysis {
    pub pairs: usize,
    /// Hodges-Lehmann.
    pub estimate: f64,
    /// Two-sided, of no difference.
    pub p_value: f64,
    pub interval_90: (f64, f64),
    pub interval_99: (f64, f64),
    pub call: Call,
}

/// Fewer pairs cannot reach the 1 % that a call is held to: the smallest p of n pairs is `2 / 2^n`.
pub const FEWEST_PAIRS: usize = 8;

impl Analysis {
    /// Of at least one difference. "Better" and "worse" want both the 99 % interval and a p under 1 %;
    /// "equivalent" wants the 90 % interval within `margin`.
    #[must_use]
    pub fn of(differences: &[f64], margin: f64, seed: u64) -> Analysis {
        let mean = |pairs: &[usize]| {
            pairs.iter().map(|&pair| differences[pair]).sum::<f64>() / pairs.len() as f64
        };
        Analysis::with(differences, mean, margin, seed)
    }

    /// The same with a `statistic` of its own for the interval, such as a quantile of everything that
    /// the resampled pairs measured together; it is given the indices of the pairs that were drawn.
    #[must_use]
    pub fn with(
        differences: &[f64],
        statistic: impl FnMut(&[usize]) -> f64,
        margin: f64,
        seed: u64,
    ) -> Analysis {
        let estimate = hodges_lehmann(differences);
        let p_value = wilcoxon(differences);
        let resampled = bootstrap(differences.len(), statistic, seed);
        let between = |tail: f64| (at(&resampled, tail), at(&resampled, 1.0 - tail));
        let (interval_90, interval_99) = (between(0.05), between(0.005));
        let enough = differences.len() >= FEWEST_PAIRS;
        let within = (1.0 - margin).ln()..=(1.0 + margin).ln();
        let call = if enough && p_value < 0.01 && interval_99.0 > 0.0 {
            Call::Worse
        } else if enough && p_value < 0.01 && interval_99.1 < 0.0 {
            Call::Better
        } else if enough && within.contains(&interval_90.0) && within.contains(&interval_90.1) {
            Call::Equivalent
        } else {
            Call::Inconclusive
        };
        Analysis {
            pairs: differences.len(),
            estimate,
            p_value,
            interval_90,
            interval_99,
            call,
        }
    }
}

/// The median of the means of all pairs of values, each with itself included.
#[must_use]
pub fn hodges_lehmann(values: &[f64]) -> f64 {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, one) in values.iter().enumerate() {
        means.extend(values[index..].iter().map(|other| (one + other) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    median(&means)
}

fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn at(sorted: &[f64], quantile: f64) -> f64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

/// The exact two-sided p of Wilcoxon's signed-rank test; zeros are left out, as he did.
#[must_use]
pub fn wilcoxon(differences: &[f64]) -> f64 {
    let mut values: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    values.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Twice the ranks, so that the mean rank of a tie is whole.
    let mut ranks = Vec::with_capacity(values.len());
    let mut first = 0;
    while first < values.len() {
        let tied = values[first..]
            .iter()
            .take_while(|v| v.abs() == values[first].abs());
        let count = tied.count();
        ranks.extend(std::iter::repeat_n(2 * first + count + 1, count));
        first += count;
    }
    let total: usize = ranks.iter().sum();
    let positive: usize = values
        .iter()
        .zip(&ranks)
        .filter(|(value, _)| **value > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    // How many of the 2^n signs give each sum, as a part of them all.
    let mut ways = vec![0.0f64; total + 1];
    ways[0] = 1.0;
    for &rank in &ranks {
        for sum in (0..=total).rev() {
            let with = if sum >= rank { ways[sum - rank] } else { 0.0 };
            ways[sum] = (ways[sum] + with) / 2.0;
        }
    }
    let low = positive.min(total - positive);
    let tail: f64 = ways[..=low].iter().sum();
    (2.0 * tail).min(1.0)
}

/// The statistic of resampled pairs, sorted.
fn bootstrap(pairs: usize, mut statistic: impl FnMut(&[usize]) -> f64, seed: u64) -> Vec<f64> {
    let mut rng = Rng::stream(seed, 0x626f_6f74);
    let mut drawn = vec![0; pairs];
    let mut values: Vec<f64> = (0..if pairs == 0 { 0 } else { RESAMPLES })
        .map(|_| {
            drawn.fill_with(|| rng.below(pairs as u64) as usize);
            statistic(&drawn)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The two-sided p of `count` of `total` coins on one side when each falls there with probability
/// `chance`: the sum of all outcomes that are no likelier.
#[must_use]
pub fn binomial(count: u64, total: u64, chance: f64) -> f64 {
    let mut log = total as f64 * (1.0 - chance).ln();
    let mut likelihoods = vec![log];
    for heads in 1..=total {
        log += ((total - heads + 1) as f64 / heads as f64).ln();
        log += chance.ln() - (1.0 - chance).ln();
        likelihoods.push(log);
    }
    let seen = likelihoods[count.min(total) as usize] + 1e-9;
    let tail = likelihoods.iter().filter(|log| **log <= seen);
    tail.map(|log| log.exp()).sum::<f64>().min(1.0)
}

/// Pairs that find a difference of `effect` (a part, 0.1 for 10 %) with 90 % probability when single
/// runs spread by `spread` in the logarithm: `((z_0.995 + z_0.9) sqrt(2) spread / ln(1 + effect))^2`,
/// and a sixth more because ranks and a bootstrap know less than a normal law.
#[must_use]
pub fn planned_pairs(spread: f64, effect: f64) -> usize {
    let z = 2.576 + 1.282;
    let of_pair = std::f64::consts::SQRT_2 * spread;
    let pairs = (z * of_pair / (1.0 + effect).ln()).powi(2) * 7.0 / 6.0;
    (pairs.ceil() as usize).max(FEWEST_PAIRS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_rank_test_is_the_textbooks() {
        // Wilcoxon 1945: ranks 1 to 8 all positive but one: n = 8, W- = 3 has p = 10 / 256.
        let values = [1.0, 2.0, -3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert!((wilcoxon(&values) - 10.0 / 256.0).abs() < 1e-12);
        assert_eq!(wilcoxon(&[1.0, -1.0]), 1.0);
        assert_eq!(wilcoxon(&[0.0, 0.0]), 1.0);
        assert!((wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 2.0 / 32.0).abs() < 1e-12);
        // Ties share their mean rank: all eight signs of three equal values, two of them extreme.
        assert!((wilcoxon(&[1.0, 1.0, 1.0]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn coins_are_counted_exactly() {
        // 8 of 10: 1, 10 and 45 of 1024 on each side.
        assert!((binomial(8, 10, 0.5) - 112.0 / 1024.0).abs() < 1e-9);
        assert!((binomial(5, 10, 0.5) - 1.0).abs() < 1e-9);
        assert_eq!(binomial(0, 0, 0.5), 1.0);
        // A third: 0 of 6 has (2/3)^6; the outcomes no likelier are 4, 5, 6 and itself.
        let exact = (64.0 + 60.0 + 12.0 + 1.0) / 729.0;
        assert!((binomial(0, 6, 1.0 / 3.0) - exact).abs() < 1e-9);
    }

    #[test]
    fn a_statistic_of_its_own_is_given_the_pairs_that_were_drawn() {
        let differences = [0.1; 9];
        let analysis = Analysis::with(&differences, |pairs| pairs.len() as f64, MARGIN, 1);
        assert_eq!(analysis.interval_90, (9.0, 9.0));
    }

    #[test]
    fn hodges_lehmann_is_not_moved_by_an_outlier() {
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 3.0]), 2.0);
        assert_eq!(hodges_lehmann(&[1.0, 5.0]), 3.0);
        assert!(hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 1000.0]) < 1.2);
    }

    /// Differences of a session: runs spread by 10 % in the logarithm.
    fn session(seed: u64, pairs: usize, effect: f64) -> Analysis {
        let mut rng = Rng::stream(seed, 7);
        let mut run = |shift: f64| shift + 0.10 * rng.normal();
        let differences: Vec<f64> = (0..pairs)
            .map(|_| {
                let a = run(0.0);
                run(effect.ln_1p()) - a
            })
            .collect();
        Analysis::of(&differences, MARGIN, seed)
    }

    #[test]
    fn a_against_a_is_called_different_in_at_most_one_of_a_hundred_sessions() {
        let called = (0..1_000)
            .filter(|&seed| matches!(session(seed, 32, 0.0).call, Call::Better | Call::Worse))
            .count();
        assert!(called <= 10, "{called} of 1000");
    }

    #[test]
    fn a_hidden_ten_percent_is_found_with_the_planned_number_of_pairs() {
        let pairs = planned_pairs(0.10, 0.10);
        assert!((30..50).contains(&pairs), "{pairs}");
        let found = (0..200)
            .filter(|&seed| session(seed, pairs, 0.10).call == Call::Worse)
            .count();
        assert!(found >= 180, "{found} of 200 with {pairs} pairs");
    }

    #[test]
    fn few_pairs_are_inconclusive_and_many_equal_ones_equivalent() {
        assert_eq!(session(1, 3, 2.0).call, Call::Inconclusive);
        let mut rng = Rng::stream(1, 1);
        let tight: Vec<f64> = (0..32).map(|_| 0.01 * rng.normal()).collect();
        assert_eq!(Analysis::of(&tight, MARGIN, 1).call, Call::Equivalent);
        let faster: Vec<f64> = tight.iter().map(|d| d - 0.2).collect();
        assert_eq!(Analysis::of(&faster, MARGIN, 1).call, Call::Better);
    }
}
