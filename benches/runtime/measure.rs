//! Rounds, and the table they make.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Shard, ShardConfig, Sharing, bind, local_address, sleep_until};
use loadgen::host::cpu_ns;
use loadgen::origin::{self, OriginConfig};
use loadgen_scenario::Law;

use crate::load;
use crate::{CHILD, ORIGIN, Options};

/// Connections of each load.
const LOADS: [u32; 2] = [64, 1];
const BODY_BYTES: usize = 1024;

struct Sample {
    forwarder: String,
    connections: u32,
    cpu_us: f64,
    per_second: f64,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if evenkeel_runtime::allowed_cores().len() < 2 {
        eprintln!(
            "runtime bench: two cores are needed, one for the forwarder and one for the load"
        );
        return ExitCode::FAILURE;
    }
    let (_origin, address) = start_origin();
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        for connections in LOADS {
            for turn in 0..options.only.len() {
                let forwarder = &options.only[(round + turn) % options.only.len()];
                let sample = measure(forwarder, address, connections, options.seconds);
                eprintln!(
                    "round {} {forwarder}, {connections} connections: {:.2} us, {:.0}/s",
                    round + 1,
                    sample.cpu_us,
                    sample.per_second
                );
                samples.push(sample);
            }
        }
    }
    print_table(options, &samples);
    ExitCode::SUCCESS
}

fn start_origin() -> (Shard, SocketAddr) {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = bind(loopback, 1024, Sharing::Exclusive).expect("a free port");
    let address = local_address(&socket).expect("a bound socket");
    let config = OriginConfig {
        index: 0,
        law: Law::Fixed(Duration::ZERO),
        servers: 0,
        faults: Vec::new(),
        seed: 1,
        body_bytes: BODY_BYTES,
    };
    let shard_config = ShardConfig {
        core: Some(1),
        ..ShardConfig::default()
    };
    let shard = Shard::spawn(shard_config, move || async move {
        origin::spawn(config, socket);
        sleep_until(Instant::MAX).await;
    });
    (shard.expect("io_uring is allowed"), address)
}

fn measure(forwarder: &str, origin: SocketAddr, connections: u32, seconds: u64) -> Sample {
    let mut child = Forwarder::start(forwarder, origin);
    let id = child.process.id();
    let cpu = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (first, last) = (Arc::clone(&cpu), Arc::clone(&cpu));
    let answered = load::run(
        child.address,
        connections,
        Duration::from_secs(seconds),
        move || first[0].store(cpu_ns(id), Ordering::Relaxed),
        move || last[1].store(cpu_ns(id), Ordering::Relaxed),
    );
    let cpu = cpu[1].load(Ordering::Relaxed) - cpu[0].load(Ordering::Relaxed);
    child.stop();
    Sample {
        forwarder: forwarder.into(),
        connections,
        cpu_us: cpu as f64 / 1e3 / answered.max(1) as f64,
        per_second: answered as f64 / seconds as f64,
    }
}

struct Forwarder {
    process: Child,
    address: SocketAddr,
}

impl Forwarder {
    fn start(name: &str, origin: SocketAddr) -> Forwarder {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process = Command::new(program)
            .env(CHILD, name)
            .env(ORIGIN, origin.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let mut line = String::new();
        let stdout = process.stdout.as_mut().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the forwarder says where it listens");
        let address = line
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{name} did not start"));
        Forwarder { process, address }
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Median, least and most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => (f64::NAN, f64::NAN, f64::NAN),
        all => (all[all.len() / 2], all[0], all[all.len() - 1]),
    }
}

fn print_table(options: &Options, samples: &[Sample]) {
    println!("| forwarder | connections | CPU us/request | requests/s | CPU, ratio to epoll |");
    println!("|---|---|---|---|---|");
    for connections in LOADS {
        let of = |name: &str| -> Vec<&Sample> {
            let same = |s: &&Sample| s.forwarder == name && s.connections == connections;
            samples.iter().filter(same).collect()
        };
        let epoll = of("epoll");
        for name in &options.only {
            let own = of(name);
            let cpu = spread(own.iter().map(|s| s.cpu_us).collect());
            let rate = spread(own.iter().map(|s| s.per_second).collect());
            let pairs = own
                .iter()
                .zip(&epoll)
                .map(|(own, epoll)| own.cpu_us / epoll.cpu_us);
            let ratio = spread(pairs.collect());
            println!(
                "| {name} | {connections} | {:.2} [{:.2}, {:.2}] | {:.0} | {:.2} [{:.2}, {:.2}] |",
                cpu.0, cpu.1, cpu.2, rate.0, ratio.0, ratio.1, ratio.2
            );
        }
    }
}
