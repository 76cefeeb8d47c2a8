//! The limits of this process: what it may lock and how much it may open.

use evenkeel_runtime::StartError;
use evenkeel_runtime::probe::{self, Uring};

use super::check::{Check, Topic};
use super::parse::Limit;

const MEMLOCK: Topic = Topic {
    name: "memlock",
    page: "tuning/host/memlock.md",
};
const OPEN_FILES: Topic = Topic {
    name: "open-files",
    page: "tuning/host/open-files.md",
};

/// Its holder is not counted (capabilities(7)).
pub(super) const CAP_IPC_LOCK: u32 = 14;

/// Fewer do not serve: shards, listeners and admin pages take some, each request two.
const FEWEST_FILES: u64 = 256;
/// Ring, bell, listeners and what the process holds beside its connections, for one shard.
const FILES_PER_SHARD: u64 = 16;

/// Whether every shard may lock its ring.
pub(super) fn memlock(
    ring: &Result<Uring, StartError>,
    limit: Option<Limit>,
    privileged: Option<bool>,
    shards: u64,
) -> Check {
    let needed = probe::memlock_per_shard().saturating_mul(shards);
    let remedy = format!(
        "raise it to {} or more (LimitMEMLOCK=, ulimit -l)",
        size(needed)
    );
    let Some(Limit { soft, .. }) = limit else {
        return MEMLOCK.cannot_tell("/proc/self/limits");
    };
    let found = format!("{} for {shards} shard(s)", size(soft));
    if matches!(ring, Err(StartError::Memlock(_))) {
        return MEMLOCK.fail(format!("{found}: not enough for one ring"), remedy);
    }
    if privileged == Some(true) {
        return MEMLOCK.ok(format!(
            "not counted: this process has CAP_IPC_LOCK (the limit is {})",
            size(soft)
        ));
    }
    match soft >= needed {
        true => MEMLOCK.ok(found),
        false => MEMLOCK.fail(format!("{found}, which may want {}", size(needed)), remedy),
    }
}

/// Whether all connections that the configuration allows can be open at a time.
pub(super) fn open_files(limit: Option<Limit>, connections: u64, shards: u64) -> Check {
    let Some(Limit { soft, hard }) = limit else {
        return OPEN_FILES.cannot_tell("/proc/self/limits");
    };
    let fixed = FILES_PER_SHARD.saturating_mul(shards);
    // A busy connection has one to an endpoint beside it.
    let needed = connections.saturating_mul(2).saturating_add(fixed);
    let remedy = match hard >= needed {
        true => format!("raise it to {needed} (LimitNOFILE=, ulimit -n)"),
        false => format!(
            "raise it to {needed} (LimitNOFILE=, as root: the hard limit is {hard}), or lower \
             max_connections"
        ),
    };
    if soft >= needed {
        return OPEN_FILES.ok(format!("{} for {connections} connections", count(soft)));
    }
    if soft < FEWEST_FILES {
        return OPEN_FILES.fail(format!("{soft}: too few to serve"), remedy);
    }
    let enough_for = soft.saturating_sub(fixed) / 2;
    OPEN_FILES.warn(
        format!(
            "{soft} are enough for {enough_for} busy connections, and the configuration allows \
             {connections}: past that, requests find no connection to an endpoint and get a 502"
        ),
        remedy,
    )
}

fn count(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        u64::MAX => "unlimited".to_owned(),
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
            format!("{} MiB", bytes >> 20)
        }
        bytes => format!("{} KiB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;
    use std::io;

    fn limit(soft: u64, hard: u64) -> Option<Limit> {
        Some(Limit { soft, hard })
    }

    #[test]
    fn memlock_by_shards_and_privilege() {
        const KIB: u64 = 1024;
        let made = || {
            Ok(Uring {
                missing: vec![],
                operations: 9,
            })
        };
        for (soft, privileged, shards, expected) in [
            (256 * KIB, Some(false), 1, Status::Ok),
            (256 * KIB - 1, Some(false), 1, Status::Fail),
            (512 * KIB, Some(false), 3, Status::Fail),
            (64 * KIB, Some(true), 64, Status::Ok),
            (64 * KIB, None, 1, Status::Fail),
            (u64::MAX, Some(false), 1024, Status::Ok),
        ] {
            let check = memlock(&made(), limit(soft, soft), privileged, shards);
            assert_eq!(check.status, expected, "{check}");
        }
        let unknown = memlock(&made(), None, Some(false), 1);
        assert_eq!(unknown.status, Status::Warn);
        let too_few = memlock(&made(), limit(512 * KIB, 512 * KIB), None, 4);
        assert!(too_few.remedy.contains("1 MiB"), "{too_few}");
        // What the kernel says counts for more than the numbers.
        let refused = Err(StartError::Memlock(io::Error::from_raw_os_error(12)));
        let check = memlock(&refused, limit(256 * KIB, 256 * KIB), Some(true), 1);
        assert_eq!(check.status, Status::Fail);
    }

    #[test]
    fn open_files_by_connections() {
        for (soft, hard, connections, expected) in [
            (255, 255, 10, Status::Ok),
            (255, 255, 1000, Status::Fail),
            (256, 256, 100, Status::Ok),
            (1024, 524_288, 100_000, Status::Warn),
            (200_032, 200_032, 100_000, Status::Ok),
            (200_031, 200_031, 100_000, Status::Warn),
            (u64::MAX, u64::MAX, 10_000_000, Status::Ok),
        ] {
            let check = open_files(limit(soft, hard), connections, 2);
            assert_eq!(check.status, expected, "{check}");
        }
        assert_eq!(open_files(None, 1, 1).status, Status::Warn);
        let check = open_files(limit(1024, 524_288), 100_000, 2);
        assert!(check.found.contains("enough for 496 busy"), "{check}");
        assert!(!check.remedy.contains("hard limit"), "{check}");
        let check = open_files(limit(1024, 4096), 100_000, 2);
        assert!(check.remedy.contains("hard limit is 4096"), "{check}");
    }
}
