//! Rounds: each forwarder in turn, as a process of its own.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use evenkeel_benches::{host, origin};
use loadgen::host::cpu_ns;

use crate::{CHILD, ORIGIN, Options};
use evenkeel_benches::load::Load;

/// One forwarder under one load in one round.
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) forwarder: String,
    pub(crate) connections: usize,
    /// Microseconds of the forwarder's CPU a request.
    pub(crate) cpu_us: f64,
    pub(crate) per_second: f64,
    /// Interrupts a request that other cores sent to the forwarder's core.
    pub(crate) interrupts: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Sample>, Box<dyn Error>> {
    let (_, load_core) = host::cores()?;
    let origin = origin::start(load_core)?;
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        for &connections in &options.connections {
            for turn in 0..options.forwarders.len() {
                let name = &options.forwarders[(round + turn) % options.forwarders.len()];
                let sample = measure(name, origin, round, connections, options)
                    .map_err(|error| format!("{name}, {connections} connections: {error}"))?;
                eprintln!(
                    "round {} {name}, {connections} connections: {:.2} us, {:.0}/s",
                    round + 1,
                    sample.cpu_us,
                    sample.per_second
                );
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

fn measure(
    name: &str,
    origin: SocketAddr,
    round: usize,
    connections: usize,
    options: &Options,
) -> Result<Sample, Box<dyn Error>> {
    let (core, load_core) = host::cores()?;
    let mut forwarder = Forwarder::start(name, origin)?;
    let id = forwarder.process.id();
    let load = Load {
        core: load_core,
        path: "/",
        connections,
        warm_up: options.warm_up,
        time: options.time,
    };
    let seen = load.run(forwarder.address, || (cpu_ns(id), host::interrupts(core)))?;
    if let Some(status) = forwarder.process.try_wait()? {
        return Err(format!("the forwarder ended ({status})").into());
    }
    let answers = seen.answers as f64;
    let interrupts = seen.last.1.zip(seen.first.1);
    Ok(Sample {
        round,
        forwarder: name.to_owned(),
        connections,
        cpu_us: (seen.last.0 - seen.first.0) as f64 / 1e3 / answers,
        per_second: answers / seen.elapsed.as_secs_f64(),
        interrupts: interrupts.map(|(last, first)| (last - first) as f64 / answers),
    })
}

struct Forwarder {
    process: Child,
    address: SocketAddr,
}

impl Forwarder {
    fn start(name: &str, origin: SocketAddr) -> Result<Forwarder, Box<dyn Error>> {
        let process = Command::new(std::env::current_exe()?)
            .env(CHILD, name)
            .env(ORIGIN, origin.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut forwarder = Forwarder {
            process,
            address: origin,
        };
        let mut line = String::new();
        let stdout = forwarder.process.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse();
        forwarder.address = address.map_err(|_| "it did not say where it listens")?;
        Ok(forwarder)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
