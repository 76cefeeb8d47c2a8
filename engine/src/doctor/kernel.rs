//! Is io_uring there, allowed, and whole?

use std::io;

use evenkeel_runtime::StartError;
use evenkeel_runtime::probe::Uring;

use super::check::{Check, Status, Topic};
use crate::config::ROOT;
use crate::config::section::Kind;

const ALLOWED: Topic = Topic {
    name: "io_uring",
    page: "tuning/host/io-uring.md",
};
const FEATURES: Topic = Topic {
    name: "io_uring-features",
    page: "tuning/host/io-uring.md",
};

type Ring = Result<Uring, StartError>;

/// Whether this version has the backend that `runtime = "auto"` falls back to.
pub(super) fn has_epoll() -> bool {
    ROOT.sections
        .iter()
        .flat_map(|section| section.keys)
        .filter(|key| key.name == "runtime")
        .any(|key| matches!(key.kind, Kind::Choice { words, .. } if words.contains(&"epoll")))
}

/// How bad it is to have no ring, and what happens then.
fn without(fallback: bool) -> (Status, &'static str) {
    match fallback {
        true => (Status::Warn, "shards fall back to epoll"),
        false => (Status::Fail, "the engine does not start"),
    }
}

/// Whether the kernel may be asked for a ring at all, and if not, who forbids it.
pub(super) fn allowed(
    ring: &Ring,
    disabled: Option<u64>,
    seccomp: Option<u64>,
    fallback: bool,
) -> Check {
    let (status, then) = without(fallback);
    match ring {
        Err(StartError::Refused(error)) => {
            let (who, remedy) = refused_by(error, disabled, seccomp);
            ALLOWED.finding(status, format!("refused by {who}; {then}"), remedy)
        }
        Err(StartError::Io(error)) => ALLOWED.fail(
            format!("no ring could be made: {error}"),
            "run evenkeel doctor again with fewer processes and open files around it",
        ),
        // The other errors have a line of their own.
        Ok(_) | Err(_) => ALLOWED.ok("allowed"),
    }
}

fn refused_by(
    error: &io::Error,
    disabled: Option<u64>,
    seccomp: Option<u64>,
) -> (String, &'static str) {
    match (disabled, seccomp) {
        (Some(2), _) => (
            "kernel.io_uring_disabled = 2".into(),
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        (Some(1), _) => (
            "kernel.io_uring_disabled = 1".into(),
            "run it in the group of kernel.io_uring_group, or sysctl -w kernel.io_uring_disabled=0",
        ),
        (_, Some(1 | 2)) => (
            "a seccomp filter".into(),
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's profile",
        ),
        _ => (
            format!("the kernel ({})", error.kind()),
            "use a kernel built with CONFIG_IO_URING, and no security module that forbids it",
        ),
    }
}

/// Whether this kernel's ring has everything that a shard uses.
pub(super) fn features(ring: &Ring, release: Option<&str>, fallback: bool) -> Check {
    let linux = match release {
        Some(release) => format!("Linux {release}"),
        None => "this kernel".to_owned(),
    };
    let (status, then) = without(fallback);
    let remedy = "Linux 6.1 or newer is needed";
    match ring {
        Ok(Uring { missing, .. }) if !missing.is_empty() => {
            let missing = missing.join(", ");
            // Nothing falls back then: a ring can be made.
            FEATURES.fail(format!("{linux} does not know {missing}"), remedy)
        }
        Ok(Uring { operations, .. }) => FEATURES.ok(format!(
            "{linux}: ring set up as a shard does, with its buffers, and all {operations} operations"
        )),
        Err(StartError::TooOld { what }) => {
            FEATURES.finding(status, format!("{linux} lacks {what}; {then}"), remedy)
        }
        Err(_) => FEATURES.warn(
            format!("cannot tell: {linux} made no ring to ask"),
            "first see to the line that says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Ring {
        Err(StartError::Refused(io::Error::from_raw_os_error(1)))
    }

    fn made(missing: &[&'static str]) -> Ring {
        Ok(Uring {
            missing: missing.to_vec(),
            operations: 9,
        })
    }

    #[test]
    fn a_refusal_names_who_refuses() {
        for (disabled, seccomp, who, remedy) in [
            (
                Some(2),
                Some(2),
                "kernel.io_uring_disabled = 2",
                "sysctl -w",
            ),
            (
                Some(1),
                Some(0),
                "kernel.io_uring_disabled = 1",
                "kernel.io_uring_group",
            ),
            (Some(0), Some(2), "a seccomp filter", "io_uring_register"),
            (None, Some(2), "a seccomp filter", "io_uring_register"),
            (Some(0), Some(0), "the kernel", "CONFIG_IO_URING"),
            (None, None, "the kernel", "CONFIG_IO_URING"),
        ] {
            let check = allowed(&refused(), disabled, seccomp, false);
            assert_eq!(check.status, Status::Fail);
            assert!(check.found.contains(who), "{check}");
            assert!(check.remedy.contains(remedy), "{check}");
        }
    }

    #[test]
    fn without_a_ring_it_depends_on_the_fallback() {
        let old = || Err(StartError::TooOld { what: "EXT_ARG" });
        for (fallback, status, then) in [
            (true, Status::Warn, "epoll"),
            (false, Status::Fail, "does not start"),
        ] {
            for check in [
                allowed(&refused(), Some(0), Some(2), fallback),
                features(&old(), Some("5.15.0"), fallback),
            ] {
                assert_eq!(check.status, status, "{check}");
                assert!(check.found.contains(then), "{check}");
            }
        }
    }

    #[test]
    fn a_ring_that_could_be_made_is_allowed_and_may_lack_operations() {
        assert_eq!(
            allowed(&made(&[]), Some(1), Some(2), false).status,
            Status::Ok
        );
        assert_eq!(features(&made(&[]), None, false).status, Status::Ok);
        let check = features(&made(&["RecvMulti"]), Some("6.0.1"), true);
        assert_eq!(check.status, Status::Fail);
        assert!(
            check.found.contains("Linux 6.0.1 does not know RecvMulti"),
            "{check}"
        );
    }

    #[test]
    fn each_cause_is_told_once() {
        let memlock = Err(StartError::Memlock(io::Error::from_raw_os_error(12)));
        assert_eq!(allowed(&memlock, None, None, false).status, Status::Ok);
        assert_eq!(features(&memlock, None, false).status, Status::Warn);
        assert_eq!(features(&refused(), None, false).status, Status::Warn);
        let other = Err(StartError::Io(io::Error::from_raw_os_error(24)));
        assert_eq!(allowed(&other, None, None, true).status, Status::Fail);
    }
}
