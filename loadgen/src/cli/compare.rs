//! `loadgen compare`: did it become slower?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use crate::measurement::{Report, Verdict};
use crate::statistics::{Analysis, Call, FEWEST_PAIRS, MARGIN};

#[derive(Args)]
pub(super) struct CompareArgs {
    /// Reports in pairs, each A before its B: A.json B.json [A2.json B2.json ...]
    #[arg(required = true, num_args = 2..)]
    reports: Vec<PathBuf>,
    /// With fewer than 8 pairs there is no test; B's p99 this much over A's is a regression then
    #[arg(long, default_value = "10%", value_parser = percent)]
    threshold: f64,
    /// Compare reports of different loads all the same
    #[arg(long)]
    force: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .and_then(|n| n.trim().parse::<f64>().ok());
    match number.filter(|n| (0.0..=1000.0).contains(n)) {
        Some(number) => Ok(number / 100.0),
        None => Err("expected a part such as 10%".into()),
    }
}

pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{}: cannot read: {error}", path.display())))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| {
        let what = format!("{}: not a report of loadgen run: {error}", path.display());
        Failure::usage(what)
    })?;
    if report.schema == "loadgen.report/1" {
        Ok(report)
    } else {
        let what = format!(
            "{}: the schema is \"{}\", expected \"loadgen.report/1\"",
            path.display(),
            report.schema
        );
        Err(Failure::usage(what))
    }
}

pub(super) fn compare(args: &CompareArgs) -> Result<ExitCode, Failure> {
    if !args.reports.len().is_multiple_of(2) {
        return Err(Failure::usage(
            "an odd number of reports; give each A its B",
        ));
    }
    let reports: Result<Vec<Report>, Failure> = args.reports.iter().map(|p| read(p)).collect();
    let reports = reports?;
    if !args.force {
        refuse_different_loads(args, &reports)?;
    }
    let pairs: Vec<(&Report, &Report)> = reports.chunks(2).map(|p| (&p[0], &p[1])).collect();
    print!("{}", table(&pairs));
    for (path, report) in args.reports.iter().zip(&reports) {
        if report.verdict == Verdict::Invalid {
            println!(
                "{} is INVALID: {}",
                path.display(),
                report.reasons.join("; ")
            );
        }
    }
    if reports
        .iter()
        .any(|report| report.verdict == Verdict::Invalid)
    {
        return Ok(ExitCode::from(3));
    }
    Ok(judge(args, &pairs))
}

/// Two loads have two answers; a ratio of them says nothing.
fn refuse_different_loads(args: &CompareArgs, reports: &[Report]) -> Result<(), Failure> {
    let load = |r: &Report| {
        (
            r.rate.to_bits(),
            r.arrivals.clone(),
            r.duration_ns,
            r.connections,
        )
    };
    let first = &reports[0];
    let other = reports
        .iter()
        .zip(&args.reports)
        .find(|(r, _)| load(r) != load(first));
    match other {
        None => Ok(()),
        Some((report, path)) => Err(Failure::usage(format!(
            "{}: {} {}/s for {} s over {} connections, but {} has {} {}/s for {} s over {}; compare \
             equal loads, or add --force",
            path.display(),
            report.arrivals,
            report.rate,
            report.duration_ns as f64 / 1e9,
            report.connections,
            args.reports[0].display(),
            first.arrivals,
            first.rate,
            first.duration_ns as f64 / 1e9,
            first.connections,
        ))),
    }
}

/// Means over the pairs.
fn table(pairs: &[(&Report, &Report)]) -> String {
    type Of = fn(&Report) -> Option<f64>;
    let rows: [(&str, Of); 6] = [
        ("p50, ms", |r| r.response.p50_ns.map(|ns| ns as f64 / 1e6)),
        ("p90, ms", |r| r.response.p90_ns.map(|ns| ns as f64 / 1e6)),
        ("p99, ms", |r| r.response.p99_ns.map(|ns| ns as f64 / 1e6)),
        ("p99.9, ms", |r| {
            r.response.p999_ns.map(|ns| ns as f64 / 1e6)
        }),
        ("answered well, /s", |r| Some(r.ok_rate)),
        ("failed, %", |r| {
            let ok = r.response_ok.count as f64;
            Some(100.0 * (1.0 - ok / r.intended.max(1) as f64))
        }),
    ];
    let mut out = format!("{:<20}{:>14}{:>14}{:>10}\n", "", "A", "B", "B / A");
    for (name, of) in rows {
        let a: Vec<f64> = pairs.iter().filter_map(|(a, _)| of(a)).collect();
        let b: Vec<f64> = pairs.iter().filter_map(|(_, b)| of(b)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let (a, b) = (mean(&a), mean(&b));
        let ratio = if a > 0.0 {
            format!("{:.3}", b / a)
        } else {
            "-".into()
        };
        out.push_str(&format!("{name:<20}{a:>14.3}{b:>14.3}{ratio:>10}\n"));
    }
    out
}

fn judge(args: &CompareArgs, pairs: &[(&Report, &Report)]) -> ExitCode {
    let p99 = |r: &Report| r.response.p99_ns.unwrap_or(0).max(1) as f64;
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| (p99(b) / p99(a)).ln()).collect();
    let analysis = Analysis::of(&differences, MARGIN, args.seed);
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    println!("\np99 of B against A: {:+.1} %", percent(analysis.estimate));
    let is_regression = if pairs.len() < FEWEST_PAIRS {
        println!(
            "inconclusive: {} pair{} cannot tell a change from noise (8 can); held to the plain \
             threshold of {:.0} %",
            pairs.len(),
            if pairs.len() == 1 { "" } else { "s" },
            args.threshold * 100.0
        );
        analysis.estimate > args.threshold.ln_1p()
    } else {
        println!(
            "{}: 99 % interval {:+.1} % to {:+.1} %, Wilcoxon p = {:.4}, {} pairs",
            analysis.call.name(),
            percent(analysis.interval_99.0),
            percent(analysis.interval_99.1),
            analysis.p_value,
            analysis.pairs
        );
        analysis.call == Call::Worse
    };
    if is_regression {
        println!("REGRESSION");
        return ExitCode::from(98);
    }
    ExitCode::SUCCESS
}
