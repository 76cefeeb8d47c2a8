//! `loadgen find-max`: the highest rate at which every SLO is met.

use std::process::ExitCode;

use clap::Args;
use evenkeel_base::Duration;

use super::Failure;
use super::run::{Measurement, RunArgs, measure};
use super::words::{positive, rate};
use crate::measurement::Verdict;

#[derive(Args)]
pub(super) struct FindMaxArgs {
    /// As for `run`; its --rate is where the search begins, its --duration one step of it
    #[command(flatten)]
    run: RunArgs,
    /// No rate above this is tried
    #[arg(long, default_value = "1000k", value_parser = rate)]
    to: f64,
    /// The answer is good to this part
    #[arg(long, default_value_t = 0.03, value_parser = precision)]
    precision: f64,
    /// All in all, at most
    #[arg(long, default_value = "10m", value_parser = positive)]
    within: Duration,
}

fn precision(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.001..=0.5).contains(&part) => Ok(part),
        _ => Err("expected a part from 0.001 to 0.5".into()),
    }
}

/// More runs at a rate that was INVALID; one that missed gets one.
const RETRIES: u32 = 2;

/// What one rate gave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Met,
    Missed,
    /// The generator was the limit.
    Invalid,
}

pub(super) fn find_max(args: &FindMaxArgs) -> Result<ExitCode, Failure> {
    if args.run.slo.is_empty() {
        return Err(Failure::usage(
            "nothing to hold a rate against; add --slo, such as --slo 'p99<20ms'",
        ));
    }
    let begun = evenkeel_runtime::now();
    let mut search = Search::new(args.run.rate, args.to, args.precision);
    while let Some(rate) = search.next() {
        if evenkeel_runtime::now() - begun > args.within {
            println!("the time is up; the answer is less precise than asked for");
            break;
        }
        // One bad run may be bad luck, and a noisy machine has more than one.
        let mut step = probe(args, rate)?;
        let mut again = RETRIES;
        while step != Step::Met && again > 0 {
            again = if step == Step::Missed { 0 } else { again - 1 };
            step = probe(args, rate)?;
        }
        search.learn(rate, step);
    }
    Ok(match (search.met, search.was_invalid) {
        (Some(rate), invalid) => {
            println!("\nhighest rate that meets every SLO: {rate:.0}/s");
            if invalid {
                println!("the generator was the limit above it: give it more --threads or cores");
            }
            ExitCode::SUCCESS
        }
        (None, true) => ExitCode::from(3),
        (None, false) => {
            println!("\nno rate that was tried meets every SLO");
            ExitCode::from(99)
        }
    })
}

fn probe(args: &FindMaxArgs, rate: f64) -> Result<Step, Failure> {
    let run = RunArgs {
        rate,
        ..args.run.clone()
    };
    let Measurement { report, .. } = measure(&run)?;
    let missed = report.slo.iter().filter(|measured| !measured.met);
    let missed: Vec<String> = missed.map(ToString::to_string).collect();
    let (step, why) = if !missed.is_empty() {
        (Step::Missed, missed.join("; "))
    } else if report.verdict == Verdict::Invalid {
        (Step::Invalid, report.reasons.join("; "))
    } else {
        let measured = report
            .slo
            .iter()
            .map(|m| format!("{} {}", m.rule, m.measured));
        (Step::Met, measured.collect::<Vec<_>>().join("; "))
    };
    let word = match step {
        Step::Met => "met",
        Step::Missed => "missed",
        Step::Invalid => "INVALID",
    };
    println!("{rate:>10.0}/s  {word:<8} {why}");
    Ok(step)
}

/// Doubles until it fails, or halves until it does not, then closes in.
struct Search {
    start: f64,
    most: f64,
    precision: f64,
    met: Option<f64>,
    failed: Option<f64>,
    was_invalid: bool,
}

impl Search {
    fn new(start: f64, most: f64, precision: f64) -> Search {
        Search {
            start: start.min(most),
            most,
            precision,
            met: None,
            failed: None,
            was_invalid: false,
        }
    }

    /// The next rate to try; `None` when the answer is known.
    fn next(&self) -> Option<f64> {
        match (self.met, self.failed) {
            (None, None) => Some(self.start),
            (Some(met), None) if met >= self.most => None,
            (Some(met), None) => Some((met * 2.0).min(self.most)),
            (None, Some(failed)) if failed < self.start / 1000.0 => None,
            (None, Some(failed)) => Some(failed / 2.0),
            (Some(met), Some(failed)) if failed / met <= 1.0 + self.precision => None,
            (Some(met), Some(failed)) => Some((met * failed).sqrt()),
        }
    }

    fn learn(&mut self, rate: f64, step: Step) {
        match step {
            Step::Met => self.met = Some(rate),
            Step::Missed => self.failed = Some(rate),
            Step::Invalid => {
                self.failed = Some(rate);
                self.was_invalid = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(truth: f64, start: f64, most: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(start, most, 0.03);
        let mut steps = 0;
        while let Some(rate) = search.next() {
            steps += 1;
            let step = if rate <= truth {
                Step::Met
            } else {
                Step::Missed
            };
            search.learn(rate, step);
        }
        (search.met, steps)
    }

    #[test]
    fn the_answer_is_within_its_precision_from_above_and_below() {
        for start in [100.0, 5_000.0] {
            let (met, steps) = find(1_234.0, start, 1e6);
            let met = met.unwrap();
            assert!(met <= 1_234.0 && met * 1.03 >= 1_234.0, "{met}");
            assert!(steps < 15, "{steps}");
        }
    }

    #[test]
    fn the_bounds_end_the_search() {
        assert_eq!(find(1e9, 100.0, 1_000.0).0, Some(1_000.0));
        let (met, steps) = find(0.0, 100.0, 1_000.0);
        assert_eq!(met, None);
        assert!(steps < 15, "{steps}");
    }
}
