//! `loadgen selftest`: the instrument against what is known exactly, on this machine, over loopback.

mod queue;

use std::process::ExitCode;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, Sharing, bind, local_address, sleep_until};
use indicatif::ProgressBar;
use loadgen_scenario::{Arrivals, Discipline, Fault, Law, Process};

use crate::cli::Failure;
use crate::client::{Class, Ended, Keep, Patience, Target, run};
use crate::measurement::{Description, Request, Verdict, report};
use crate::origin::{self, OriginConfig};
use crate::runtime;

const SEED: u64 = 1;

/// One claim: what was expected, what came out.
struct Check {
    name: &'static str,
    expected: f64,
    measured: f64,
    tolerance: Tolerance,
    unit: &'static str,
    /// The run that it stands on was not disturbed.
    judged: bool,
}

enum Tolerance {
    /// Part of the expected value that it may be off.
    Within(f64),
    /// The expected value is the largest.
    AtMost,
}

impl Check {
    fn is_met(&self) -> bool {
        match self.tolerance {
            Tolerance::Within(part) => {
                (self.measured - self.expected).abs() <= part * self.expected
            }
            Tolerance::AtMost => self.measured <= self.expected,
        }
    }

    fn line(&self) -> String {
        let outcome = match (self.is_met(), self.judged) {
            (true, _) => "ok",
            (false, true) => "FAILED",
            (false, false) => "not judged: this machine is too noisy now",
        };
        let (word, tolerance) = match self.tolerance {
            Tolerance::Within(part) => ("expected", format!("within {:.0} %", part * 100.0)),
            Tolerance::AtMost => ("at most", String::new()),
        };
        format!(
            "{:<44} {word:<8} {:>9.3} {unit:<3} measured {:>9.3} {unit:<3} {tolerance:<11}  {outcome}",
            self.name,
            self.expected,
            self.measured,
            unit = self.unit,
        )
    }
}

/// Runs all checks; quick takes about half a minute, full a minute and a half.
pub(crate) fn run_all(quick: bool) -> Result<ExitCode, Failure> {
    let bar = ProgressBar::new(4);
    let mut checks = Vec::new();
    for group in [stall, m_m_1, m_d_1, censoring] {
        checks.extend(group(quick)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for check in &checks {
        println!("{}", check.line());
    }
    let failed = |judged| checks.iter().any(|c| !c.is_met() && c.judged == judged);
    Ok(if failed(true) {
        ExitCode::from(1)
    } else if failed(false) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    })
}

/// An origin in this process, and a run against it.
struct Trial {
    law: Law,
    servers: usize,
    fault: Option<String>,
    process: Process,
    rate: f64,
    length: Duration,
    timeout: Duration,
}

struct Seen {
    ended: Ended,
    judged: bool,
}

impl Trial {
    fn run(&self) -> Result<Seen, Failure> {
        let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bind(loopback, 1024, Sharing::Exclusive).map_err(Failure::runtime)?;
        let address = local_address(&socket).map_err(Failure::runtime)?;
        let fault = self.fault.as_deref().map(Fault::parse).transpose();
        let config = OriginConfig {
            index: 0,
            law: self.law,
            servers: self.servers,
            discipline: Discipline::Fifo,
            faults: fault.map_err(Failure::runtime)?.into_iter().collect(),
            seed: SEED,
            body_bytes: 16,
            start: None,
        };
        let origin = Shard::spawn(runtime::shard("origin"), move || async move {
            origin::spawn(config, socket);
            sleep_until(Instant::MAX).await;
        });
        let _origin = origin.map_err(Failure::runtime)?;
        let host = crate::host::Host::observe();
        let target = Target {
            address,
            host: "selftest".into(),
            path: "/".into(),
            method: "GET".into(),
            headers: String::new(),
            body: Vec::new(),
            process: self.process.clone(),
            rate: self.rate,
            warmup: Duration::ZERO,
            duration: self.length,
            timeout: self.timeout,
            connections: 64,
            threads: 1,
            seed: SEED,
            keep: Keep::Samples,
            cores: Vec::new(),
            start: None,
            patience: Patience::default(),
        };
        let ended = run(&target).map_err(Failure::runtime)?;
        let description = Description {
            target: "selftest".into(),
            arrivals: "selftest".into(),
            rate: self.rate,
            duration_ns: self.length.as_nanos(),
            connections: 64,
            threads: 1,
            seed: SEED,
            request: Request::default(),
        };
        let report = report(&description, &ended, &host, host.steal());
        let judged = report.verdict != Verdict::Invalid;
        Ok(Seen { ended, judged })
    }

    /// What a perfect instrument would see, from the same schedule and the same work.
    fn recursion(&self) -> Vec<f64> {
        let arrivals = Arrivals::new(&self.process, self.rate, self.length, 0, 1, SEED);
        let work = arrivals
            .enumerate()
            .map(|(id, at)| (at, self.law.of_request(SEED, id as u64)));
        queue::sojourns_s(work)
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// A stall of S in a run of T: `p(q) = S - (1 - q) T`.
fn stall(quick: bool) -> Result<Vec<Check>, Failure> {
    let (length, from, stall) = if quick {
        (10.0, 4.0, 0.7)
    } else {
        (30.0, 10.0, 1.4)
    };
    let seen = Trial {
        law: Law::Fixed(Duration::from_millis(2)),
        servers: 0,
        fault: Some(format!("stall@{from}s..{:.1}s", from + stall)),
        process: Process::Constant,
        rate: 500.0,
        length: Duration::from_secs_f64(length),
        timeout: Duration::from_secs(10),
    }
    .run()?;
    let check = |name, q: f64| Check {
        name,
        expected: stall - (1.0 - q) * length,
        measured: seen.ended.record.response.value_at_quantile(q) as f64 / 1e9,
        tolerance: Tolerance::Within(0.05),
        unit: "s",
        // A stall is so much longer than any noise that it is judged always.
        judged: true,
    };
    Ok(vec![
        check("stall, p99 = S - 0.01 T", 0.99),
        check("stall, p99.9 = S - 0.001 T", 0.999),
    ])
}

/// Poisson arrivals at one exponential server: the sojourn is exponential with rate mu - lambda.
fn m_m_1(quick: bool) -> Result<Vec<Check>, Failure> {
    let trial = Trial {
        law: Law::Exponential(Duration::from_millis(4)),
        servers: 1,
        fault: None,
        process: Process::Poisson,
        rate: 150.0,
        length: Duration::from_secs(if quick { 10 } else { 30 }),
        timeout: Duration::from_secs(10),
    };
    let seen = trial.run()?;
    let mut exact = trial.recursion();
    exact.sort_by(f64::total_cmp);
    let p99 = seen.ended.record.response.value_at_quantile(0.99) as f64 / 1e6;
    let check = |name, expected, measured, part, unit| Check {
        name,
        expected,
        measured,
        tolerance: Tolerance::Within(part),
        unit,
        judged: seen.judged,
    };
    Ok(vec![
        check(
            "M/M/1, p99 = ln(100) / (mu - lambda)",
            100f64.ln() / 100.0 * 1e3,
            p99,
            0.35,
            "ms",
        ),
        check(
            "M/M/1, p99 of this very schedule",
            quantile(&exact, 0.99) * 1e3,
            p99,
            0.05,
            "ms",
        ),
        check(
            "M/M/1, mean of this very schedule",
            mean(&exact) * 1e3,
            seen.ended.record.response.mean() / 1e6,
            0.08,
            "ms",
        ),
        Check {
            judged: seen.judged,
            ..gaps(&seen.ended, trial.rate)
        },
    ])
}

/// The actual send gaps against the exponential law (Kolmogorov and Smirnov): `D sqrt(n)` stays under
/// 1.63 in 99 of 100 runs.
fn gaps(ended: &Ended, rate: f64) -> Check {
    let samples = ended.record.samples.iter();
    let mut sent: Vec<f64> = samples
        .filter_map(|sample| Some((sample.intended + sample.lag?).as_secs_f64()))
        .collect();
    sent.sort_by(f64::total_cmp);
    let mut gaps: Vec<f64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len().max(1) as f64;
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(index, gap)| {
            let law = 1.0 - (-gap * rate).exp();
            (law - index as f64 / n)
                .abs()
                .max((law - (index + 1) as f64 / n).abs())
        })
        .fold(0.0, f64::max);
    Check {
        name: "send gaps are exponential, D sqrt(n)",
        expected: 1.63,
        measured: distance * n.sqrt(),
        tolerance: Tolerance::AtMost,
        unit: "",
        judged: true,
    }
}

/// Poisson arrivals at one server of fixed time: the mean wait is `rho / (2 mu (1 - rho))`.
fn m_d_1(quick: bool) -> Result<Vec<Check>, Failure> {
    let service = 0.010;
    let trial = Trial {
        law: Law::Fixed(Duration::from_secs_f64(service)),
        servers: 1,
        fault: None,
        process: Process::Poisson,
        rate: 70.0,
        length: Duration::from_secs(if quick { 8 } else { 20 }),
        timeout: Duration::from_secs(10),
    };
    let seen = trial.run()?;
    let wait = (seen.ended.record.response.mean() / 1e9 - service) * 1e3;
    let exact = (mean(&trial.recursion()) - service) * 1e3;
    let check = |name, expected, part| Check {
        name,
        expected,
        measured: wait,
        tolerance: Tolerance::Within(part),
        unit: "ms",
        judged: seen.judged,
    };
    Ok(vec![
        check(
            "M/D/1, mean wait = rho / (2 mu (1 - rho))",
            0.7 / (2.0 * 100.0 * 0.3) * 1e3,
            0.6,
        ),
        check("M/D/1, mean wait of this very schedule", exact, 0.08),
    ])
}

/// An origin that stops answering: what is lost stands at its age, and nothing is missing.
fn censoring(_quick: bool) -> Result<Vec<Check>, Failure> {
    let seen = Trial {
        law: Law::Fixed(Duration::from_millis(2)),
        servers: 0,
        fault: Some("blackhole@2s..".into()),
        process: Process::Constant,
        rate: 200.0,
        length: Duration::from_secs(4),
        timeout: Duration::from_millis(500),
    }
    .run()?;
    let record = &seen.ended.record;
    let check = |name, expected, measured, part, unit| Check {
        name,
        expected,
        measured,
        tolerance: Tolerance::Within(part),
        unit,
        judged: true,
    };
    let timeouts = record.count(Class::Timeout) as f64;
    Ok(vec![
        check(
            "every request is in one class",
            800.0,
            record.total() as f64,
            0.0,
            "",
        ),
        check("half of them time out", 400.0, timeouts, 0.05, ""),
        check(
            "and stand at their age, p90",
            0.5,
            record.response.value_at_quantile(0.9) as f64 / 1e9,
            0.1,
            "s",
        ),
    ])
}
