//! Compares how samples are weighted, on the demonstration's scenario over several seeds: the table of
//! docs/policies/balancer.md.
//!
//! `cargo run --release -p loadgen-sim --example weights`

use evenkeel_base::Duration;
use evenkeel_policy::Placement;
use evenkeel_policy::latency::Averaging;
use loadgen_sim::{Demo, GRAY};

const SEEDS: u64 = 20;
const TAU: Duration = Duration::from_millis(2_500);

fn main() {
    let floors = |worse, better| Averaging::Decay {
        tau: TAU,
        worse,
        better,
    };
    let arms = [
        ("plain, 0 / 0", floors(0.0, 0.0)),
        ("peak, 1 / 0", floors(1.0, 0.0)),
        ("half, 0.5 / 0", floors(0.5, 0.0)),
        ("0.2 / 0", floors(0.2, 0.0)),
        ("0.5 / 0.1", floors(0.5, 0.1)),
        ("0.2 / 0.02", floors(0.2, 0.02)),
        ("0.2 / 0.05", floors(0.2, 0.05)),
        ("0.2 / 0.1", floors(0.2, 0.1)),
        ("0.2 / 0.2", floors(0.2, 0.2)),
        ("0.1 / 0.05", floors(0.1, 0.05)),
        ("0.1 / 0.1", floors(0.1, 0.1)),
        ("0.05 / 0.05", floors(0.05, 0.05)),
        ("alpha 0.2", Averaging::Alpha(0.2)),
    ];
    for placement in [Placement::PerLoop, Placement::Shared] {
        println!("{placement:?}: worst (mean) of {SEEDS} seeds");
        println!(
            "{:16} {:>16} {:>16} {:>16} {:>14} {:>16}",
            "worse / better",
            "gray share %",
            "gray p99 ratio",
            "healthy p99 ms",
            "spread %",
            "return s"
        );
        for (name, averaging) in arms {
            print_arm(name, averaging, placement);
        }
    }
}

fn print_arm(name: &str, averaging: Averaging, placement: Placement) {
    let mut columns: [Vec<f64>; 5] = Default::default();
    for seed in 1..=SEEDS {
        let mut demo = Demo::new(seed);
        demo.world.policy.ewma.averaging = averaging;
        demo.world.policy.inflight = placement;
        demo.world.policy.latency = placement;
        let run = demo.world.run();
        let (healthy, gray) = (Demo::healthy(&run), Demo::gray(&run));
        let p99 = healthy.quantile(0.99).as_secs_f64();
        let back = Demo::time_to_return(&run).map_or(f64::INFINITY, Duration::as_secs_f64);
        // How far the healthy endpoint with the most traffic is above its fair share.
        let most = (0..5).map(|id| healthy.share(id)).fold(0.0, f64::max);
        columns[0].push(gray.share(GRAY) * 100.0);
        columns[1].push(gray.quantile(0.99).as_secs_f64() / p99);
        columns[2].push(p99 * 1e3);
        columns[3].push(most * 500.0 - 100.0);
        columns[4].push(back);
    }
    print!("{name:16}");
    for (values, width) in columns.iter().zip([16, 16, 16, 14, 16]) {
        let worst = values.iter().copied().fold(0.0, f64::max);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        print!(" {:>width$}", format!("{worst:.2} ({mean:.2})"));
    }
    println!();
}
