//! What a bare forwarder costs on our own ring, on epoll and on glommio: the floor under the product.
//!
//! `cargo bench -p evenkeel-benches --bench runtime -- [--rounds N] [--seconds S]
//! [--connections 64,1] [--only ring,epoll,glommio] [--test]`
//!
//! Each forwarder is a process of its own on the first core; load and origin share the second in this
//! process, on epoll whichever forwarder is measured. A forwarder parses heads and forwards, one
//! request in flight a connection, and has none of a product's duties. CPU a request is the scheduler's
//! own count of the forwarder's threads over the requests that were answered. Rounds are interleaved in
//! rotating order. The report on stdout is Markdown; progress goes to stderr.
//!
//! `--test`, or a start without the `--bench` that `cargo bench` adds, makes one tiny round: it shows
//! that every forwarder forwards, and its figures mean nothing.

mod epoll;
#[cfg(feature = "glommio")]
mod glommio;
mod measure;
mod report;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use evenkeel_benches::{host, ring};

const FORWARDERS: &[&str] = &[
    "ring",
    "epoll",
    #[cfg(feature = "glommio")]
    "glommio",
];

/// Names the forwarder that a child process is to be, and its origin.
const CHILD: &str = "EVENKEEL_BENCH_FORWARDER";
const ORIGIN: &str = "EVENKEEL_BENCH_ORIGIN";

struct Options {
    rounds: usize,
    connections: Vec<usize>,
    forwarders: Vec<String>,
    /// Before each measured interval.
    warm_up: Duration,
    /// The measured interval.
    time: Duration,
}

fn main() -> ExitCode {
    let outcome = match (std::env::var(CHILD), std::env::var(ORIGIN)) {
        (Ok(name), Ok(origin)) => forward(&name, &origin),
        _ => bench(std::env::args().skip(1).collect()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runtime bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn forward(name: &str, origin: &str) -> Result<(), Box<dyn Error>> {
    let origin: SocketAddr = origin.parse()?;
    let (core, _) = host::cores()?;
    match name {
        "ring" => ring::serve(core, origin),
        "epoll" => epoll::serve(core, origin),
        #[cfg(feature = "glommio")]
        "glommio" => glommio::serve(core, origin),
        other => Err(format!("no forwarder is called {other}").into()),
    }
}

fn bench(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let options = options(&arguments)?;
    let start = host::Facts::observe();
    let samples = measure::run(&options)?;
    report::print(&options, &arguments, &start, &samples);
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        rounds: 5,
        connections: vec![64, 1],
        forwarders: FORWARDERS.iter().map(ToString::to_string).collect(),
        warm_up: Duration::from_millis(300),
        time: Duration::from_secs(2),
    };
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    if given("--test") || !given("--bench") {
        options.rounds = 1;
        options.connections = vec![4, 1];
        options.warm_up = Duration::from_millis(20);
        options.time = Duration::from_millis(100);
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--bench" | "--test" => {}
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.time = Duration::from_secs(number(value()?)? as u64),
            "--connections" => {
                options.connections = value()?.split(',').map(number).collect::<Result<_, _>>()?;
            }
            "--only" => {
                options.forwarders = value()?
                    .split(',')
                    .map(forwarder)
                    .collect::<Result<_, _>>()?;
            }
            other => {
                return Err(format!(
                    "{other}: expected --rounds, --seconds, --connections, --only or --test"
                ));
            }
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1000) => Ok(number),
        _ => Err(format!("{text}: expected a number from 1 to 1000")),
    }
}

fn forwarder(name: &str) -> Result<String, String> {
    if FORWARDERS.contains(&name) {
        return Ok(name.to_owned());
    }
    let known = FORWARDERS.join(", ");
    Err(format!("no forwarder is called {name}: expected {known}"))
}
