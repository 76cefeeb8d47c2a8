//! The demo on a terminal: one aligned table, and what it shows in words.

use std::fmt::Write as _;

use super::demo::{Arm, DemoReport, Standing};
use super::format_ns;

/// Headings of [`cells`].
pub(super) const COLUMNS: [&str; 10] = [
    "arm",
    "healthy p99",
    "gray p99",
    "ratio",
    "gray p99.9",
    "gray share",
    "back to 70 % of fair share",
    "failed",
    "CPU/request",
    "verdict",
];

/// The table, an empty line, and the sentences, each on a line of its own.
#[must_use]
pub fn table(report: &DemoReport) -> String {
    let header = COLUMNS.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header)
        .chain(report.arms.iter().map(cells))
        .collect();
    let letters = |text: &str| text.chars().count();
    let width = |column: usize| {
        rows.iter()
            .map(|row| letters(&row[column]))
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match column {
                0 => write!(out, "{cell:<width$}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.push('\n');
    }
    out.push('\n');
    for sentence in sentences(report) {
        out.push_str(&sentence);
        out.push('\n');
    }
    out
}

/// One row; a dash stands for what was not measured.
pub(super) fn cells(arm: &Arm) -> [String; COLUMNS.len()] {
    let back = match arm
        .healed
        .map(|healed| healed.seconds_to_70_percent_of_fair_share)
    {
        None => "-".into(),
        Some(None) => "not yet".into(),
        Some(Some(seconds)) => format!("{seconds:.1} s"),
    };
    [
        arm.name.clone(),
        format_ns(arm.healthy.p99_ns),
        format_ns(arm.gray.p99_ns),
        arm.growth()
            .map_or_else(|| "-".into(), |growth| format!("{growth:.2}x")),
        format_ns(arm.gray.p999_ns),
        percent(arm.gray.share),
        back,
        arm.failed.to_string(),
        format_ns(arm.cpu_ns_per_request),
        arm.verdict.clone(),
    ]
}

/// What the numbers say, the numbers' own doubt last. Arms that are invalid are not compared.
pub(super) fn sentences(report: &DemoReport) -> Vec<String> {
    let mut out = Vec::new();
    let sound = report
        .arms
        .iter()
        .filter(|arm| arm.standing() < Standing::Invalid);
    let sound: Vec<&Arm> = sound.collect();
    out.extend(contrast(&sound));
    out.extend(returned(report, &sound));
    out.push(failures(report));
    out.extend(report.arms.iter().filter_map(doubt));
    out
}

/// The arm whose tail grew most against the one whose tail grew least.
fn contrast(arms: &[&Arm]) -> Option<String> {
    let grown = || arms.iter().filter_map(|arm| Some((arm.growth()?, *arm)));
    let most = grown().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let least = grown().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let told = |(growth, arm): (f64, &Arm)| {
        format!(
            "{} sent {} of the requests to the slow endpoint and its p99 {}",
            arm.name,
            percent(arm.gray.share),
            moved(growth)
        )
    };
    Some(if std::ptr::eq(most.1, least.1) {
        format!("{}.", told(most))
    } else {
        format!("{}; {}.", told(most), told(least))
    })
}

fn moved(growth: f64) -> String {
    let digits = if growth < 1.995 { 2 } else { 1 };
    if growth >= 1.0 {
        format!("grew {growth:.digits$} times")
    } else {
        format!("fell to {growth:.2} of its healthy value")
    }
}

/// How soon a healed endpoint was trusted again.
fn returned(report: &DemoReport, arms: &[&Arm]) -> Option<String> {
    let healed = || arms.iter().filter_map(|arm| Some((*arm, arm.healed?)));
    let seconds = healed().filter_map(|(arm, healed)| {
        Some((
            healed.seconds_to_70_percent_of_fair_share?,
            arm.name.as_str(),
        ))
    });
    let slowest = seconds.max_by(|a, b| a.0.total_cmp(&b.0));
    let outcast =
        healed().filter(|(_, healed)| healed.seconds_to_70_percent_of_fair_share.is_none());
    let outcast: Vec<&str> = outcast.map(|(arm, _)| arm.name.as_str()).collect();
    let mut parts = Vec::new();
    if let Some((seconds, name)) = slowest {
        let fair = percent(report.scenario.fair_share());
        let rank = if outcast.is_empty() {
            ""
        } else {
            " of those that did"
        };
        parts.push(format!(
            "{name} was the slowest{rank} to give it 70 % of its fair share of {fair} again, after \
             {seconds:.1} s"
        ));
    }
    if !outcast.is_empty() {
        parts.push(format!(
            "{} did not give it 70 % of its fair share in the {} s that were watched",
            outcast.join(", "),
            report.scenario.healed_seconds
        ));
    }
    (!parts.is_empty()).then(|| format!("Once the endpoint had healed, {}.", parts.join("; ")))
}

fn failures(report: &DemoReport) -> String {
    let requests: u64 = report.arms.iter().map(|arm| arm.requests).sum();
    let failing: Vec<String> = report
        .arms
        .iter()
        .filter(|arm| arm.failed > 0)
        .map(|arm| format!("{} {} of {}", arm.name, arm.failed, arm.requests))
        .collect();
    match (report.arms.len(), failing.is_empty()) {
        (0, _) => "No arm was run: there is nothing to compare.".into(),
        (_, true) => format!("None of the {requests} requests failed."),
        (_, false) => format!("Failed requests: {}.", failing.join(", ")),
    }
}

/// Why an arm's numbers may not be believed.
fn doubt(arm: &Arm) -> Option<String> {
    let consequence = match arm.standing() {
        Standing::Valid => return None,
        Standing::Suspect => "read its numbers with care",
        Standing::Invalid => "its numbers say nothing about the policy",
    };
    let reasons = match arm.reasons.as_slice() {
        [] => "no reason was given".into(),
        reasons => reasons.join("; "),
    };
    Some(format!(
        "{} is {} ({reasons}): {consequence}.",
        arm.name, arm.verdict
    ))
}

/// A share as a percentage, finer when it is small; a dash when it is not a number.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        odd if !odd.is_finite() => "-".into(),
        small if small < 0.995 => format!("{small:.2} %"),
        large => format!("{large:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::demo::tests::{arm, report};
    use super::*;

    #[test]
    fn rows_hold_computed_ratios_and_are_aligned() {
        let text = table(&report(vec![
            arm("round-robin", 79, 0.2),
            arm("p2c-ewma", 11, 0.003),
        ]));
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].contains("7.90x") && lines[1].contains("20.0 %"),
            "{text}"
        );
        assert!(
            lines[2].contains("1.10x") && lines[2].contains("0.30 %"),
            "{text}"
        );
        assert!(
            lines[1].contains("158 ms") && lines[1].contains("24.3 us"),
            "{text}"
        );
        let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }

    #[test]
    fn words_follow_the_numbers_not_the_names() {
        let text = table(&report(vec![
            arm("round-robin", 12, 0.01),
            arm("p2c-ewma", 30, 0.15),
        ]));
        let expected = "p2c-ewma sent 15.0 % of the requests to the slow endpoint and its p99 grew \
                        3.0 times; round-robin sent 1.0 % of the requests to the slow endpoint and \
                        its p99 grew 1.20 times.";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("None of the 40000 requests failed."),
            "{text}"
        );
    }

    #[test]
    fn an_invalid_arm_is_named_with_its_reason_and_left_out_of_the_comparison() {
        let mut late = arm("round-robin", 500, 0.2);
        late.verdict = "INVALID".into();
        late.reasons = vec!["the generator was late".into()];
        let said = sentences(&report(vec![
            late,
            arm("p2c", 20, 0.06),
            arm("p2c-ewma", 11, 0.003),
        ]));
        assert!(said[0].starts_with("p2c sent 6.0 %"), "{said:?}");
        assert!(!said[0].contains("round-robin"), "{said:?}");
        let last = said.last().unwrap();
        assert!(
            last.contains("round-robin is INVALID (the generator was late)"),
            "{last}"
        );
    }

    #[test]
    fn an_endpoint_that_stays_outcast_is_said() {
        let mut outcast = arm("p2c-ewma", 11, 0.003);
        outcast
            .healed
            .as_mut()
            .unwrap()
            .seconds_to_70_percent_of_fair_share = None;
        let text = table(&report(vec![outcast, arm("round-robin", 79, 0.2)]));
        assert!(text.contains("not yet"), "{text}");
        assert!(
            text.contains("round-robin was the slowest of those that did to give it 70 %"),
            "{text}"
        );
        assert!(
            text.contains("after 1.4 s; p2c-ewma did not give it 70 %"),
            "{text}"
        );
        assert!(text.contains("in the 8 s that were watched"), "{text}");
    }

    #[test]
    fn failures_and_missing_numbers_are_said() {
        let mut failing = arm("p2c", 20, f64::NAN);
        failing.failed = 3;
        failing.healthy.p99_ns = 0;
        failing.healed = None;
        let text = table(&report(vec![failing]));
        assert!(text.contains("Failed requests: p2c 3 of 20000."), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(!text.contains("Once the endpoint had healed"), "{text}");
    }

    #[test]
    fn no_arms_is_said_and_a_tail_that_shrinks_does_not_grow() {
        assert!(table(&report(vec![])).contains("No arm was run"));
        let text = table(&report(vec![arm("p2c", 9, 0.1)]));
        assert!(text.contains("fell to 0.90 of its healthy value"), "{text}");
    }
}
