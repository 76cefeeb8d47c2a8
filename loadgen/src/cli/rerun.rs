//! `loadgen rerun report.json`: the same run once more.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

use super::Failure;
use super::compare::read;
use super::run::{RunArgs, run_command};
use crate::measurement::Report;
use crate::slo::Rule;

#[derive(Args)]
pub(super) struct RerunArgs {
    /// What `loadgen run --out` or `--format json` wrote
    report: PathBuf,
    /// Write the files of the new run there
    #[arg(long)]
    out: Option<PathBuf>,
}

/// `RunArgs` as a command line of its own.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn rerun(args: &RerunArgs) -> Result<ExitCode, Failure> {
    let before = read(&args.report)?;
    let words = words(&before);
    let mut line = Line::try_parse_from(&words).map_err(|error| {
        let why = error.to_string();
        let why = why.lines().next().unwrap_or_default().to_owned();
        Failure::usage(format!(
            "{}: cannot be run again: {why}",
            args.report.display()
        ))
    })?;
    line.run.out.clone_from(&args.out);
    for measured in &before.slo {
        line.run
            .slo
            .push(Rule::parse(&measured.rule).map_err(Failure::usage)?);
    }
    let ms = |ns: Option<u64>| {
        ns.map_or_else(|| "n/a".into(), |ns| format!("{:.3} ms", ns as f64 / 1e6))
    };
    println!(
        "before: {}, p50 {}, p99 {}, p99.9 {}, schedule {}\n",
        before.verdict.name(),
        ms(before.response.p50_ns),
        ms(before.response.p99_ns),
        ms(before.response.p999_ns),
        before.schedule_hash
    );
    let (code, after) = run_command(&line.run)?;
    if after.schedule_hash != before.schedule_hash {
        return Err(Failure::runtime(format!(
            "the schedule is another one ({} was {}): this is not the same run",
            after.schedule_hash, before.schedule_hash
        )));
    }
    println!("the schedule is the same: {}", after.schedule_hash);
    Ok(code)
}

/// The command line that the report describes.
fn words(report: &Report) -> Vec<String> {
    let ns = |ns: u64| format!("{ns}ns");
    let mut words = vec!["loadgen".to_owned(), report.target.clone()];
    for (flag, value) in [
        ("--rate", report.rate.to_string()),
        ("--duration", ns(report.duration_ns)),
        ("--arrivals", report.arrivals.to_lowercase()),
        ("--connections", report.connections.to_string()),
        ("--threads", report.threads.to_string()),
        ("--seed", report.seed.to_string()),
        ("--timeout", ns(report.request.timeout_ns)),
        ("--warmup", ns(report.request.warmup_ns)),
        ("--method", report.request.method.clone()),
    ] {
        words.extend([flag.to_owned(), value]);
    }
    for header in &report.request.headers {
        words.extend(["--header".to_owned(), header.clone()]);
    }
    if !report.request.cores.is_empty() {
        let cores = report.request.cores.iter().map(usize::to_string);
        words.extend(["--cores".to_owned(), cores.collect::<Vec<_>>().join(",")]);
    }
    if let Some(body) = &report.request.body {
        words.extend(["--body".to_owned(), body.clone()]);
    }
    words
}
