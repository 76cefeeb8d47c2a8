//! The main job: five origins, one of them turns gray, and five ways to balance between them.
//!
//! Every arm gets a fresh engine in a process of its own (so that its CPU can be accounted), the same
//! schedule and the same work, keyed by request id.

mod arm;
pub(crate) mod page;
mod report;

use std::path::Path;
use std::process::ExitCode;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, Sharing, bind, local_address, now, sleep_until};
use indicatif::{ProgressBar, ProgressStyle};
use loadgen_scenario::{Discipline, Law};

use crate::cli::{Failure, write};
use crate::host::Host;
use crate::measurement::Verdict;
use crate::origin::{self, OriginConfig};
use crate::runtime;
use arm::{Arm, Phases, Setting};
use report::{ArmResult, DemoReport, Plot, Scenario};

/// The pinned scenario.
pub(crate) const ENDPOINTS: usize = 5;
/// The endpoint that turns gray.
pub(crate) const GRAY: u16 = 4;
pub(crate) const GRAY_FACTOR: f64 = 10.0;
const SERVERS: usize = 32;
const SERVICE: Law = Law::Half(Duration::from_millis(5));
pub(crate) const RATE: f64 = 1600.0;
pub(crate) const CONNECTIONS: u32 = 128;

/// What the command line says.
pub(crate) struct Options<'a> {
    pub(crate) length: Length,
    pub(crate) out: &'a Path,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Full,
    Quick,
}

impl Length {
    /// Time in all; what the arms leave of it is for repeating a run that the machine disturbed.
    fn budget(self) -> Duration {
        match self {
            Length::Full => Duration::from_secs(86),
            Length::Quick => Duration::from_secs(28),
        }
    }

    fn phases(self) -> Phases {
        let (warmup, healthy, gray, healed) = match self {
            Length::Full => (1_000, 4_000, 5_000, 5_000),
            Length::Quick => (400, 1_300, 2_000, 2_000),
        };
        Phases {
            warmup: Duration::from_millis(warmup),
            healthy: Duration::from_millis(healthy),
            gray: Duration::from_millis(gray),
            healed: Duration::from_millis(healed),
        }
    }
}

/// Start and end of an arm beside its phases.
const BETWEEN_ARMS: Duration = Duration::from_millis(400);

pub(crate) fn run(options: &Options<'_>) -> Result<ExitCode, Failure> {
    let deadline = now() + options.length.budget();
    let host = Host::observe();
    let phases = options.length.phases();
    let shards = host.cores().clamp(1, 2);
    let (origins, addresses) = start_origins(options.seed)?;
    let arms = Arm::all();
    let bar = progress(&arms, phases);
    let mut results = Vec::new();
    let mut plots = Vec::new();
    let setting = Setting {
        phases,
        endpoints: &addresses,
        shards,
        seed: options.seed,
        bar: &bar,
    };
    for (index, arm) in arms.iter().enumerate() {
        bar.set_message(arm.name);
        let last_start = arms[index..].iter().fold(deadline, |start, arm| {
            start - (arm.length(phases) + BETWEEN_ARMS)
        });
        let (result, plot) = repeated(arm, &setting, last_start)?;
        results.push(result);
        plots.push(plot);
    }
    bar.finish_and_clear();
    drop(origins);
    let report = DemoReport {
        schema: "loadgen.demo/1".into(),
        scenario: Scenario::of(phases, shards, SERVERS, SERVICE),
        seed: options.seed,
        schedule_hash: plots
            .first()
            .map(|plot| plot.schedule_hash.clone())
            .unwrap_or_default(),
        honesty: {
            let busy = results
                .iter()
                .map(|arm| arm.generator_busy)
                .fold(0.0, f64::max);
            let discarded = results.iter().map(|arm| arm.discarded_runs).sum();
            host.honesty(host.steal(), busy, 0, discarded)
        },
        arms: results,
    };
    print!("{}", report::table(&report));
    let json = serde_json::to_string_pretty(&report).map_err(Failure::runtime)?;
    write(options.out, "report.json", &json)?;
    write(options.out, "report.html", &page::render(&report, &plots))?;
    println!("\nreport: {}", options.out.join("report.html").display());
    let invalid = report
        .arms
        .iter()
        .any(|arm| arm.verdict == Verdict::Invalid);
    Ok(if invalid {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    })
}

/// An arm's first VALID run, or its last one: a disturbed run is repeated while it can begin before
/// `last_start`.
fn repeated(
    arm: &Arm,
    setting: &Setting<'_>,
    last_start: Instant,
) -> Result<(ArmResult, Plot), Failure> {
    let mut discarded_runs = 0;
    loop {
        let begun = setting.bar.position();
        if let Some((result, plot)) = arm::run(arm, setting, last_start)?
            && (result.verdict == Verdict::Valid || now() >= last_start)
        {
            let result = ArmResult {
                discarded_runs,
                ..result
            };
            return Ok((result, plot));
        }
        discarded_runs += 1;
        setting.bar.set_position(begun);
    }
}

/// Five origins on one loop of their own.
fn start_origins(seed: u64) -> Result<(Shard, Vec<std::net::SocketAddr>), Failure> {
    let mut origins = Vec::new();
    let mut addresses = Vec::new();
    for index in 0..ENDPOINTS {
        let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bind(loopback, 1024, Sharing::Exclusive).map_err(Failure::runtime)?;
        addresses.push(local_address(&socket).map_err(Failure::runtime)?);
        let config = OriginConfig {
            index,
            law: SERVICE,
            servers: SERVERS,
            discipline: Discipline::Fifo,
            faults: Vec::new(),
            seed,
            body_bytes: 128,
            start: None,
        };
        origins.push((config, socket));
    }
    let shard = Shard::spawn(runtime::shard("origins"), move || async move {
        origin::spawn_all(origins);
        sleep_until(Instant::MAX).await;
    });
    Ok((shard.map_err(Failure::runtime)?, addresses))
}

/// Shown on a terminal only: indicatif draws nothing elsewhere.
fn progress(arms: &[Arm], phases: Phases) -> ProgressBar {
    let total: u64 = arms.iter().map(|arm| arm.length(phases).as_millis()).sum();
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{msg:>16} [{wide_bar}] {eta} left");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
