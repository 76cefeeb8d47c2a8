//! One finding about the host, and how findings are told.

use std::fmt;

use serde_json::{Value, json};

/// What a check is called, and the page that explains its remedy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// From the root of the repository.
    pub(super) page: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Ok,
    /// It serves, but not as well as it could; or nobody can tell.
    Warn,
    /// It does not serve, or not what the configuration says.
    Fail,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) topic: Topic,
    pub(super) status: Status,
    pub(super) found: String,
    /// What to do; empty when all is well.
    pub(super) remedy: String,
}

impl Topic {
    pub(super) fn ok(self, found: impl Into<String>) -> Check {
        self.finding(Status::Ok, found, "")
    }

    pub(super) fn warn(self, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.finding(Status::Warn, found, remedy)
    }

    pub(super) fn fail(self, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.finding(Status::Fail, found, remedy)
    }

    /// A file that is not there or not as expected: usual in containers and virtual machines.
    pub(super) fn cannot_tell(self, source: &str) -> Check {
        self.warn(
            format!("cannot tell: {source} says nothing here"),
            "in a container or a virtual machine, look on the host below it",
        )
    }

    pub(super) fn finding(
        self,
        status: Status,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            topic: self,
            status,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

/// One line.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topic { name, page } = self.topic;
        write!(f, "{:<4}  {name}: {}", self.status.word(), self.found)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        write!(f, " ({page})")
    }
}

/// Every finding, in the order in which they were made.
pub(super) struct Findings(pub(super) Vec<Check>);

impl Findings {
    fn count(&self, status: Status) -> usize {
        self.0.iter().filter(|check| check.status == status).count()
    }

    pub(super) fn fit(&self) -> bool {
        self.count(Status::Fail) == 0
    }

    pub(super) fn json(&self) -> Value {
        let checks = self.0.iter().map(|check| {
            json!({
                "name": check.topic.name,
                "status": check.status.word(),
                "found": check.found,
                "remedy": check.remedy,
                "page": check.topic.page,
            })
        });
        json!({ "checks": checks.collect::<Vec<_>>() })
    }
}

/// A line each, and one that sums up.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.0 {
            writeln!(f, "{check}")?;
        }
        write!(
            f,
            "{}: {} ok, {} warn, {} fail",
            if self.fit() { "fit" } else { "not fit" },
            self.count(Status::Ok),
            self.count(Status::Warn),
            self.count(Status::Fail),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: Topic = Topic {
        name: "memlock",
        page: "tuning/host/memlock.md",
    };

    #[test]
    fn a_finding_is_one_line_with_remedy_and_page() {
        let lines = [
            (
                TOPIC.ok("8 MiB"),
                "ok    memlock: 8 MiB (tuning/host/memlock.md)",
            ),
            (
                TOPIC.warn("4 KiB", "raise it"),
                "warn  memlock: 4 KiB; raise it (tuning/host/memlock.md)",
            ),
        ];
        for (check, line) in lines {
            assert_eq!(check.to_string(), line);
        }
    }

    #[test]
    fn one_failure_makes_a_host_unfit_and_warnings_do_not() {
        let mut findings = Findings(vec![TOPIC.ok("a"), TOPIC.cannot_tell("/proc/a")]);
        assert!(findings.fit());
        assert!(
            findings
                .to_string()
                .ends_with("\nfit: 1 ok, 1 warn, 0 fail")
        );
        findings.0.push(TOPIC.fail("b", "c"));
        assert!(!findings.fit());
        assert!(
            findings
                .to_string()
                .ends_with("\nnot fit: 1 ok, 1 warn, 1 fail")
        );
        let json = findings.json();
        assert_eq!(json["checks"].as_array().unwrap().len(), 3);
        assert_eq!(
            json["checks"][2],
            json!({
                "name": "memlock", "status": "fail", "found": "b", "remedy": "c",
                "page": "tuning/host/memlock.md",
            })
        );
    }
}
