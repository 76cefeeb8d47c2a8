//! The commands of `loadgen`.

mod compare;
mod find_max;
mod logs;
mod rerun;
mod run;
mod url;
mod words;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use evenkeel::config;
use evenkeel_runtime::{Backend, Shard, Sharing, bind, local_address, sleep_until};
use loadgen_scenario::{Discipline, Fault, Law};

use crate::demo;
use crate::experiment;
use crate::origin::{self, OriginConfig};
use crate::runtime::{self, Runtime};
use crate::selftest;
use crate::simulate;

/// Exit codes: 0 ok, 1 runtime failure, 2 usage, 3 the measurement is INVALID (the generator was the
/// limit), 98 a comparison found a regression, 99 an SLO was missed.
#[derive(Parser)]
#[command(
    name = "loadgen",
    version,
    about = "Open-loop load generator and failing origins"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How the generator, its origins and the engine of a demo talk to the kernel
    #[arg(long, global = true, value_enum, default_value = "auto")]
    runtime: Runtime,
}

#[derive(Subcommand)]
enum Command {
    /// The main job: five origins, one turns gray, the engine in front, five ways to balance
    Demo(DemoArgs),
    /// One open-loop measurement
    Run(run::RunArgs),
    /// Mock origins with chosen service times and faults
    Origin(OriginArgs),
    /// Histogram logs added up, tag by tag
    Merge(logs::MergeArgs),
    /// Two runs, or pairs of them: is B slower than A? Exit code 98 when it is
    Compare(compare::CompareArgs),
    /// The highest rate at which every SLO is met
    FindMax(find_max::FindMaxArgs),
    /// The run of a report once more, with the same schedule
    Rerun(rerun::RerunArgs),
    /// The instrument against closed forms, on this machine
    Selftest {
        /// Half a minute instead of a minute and a half
        #[arg(long)]
        quick: bool,
    },
    /// A study or a scenario in virtual time; the same words give the same bytes on any machine
    Sim(SimArgs),
    /// A question answered on the wire, in blocks, beside the machine's own noise; a session that was
    /// cut goes on when it is asked again
    Experiment(ExperimentArgs),
    /// The engine of the demo: configuration on standard input
    #[command(hide = true)]
    Engine {
        /// Event loops, also more than there are cores; one on each core without it
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
        loops: Option<u32>,
    },
}

#[derive(Args)]
struct DemoArgs {
    /// Shorter phases: under 30 s instead of under 90 s
    #[arg(long)]
    quick: bool,
    /// Where report.json and report.html go
    #[arg(long, default_value = "evenkeel-demo")]
    out: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum SimFormat {
    Text,
    Json,
}

#[derive(Args)]
struct SimArgs {
    /// What `--list` names, or a scenario's file
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// One line for everything that can be simulated
    #[arg(long)]
    list: bool,
    /// Fewer seeds
    #[arg(long)]
    quick: bool,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 48))]
    seed: u64,
    /// How many seeds, from the first on
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// Numbers of loops to play a scenario with, such as 1,8,64; its own number without it
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    loops: Vec<u32>,
    /// Of a scenario: random, round-robin, least-request, p2c, p2c-ewma, oracle
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Of a scenario: per-loop, exchange, shared
    #[arg(long, value_delimiter = ',')]
    placements: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: SimFormat,
    /// Write report.json, report.html and figures there
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct ExperimentArgs {
    /// What `--list` names
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// One line for every experiment
    #[arg(long)]
    list: bool,
    /// Shorter runs, fewer blocks and no pilot: minutes instead of an hour
    #[arg(long)]
    quick: bool,
    /// per-loop, shared, exchange, shared-inflight, shared-latency, round-robin, random: the first is
    /// what the others are compared with [default: per-loop,shared]
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Loops of the engine
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    loops: u32,
    /// Blocks that have to count, and no pilot; each has two runs of every arm
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: Option<u32>,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    seed: u64,
    /// Where session, report.json and report.html go [default: evenkeel-NAME]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct OriginArgs {
    /// Addresses to listen on; each is an origin of its own
    #[arg(long, required = true, value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// A scenario's endpoints and faults: its name (`loadgen sim --list`) or its file; one address each
    #[arg(long, conflicts_with_all = ["service", "servers", "faults"])]
    scenario: Option<String>,
    /// fixed(5ms), exp(2ms), half(5ms) or lognormal(5ms,0.5)
    #[arg(long, default_value = "exp(2ms)", value_parser = Law::parse)]
    service: Law,
    /// Parallel servers of each origin, 0 for no queue
    #[arg(long, default_value_t = 0)]
    servers: usize,
    /// slow:10x, error:0.2, stall, reset:0.5 and more (docs/SCENARIOS.md), with an optional
    /// @FROM..UNTIL; for every origin
    #[arg(long = "fault", value_parser = Fault::parse)]
    faults: Vec<Fault>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes in each answer's body
    #[arg(long, default_value_t = 128)]
    body_bytes: usize,
}

/// A failure with its exit code.
pub(crate) struct Failure(pub(crate) u8, pub(crate) String);

impl Failure {
    pub(crate) fn runtime(error: impl fmt::Display) -> Failure {
        Failure(1, error.to_string())
    }

    pub(crate) fn usage(error: impl fmt::Display) -> Failure {
        Failure(2, error.to_string())
    }
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.runtime.choose();
    let result = match cli.command {
        Command::Demo(args) => {
            let length = if args.quick {
                demo::Length::Quick
            } else {
                demo::Length::Full
            };
            demo::run(&demo::Options {
                length,
                out: &args.out,
                seed: args.seed,
            })
        }
        Command::Sim(args) => sim_command(&args),
        Command::Experiment(args) => experiment_command(args),
        Command::Engine { loops } => engine_command(loops),
        Command::Run(args) => run::run_command(&args).map(|(code, _)| code),
        Command::Origin(args) => origin_command(&args),
        Command::Merge(args) => logs::merge(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::FindMax(args) => find_max::find_max(&args),
        Command::Rerun(args) => rerun::rerun(&args),
        Command::Selftest { quick } => selftest::run_all(quick),
    };
    match result {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            eprintln!("loadgen: {text}");
            ExitCode::from(code)
        }
    }
}

fn sim_command(args: &SimArgs) -> Result<ExitCode, Failure> {
    if args.list {
        print!("{}", simulate::list());
        return Ok(ExitCode::SUCCESS);
    }
    simulate::run(&simulate::Options {
        name: args.name.as_deref(),
        length: if args.quick {
            simulate::Length::Quick
        } else {
            simulate::Length::Full
        },
        seed: args.seed,
        seeds: args.seeds,
        loops: &args.loops,
        arms: &args.arms,
        placements: &args.placements,
        out: args.out.as_deref(),
        format: match args.format {
            SimFormat::Text => simulate::Format::Text,
            SimFormat::Json => simulate::Format::Json,
        },
    })
}

/// Serves as the engine would, with the configuration from standard input.
fn engine_command(loops: Option<u32>) -> Result<ExitCode, Failure> {
    let text = std::io::read_to_string(std::io::stdin()).map_err(Failure::runtime)?;
    let mut parsed = evenkeel::config::parse(&text, "demo").map_err(Failure::usage)?;
    match runtime::forced() {
        None => {}
        Some(Backend::Uring) => parsed.config.engine.runtime = config::Runtime::Uring,
        Some(Backend::Epoll) => parsed.config.engine.runtime = config::Runtime::Epoll,
    }
    let plan = evenkeel::Plan::new(&parsed.config).map_err(Failure::usage)?;
    let plan = match loops {
        None => plan,
        Some(loops) => plan.with_loops(loops),
    };
    evenkeel::serve::run(&plan, None).map_err(Failure::runtime)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one file of a report.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| Failure::runtime(format!("{}: cannot write: {error}", path.display())))
}

fn experiment_command(args: ExperimentArgs) -> Result<ExitCode, Failure> {
    if args.list {
        print!("{}", experiment::list());
        return Ok(ExitCode::SUCCESS);
    }
    experiment::run(&experiment::Options {
        name: args.name.unwrap_or_default(),
        quick: args.quick,
        arms: args.arms,
        loops: args.loops,
        blocks: args.blocks,
        seed: args.seed,
        out: args.out,
    })
}

fn origin_command(args: &OriginArgs) -> Result<ExitCode, Failure> {
    let scenario = args
        .scenario
        .as_deref()
        .map(simulate::find_scenario)
        .transpose()?;
    if let Some(scenario) = &scenario
        && scenario.faults.len() != args.listen.len()
    {
        return Err(Failure::usage(format!(
            "the scenario {} has {} endpoints and --listen {} addresses; give one address each",
            scenario.name,
            scenario.faults.len(),
            args.listen.len()
        )));
    }
    let mut origins = Vec::new();
    for (index, &address) in args.listen.iter().enumerate() {
        let socket = bind(address, 4096, Sharing::Exclusive)
            .map_err(|error| Failure::runtime(format!("cannot listen on {address}: {error}")))?;
        let address = local_address(&socket).map_err(Failure::runtime)?;
        println!("listening on {address}");
        let config = OriginConfig {
            index,
            law: args.service,
            servers: args.servers,
            discipline: Discipline::Fifo,
            faults: args.faults.clone(),
            seed: args.seed,
            body_bytes: args.body_bytes,
            start: None,
        };
        let config = match &scenario {
            None => config,
            Some(scenario) => OriginConfig {
                law: scenario.endpoints.service,
                servers: scenario.endpoints.servers as usize,
                discipline: scenario.endpoints.discipline,
                faults: scenario.faults[index].all().to_vec(),
                ..config
            },
        };
        origins.push((config, socket));
    }
    let shard = Shard::spawn(runtime::shard("origins"), move || async move {
        origin::spawn_all(origins);
        sleep_until(evenkeel_base::Instant::MAX).await;
    })
    .map_err(Failure::runtime)?;
    if shard.join() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure(1, "an origin died".into()))
    }
}
