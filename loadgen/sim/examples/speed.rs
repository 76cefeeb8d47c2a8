//! Simulated requests a second: `cargo run --release -p loadgen-sim --example speed`.

use evenkeel_base::Duration;
use evenkeel_policy::{Config, Replay};
use loadgen_scenario::{Faults, Law, arrivals};
use loadgen_sim::World;

fn main() {
    let world = World {
        policy: Config::new(10),
        loops: 8,
        rate: 6_400.0,
        arrivals: arrivals::Process::Poisson,
        length: Duration::from_secs(300),
        servers: 4,
        service: Law::Exponential(Duration::from_millis(5)),
        faults: vec![Faults::default(); 10],
        hop: Duration::from_micros(100),
        timeout: Duration::from_secs(15),
        replay: Replay::Replayable,
        seed: 1,
    };
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let run = world.run();
        let rate = run.records.len() as f64 / start.elapsed().as_secs_f64();
        println!("{} requests, {rate:.0}/s", run.records.len());
    }
}
