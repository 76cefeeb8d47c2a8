//! What a run is held to: `p99<20ms`, `errors<0.1%`, `rate>1500`.

use std::fmt;

use evenkeel_base::Duration;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One rule of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The quantile, and what it must stay under.
    Quantile(f64, Duration),
    /// Part of the requests that may fail, not included.
    Errors(f64),
    /// Well answered requests a second that there must be more of.
    Rate(f64),
}

/// A rule and what the run gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub rule: String,
    pub measured: String,
    pub met: bool,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.met { "met" } else { "MISSED" };
        write!(f, "SLO {word}: {}, measured {}", self.rule, self.measured)
    }
}

/// What rules are held against.
#[derive(Clone, Copy)]
pub struct Outcome<'a> {
    pub response: &'a Histogram<u64>,
    pub requests: u64,
    pub answered_well: u64,
    pub seconds: f64,
}

const WANTED: &str = "expected p50, p90, p99, p99.9 (any percent) or max under a time such as \
                      p99<20ms, errors under a part such as errors<0.1%, or rate>1500";

impl Rule {
    /// # Errors
    /// One sentence with the accepted forms.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let bound = parse(text).ok_or_else(|| format!("\"{text}\" is not an SLO: {WANTED}"))?;
        Ok(Rule {
            text: text.trim().to_owned(),
            bound,
        })
    }

    #[must_use]
    pub fn check(&self, outcome: Outcome<'_>) -> Measured {
        let (measured, met) = match self.bound {
            Bound::Quantile(quantile, limit) => {
                let ns = outcome.response.value_at_quantile(quantile);
                let none = outcome.response.is_empty();
                let text = if none {
                    "no requests".into()
                } else {
                    format!("{:.3} ms", ns as f64 / 1e6)
                };
                (text, !none && ns < limit.as_nanos())
            }
            Bound::Errors(most) => {
                let failed = outcome.requests.saturating_sub(outcome.answered_well);
                let part = failed as f64 / outcome.requests.max(1) as f64;
                let met = outcome.requests > 0 && part < most;
                (format!("{:.3} %", part * 100.0), met)
            }
            Bound::Rate(least) => {
                let rate = outcome.answered_well as f64 / outcome.seconds;
                (format!("{rate:.1}/s"), rate > least)
            }
        };
        Measured {
            rule: self.text.clone(),
            measured,
            met,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse(text: &str) -> Option<Bound> {
    let text = text.trim();
    if let Some(rate) = text.strip_prefix("rate>") {
        let rate: f64 = rate.trim().parse().ok()?;
        return (rate.is_finite() && rate >= 0.0).then_some(Bound::Rate(rate));
    }
    let (what, limit) = text.split_once('<')?;
    let (what, limit) = (what.trim(), limit.trim());
    match what {
        "errors" => {
            let percent: f64 = limit.strip_suffix('%')?.trim().parse().ok()?;
            (percent > 0.0 && percent <= 100.0).then_some(Bound::Errors(percent / 100.0))
        }
        "max" => Some(Bound::Quantile(1.0, Duration::parse(limit).ok()?)),
        _ => {
            let percent: f64 = what.strip_prefix('p')?.parse().ok()?;
            let limit = Duration::parse(limit).ok()?;
            (percent > 0.0 && percent < 100.0).then_some(Bound::Quantile(percent / 100.0, limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::histogram;

    fn check(rule: &str) -> (String, bool) {
        let mut response = histogram();
        for ms in 1..=1000u64 {
            response.saturating_record(ms * 1_000_000);
        }
        let measured = Rule::parse(rule).unwrap().check(Outcome {
            response: &response,
            requests: 1000,
            answered_well: 995,
            seconds: 10.0,
        });
        (measured.measured, measured.met)
    }

    #[test]
    fn rules_are_strict_bounds() {
        assert!(check("p99<1s").1 && !check("p99<980ms").1);
        assert!(check("p99.9 < 1001ms").1 && !check("p50<500ms").1);
        assert!(check("max<1.1s").1 && !check("max<1s").1);
        assert_eq!(check("errors<1%"), ("0.500 %".into(), true));
        assert!(!check("errors<0.5%").1);
        assert_eq!(check("rate>99"), ("99.5/s".into(), true));
        assert!(!check("rate>99.5").1);
    }

    #[test]
    fn a_percent_is_not_taken_for_a_part() {
        for bad in [
            "p100<1s", "p0<1s", "99<1s", "p99<20", "p99>20ms", "errors<1", "rate<5", "", "p99",
        ] {
            let error = Rule::parse(bad).unwrap_err();
            assert!(error.contains("p99<20ms"), "{error}");
        }
    }

    #[test]
    fn nothing_measured_meets_nothing() {
        let response = histogram();
        let outcome = Outcome {
            response: &response,
            requests: 0,
            answered_well: 0,
            seconds: 1.0,
        };
        for rule in ["p99<1s", "errors<1%", "rate>0"] {
            assert!(!Rule::parse(rule).unwrap().check(outcome).met, "{rule}");
        }
    }
}
