//! Cores: are they there, are they the process's own, do they run at full speed?

use super::check::{Check, Topic};
use super::parse::{Quota, list};

const SHARDS: Topic = Topic {
    name: "shards",
    page: "tuning/host/cgroup-quota.md",
};
const QUOTA: Topic = Topic {
    name: "cgroup-quota",
    page: "tuning/host/cgroup-quota.md",
};
const ISOLATION: Topic = Topic {
    name: "core-isolation",
    page: "tuning/host/core-isolation.md",
};
const GOVERNOR: Topic = Topic {
    name: "cpu-governor",
    page: "tuning/host/cpu-governor.md",
};

/// Whether each shard gets the core that it wants.
pub(super) fn shards(wanted: &[usize], allowed: &[usize]) -> Check {
    if allowed.is_empty() {
        return SHARDS.cannot_tell("sched_getaffinity");
    }
    let missing: Vec<usize> = wanted
        .iter()
        .copied()
        .filter(|core| !allowed.contains(core))
        .collect();
    let (shards, allowed) = (wanted.len(), list(allowed));
    match missing.is_empty() {
        true => SHARDS.ok(format!(
            "{shards} on cores {} of {allowed} that it may use",
            list(wanted)
        )),
        false => SHARDS.fail(
            format!("{shards} are wanted, but the process may use cores {allowed} only"),
            "lower engine.shards, or allow more cores (taskset, AllowedCPUs=, cpuset)",
        ),
    }
}

/// Whether the control group gives each shard a whole core.
pub(super) fn quota(quota: Option<Quota>, shards: u64) -> Check {
    match quota {
        None => QUOTA.cannot_tell("/sys/fs/cgroup"),
        Some(Quota::Unlimited) => QUOTA.ok("no quota"),
        Some(given) => {
            let milli = given.millicores();
            let (whole, part) = (milli / 1000, milli % 1000 / 10);
            let found = format!("{whole}.{part:02} core(s) of CPU time for {shards} shard(s)");
            if milli >= shards.saturating_mul(1000) {
                return QUOTA.ok(found);
            }
            let fewer = match whole {
                0 => String::new(),
                whole => format!("set engine.shards = {whole}, or "),
            };
            QUOTA.warn(
                format!("{found}: busy loops are stopped for the rest of each period"),
                format!("{fewer}raise the quota to {shards} core(s) (CPUQuota=, --cpus)"),
            )
        }
    }
}

/// Whether cores that were set apart are used, and nothing but those.
pub(super) fn isolation(isolated: Option<&[usize]>, shards: &[usize]) -> Check {
    let isolated = match isolated {
        None => return ISOLATION.cannot_tell("/sys/devices/system/cpu/isolated"),
        Some([]) => return ISOLATION.ok("no core is set apart: right for most hosts"),
        Some(isolated) => isolated,
    };
    let (apart, used) = (list(isolated), list(shards));
    match shards.iter().all(|core| isolated.contains(core)) {
        true => ISOLATION.ok(format!("shards on {used} of the isolated cores {apart}")),
        false => ISOLATION.warn(
            format!("cores {apart} are isolated, but shards run on {used}"),
            // Programs do not get them by themselves, and "all" is what a process may use.
            format!("start the engine on them: taskset -c {apart}, or CPUAffinity={apart}"),
        ),
    }
}

/// Whether the shards' cores run at full speed when a request comes.
pub(super) fn governor(governors: &[Option<String>]) -> Check {
    let mut slow: Vec<&str> = governors.iter().flatten().map(String::as_str).collect();
    if slow.is_empty() || slow.len() < governors.len() {
        return GOVERNOR.cannot_tell("cpufreq");
    }
    slow.retain(|&governor| governor != "performance");
    slow.sort_unstable();
    slow.dedup();
    match slow.is_empty() {
        true => GOVERNOR.ok("performance"),
        false => GOVERNOR.warn(
            format!("{}: a core that was idle starts slowly", slow.join(", ")),
            "cpupower frequency-set -g performance",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Fail, Ok, Warn};
    use super::*;

    #[test]
    fn shards_and_the_cores_that_are_allowed() {
        for (wanted, allowed, expected) in [
            (&[0, 1][..], &[0, 1][..], Ok),
            (&[1], &[0, 1], Ok),
            (&[0, 2], &[0, 1], Fail),
            (&[0], &[], Warn),
        ] {
            assert_eq!(shards(wanted, allowed).status, expected);
        }
    }

    #[test]
    fn a_quota_below_the_shards_says_what_fits() {
        let of = |quota_us| {
            Some(Quota::Of {
                quota_us,
                period_us: 100_000,
            })
        };
        for (given, shards, expected, remedy) in [
            (Some(Quota::Unlimited), 8, Ok, ""),
            (of(200_000), 2, Ok, ""),
            (
                of(150_000),
                2,
                Warn,
                "set engine.shards = 1, or raise the quota to 2",
            ),
            (of(50_000), 1, Warn, "raise the quota to 1"),
            (None, 1, Warn, "look on the host"),
        ] {
            let check = quota(given, shards);
            assert_eq!(check.status, expected, "{check}");
            assert!(check.remedy.contains(remedy), "{check}");
        }
        assert!(quota(of(155_000), 2).found.starts_with("1.55 core(s)"));
    }

    #[test]
    fn isolated_cores_are_there_for_shards() {
        for (isolated, shards, expected, remedy) in [
            (Some(&[][..]), &[0, 1][..], Ok, ""),
            (Some(&[2, 3]), &[2, 3], Ok, ""),
            (Some(&[2, 3]), &[0, 1], Warn, "taskset -c 2-3"),
            (Some(&[3]), &[0, 3], Warn, "taskset -c 3"),
            (None, &[0], Warn, ""),
        ] {
            let check = isolation(isolated, shards);
            assert_eq!(check.status, expected, "{check}");
            assert!(check.remedy.contains(remedy), "{check}");
        }
    }

    #[test]
    fn governors_that_save_power_are_named_once() {
        let of = |words: &[Option<&str>]| -> Vec<Option<String>> {
            words.iter().map(|word| word.map(str::to_owned)).collect()
        };
        let check = governor(&of(&[
            Some("powersave"),
            Some("performance"),
            Some("powersave"),
        ]));
        assert_eq!(check.status, Warn);
        assert!(check.found.starts_with("powersave: "), "{check}");
        assert_eq!(governor(&of(&[Some("performance")])).status, Ok);
        for unknown in [&[][..], &[None], &[Some("performance"), None]] {
            let check = governor(&of(unknown));
            assert!(check.found.starts_with("cannot tell"), "{check}");
        }
    }
}
