//! Random traffic, failures and cancellations through `dispatch` on several loops, under invariants.
//!
//! Every request ends once; what a request held is given back; an endpoint that a loop ejected is not
//! picked outside panic. `EVENKEEL_SEEDS` says how many seeds (200), `EVENKEEL_SEED` replays one.

mod fleet;

use evenkeel_base::Rng;
use fleet::{Choices, Fleet, config};

const STEPS: u32 = 3_000;

#[test]
fn random_traffic_leaves_nothing_behind() {
    let one = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = one("EVENKEEL_SEED") {
        return sweep(seed);
    }
    for seed in 0..one("EVENKEEL_SEEDS").unwrap_or(200) {
        let outcome = std::panic::catch_unwind(|| sweep(seed));
        assert!(
            outcome.is_ok(),
            "replay: EVENKEEL_SEED={seed} cargo test -p evenkeel-policy --test sweep"
        );
    }
}

fn sweep(seed: u64) {
    let mut choices = Choices::Chance(Rng::stream(seed, 0));
    let config = config(&mut choices);
    let loops = 1 + choices.below(6) as u32;
    let mut fleet = Fleet::new(&config, loops, choices, Rng::stream(seed, 1));
    for _ in 0..STEPS {
        fleet.step();
    }
    fleet.end();
}
