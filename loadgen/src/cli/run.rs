//! `loadgen run`: one open-loop measurement.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use evenkeel_base::Duration;
use loadgen_scenario::Process;

use super::url::Url;
use super::words::{any_duration, header, method, positive, rate};
use super::{Failure, write};
use crate::client::{Class, Ended, Keep, Patience, Target, run};
use crate::formats::wrk2;
use crate::host::{self, Host};
use crate::measurement::{Description, Report, Request, Verdict, page, report, text};
use crate::slo::{Outcome, Rule};

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Arrivals {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
    /// The layout of wrk2 --latency
    Wrk2,
}

#[derive(Args, Clone)]
pub(super) struct RunArgs {
    /// http://HOST:PORT/PATH
    pub(super) url: String,
    /// Requests a second: 1600, 1.5k
    #[arg(long, value_parser = rate)]
    pub(super) rate: f64,
    /// Measured time: 30s, 2m
    #[arg(long, value_parser = positive)]
    pub(super) duration: Duration,
    /// Connections in all
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) connections: u32,
    #[arg(long, value_enum, default_value = "poisson")]
    pub(super) arrivals: Arrivals,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// A request is given up this long after its intended start
    #[arg(long, default_value = "10s", value_parser = positive)]
    pub(super) timeout: Duration,
    /// Time before the measured time
    #[arg(long, default_value = "1s", value_parser = any_duration)]
    pub(super) warmup: Duration,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) threads: u32,
    /// The core of each thread, such as 2,3; without it the kernel moves them about
    #[arg(long, value_delimiter = ',')]
    pub(super) cores: Vec<usize>,
    #[arg(long, default_value = "GET", value_parser = method)]
    pub(super) method: String,
    /// A header line, "Name: value"
    #[arg(long = "header", value_parser = header)]
    pub(super) headers: Vec<String>,
    /// A file to send as the body of every request
    #[arg(long)]
    pub(super) body: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: Format,
    /// What the run is held to, "p99<20ms", "errors<0.1%" or "rate>1500"; exit code 99 when missed
    #[arg(long = "slo", value_parser = Rule::parse)]
    pub(super) slo: Vec<Rule>,
    /// Write report.json, report.html, latency.hgrm and latency.hlog there
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
}

/// A run that is over.
pub(super) struct Measurement {
    pub(super) description: Description,
    pub(super) report: Report,
    pub(super) ended: Ended,
}

/// `loadgen run`: the exit code, and what was reported.
pub(super) fn run_command(args: &RunArgs) -> Result<(ExitCode, Report), Failure> {
    let Measurement {
        description,
        report,
        ended,
    } = measure(args)?;
    let json = serde_json::to_string_pretty(&report).map_err(Failure::runtime)?;
    match args.format {
        Format::Text => print!("{}", text(&report)),
        Format::Json => println!("{json}"),
        Format::Wrk2 => print!("{}", wrk2::text(&description, &ended.record)),
    }
    if let Some(out) = &args.out {
        write(out, "report.json", &json)?;
        write(out, "report.html", &page(&report, &ended))?;
        super::logs::write_times(out, &ended, args.duration)?;
    }
    let code = if report.verdict == Verdict::Invalid {
        ExitCode::from(3)
    } else if report.slo.iter().any(|measured| !measured.met) {
        ExitCode::from(99)
    } else if report.slo.is_empty() && report.response_ok.count == 0 {
        // An SLO says what is good enough; without one, nothing answered well is not a success.
        return Err(Failure::runtime("not one request was answered well"));
    } else {
        ExitCode::SUCCESS
    };
    Ok((code, report))
}

/// Runs, judges and holds against the rules.
pub(super) fn measure(args: &RunArgs) -> Result<Measurement, Failure> {
    let url = Url::parse(&args.url).map_err(Failure::usage)?;
    let body = match &args.body {
        None => Vec::new(),
        Some(path) => std::fs::read(path).map_err(|error| {
            Failure::usage(format!("{}: cannot read the body: {error}", path.display()))
        })?,
    };
    let (process, arrivals) = match args.arrivals {
        Arrivals::Constant => (Process::Constant, "constant"),
        Arrivals::Poisson => (Process::Poisson, "Poisson"),
    };
    let target = Target {
        address: url.resolve().map_err(Failure::usage)?,
        host: url.authority.clone(),
        path: url.path.clone(),
        method: args.method.clone(),
        headers: args.headers.concat(),
        body,
        process,
        rate: args.rate,
        warmup: args.warmup,
        duration: args.duration,
        timeout: args.timeout,
        connections: args.connections,
        threads: args.threads,
        seed: args.seed,
        keep: Keep::Histograms,
        cores: args.cores.clone(),
        start: None,
        patience: Patience::default(),
    };
    may_use(&target)?;
    fits(&target)?;
    reach(&target)?;
    let observed = Host::observe();
    let ended = run(&target).map_err(Failure::runtime)?;
    let description = Description {
        target: args.url.clone(),
        arrivals: arrivals.into(),
        rate: args.rate,
        duration_ns: args.duration.as_nanos(),
        connections: args.connections,
        threads: args.threads,
        seed: args.seed,
        request: Request {
            method: args.method.clone(),
            headers: args
                .headers
                .iter()
                .map(|line| line.trim_end().to_owned())
                .collect(),
            body: args.body.as_ref().map(|path| path.display().to_string()),
            cores: args.cores.clone(),
            timeout_ns: args.timeout.as_nanos(),
            warmup_ns: args.warmup.as_nanos(),
        },
    };
    let mut report = report(&description, &ended, &observed, observed.steal());
    let outcome = Outcome {
        response: &ended.record.response,
        requests: ended.intended,
        answered_well: ended.record.count(Class::Ok),
        seconds: args.duration.as_secs_f64(),
    };
    report.slo = args.slo.iter().map(|rule| rule.check(outcome)).collect();
    Ok(Measurement {
        description,
        report,
        ended,
    })
}

/// A core that is not there, or two threads on one, is a mistake that would only show in the lag.
fn may_use(target: &Target) -> Result<(), Failure> {
    let allowed = evenkeel_runtime::allowed_cores();
    if let Some(core) = target.cores.iter().find(|core| !allowed.contains(core)) {
        return Err(Failure::usage(format!(
            "--cores: this process may not use core {core}; it may use {allowed:?}"
        )));
    }
    if !target.cores.is_empty() && target.cores.len() != target.threads as usize {
        return Err(Failure::usage(format!(
            "--cores names {} cores for {} threads; give each thread its own",
            target.cores.len(),
            target.threads
        )));
    }
    Ok(())
}

/// Files that a run opens beside its connections, generously.
const OTHER_FILES: u64 = 32;

fn fits(target: &Target) -> Result<(), Failure> {
    let wanted = u64::from(target.connections.max(target.threads)) + OTHER_FILES;
    match host::open_files_limit() {
        Some(limit) if limit < wanted => Err(Failure::runtime(format!(
            "{} connections need {wanted} open files and the limit is {limit}; raise it with \
             `ulimit -n {wanted}` or ask for fewer --connections",
            target.connections
        ))),
        _ => Ok(()),
    }
}

/// Nothing can be measured where nobody listens: better said at once than as a report of failures.
fn reach(target: &Target) -> Result<(), Failure> {
    let patience = target.timeout.min(Duration::from_secs(5));
    match std::net::TcpStream::connect_timeout(&target.address, patience.into()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::runtime(format!(
            "cannot connect to {}: {error}; start the server or correct the URL",
            target.address
        ))),
    }
}
