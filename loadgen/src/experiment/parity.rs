//! The same scenario in both worlds: what virtual time says has to be what the wire shows.
//!
//! One constant is fitted, the time of a hop, and on the healthy run only: the wire's median less that of
//! virtual time, half of it each way. Everything else is compared as it is.

use std::process::ExitCode;

use evenkeel_base::Duration;
use evenkeel_policy::Placement;
use loadgen_scenario::{Scenario, Split};
use loadgen_sim::{Mean, Measures, Run, World};
use serde_json::json;

use super::arm::Arm;
use super::wire::{Played, Setup};
use super::{Options, named, timed};
use crate::cli::{Failure, write};
use crate::host::Host;
use crate::measurement::Verdict;
use crate::results::{Results, Table};

pub(super) const TITLE: &str = "The same scenario on the wire and in virtual time";

/// A disturbed run is repeated so often before the machine is called too noisy.
const TRIES: u32 = 12;

/// Virtual runs beside each run on the wire: they cost little and their mean hardly moves.
const VIRTUAL_SEEDS: u64 = 20;

/// What is held against what.
struct Row {
    name: &'static str,
    wire: f64,
    sim: f64,
    tolerance: Tolerance,
    digits: usize,
}

enum Tolerance {
    Part(f64),
    /// In the unit of the row.
    Absolute(f64),
}

impl Row {
    fn holds(&self) -> bool {
        let difference = (self.wire - self.sim).abs();
        match self.tolerance {
            Tolerance::Part(part) => difference <= part * self.sim,
            Tolerance::Absolute(most) => difference <= most,
        }
    }

    fn cells(&self) -> Vec<String> {
        let (difference, tolerance) = match self.tolerance {
            Tolerance::Part(part) => (
                format!("{:+.1} %", (self.wire / self.sim - 1.0) * 100.0),
                format!("{:.0} %", part * 100.0),
            ),
            Tolerance::Absolute(most) => {
                (format!("{:+.2}", self.wire - self.sim), format!("{most}"))
            }
        };
        vec![
            self.name.to_owned(),
            format!("{:.*}", self.digits, self.wire),
            format!("{:.*}", self.digits, self.sim),
            difference,
            tolerance,
            if self.holds() { "holds" } else { "DIFFERS" }.to_owned(),
        ]
    }
}

pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    if !options.arms.is_empty() {
        return Err(Failure::usage(
            "parity is of the per-loop arm; leave --arms out",
        ));
    }
    let runs = options.blocks.unwrap_or(if options.quick { 2 } else { 4 });
    let scenario = scenario(options.loops, options.quick)?;
    let host = Host::observe();
    let healthy = Scenario {
        faults: named("healthy")?.faults,
        ..scenario.clone()
    };
    let mut wire = Wire {
        arm: Arm::named("per-loop")?,
        options,
        discarded: 0,
    };
    let Some(calibration) = wire.play(&healthy, options.seed)? else {
        return Ok(too_noisy(&wire));
    };
    let hop = hop(&calibration.run, &healthy, options.seed);
    let mut played = Vec::new();
    for index in 0..u64::from(runs) {
        match wire.play(&scenario, options.seed + index)? {
            Some(run) => played.push(run),
            None => return Ok(too_noisy(&wire)),
        }
    }
    let mut scenario = scenario;
    scenario.endpoints.hop = hop;
    let rows = rows(&played, &scenario, options.seed);
    let holds = rows.iter().all(Row::holds);
    let results = Results {
        schema: "loadgen.parity/1",
        name: options.name.clone(),
        title: TITLE.into(),
        command: format!(
            "loadgen experiment parity{} --loops {} --blocks {runs} --seed {}",
            if options.quick { " --quick" } else { "" },
            options.loops,
            options.seed
        ),
        setting: format!(
            "{} on {} loops, {} long, per-loop numbers: means of {runs} runs on the wire against {} \
             in virtual time. A hop of {:.0} us each way is fitted to the median of one healthy run; \
             nothing else is. Runs that the machine disturbed and that were repeated: {}.",
            scenario.name,
            options.loops,
            scenario.length,
            u64::from(runs) * VIRTUAL_SEEDS,
            hop.as_secs_f64() * 1e6,
            wire.discarded,
        ),
        tables: vec![Table {
            title: "Wire against virtual time".into(),
            columns: ["measure", "wire", "virtual", "difference", "tolerance", ""]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.iter().map(Row::cells).collect(),
        }],
        findings: vec![if holds {
            "The two worlds agree.".into()
        } else {
            "The two worlds DIFFER.".into()
        }],
        figures: Vec::new(),
        data: json!({
            "hop_us": hop.as_secs_f64() * 1e6,
            "rows": rows.iter().map(|row| json!({
                "measure": row.name, "wire": row.wire, "virtual": row.sim, "holds": row.holds(),
            })).collect::<Vec<_>>(),
            "discarded_runs": wire.discarded,
            "honesty": host.honesty(host.steal(), 0.0, 0, wire.discarded),
        }),
    };
    let out = options.out();
    let text = serde_json::to_string_pretty(&results.json()).map_err(Failure::runtime)?;
    write(&out, "report.json", &text)?;
    write(&out, "report.html", &results.page())?;
    print!("{}", results.text());
    Ok(ExitCode::from(u8::from(!holds)))
}

/// What both worlds can play: loops that each have some of the client's connections.
fn scenario(loops: u32, quick: bool) -> Result<Scenario, Failure> {
    let seconds = if quick {
        [0.5, 2.5, 5.0, 5.5]
    } else {
        [1.0, 5.0, 11.0, 12.0]
    };
    let mut scenario = timed(named("gray-failure")?, seconds);
    scenario.loops = loops;
    scenario.split = Split::Connections(super::wire::CONNECTIONS);
    scenario.endpoints.hop = Duration::ZERO;
    Ok(scenario)
}

struct Wire<'a> {
    arm: Arm,
    options: &'a Options,
    discarded: u32,
}

impl Wire<'_> {
    /// A run that the machine did not disturb; `None` when there is none to be had.
    fn play(&mut self, scenario: &Scenario, seed: u64) -> Result<Option<Played>, Failure> {
        for _ in 0..TRIES {
            let setup = Setup {
                scenario,
                arm: &self.arm,
                loops: self.options.loops,
                seed,
            };
            let played = setup.play()?;
            if played.verdict != Verdict::Invalid {
                return Ok(Some(played));
            }
            self.discarded += 1;
        }
        Ok(None)
    }
}

fn too_noisy(wire: &Wire<'_>) -> ExitCode {
    println!(
        "INVALID: {TRIES} runs in a row were disturbed by this machine ({} in all); nothing can be said",
        wire.discarded
    );
    ExitCode::from(3)
}

fn simulated(scenario: &Scenario, seed: u64) -> Run {
    let mut world = World::new(scenario.clone(), seed);
    world.policy.inflight = Placement::PerLoop;
    world.policy.latency = Placement::PerLoop;
    world.run()
}

/// Half of what the wire's median is over that of virtual time without hops.
fn hop(wire: &Run, healthy: &Scenario, seed: u64) -> Duration {
    let median = |run: &Run| run.phase(healthy.warmup..healthy.length).quantile(0.5);
    let extra = median(wire).saturating_sub(median(&simulated(healthy, seed)));
    Duration::from_secs_f64(extra.as_secs_f64() / 2.0)
}

fn rows(played: &[Played], scenario: &Scenario, seed: u64) -> Vec<Row> {
    let wire: Vec<Measures> = played
        .iter()
        .map(|played| Measures::of(&played.run, scenario))
        .collect();
    let sim: Vec<Measures> = (0..played.len() as u64 * VIRTUAL_SEEDS)
        .map(|index| Measures::of(&simulated(scenario, seed + index), scenario))
        .collect();
    let row = |name, of: fn(&Measures) -> f64, tolerance, digits| {
        let mean = |all: &[Measures]| Mean::of(all.iter().map(of)).map_or(0.0, |mean| mean.value);
        Row {
            name,
            wire: mean(&wire),
            sim: mean(&sim),
            tolerance,
            digits,
        }
    };
    vec![
        row(
            "p50 healthy, ms",
            |m| m.healthy_p50_ms,
            Tolerance::Part(0.10),
            2,
        ),
        row(
            "p99 healthy, ms",
            |m| m.healthy_p99_ms,
            Tolerance::Part(0.15),
            2,
        ),
        row(
            "p99 trouble, ms",
            |m| m.trouble_p99_ms,
            Tolerance::Part(0.15),
            2,
        ),
        row(
            "sick share, %",
            |m| m.share * 100.0,
            Tolerance::Absolute(0.3),
            2,
        ),
    ]
}
