//! What the machine was and what it took away meanwhile: the honesty block's facts.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

/// The host as it was at the start of a run.
pub struct Host {
    kernel: String,
    cpu: String,
    cores: usize,
    ticks: Ticks,
}

/// Jiffies since boot, all cores together.
#[derive(Clone, Copy, Default)]
struct Ticks {
    total: u64,
    steal: u64,
}

impl Host {
    #[must_use]
    pub fn observe() -> Host {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Host {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model
                .unwrap_or("")
                .trim_start_matches([' ', '\t', ':'])
                .to_owned(),
            cores: evenkeel_runtime::allowed_cores().len(),
            ticks: ticks(&read("/proc/stat")),
        }
    }

    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The share of time that the hypervisor took since [`Host::observe`]; zero when too short to say.
    #[must_use]
    pub fn steal(&self) -> f64 {
        let now = ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let total = now.total.saturating_sub(self.ticks.total);
        if total < 100 {
            return 0.0;
        }
        now.steal.saturating_sub(self.ticks.steal) as f64 / total as f64
    }

    /// The facts that stand beside every number.
    #[must_use]
    pub fn honesty(&self, steal: f64, busy: f64, backlog: usize, discarded: u32) -> Value {
        json!({
            "kernel": self.kernel,
            "cpu": self.cpu,
            "cores": self.cores,
            "steal": steal,
            "pressure_some_avg10": pressure(),
            "generator_busy": busy,
            "backlog_at_end": backlog,
            "version": env!("CARGO_PKG_VERSION"),
            "discarded_runs": discarded,
        })
    }
}

/// `some avg10` of /proc/pressure/cpu, percent; `None` where the kernel does not say.
fn pressure() -> Option<f64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let field = text.lines().next()?.split("avg10=").nth(1)?;
    field.split(' ').next()?.parse().ok()
}

fn ticks(stat: &str) -> Ticks {
    let line = stat.lines().next().unwrap_or("");
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ticks {
        total: fields.iter().sum(),
        steal: fields.get(7).copied().unwrap_or(0),
    }
}

/// How many files this process may have open (the soft limit); `None` where the kernel does not say or
/// there is none.
#[must_use]
pub fn open_files_limit() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// CPU time of a process in nanoseconds, all threads that are alive, from the scheduler's own count.
#[must_use]
pub fn cpu_ns(process: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return 0;
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// What the scheduler did with the threads of a process, by thread id.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    /// Nanoseconds ready and without a core, and times that a core was got.
    threads: BTreeMap<u64, (u64, u64)>,
}

/// A thread that got a core less often says nothing.
const FEWEST_SLICES: u64 = 100;

impl Scheduling {
    /// As it is now; empty where the kernel does not say.
    #[must_use]
    pub fn of(process: u32) -> Scheduling {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        let thread = |task: fs::DirEntry| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let mut fields = text.split_whitespace().skip(1).map(str::parse::<u64>);
            Some((id, (fields.next()?.ok()?, fields.next()?.ok()?)))
        };
        let threads = tasks.into_iter().flatten().flatten().filter_map(thread);
        Scheduling {
            threads: threads.collect(),
        }
    }

    /// The longest mean wait for a core of any thread since `before`, in seconds.
    #[must_use]
    pub fn worst_delay_s(&self, before: &Scheduling) -> f64 {
        let of_thread = |(id, (delay, slices)): (&u64, &(u64, u64))| {
            let (delay_before, slices_before) = before.threads.get(id).copied().unwrap_or((0, 0));
            let slices = slices.saturating_sub(slices_before);
            let delay = delay.saturating_sub(delay_before);
            if slices < FEWEST_SLICES {
                0.0
            } else {
                delay as f64 / 1e9 / slices as f64
            }
        };
        self.threads.iter().map(of_thread).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_field_of_the_first_line() {
        let ticks = ticks("cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3\n");
        assert_eq!((ticks.total, ticks.steal), (360, 80));
        assert_eq!(super::ticks("").total, 0);
    }

    #[test]
    fn the_limit_of_open_files_is_read() {
        assert!(open_files_limit().is_none_or(|limit| limit > 0));
    }

    #[test]
    fn the_wait_of_the_worst_thread_counts_from_the_first_look() {
        let at = |threads: &[(u64, (u64, u64))]| Scheduling {
            threads: threads.iter().copied().collect(),
        };
        let before = at(&[(1, (1_000_000, 500)), (2, (0, 0))]);
        let after = at(&[(1, (201_000_000, 1_500)), (2, (90_000_000, 99))]);
        // 0.2 ms in each of 1000 slices; the other thread hardly ran.
        assert!((after.worst_delay_s(&before) - 200e-6).abs() < 1e-12);
        assert!(Scheduling::of(std::process::id()).threads.len() <= 10_000);
    }

    #[test]
    fn this_process_has_used_some_cpu() {
        assert!(cpu_ns(std::process::id()) > 0);
    }
}
