//! Simulated requests a second: `cargo run --release -p loadgen-sim --example speed`.

use loadgen_scenario::Scenario;
use loadgen_sim::World;

const SCENARIO: &str = "
name = \"speed\"
title = \"Eight loops, ten endpoints, four servers each, 80 % load\"
length = \"300s\"
[arrivals]
process = \"poisson\"
rate = 6400
[loops]
count = 8
[endpoints]
count = 10
servers = 4
service = \"exp(5ms)\"
";

fn main() {
    let scenario = Scenario::parse("speed", SCENARIO).expect("a good scenario");
    let world = World::new(scenario, 1);
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let run = world.run();
        let rate = run.records.len() as f64 / start.elapsed().as_secs_f64();
        println!("{} requests, {rate:.0}/s", run.records.len());
    }
}
