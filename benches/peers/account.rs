//! What a proxy used: CPU from a control group of its own, else from the scheduler's counts of its
//! threads, and memory.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use loadgen::host::cpu_ns;

use crate::cleanup::{Group, family};

/// Where the CPU of a proxy is read.
pub(crate) enum Account {
    /// Version 2: `cpu.stat`, microseconds; version 1: `cpuacct.usage`, nanoseconds.
    Group(Group),
    /// Threads of the process and its children that are alive.
    Scheduler,
}

impl Account {
    pub(crate) fn open() -> Account {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("evenkeel-peers-{}-{number}", std::process::id());
        let parent = parents().into_iter().find(|path| {
            // `cpu.stat` is not in the root group of version 2; its children have it.
            path.join("cgroup.procs").exists()
        });
        let group = parent.and_then(|parent| Group::make(parent.join(name)).ok());
        match group {
            Some(group) if read(&group).is_some() => Account::Group(group),
            _ => Account::Scheduler,
        }
    }

    /// What a process has to write its id to before it becomes the proxy.
    pub(crate) fn members(&self) -> Option<PathBuf> {
        match self {
            Account::Group(group) => Some(group.path().join("cgroup.procs")),
            Account::Scheduler => None,
        }
    }

    pub(crate) fn cpu_ns(&self, process: u32) -> u64 {
        match self {
            Account::Group(group) => read(group).unwrap_or(0),
            Account::Scheduler => family(process).into_iter().map(cpu_ns).sum(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Account::Group(_) => "a control group of the proxy's own",
            Account::Scheduler => "the scheduler's counts of the proxy's threads and children",
        }
    }
}

fn read(group: &Group) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.path().join(name)).ok();
    if let Some(text) = read("cpu.stat")
        && let Some(usage) = text.lines().find_map(|l| l.strip_prefix("usage_usec "))
    {
        return Some(usage.trim().parse::<u64>().ok()? * 1_000);
    }
    read("cpuacct.usage")?.trim().parse().ok()
}

/// This process's own groups that account CPU, version 2 first: a child of them is inside every limit
/// that this process is under.
fn parents() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut parents = Vec::new();
    for (kind, controller) in [("cgroup2", ""), ("cgroup", "cpuacct")] {
        let inside = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (names, path) = (fields.next()?, fields.next()?);
            let same = names.split(',').any(|name| name == controller);
            same.then(|| path.trim_start_matches('/').to_owned())
        });
        let mount = mounts.lines().find_map(|line| {
            let (place, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let same = system.next() == Some(kind)
                && (controller.is_empty()
                    || system.nth(1)?.split(',').any(|name| name == controller));
            same.then(|| place.split(' ').nth(4))?
        });
        if let (Some(inside), Some(mount)) = (inside, mount) {
            parents.push(PathBuf::from(mount).join(inside));
        }
    }
    parents
}

/// Bytes of memory of the process and its children, pages shared with others in proportion.
pub(crate) fn memory_bytes(process: u32) -> Option<u64> {
    let of = |id: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    family(process).into_iter().map(of).sum()
}
