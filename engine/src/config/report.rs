//! Collects what the readers find while a file is read to its end.

use std::cell::RefCell;

use super::problem::{Found, Severity};

/// Findings of one file. Shared by all readers of it.
#[derive(Default)]
pub(super) struct Report {
    found: RefCell<Vec<Found>>,
    shares: RefCell<Vec<Share>>,
}

/// An absolute number of the process that each shard takes a part of.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) value: u64,
    pub(super) meaning: Meaning,
}

/// What is lost when the parts become too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A cap: parts of at least 1 add up to more than the whole.
    Cap,
    /// Failures in a row: a part of 1 acts on a single failure.
    Row,
}

impl Report {
    pub(super) fn error(&self, at: usize, key: &str, text: impl Into<String>) {
        self.add(Severity::Error, at, key, text.into());
    }

    pub(super) fn warning(&self, at: usize, key: &str, text: impl Into<String>) {
        self.add(Severity::Warning, at, key, text.into());
    }

    pub(super) fn share(&self, share: Share) {
        self.shares.borrow_mut().push(share);
    }

    fn add(&self, severity: Severity, at: usize, key: &str, text: String) {
        self.found.borrow_mut().push(Found {
            at,
            severity,
            key: key.to_owned(),
            text,
        });
    }

    /// Everything found as problems when any is an error, else warnings and shares.
    pub(super) fn settle(self) -> Result<(Vec<Found>, Vec<Share>), Vec<Found>> {
        let found = self.found.into_inner();
        if found.iter().any(|found| found.severity == Severity::Error) {
            return Err(found);
        }
        Ok((found, self.shares.into_inner()))
    }
}

impl Share {
    /// A warning when `shards` parts of it no longer mean what the number says.
    pub(super) fn warning(&self, shards: u64) -> Option<Found> {
        let Share { value, .. } = *self;
        let text = match self.meaning {
            Meaning::Cap if value > 0 && value < shards => format!(
                "is {value} for the process, but each of {shards} shards gets at least 1; \
                 set it to {shards} or more, or engine.shards to {value} or fewer"
            ),
            Meaning::Row if value > 1 && value < 2 * shards => format!(
                "is {value} for the process, so that some of {shards} shards act on a single \
                 failure; set it to {} or more, or engine.shards to {} or fewer",
                2 * shards,
                value / 2
            ),
            _ => return None,
        };
        Some(Found {
            at: self.at,
            severity: Severity::Warning,
            key: self.key.clone(),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(value: u64, meaning: Meaning) -> Share {
        Share {
            at: 0,
            key: "k".into(),
            value,
            meaning,
        }
    }

    #[test]
    fn a_cap_is_meaningless_below_one_a_shard_and_off_at_zero() {
        assert!(share(3, Meaning::Cap).warning(4).is_some());
        assert!(share(4, Meaning::Cap).warning(4).is_none());
        assert!(share(0, Meaning::Cap).warning(4).is_none());
    }

    #[test]
    fn failures_in_a_row_are_meaningless_below_two_a_shard() {
        let warning = share(5, Meaning::Row).warning(3).unwrap();
        assert!(
            warning
                .text
                .contains("set it to 6 or more, or engine.shards to 2 or fewer")
        );
        assert!(share(5, Meaning::Row).warning(2).is_none());
        assert!(
            share(1, Meaning::Row).warning(64).is_none(),
            "one failure was asked for"
        );
        assert!(share(0, Meaning::Row).warning(64).is_none(), "off");
    }
}
