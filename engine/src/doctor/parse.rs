//! The forms in which the kernel writes what the checks want to know.

/// A soft limit and the hard one above it; `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// CPU time in microseconds that a control group may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Unlimited,
    Of { quota_us: u64, period_us: u64 },
}

impl Quota {
    /// In thousandths of a core.
    pub(super) fn millicores(self) -> u64 {
        match self {
            Quota::Unlimited => u64::MAX,
            Quota::Of {
                quota_us,
                period_us,
            } => quota_us.saturating_mul(1000) / period_us.max(1),
        }
    }
}

/// A file with one whole number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `0-1,4`: as the kernel lists cores; empty is none.
pub(super) fn cores(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; a line that says so is something else.
        if last > 65_535 {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// The other way round.
pub(super) fn list(cores: &[usize]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in sorted {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|&(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

/// `00000000,0000000c`: hexadecimal, the highest cores first.
pub(super) fn mask(text: &str) -> Option<Vec<usize>> {
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .rev()
        .filter(|&c| c != ',')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let bits = digits.iter().enumerate().flat_map(|(place, digit)| {
        (0..4)
            .filter(move |bit| digit >> bit & 1 == 1)
            .map(move |bit| place * 4 + bit)
    });
    Some(bits.collect())
}

/// One row of /proc/self/limits, such as `Max open files`.
pub(super) fn limit(text: &str, row: &str) -> Option<Limit> {
    let rest = text.lines().find_map(|line| line.strip_prefix(row))?;
    let mut words = rest.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some(Limit {
        soft: words.next()??,
        hard: words.next()??,
    })
}

/// The value of one line of /proc/self/status.
pub(super) fn status<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// `max 100000` or `150000 100000`, the cpu.max of the second version of control groups.
pub(super) fn cpu_max(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    let period_us = number(period)?;
    match quota {
        "max" => Some(Quota::Unlimited),
        quota => Some(Quota::Of {
            quota_us: number(quota)?,
            period_us,
        }),
    }
}

/// cpu.cfs_quota_us, -1 for none, and cpu.cfs_period_us of the first version.
pub(super) fn cfs(quota: &str, period: &str) -> Option<Quota> {
    let period_us = number(period)?;
    match quota.trim() {
        "-1" => Some(Quota::Unlimited),
        quota => Some(Quota::Of {
            quota_us: number(quota)?,
            period_us,
        }),
    }
}

/// The group of this process in /proc/self/cgroup: of the first version's cpu hierarchy with the
/// folder that it is mounted at, or of the second version.
pub(super) fn cgroup(text: &str) -> Option<(Option<String>, String)> {
    let mut second = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        if controllers.split(',').any(|name| name == "cpu") {
            return Some((Some(controllers.to_owned()), path.to_owned()));
        }
        if controllers.is_empty() {
            second = Some((None, path.to_owned()));
        }
    }
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_of_cores() {
        for (text, expected) in [
            ("0-1\n", Some(vec![0, 1])),
            ("0,2-3,7", Some(vec![0, 2, 3, 7])),
            ("\n", Some(vec![])),
            ("a-b", None),
            ("0-99999999999", None),
            ("0-99999999", None),
            ("3-", None),
        ] {
            assert_eq!(cores(text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("3\n", Some(vec![0, 1])),
            ("00000001,0000000c\n", Some(vec![2, 3, 32])),
            ("00000000", Some(vec![])),
            ("xyz", None),
        ] {
            assert_eq!(mask(text), expected, "{text:?}");
        }
        for (cores, expected) in [
            (&[][..], ""),
            (&[3, 1, 0], "0-1,3"),
            (&[5, 5], "5"),
            (&[0, 2, 4, 5], "0,2,4-5"),
        ] {
            assert_eq!(list(cores), expected);
        }
    }

    #[test]
    fn limits_by_row() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n\
                    Max locked memory         unlimited            unlimited            bytes     \n\
                    Max cpu time              oops                 1                    seconds\n";
        let of = |soft, hard| Some(Limit { soft, hard });
        assert_eq!(limit(text, "Max open files"), of(1024, 524_288));
        assert_eq!(limit(text, "Max locked memory"), of(u64::MAX, u64::MAX));
        assert_eq!(limit(text, "Max cpu time"), None);
        assert_eq!(limit("", "Max open files"), None);
    }

    #[test]
    fn values_of_status() {
        let text = "Name:\tevenkeel\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(status(text, "Seccomp"), Some("2"));
        assert_eq!(status(text, "CapEff"), None);
    }

    #[test]
    fn quotas_of_both_versions() {
        let of = |quota_us, period_us| {
            Some(Quota::Of {
                quota_us,
                period_us,
            })
        };
        for (text, expected) in [
            ("max 100000\n", Some(Quota::Unlimited)),
            ("150000 100000\n", of(150_000, 100_000)),
            ("max\n", None),
            ("", None),
        ] {
            assert_eq!(cpu_max(text), expected, "{text:?}");
        }
        assert_eq!(cfs("-1\n", "100000\n"), Some(Quota::Unlimited));
        assert_eq!(cfs("50000", "100000"), of(50_000, 100_000));
        assert_eq!(cfs("-1", ""), None);
        assert_eq!(of(150_000, 100_000).unwrap().millicores(), 1500);
        // A period of zero is no kernel's; it must not end the doctor.
        assert_eq!(of(1, 0).unwrap().millicores(), 1000);
    }

    #[test]
    fn the_group_of_either_version() {
        let first = "4:memory:/m\n3:cpu,cpuacct:/system.slice/a\n0::/\n";
        let first_group = (Some("cpu,cpuacct".into()), "/system.slice/a".into());
        assert_eq!(cgroup(first), Some(first_group));
        let second = "1:name=systemd:/\n0::/system.slice/e.service\n";
        assert_eq!(
            cgroup(second),
            Some((None, "/system.slice/e.service".into()))
        );
        for none in ["", "nonsense"] {
            assert_eq!(cgroup(none), None);
        }
    }
}
