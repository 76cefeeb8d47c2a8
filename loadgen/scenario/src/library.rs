//! The scenarios that come with the program.

use crate::Scenario;

/// Name and text of each, in the order of `loadgen sim --list`.
pub const LIBRARY: [(&str, &str); 19] = [
    ("healthy", include_str!("../../scenarios/healthy.toml")),
    (
        "gray-failure",
        include_str!("../../scenarios/gray-failure.toml"),
    ),
    (
        "error-fast",
        include_str!("../../scenarios/error-fast.toml"),
    ),
    (
        "error-slow",
        include_str!("../../scenarios/error-slow.toml"),
    ),
    ("stall", include_str!("../../scenarios/stall.toml")),
    ("blackhole", include_str!("../../scenarios/blackhole.toml")),
    ("reset", include_str!("../../scenarios/reset.toml")),
    ("flap", include_str!("../../scenarios/flap.toml")),
    ("brownout", include_str!("../../scenarios/brownout.toml")),
    (
        "cold-start",
        include_str!("../../scenarios/cold-start.toml"),
    ),
    (
        "slow-servers",
        include_str!("../../scenarios/slow-servers.toml"),
    ),
    ("bursts", include_str!("../../scenarios/bursts.toml")),
    (
        "step-overload",
        include_str!("../../scenarios/step-overload.toml"),
    ),
    ("ramp", include_str!("../../scenarios/ramp.toml")),
    (
        "single-server",
        include_str!("../../scenarios/single-server.toml"),
    ),
    (
        "skewed-loops",
        include_str!("../../scenarios/skewed-loops.toml"),
    ),
    (
        "connection-affine",
        include_str!("../../scenarios/connection-affine.toml"),
    ),
    (
        "retries-without-budget",
        include_str!("../../scenarios/retries-without-budget.toml"),
    ),
    (
        "two-hundred-endpoints",
        include_str!("../../scenarios/two-hundred-endpoints.toml"),
    ),
];

impl Scenario {
    /// The one of this name from the library.
    #[must_use]
    pub fn named(name: &str) -> Option<Scenario> {
        let (name, text) = LIBRARY.iter().find(|(known, _)| *known == name)?;
        Some(Scenario::parse(name, text).expect("a test reads the whole library"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_reads_and_is_called_what_its_file_is() {
        for (name, text) in LIBRARY {
            let scenario =
                Scenario::parse(name, text).unwrap_or_else(|problem| panic!("{problem}"));
            assert_eq!(scenario.name, name);
            assert!(!scenario.title.is_empty() && scenario.title.len() < 90);
        }
        assert!(Scenario::named("healthy").is_some() && Scenario::named("ill").is_none());
    }
}
