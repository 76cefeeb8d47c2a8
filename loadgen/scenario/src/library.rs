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

    const PAGE: &str = include_str!("../../../docs/SCENARIOS.md");

    #[test]
    fn the_page_lists_the_library() {
        for (name, _) in LIBRARY {
            let title = Scenario::named(name).unwrap().title;
            let row = format!("| `{name}` | {title} |");
            assert!(PAGE.contains(&row), "docs/SCENARIOS.md lacks {row}");
        }
        let rows = PAGE
            .lines()
            .rev()
            .take_while(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), LIBRARY.len(), "docs/SCENARIOS.md has more");
    }

    #[test]
    fn the_pages_example_and_faults_read() {
        let example = PAGE.split("```toml\n").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        Scenario::parse("example", example).unwrap_or_else(|problem| panic!("{problem}"));
        let table = PAGE.split("| fault | what").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let mut kinds = std::collections::HashSet::new();
        for row in rows {
            let cell = row.split('|').nth(1).unwrap();
            for words in cell.split('`').skip(1).step_by(2) {
                let fault = crate::Fault::during(words, evenkeel_base::Duration::ZERO, FAR);
                kinds.insert(std::mem::discriminant(&fault.unwrap().kind));
            }
        }
        assert_eq!(kinds.len(), 9, "every kind has its row");
    }

    const FAR: evenkeel_base::Duration = evenkeel_base::Duration::from_secs(9);

    #[test]
    fn the_page_has_every_key() {
        for table in ["", "arrivals", "loops", "endpoints", "client", "fault"] {
            // A key that does not exist is refused with a list of those that do.
            let text = match table {
                "" => "zzz = 1\n".to_owned(),
                "fault" => "[[fault]]\nzzz = 1\n".to_owned(),
                table => format!("[{table}]\nzzz = 1\n"),
            };
            let problem = Scenario::parse("f", &text).unwrap_err().to_string();
            let known: Vec<&str> = problem.split('`').skip(1).step_by(2).skip(1).collect();
            assert!(!known.is_empty(), "{problem}");
            for key in known {
                let is_documented = PAGE.contains(&format!("`{key}`"))
                    || PAGE.contains(&format!("`[{key}]`"))
                    || PAGE.contains(&format!("`[[{key}]]`"));
                assert!(is_documented, "docs/SCENARIOS.md lacks {key} of [{table}]");
            }
        }
    }
}
