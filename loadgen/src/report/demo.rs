//! The demo's numbers: `report.json`, and the curves that its page draws.
//!
//! Durations are integer nanoseconds where the name ends in `_ns` and seconds where it says so. Shares
//! are of all requests of the phase, 0..=1. Floats are finite: JSON has no word for the others.

use serde::{Deserialize, Serialize};

/// The value of [`DemoReport::schema`] that these types read and write.
pub const SCHEMA: &str = "loadgen.demo/1";

/// All arms of one demo: the same scenario, schedule and work under each policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoReport {
    pub schema: String,
    pub scenario: Scenario,
    pub seed: u64,
    /// Equal in all arms, or they did not get the same work.
    pub schedule_hash: String,
    pub arms: Vec<Arm>,
    /// What the numbers stand on: kernel, cores, versions and the like; an object.
    pub honesty: serde_json::Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    pub endpoints: u32,
    pub servers_per_endpoint: u32,
    pub service: String,
    pub arrivals: String,
    pub rate_per_second: f64,
    pub shards: u32,
    pub connections: u32,
    /// How many times slower the gray endpoint is.
    pub gray_factor: f64,
    pub healthy_seconds: f64,
    pub gray_seconds: f64,
    pub healed_seconds: f64,
}

impl Scenario {
    /// What an endpoint gets when all get the same, 0..=1; zero without endpoints.
    #[must_use]
    pub fn fair_share(&self) -> f64 {
        match self.endpoints {
            0 => 0.0,
            endpoints => 1.0 / f64::from(endpoints),
        }
    }
}

/// One policy's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    pub requests: u64,
    pub achieved_rate: f64,
    pub healthy: Quantiles,
    pub gray: GrayQuantiles,
    /// The first two seconds of the fault, before anything is learned.
    pub onset_2s: Onset,
    /// `None` when the run ended with the fault.
    pub healed: Option<Healed>,
    pub failed: u64,
    pub cpu_ns_per_request: u64,
    /// `VALID`, `SUSPECT` or `INVALID`.
    pub verdict: String,
    /// What speaks against the run; empty when it is valid.
    pub reasons: Vec<String>,
}

impl Arm {
    /// How many times the p99 grew under the fault; `None` when there is no healthy p99 to compare.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        let healthy = self.healthy.p99_ns;
        (healthy > 0).then(|| self.gray.p99_ns as f64 / healthy as f64)
    }

    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing::of(&self.verdict)
    }
}

/// How far a verdict lets its numbers be believed, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Valid,
    Suspect,
    Invalid,
}

impl Standing {
    /// A verdict that nobody here knows vouches for nothing: it counts as invalid.
    #[must_use]
    pub fn of(verdict: &str) -> Standing {
        match verdict {
            "VALID" => Standing::Valid,
            "SUSPECT" => Standing::Suspect,
            _ => Standing::Invalid,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Valid => "VALID",
            Standing::Suspect => "SUSPECT",
            Standing::Invalid => "INVALID",
        }
    }
}

impl DemoReport {
    /// The worst of the arms; invalid without arms, as nothing was measured.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let arms = self.arms.iter().map(Arm::standing);
        arms.max().unwrap_or(Standing::Invalid)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrayQuantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// Of the gray endpoint.
    pub share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Onset {
    pub p99_ns: u64,
    pub share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Healed {
    /// From the end of the fault; `None` when the run ended first.
    pub seconds_to_70_percent_of_fair_share: Option<f64>,
    pub share: f64,
}

/// What one arm's curves are drawn from; too much for the JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmPlot {
    pub name: String,
    /// Quantile 0..1 and response time in nanoseconds, quantiles ascending.
    pub healthy_curve: Vec<(f64, u64)>,
    pub gray_curve: Vec<(f64, u64)>,
    /// Seconds since the start, p99 of the interval in nanoseconds (zero: no request in it), share
    /// of the gray endpoint 0..=1.
    pub timeline: Vec<(f64, u64, f64)>,
    pub fault_from_s: f64,
    pub fault_to_s: f64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An arm whose p99 grows from 10 ms to `gray_p99_ms`.
    pub(in crate::report) fn arm(name: &str, gray_p99_ms: u64, share: f64) -> Arm {
        let ms = 1_000_000;
        Arm {
            name: name.into(),
            requests: 20_000,
            achieved_rate: 1599.5,
            healthy: Quantiles {
                p50_ns: 4 * ms,
                p99_ns: 10 * ms,
                p999_ns: 15 * ms,
            },
            gray: GrayQuantiles {
                p50_ns: 5 * ms,
                p99_ns: gray_p99_ms * ms,
                p999_ns: 2 * gray_p99_ms * ms,
                max_ns: 3 * gray_p99_ms * ms,
                share,
            },
            onset_2s: Onset {
                p99_ns: gray_p99_ms * ms,
                share,
            },
            healed: Some(Healed {
                seconds_to_70_percent_of_fair_share: Some(1.4),
                share: 0.19,
            }),
            failed: 0,
            cpu_ns_per_request: 24_300,
            verdict: "VALID".into(),
            reasons: vec![],
        }
    }

    pub(in crate::report) fn report(arms: Vec<Arm>) -> DemoReport {
        DemoReport {
            schema: SCHEMA.into(),
            scenario: Scenario {
                endpoints: 5,
                servers_per_endpoint: 32,
                service: "half(5ms)".into(),
                arrivals: "poisson".into(),
                rate_per_second: 1600.0,
                shards: 2,
                connections: 128,
                gray_factor: 10.0,
                healthy_seconds: 5.0,
                gray_seconds: 6.0,
                healed_seconds: 8.0,
            },
            seed: 7,
            schedule_hash: "00ff".into(),
            arms,
            honesty: serde_json::json!({"kernel": "6.1 <generic>", "cores": 2}),
        }
    }

    /// The names of an object, sorted: serde_json does not promise an order.
    fn names(value: &serde_json::Value) -> Vec<&str> {
        let mut names: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }

    fn words(text: &str) -> Vec<&str> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        words.sort_unstable();
        words
    }

    #[test]
    fn json_has_the_names_of_the_schema_and_no_others() {
        let json = serde_json::to_value(report(vec![arm("p2c", 20, 0.06)])).unwrap();
        assert_eq!(json["schema"], "loadgen.demo/1");
        let given = &json["arms"][0];
        for (value, expected) in [
            (&json, "schema scenario seed schedule_hash arms honesty"),
            (
                &json["scenario"],
                "endpoints servers_per_endpoint service arrivals rate_per_second shards \
                 connections gray_factor healthy_seconds gray_seconds healed_seconds",
            ),
            (
                given,
                "name requests achieved_rate healthy gray onset_2s healed failed \
                 cpu_ns_per_request verdict reasons",
            ),
            (&given["healthy"], "p50_ns p99_ns p999_ns"),
            (&given["gray"], "p50_ns p99_ns p999_ns max_ns share"),
            (&given["onset_2s"], "p99_ns share"),
            (
                &given["healed"],
                "seconds_to_70_percent_of_fair_share share",
            ),
        ] {
            assert_eq!(names(value), words(expected));
        }
    }

    #[test]
    fn a_report_reads_back_as_it_was_written() {
        let mut unhealed = arm("round-robin", 79, 0.2);
        unhealed.healed = None;
        let written = report(vec![arm("p2c", 20, 0.06), unhealed]);
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<DemoReport>(&text).unwrap(), written);
    }

    #[test]
    fn the_worst_arm_speaks_for_all_and_an_unknown_verdict_vouches_for_nothing() {
        let with = |verdicts: &[&str]| {
            let arms = verdicts.iter().map(|verdict| Arm {
                verdict: (*verdict).into(),
                ..arm("a", 20, 0.1)
            });
            report(arms.collect()).standing()
        };
        assert_eq!(with(&["VALID", "VALID"]), Standing::Valid);
        assert_eq!(with(&["VALID", "SUSPECT"]), Standing::Suspect);
        assert_eq!(with(&["INVALID", "SUSPECT"]), Standing::Invalid);
        assert_eq!(with(&["VALID", "fine"]), Standing::Invalid);
        assert_eq!(with(&[]), Standing::Invalid);
    }

    #[test]
    fn growth_needs_a_healthy_tail_to_compare_with() {
        let mut arm = arm("a", 79, 0.2);
        assert_eq!(arm.growth(), Some(7.9));
        arm.healthy.p99_ns = 0;
        assert_eq!(arm.growth(), None);
    }
}
