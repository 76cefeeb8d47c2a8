//! One description for both worlds: what arrives where, what serves it, and what goes wrong when.

use evenkeel_base::Duration;

use crate::file::{self, Problem};
use crate::{Faults, Law, Process, Split};

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: String,
    /// What it shows, in a line.
    pub title: String,
    pub length: Duration,
    /// From the start; not measured.
    pub warmup: Duration,
    pub arrivals: Process,
    /// Requests a second in all; a replay does not look at it.
    pub rate: f64,
    /// 1..=1024.
    pub loops: u32,
    pub split: Split,
    pub endpoints: Endpoints,
    pub client: Client,
    /// One for each endpoint.
    pub faults: Vec<Faults>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    /// One for each endpoint, at least 1; 1..=1000 endpoints.
    pub weights: Vec<u32>,
    /// Of each endpoint; zero for as many as there are requests.
    pub servers: u32,
    pub discipline: Discipline,
    pub service: Law,
    /// One way between loop and endpoint, in virtual time.
    pub hop: Duration,
}

/// In what order an endpoint serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// Processor sharing: everything at once, each at a part of the speed.
    Ps,
}

/// What whoever sends the requests does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Client {
    pub timeout: Duration,
    /// More tries after a failure, each a request of its own.
    pub retries: u32,
    /// Retries at most, as a part of the requests; `None` for no budget.
    pub budget: Option<f64>,
}

impl Scenario {
    /// Reads a TOML file's text; `file` is what a problem calls it.
    ///
    /// # Errors
    /// What is wrong first, with line and column.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, Problem> {
        file::parse(file, text)
    }

    /// The mean service time.
    #[must_use]
    pub fn service_time(&self) -> Duration {
        self.endpoints.service.mean()
    }

    /// Offered work over what the healthy servers can do; `None` without a queue.
    #[must_use]
    pub fn load(&self) -> Option<f64> {
        let servers = self.endpoints.weights.len() as f64 * f64::from(self.endpoints.servers);
        (servers > 0.0).then(|| self.rate * self.service_time().as_secs_f64() / servers)
    }

    /// From the start of the first fault to the end of the last; `None` when nothing goes wrong.
    #[must_use]
    pub fn trouble(&self) -> Option<(Duration, Duration)> {
        let faults = || self.faults.iter().flat_map(Faults::all);
        let from = faults().map(|fault| fault.from).min()?;
        let until = faults().map(|fault| fault.until).max()?;
        Some((from, until.min(self.length)))
    }

    /// The endpoints that something goes wrong at.
    #[must_use]
    pub fn sick(&self) -> Vec<u32> {
        let all = self.faults.iter().enumerate();
        let sick = all.filter(|(_, faults)| !faults.all().is_empty());
        sick.map(|(index, _)| index as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    const SMALL: &str = "\
name = \"small\"
title = \"a title\"
length = \"24s\"
[arrivals]
process = \"poisson\"
rate = 1600
[endpoints]
count = 5
service = \"half(5ms)\"
";

    fn problem(text: &str) -> String {
        Scenario::parse("f", text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let scenario = Scenario::parse("f", SMALL).unwrap();
        assert_eq!((scenario.loops, scenario.warmup), (1, Duration::ZERO));
        assert_eq!(scenario.endpoints.weights, [1; 5]);
        assert_eq!(scenario.endpoints.discipline, Discipline::Fifo);
        assert_eq!(scenario.client.timeout, Duration::from_secs(15));
        assert_eq!((scenario.load(), scenario.trouble()), (None, None));
    }

    #[test]
    fn everything_that_is_said_is_read() {
        let scenario = Scenario::named("gray-failure").unwrap();
        let s = Duration::from_secs;
        assert_eq!(scenario.trouble(), Some((s(8), s(14))));
        assert_eq!(scenario.sick(), [4]);
        assert_eq!(scenario.load(), Some(0.05));
        let slow = Fault::parse("slow:10x@8s..14s").unwrap();
        assert_eq!(scenario.faults[4].all(), [slow]);
        let scenario = Scenario::named("bursts").unwrap();
        let bursts = Process::Bursts {
            on: s(2),
            off: s(2),
            off_rate: 400.0,
        };
        assert_eq!(scenario.arrivals, bursts);
        let scenario = Scenario::named("retries-without-budget").unwrap();
        assert_eq!((scenario.client.retries, scenario.client.budget), (3, None));
    }

    #[test]
    fn a_problem_is_one_line_with_its_place_and_the_remedy() {
        let with = |more: &str| problem(&format!("{SMALL}{more}"));
        for (seen, start, word) in [
            (problem(""), "f:1:1: ", "name"),
            (problem("name = 3"), "f:1:8: ", "string"),
            (with("weights = [1, 2]\n"), "f:10:11: ", "2 weights for 5"),
            (with("servers = -1\n"), "f:10:11: ", "from 0 to 100000"),
            (with("color = 1\n"), "f:10:1: ", "unknown field"),
            (with("[loops]\nskew = 0.5\n"), "f:11:8: ", "skewed"),
            (with("[loops]\nsplit = \"odd\"\n"), "f:11:9: ", "uniform"),
            (
                with("[[fault]]\nendpoints = [5]\nfault = \"stall\"\n"),
                "f:11:13: ",
                "they are 0 to 4",
            ),
            (
                with("[[fault]]\nendpoints = \"some\"\nfault = \"stall\"\n"),
                "f:11:13: ",
                "\"all\"",
            ),
            (
                with("[[fault]]\nendpoints = \"all\"\nfault = \"slow\"\n"),
                "f:12:9: ",
                "slow:10x",
            ),
            (
                problem(&SMALL.replace("rate = 1600", "rate = 0")),
                "f:6:8: ",
                "expected 0.001",
            ),
            (
                problem(&SMALL.replace("rate = 1600", "rate = 1\nat = \"1s\"")),
                "f:7:6: ",
                "at is not a key of this process",
            ),
            (
                problem(&SMALL.replace("poisson", "step")),
                "f:5:11: ",
                "needs at",
            ),
            (
                problem(&SMALL.replace("half(5ms)", "half")),
                "f:9:11: ",
                "lognormal",
            ),
            (
                problem(&SMALL.replace("24s", "24")),
                "f:3:10: ",
                "is not a time",
            ),
        ] {
            assert!(seen.starts_with(start) && seen.contains(word), "{seen}");
            assert_eq!(seen.lines().count(), 1, "{seen}");
        }
    }
}
