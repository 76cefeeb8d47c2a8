//! What a bare forwarder costs on our own ring, on epoll and on glommio: the floor under the product.
//!
//! `cargo bench -p evenkeel-benches --bench runtime -- [--rounds N] [--seconds S] [--only a,b]`
//!
//! Each forwarder is a process of its own on core 0; load and origin share core 1 in this process. A
//! forwarder parses heads and forwards, one request in flight a connection, and has none of a product's
//! duties. CPU a request is the scheduler's own count of the forwarder's threads over the requests that
//! were answered. Rounds are interleaved in rotating order.

mod epoll;
mod frame;
#[cfg(feature = "glommio")]
mod glommio;
mod load;
mod measure;
mod ring;

use std::process::ExitCode;

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
    seconds: u64,
    only: Vec<String>,
}

fn main() -> ExitCode {
    if let (Ok(name), Ok(origin)) = (std::env::var(CHILD), std::env::var(ORIGIN)) {
        let origin = origin.parse().expect("the parent passes an address");
        match name.as_str() {
            "ring" => ring::serve(origin),
            "epoll" => epoll::serve(origin).expect("the forwarder runs until it is killed"),
            #[cfg(feature = "glommio")]
            "glommio" => glommio::serve(origin),
            other => panic!("no forwarder is called {other}"),
        }
        return ExitCode::SUCCESS;
    }
    match options(std::env::args().skip(1)) {
        Ok(options) => measure::run(&options),
        Err(text) => {
            eprintln!("runtime bench: {text}");
            ExitCode::from(2)
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let all = FORWARDERS.iter().map(ToString::to_string).collect();
    let mut options = Options {
        rounds: 5,
        seconds: 2,
        only: all,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            // Cargo adds it.
            "--bench" => {}
            "--rounds" => options.rounds = number(&value()?)?,
            "--seconds" => options.seconds = number(&value()?)? as u64,
            "--only" => {
                options.only = value()?.split(',').map(str::to_owned).collect();
                if let Some(odd) = options
                    .only
                    .iter()
                    .find(|n| !FORWARDERS.contains(&n.as_str()))
                {
                    return Err(format!(
                        "no forwarder is called {odd}: {}",
                        FORWARDERS.join(", ")
                    ));
                }
            }
            other => return Err(format!("{other}: expected --rounds, --seconds or --only")),
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
