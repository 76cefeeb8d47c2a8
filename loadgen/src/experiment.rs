//! `loadgen experiment`: questions answered on the wire, in blocks, with the machine's noise beside the
//! answer.

mod analysis;
mod arm;
mod gray_failure;
mod parity;
mod ping_pong;
mod session;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_base::Duration;
use loadgen_scenario::{Faults, Scenario};

use crate::cli::Failure;

/// What the command line says.
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) quick: bool,
    pub(crate) arms: Vec<String>,
    pub(crate) loops: u32,
    pub(crate) blocks: Option<u32>,
    pub(crate) seed: u64,
    pub(crate) out: Option<PathBuf>,
}

struct Experiment {
    name: &'static str,
    title: &'static str,
    run: fn(&Options) -> Result<ExitCode, Failure>,
}

const EXPERIMENTS: [Experiment; 2] = [
    Experiment {
        name: "gray-failure",
        title: gray_failure::TITLE,
        run: gray_failure::run,
    },
    Experiment {
        name: "parity",
        title: parity::TITLE,
        run: parity::run,
    },
];

pub(crate) fn list() -> String {
    let lines = EXPERIMENTS.map(|known| format!("{:<24} {}\n", known.name, known.title));
    lines.concat()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let known = EXPERIMENTS.iter().find(|known| known.name == options.name);
    let known = known.ok_or_else(|| {
        let name = &options.name;
        Failure::usage(format!(
            "\"{name}\" is no experiment; `loadgen experiment --list` names them"
        ))
    })?;
    (known.run)(options)
}

impl Options {
    /// Where the report goes.
    fn out(&self) -> PathBuf {
        let usual = || PathBuf::from(format!("evenkeel-{}", self.name));
        self.out.clone().unwrap_or_else(usual)
    }
}

/// The scenario with its phases at other times: every fault begins at the second and ends at the third.
fn timed(mut scenario: Scenario, seconds: [f64; 4]) -> Scenario {
    let [warmup, onset, over, length] = seconds.map(Duration::from_secs_f64);
    scenario.warmup = warmup;
    scenario.length = length;
    for faults in &mut scenario.faults {
        let moved = faults.all().iter().cloned().map(|mut fault| {
            (fault.from, fault.until) = (onset, over);
            fault
        });
        *faults = Faults::new(moved.collect());
    }
    scenario
}

fn named(name: &str) -> Result<Scenario, Failure> {
    let missing = || Failure::runtime(format!("the scenario {name} is not in the library"));
    Scenario::named(name).ok_or_else(missing)
}
