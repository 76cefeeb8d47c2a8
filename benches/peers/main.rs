//! Evenkeel, nginx, HAProxy and Envoy as HTTP/1.1 reverse proxies on this host, in one interleaved run.
//!
//! `benches/peers/run [--rounds N] [--quick] [--out FILE] [--proxies uring,nginx] [--phases many,idle]` installs the peers where it can, builds, and
//! runs this bench; a peer that is missing is named in the report.
//!
//! Each proxy is a process of its own on the first core, started anew for each measurement with the
//! configuration beside this file; load and origins share the second core in this process. Every phase
//! of a round measures every proxy before the next phase begins, in an order that rotates, and a ratio
//! is to nginx in the same phase of the same round. The floor is the bare forwarder of the runtime
//! bench: it parses heads and forwards, and has none of a product's duties.
//!
//! `--quick`, or a start without the `--bench` that `cargo bench` adds, makes one short round: it shows
//! that every proxy serves, and its figures mean nothing.

mod account;
mod cleanup;
mod idle;
mod measure;
mod proxy;
mod report;
mod table;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use evenkeel_benches::{host, ring};

use measure::Phase;
use proxy::Kind;

/// Names the core and the origin of a child process that is to be the floor.
const FLOOR: &str = "EVENKEEL_BENCH_FLOOR";

struct Options {
    rounds: usize,
    /// Its figures mean nothing.
    is_quick: bool,
    phases: Vec<Phase>,
    proxies: Vec<Kind>,
    /// Idle memory hardly varies and takes long: these rounds have it, from the first on.
    idle_rounds: usize,
    idle_connections: usize,
    /// From the last connection to the reading of memory.
    settle: Duration,
    warm_up: Duration,
    /// The measured interval of the closed loop.
    time: Duration,
    /// The measured interval of the open loop.
    open_time: Duration,
    out: Option<PathBuf>,
    evenkeel: PathBuf,
    envoy: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match std::env::var(FLOOR) {
        Ok(place) => floor(&place),
        Err(_) => bench(std::env::args().skip(1).collect()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn floor(place: &str) -> Result<(), Box<dyn Error>> {
    let (core, origin) = place
        .split_once(' ')
        .ok_or("expected a core and an origin")?;
    let origin: SocketAddr = origin.parse()?;
    ring::serve(core.parse()?, origin)
}

fn bench(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let options = options(&arguments)?;
    let folder = cleanup::begin()?;
    let start = host::Facts::observe();
    let session = measure::Session::new(&options, folder.path())?;
    let run = session.run();
    drop(folder);
    let text = report::text(&options, &arguments, &start, &run);
    print!("{text}");
    if let Some(path) = &options.out {
        std::fs::write(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("written to {}", path.display());
    }
    if !run.failures.is_empty() {
        return Err(format!("{} measurements failed", run.failures.len()).into());
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut options = if given("--quick") || !given("--bench") {
        quick()
    } else {
        full()
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--bench" | "--quick" => {}
            "--rounds" => {
                let text = value()?;
                options.rounds = match text.parse() {
                    Ok(rounds @ 1..=1000) => rounds,
                    _ => return Err(format!("{text}: expected a number from 1 to 1000")),
                };
            }
            "--out" => options.out = Some(value()?.into()),
            "--evenkeel" => options.evenkeel = value()?.into(),
            "--phases" => options.phases = chosen(value()?, &Phase::ALL, Phase::word)?,
            "--proxies" => options.proxies = chosen(value()?, &Kind::ALL, Kind::word)?,
            "--envoy" => options.envoy = Some(value()?.into()),
            other => {
                return Err(format!(
                    "{other}: expected --rounds, --quick, --out, --phases, --proxies, --evenkeel or --envoy"
                ));
            }
        }
    }
    Ok(options)
}

/// Those of `all` that the list names.
fn chosen<T: Copy>(
    list: &str,
    all: &[T],
    word: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let one = |name: &str| {
        let known = all.iter().find(|one| word(**one) == name).copied();
        let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
        known.ok_or_else(|| format!("{name}: expected some of {}", words.join(",")))
    };
    list.split(',').map(one).collect()
}

fn full() -> Options {
    Options {
        rounds: 10,
        is_quick: false,
        phases: Phase::ALL.to_vec(),
        proxies: Kind::ALL.to_vec(),
        idle_rounds: 3,
        idle_connections: 10_000,
        settle: Duration::from_secs(5),
        warm_up: Duration::from_millis(300),
        time: Duration::from_millis(1_500),
        open_time: Duration::from_millis(2_200),
        out: None,
        evenkeel: "evenkeel".into(),
        envoy: None,
    }
}

fn quick() -> Options {
    Options {
        rounds: 1,
        is_quick: true,
        idle_connections: 500,
        settle: Duration::from_millis(200),
        warm_up: Duration::from_millis(100),
        time: Duration::from_millis(200),
        open_time: Duration::from_millis(300),
        ..full()
    }
}
