//! What an experiment compares: a balancer and where its numbers are kept.

use crate::cli::Failure;

/// One way to run the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) balance: &'static str,
    /// Lines of the `[state]` table.
    pub(super) state: &'static str,
}

const fn arm(name: &'static str, balance: &'static str, state: &'static str) -> Arm {
    Arm {
        name,
        balance,
        state,
    }
}

const ARMS: [Arm; 7] = [
    arm("per-loop", "p2c-ewma", "mode = \"per-loop\""),
    arm("shared", "p2c-ewma", "mode = \"shared\""),
    arm("exchange", "p2c-ewma", "mode = \"exchange\""),
    arm(
        "shared-inflight",
        "p2c-ewma",
        "mode = \"per-loop\"\ninflight = \"shared\"",
    ),
    arm(
        "shared-latency",
        "p2c-ewma",
        "mode = \"per-loop\"\nlatency = \"shared\"",
    ),
    // Negative controls: they look at nothing that could be shared.
    arm("round-robin", "round-robin", "mode = \"per-loop\""),
    arm("random", "random", "mode = \"per-loop\""),
];

impl Arm {
    pub(super) fn named(name: &str) -> Result<Arm, Failure> {
        let found = ARMS.iter().find(|arm| arm.name == name).copied();
        found.ok_or_else(|| {
            let names = ARMS.map(|arm| arm.name).join(", ");
            Failure::usage(format!("\"{name}\" is no arm; they are {names}"))
        })
    }
}
