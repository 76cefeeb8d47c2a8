//! The demo's numbers: as JSON and as one table on a terminal.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use loadgen_scenario::Law;
use serde::Serialize;

use super::arm::Phases;
use super::{CONNECTIONS, ENDPOINTS, GRAY_FACTOR, RATE};
use crate::measurement::Verdict;

/// `report.json`; durations are integer nanoseconds.
#[derive(Serialize)]
pub(crate) struct DemoReport {
    pub(crate) schema: String,
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) schedule_hash: String,
    pub(crate) arms: Vec<ArmResult>,
    pub(crate) honesty: serde_json::Value,
}

#[derive(Serialize)]
pub(crate) struct Scenario {
    pub(crate) endpoints: usize,
    pub(crate) servers_per_endpoint: usize,
    pub(crate) service: String,
    pub(crate) arrivals: String,
    pub(crate) rate_per_second: f64,
    pub(crate) shards: usize,
    pub(crate) connections: u32,
    pub(crate) gray_factor: f64,
    pub(crate) healthy_ns: u64,
    pub(crate) gray_ns: u64,
    pub(crate) healed_ns: u64,
}

impl Scenario {
    pub(crate) fn of(phases: Phases, shards: usize, servers: usize, service: Law) -> Scenario {
        Scenario {
            endpoints: ENDPOINTS,
            servers_per_endpoint: servers,
            service: service.to_string(),
            arrivals: "poisson".into(),
            rate_per_second: RATE,
            shards,
            connections: CONNECTIONS,
            gray_factor: GRAY_FACTOR,
            healthy_ns: phases.healthy.as_nanos(),
            gray_ns: phases.gray.as_nanos(),
            healed_ns: phases.healed.as_nanos(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ArmResult {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) achieved_rate: f64,
    pub(crate) healthy: Quantiles,
    pub(crate) gray: Gray,
    pub(crate) onset_2s: Onset,
    pub(crate) healed: Option<Healed>,
    pub(crate) failed: u64,
    pub(crate) cpu_ns_per_request: u64,
    /// Runs that the machine disturbed, and that were repeated; no look at the answers decides it.
    pub(crate) discarded_runs: u32,
    /// The generator's share of time outside its wait, 0..=1.
    pub(crate) generator_busy: f64,
    /// How late the generator itself sent.
    pub(crate) lag: Quantiles,
    pub(crate) verdict: Verdict,
    pub(crate) reasons: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
}

#[derive(Serialize)]
pub(crate) struct Gray {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
    /// Of the gray endpoint in all requests, 0..=1.
    pub(crate) share: f64,
}

#[derive(Serialize)]
pub(crate) struct Onset {
    pub(crate) p99_ns: u64,
    pub(crate) share: f64,
}

#[derive(Serialize)]
pub(crate) struct Healed {
    pub(crate) seconds_to_70_percent_of_fair_share: Option<f64>,
    pub(crate) share: f64,
}

impl Quantiles {
    pub(crate) fn of(times: &Histogram<u64>) -> Quantiles {
        Quantiles {
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
        }
    }
}

impl Gray {
    pub(crate) fn of(times: &Histogram<u64>, share: f64) -> Gray {
        let Quantiles {
            p50_ns,
            p99_ns,
            p999_ns,
        } = Quantiles::of(times);
        Gray {
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns: times.max(),
            share,
        }
    }
}

impl ArmResult {
    /// How many times the tail grew.
    pub(crate) fn ratio(&self) -> f64 {
        self.gray.p99_ns as f64 / self.healthy.p99_ns.max(1) as f64
    }

    pub(crate) fn back(&self) -> String {
        match self
            .healed
            .as_ref()
            .map(|healed| healed.seconds_to_70_percent_of_fair_share)
        {
            None => "-".into(),
            Some(None) => "not yet".into(),
            Some(Some(seconds)) => format!("{seconds:.1} s"),
        }
    }
}

/// What the pictures of one arm are drawn from.
pub(crate) struct Plot {
    pub(crate) name: String,
    /// 1 / (1 - quantile) and milliseconds.
    pub(crate) healthy: Vec<(f64, f64)>,
    pub(crate) gray: Vec<(f64, f64)>,
    pub(crate) timeline: Vec<TimePoint>,
    pub(crate) onset_s: f64,
    pub(crate) recovery_s: f64,
    pub(crate) schedule_hash: String,
}

pub(crate) struct TimePoint {
    pub(crate) seconds: f64,
    pub(crate) p99_ms: f64,
    pub(crate) share: f64,
}

pub(crate) const COLUMNS: [&str; 9] = [
    "arm",
    "healthy p99",
    "gray p99",
    "grew",
    "gray p99.9",
    "gray share",
    "back in",
    "CPU/req",
    "verdict",
];

/// The table's cells, one row an arm.
pub(crate) fn rows(report: &DemoReport) -> Vec<[String; 9]> {
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let row = |arm: &ArmResult| {
        [
            arm.name.clone(),
            ms(arm.healthy.p99_ns),
            ms(arm.gray.p99_ns),
            format!("{:.2}x", arm.ratio()),
            ms(arm.gray.p999_ns),
            format!("{:.2} %", arm.gray.share * 100.0),
            arm.back(),
            format!("{:.1} us", arm.cpu_ns_per_request as f64 / 1e3),
            arm.verdict.name().to_owned(),
        ]
    };
    report.arms.iter().map(row).collect()
}

/// One table and what it says in words.
pub(crate) fn table(report: &DemoReport) -> String {
    let rows = rows(report);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let mut out = String::new();
    let header = COLUMNS.map(str::to_owned);
    for row in std::iter::once(&header).chain(&rows) {
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let _ = match column {
                0 => write!(out, "{cell:<width$}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.push('\n');
    }
    out.push('\n');
    for sentence in sentences(report) {
        let _ = writeln!(out, "{sentence}");
    }
    out
}

/// The finding, in words that follow from the numbers.
pub(crate) fn sentences(report: &DemoReport) -> Vec<String> {
    let mut out = Vec::new();
    let find = |name: &str| report.arms.iter().find(|arm| arm.name == name);
    let told = |arm: &ArmResult| {
        format!(
            "{} sent {:.2} % of the requests to the slow endpoint and its p99 grew {:.2} times",
            arm.name,
            arm.gray.share * 100.0,
            arm.ratio()
        )
    };
    if let (Some(blind), Some(weighing)) = (find("round-robin"), find("p2c-ewma")) {
        out.push(format!(
            "One of {ENDPOINTS} endpoints became {GRAY_FACTOR} times slower."
        ));
        out.push(format!("{}; {}.", told(blind), told(weighing)));
    }
    for arm in report.arms.iter().filter(|arm| arm.failed > 0) {
        out.push(format!("{}: {} requests failed.", arm.name, arm.failed));
    }
    let repeated = report.arms.iter().filter(|arm| arm.discarded_runs > 0);
    let repeated: Vec<String> = repeated
        .map(|arm| format!("{} {}", arm.name, arm.discarded_runs))
        .collect();
    if !repeated.is_empty() {
        out.push(format!(
            "Runs repeated because this machine sent requests late: {}.",
            repeated.join(", ")
        ));
    }
    for arm in &report.arms {
        for reason in &arm.reasons {
            out.push(format!("{} is {}: {reason}.", arm.name, arm.verdict.name()));
        }
    }
    out
}
