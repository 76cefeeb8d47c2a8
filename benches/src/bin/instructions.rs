//! Does one thing so many times, for an instruction counter to watch: `instructions THING COUNT`.
//! benches/policy/instructions takes the difference of two counts, so that start-up falls out.

use std::hint::black_box;
use std::process::ExitCode;

use evenkeel_benches::loops::Loop;
use evenkeel_policy::Placement;
use evenkeel_policy::store::{Counter, Local, Shared};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let thing = words.first().map_or("", String::as_str);
    let count: u64 = words.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    match thing {
        "counter-local" => counter(&Local::new(0), count),
        "counter-shared" => counter(&Shared::new(0), count),
        "request-per-loop" => requests(Placement::PerLoop, count),
        "request-shared" => requests(Placement::Shared, count),
        "request-exchange" => requests(Placement::Exchange, count),
        _ => {
            eprintln!(
                "instructions: counter-local, counter-shared or request-PLACEMENT, and a count"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn counter(cell: &impl Counter, count: u64) {
    for _ in 0..count {
        black_box(cell).add(1);
        black_box(cell).sub(1);
    }
}

/// Ten endpoints, two loops of which one works, default guards.
fn requests(placement: Placement, count: u64) {
    let mut loops = Loop::all(placement, 10, 2);
    for _ in 0..count {
        black_box(loops[0].request());
    }
}
