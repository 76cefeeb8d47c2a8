//! What the machine is, and what it did meanwhile.

use std::fs;

use evenkeel_runtime::allowed_cores;

/// The forwarder's core, and the one of load and origin.
///
/// # Errors
/// With fewer than two cores.
pub fn cores() -> Result<(usize, usize), String> {
    match allowed_cores().as_slice() {
        [forwarder, load, ..] => Ok((*forwarder, *load)),
        cores => Err(format!(
            "two cores are needed, one for the forwarder and one for load and origin; {} may be used",
            cores.len()
        )),
    }
}

/// What stands beside every figure.
pub struct Facts {
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    pub congestion: String,
    /// Load average of the last minute: what else was running before the bench.
    pub load_average: String,
    /// Ticks since boot of every core: all of them, those the hypervisor took.
    ticks: (u64, u64),
}

impl Facts {
    #[must_use]
    pub fn observe() -> Facts {
        let load = read("/proc/loadavg");
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Facts {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model
                .unwrap_or("unknown CPU")
                .trim_start_matches(['\t', ' ', ':'])
                .to_owned(),
            cores: allowed_cores().len(),
            congestion: read("/proc/sys/net/ipv4/tcp_congestion_control")
                .trim()
                .to_owned(),
            load_average: load.split(' ').next().unwrap_or("").to_owned(),
            ticks: ticks(read("/proc/stat").lines().next().unwrap_or("")),
        }
    }

    /// Percent of the time since `self` that the hypervisor took.
    #[must_use]
    pub fn steal_percent(&self) -> f64 {
        let (total, steal) = ticks(read("/proc/stat").lines().next().unwrap_or(""));
        let (total, steal) = (total - self.ticks.0, steal - self.ticks.1);
        100.0 * steal as f64 / total.max(1) as f64
    }
}

/// Interrupts that other cores have sent to this one, since boot: to run its scheduler and to run a
/// function. `None` where the kernel does not name them as x86 does.
#[must_use]
pub fn interrupts(core: usize) -> Option<u64> {
    let table = read("/proc/interrupts");
    let heading = format!("CPU{core}");
    let column = table
        .lines()
        .next()?
        .split_whitespace()
        .position(|name| name == heading)?;
    let count = |name: &str| -> Option<u64> {
        let line = table.lines().find(|l| l.trim_start().starts_with(name))?;
        line.split_whitespace().nth(1 + column)?.parse().ok()
    };
    Some(count("RES:")? + count("CAL:")?)
}

/// Ticks since boot that this core had, and those of them in which it did nothing.
#[must_use]
pub fn idle_ticks(core: usize) -> (u64, u64) {
    let (stat, name) = (read("/proc/stat"), format!("cpu{core} "));
    let line = stat.lines().find(|line| line.starts_with(&name));
    let fields = fields(line.unwrap_or(""));
    // Waiting for a disk is doing nothing.
    (fields.iter().sum(), fields.iter().skip(3).take(2).sum())
}

fn ticks(line: &str) -> (u64, u64) {
    let fields = fields(line);
    let steal = fields.get(7).copied().unwrap_or(0);
    (fields.iter().sum(), steal)
}

/// User, nice, system, idle, iowait, irq, softirq, steal; guest time is inside user time.
fn fields(line: &str) -> Vec<u64> {
    let fields = line.split_whitespace().skip(1).take(8);
    fields.filter_map(|field| field.parse().ok()).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
