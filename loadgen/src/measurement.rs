//! A number and its doubt: what a run measured, and whether it may be believed.

mod page;
mod text;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::client::{Class, Ended};
use crate::host::Host;
use crate::slo;
pub use page::page;
pub use text::text;

/// Whether the generator, and not the target, made the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Valid,
    Suspect,
    Invalid,
}

impl Verdict {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "VALID",
            Verdict::Suspect => "SUSPECT",
            Verdict::Invalid => "INVALID",
        }
    }
}

/// What the verdict looks at.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    pub intended: u64,
    pub classified: u64,
    pub unfinished: u64,
    /// Requests that waited for a connection when the schedule ended.
    pub backlog: u64,
    /// Connections that were asked for and not established at the start.
    pub missing_connections: u64,
    pub lag_p99_ns: u64,
    pub lag_p999_ns: u64,
    pub lag_max_ns: u64,
    /// The largest but one.
    pub lag_second_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub busy: f64,
    pub steal: f64,
}

/// Lag below this is the resolution of timers and wake-ups, whatever the target's speed.
const LAG_FLOOR_NS: u64 = 200_000;

/// The verdict and a sentence for everything that speaks against the run.
#[must_use]
pub fn judge(evidence: &Evidence) -> (Verdict, Vec<String>) {
    let mut verdict = Verdict::Valid;
    let mut reasons = Vec::new();
    let mut object = |worse: Verdict, reason: String| {
        verdict = verdict.max(worse);
        reasons.push(reason);
    };
    let e = evidence;
    if e.intended == 0 {
        object(
            Verdict::Invalid,
            "no request was due in the measured time".into(),
        );
    }
    if e.classified != e.intended {
        let text = format!(
            "{} requests were due, {} are accounted for",
            e.intended, e.classified
        );
        object(Verdict::Invalid, text);
    }
    let lag_limit = (e.p50_ns / 20).max(LAG_FLOOR_NS);
    if e.lag_p99_ns > lag_limit {
        let text = format!(
            "the generator was late: send lag p99 {} is over {} (5 % of p50)",
            ms(e.lag_p99_ns),
            ms(lag_limit)
        );
        object(Verdict::Invalid, text);
    }
    let tail_limit = (e.p99_ns / 10).max(2 * LAG_FLOOR_NS);
    if e.lag_p999_ns > tail_limit && e.lag_second_ns > tail_limit {
        let text = format!(
            "the generator was late: send lag p99.9 {} is over {} (10 % of p99)",
            ms(e.lag_p999_ns),
            ms(tail_limit)
        );
        object(Verdict::Invalid, text);
    } else if e.lag_p999_ns > tail_limit || e.lag_max_ns > 10 * tail_limit {
        object(
            Verdict::Suspect,
            format!("a single send was {} late", ms(e.lag_max_ns)),
        );
    }
    if e.busy > 0.7 {
        let text = format!(
            "the generator's loop was busy {:.0} % of the time",
            e.busy * 100.0
        );
        object(Verdict::Invalid, text);
    }
    if e.unfinished * 1000 > e.intended {
        let text = format!("{} requests were not over at the end", e.unfinished);
        object(Verdict::Invalid, text);
    }
    if e.backlog * 1000 > e.intended {
        let text = format!(
            "{} requests waited for a connection at the end: give it more --connections, or a lower \
             rate if the target cannot keep up",
            e.backlog
        );
        object(Verdict::Invalid, text);
    }
    if e.missing_connections > 0 {
        let text = format!(
            "{} connections could not be established at the start",
            e.missing_connections
        );
        object(Verdict::Suspect, text);
    }
    if e.steal > 0.02 {
        let text = format!("the hypervisor took {:.1} % of the time", e.steal * 100.0);
        object(Verdict::Suspect, text);
    }
    (verdict, reasons)
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// The largest value but one, as the histogram has it; zero with fewer than two.
#[must_use]
pub fn second_largest(histogram: &Histogram<u64>) -> u64 {
    let count = histogram.len();
    if count < 2 {
        return 0;
    }
    histogram.value_at_quantile((count - 1) as f64 / count as f64)
}

/// Quantiles in nanoseconds; none without values. The q-quantile is the least recorded value that at
/// least a part q of the values does not exceed (rank `ceil(q n)`), to three digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// Values that are lower bounds: timeouts, resets, failed connects, unfinished requests.
    pub censored: u64,
}

impl Quantiles {
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, censored: u64) -> Quantiles {
        let some = |value: u64| (!histogram.is_empty()).then_some(value);
        let at = |quantile| some(histogram.value_at_quantile(quantile));
        Quantiles {
            count: histogram.len(),
            mean_ns: some(histogram.mean() as u64),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: some(histogram.max()),
            censored,
        }
    }
}

/// `report.json` of `loadgen run`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub target: String,
    pub arrivals: String,
    pub rate: f64,
    pub duration_ns: u64,
    pub connections: u32,
    pub threads: u32,
    pub intended: u64,
    pub classes: BTreeMap<String, u64>,
    pub status: BTreeMap<String, u64>,
    /// Requests a second that were answered, whatever the status.
    pub achieved_rate: f64,
    /// Requests a second that were answered well.
    pub ok_rate: f64,
    /// All requests, failed ones at their age.
    pub response: Quantiles,
    /// Those that were answered well.
    pub response_ok: Quantiles,
    pub service: Quantiles,
    pub lag: Quantiles,
    /// Response times beyond an hour, recorded as an hour.
    pub clamped: u64,
    pub established: u64,
    pub reconnects: u64,
    pub failed_connects: u64,
    pub slo: Vec<slo::Measured>,
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    pub seed: u64,
    pub request: Request,
    pub schedule_hash: String,
    pub honesty: serde_json::Value,
}

/// What a report says of its run beside the numbers.
#[derive(Clone, Debug)]
pub struct Description {
    pub target: String,
    pub arrivals: String,
    pub rate: f64,
    pub duration_ns: u64,
    pub connections: u32,
    pub threads: u32,
    pub seed: u64,
    /// What else a repetition needs.
    pub request: Request,
}

/// What is sent, as the command line said it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub method: String,
    pub headers: Vec<String>,
    /// A file.
    pub body: Option<String>,
    /// Of the generator's threads; empty when they were not pinned.
    #[serde(default)]
    pub cores: Vec<usize>,
    pub timeout_ns: u64,
    pub warmup_ns: u64,
}

/// Puts a run's numbers and its verdict together.
#[must_use]
pub fn report(description: &Description, ended: &Ended, host: &Host, steal: f64) -> Report {
    let record = &ended.record;
    let response = Quantiles::of(&record.response, record.censored);
    let lag = Quantiles::of(&record.lag, 0);
    let evidence = Evidence {
        intended: ended.intended,
        classified: record.total(),
        unfinished: record.count(Class::Unfinished),
        backlog: ended.backlog as u64,
        missing_connections: u64::from(description.connections.max(description.threads))
            .saturating_sub(record.connections.established),
        lag_p99_ns: lag.p99_ns.unwrap_or(0),
        lag_p999_ns: lag.p999_ns.unwrap_or(0),
        lag_max_ns: lag.max_ns.unwrap_or(0),
        lag_second_ns: second_largest(&record.lag),
        p50_ns: response.p50_ns.unwrap_or(0),
        p99_ns: response.p99_ns.unwrap_or(0),
        busy: ended.busy,
        steal,
    };
    let (verdict, reasons) = judge(&evidence);
    let answered = record.count(Class::Ok) + record.count(Class::HttpError);
    let seconds = description.duration_ns as f64 / 1e9;
    let classes = Class::ALL
        .iter()
        .map(|&class| (class.name().to_owned(), record.count(class)));
    Report {
        schema: "loadgen.report/1".into(),
        target: description.target.clone(),
        arrivals: description.arrivals.clone(),
        rate: description.rate,
        duration_ns: description.duration_ns,
        connections: description.connections,
        threads: description.threads,
        intended: ended.intended,
        classes: classes.collect(),
        status: record
            .status
            .iter()
            .map(|(status, n)| (status.to_string(), *n))
            .collect(),
        achieved_rate: answered as f64 / seconds,
        ok_rate: record.count(Class::Ok) as f64 / seconds,
        response_ok: Quantiles::of(&record.ok, 0),
        service: Quantiles::of(&record.service, 0),
        response,
        lag,
        clamped: record.clamped,
        established: record.connections.established,
        reconnects: record.connections.reconnects,
        failed_connects: record.connections.failed,
        slo: Vec::new(),
        verdict,
        reasons,
        seed: description.seed,
        request: description.request.clone(),
        schedule_hash: format!("{:016x}", ended.schedule_hash),
        honesty: {
            let mut honesty = host.honesty(steal, ended.busy, ended.backlog, 0);
            honesty["pinned_cores"] = description.request.cores.clone().into();
            honesty
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Evidence {
        Evidence {
            intended: 10_000,
            classified: 10_000,
            unfinished: 0,
            backlog: 0,
            missing_connections: 0,
            lag_p99_ns: 50_000,
            lag_p999_ns: 80_000,
            lag_max_ns: 100_000,
            lag_second_ns: 90_000,
            p50_ns: 5_000_000,
            p99_ns: 17_000_000,
            busy: 0.2,
            steal: 0.0,
        }
    }

    #[test]
    fn a_clean_run_is_valid() {
        assert_eq!(judge(&good()), (Verdict::Valid, vec![]));
    }

    #[test]
    fn each_sign_of_a_weak_generator_is_named() {
        let cases = [
            (
                Evidence {
                    classified: 9_999,
                    ..good()
                },
                Verdict::Invalid,
                "accounted",
            ),
            (
                Evidence {
                    lag_p99_ns: 300_000,
                    ..good()
                },
                Verdict::Invalid,
                "p99",
            ),
            (
                Evidence {
                    lag_p999_ns: 2_000_000,
                    lag_second_ns: 2_000_000,
                    ..good()
                },
                Verdict::Invalid,
                "p99.9",
            ),
            (
                Evidence {
                    lag_max_ns: 90_000_000,
                    ..good()
                },
                Verdict::Suspect,
                "single",
            ),
            (
                Evidence {
                    busy: 0.8,
                    ..good()
                },
                Verdict::Invalid,
                "busy",
            ),
            (
                Evidence {
                    unfinished: 11,
                    ..good()
                },
                Verdict::Invalid,
                "not over",
            ),
            (
                Evidence {
                    backlog: 11,
                    ..good()
                },
                Verdict::Invalid,
                "--connections",
            ),
            (
                Evidence {
                    missing_connections: 1,
                    ..good()
                },
                Verdict::Suspect,
                "established",
            ),
            (
                Evidence {
                    steal: 0.03,
                    ..good()
                },
                Verdict::Suspect,
                "hypervisor",
            ),
            (
                Evidence {
                    intended: 0,
                    classified: 0,
                    ..good()
                },
                Verdict::Invalid,
                "no request",
            ),
        ];
        for (evidence, verdict, word) in cases {
            let (given, reasons) = judge(&evidence);
            assert_eq!(given, verdict, "{reasons:?}");
            assert!(
                reasons.iter().any(|reason| reason.contains(word)),
                "{word}: {reasons:?}"
            );
        }
    }

    #[test]
    fn a_fast_target_does_not_make_the_timers_resolution_a_fault() {
        let evidence = Evidence {
            p50_ns: 100_000,
            p99_ns: 300_000,
            lag_p99_ns: 150_000,
            ..good()
        };
        assert_eq!(judge(&evidence).0, Verdict::Valid);
    }

    #[test]
    fn one_late_send_among_few_is_suspect() {
        let evidence = Evidence {
            lag_p999_ns: 5_000_000,
            lag_max_ns: 5_000_000,
            ..good()
        };
        assert_eq!(judge(&evidence).0, Verdict::Suspect);
        let mut lag = crate::client::histogram();
        for ns in [10_000, 20_000, 5_000_000] {
            lag.saturating_record(ns);
        }
        assert!((19_000..21_000).contains(&second_largest(&lag)));
    }
}
