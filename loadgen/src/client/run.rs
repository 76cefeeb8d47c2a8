//! A whole run: threads, their schedules, and what they bring home.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use evenkeel_base::{Duration, Instant};
use evenkeel_http1::Method;
use evenkeel_runtime::{Shard, ShardConfig, StartError, now};
use loadgen_scenario::{Arrivals, Process};

use super::exchange::Template;
use super::record::{Keep, Record};
use super::worker::{Harvest, Plan, work};
use crate::runtime;

/// Time between the start of the threads and the first intended start.
const HEAD_START: Duration = Duration::from_millis(50);

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    /// The Host header.
    pub host: String,
    pub path: String,
    pub method: String,
    /// Further header lines, each complete with its CR LF.
    pub headers: String,
    pub body: Vec<u8>,
    pub process: Process,
    /// Requests a second in all.
    pub rate: f64,
    pub warmup: Duration,
    pub duration: Duration,
    pub timeout: Duration,
    /// In all; each thread has at least one.
    pub connections: u32,
    pub threads: u32,
    pub seed: u64,
    pub keep: Keep,
    /// The core of each thread, as far as the list goes.
    pub cores: Vec<usize>,
    /// When the warm-up begins; `None` for as soon as the threads are there.
    pub start: Option<Instant>,
    /// When to give a disturbed run up before its end.
    pub patience: Patience,
}

/// What lag is borne before a run ends early, so that it can be repeated in time.
///
/// It looks at the generator's own lateness only, never at what the target answered. The default bears
/// everything.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    pub limits: Vec<LagLimit>,
    /// From here on the run goes to its end whatever comes.
    pub until: Instant,
}

/// More than `share` (0..=1) of the planned requests sent more than `lag` late is too much.
#[derive(Clone, Copy, Debug)]
pub struct LagLimit {
    pub lag: Duration,
    pub share: f64,
}

/// What a run gave.
pub struct Ended {
    pub record: Record,
    pub intended: u64,
    pub backlog: usize,
    pub schedule_hash: u64,
    /// The busiest generator thread's share of time outside its wait.
    pub busy: f64,
    pub started: Instant,
    /// Given up before the end of the schedule, see [`Patience`].
    pub cut_short: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("a generator thread died; see the lines above")]
    Died,
}

/// Runs to the end of the schedule and of what it began.
///
/// # Errors
/// When a thread cannot start or dies.
pub fn run(target: &Target) -> Result<Ended, RunError> {
    let threads = target.threads.max(1);
    let start = target.start.unwrap_or_else(|| now() + HEAD_START);
    let (harvests, harvested) = mpsc::channel::<Harvest>();
    let mut shards = Vec::new();
    for thread in 0..threads {
        let plan = plan(target, thread, threads, start);
        let config = ShardConfig {
            core: target.cores.get(thread as usize).copied(),
            ..runtime::shard(format!("load-{thread}"))
        };
        let harvests = harvests.clone();
        shards.push(Shard::spawn(config, move || async move {
            // Nobody listens any more when another thread has died.
            let _ = harvests.send(work(plan).await);
        })?);
    }
    drop(harvests);
    let mut record = Record::new(target.keep);
    let (mut intended, mut backlog, mut threads_home) = (0, 0, 0);
    let mut cut_short = false;
    for harvest in harvested {
        intended += harvest.intended;
        backlog += harvest.backlog;
        threads_home += 1;
        cut_short |= harvest.cut_short;
        record.merge(harvest.record);
    }
    let busy = shards.iter().map(busy_ratio).fold(0.0, f64::max);
    // Every one is joined, also after a bad one.
    let dead = shards
        .into_iter()
        .map(Shard::join)
        .filter(|joined| !joined)
        .count();
    if threads_home != threads || dead > 0 {
        return Err(RunError::Died);
    }
    record.samples.sort_by_key(|sample| sample.intended);
    let length = target.warmup + target.duration;
    let schedule_hash =
        Arrivals::schedule_hash(&target.process, target.rate, length, threads, target.seed);
    Ok(Ended {
        record,
        intended,
        backlog,
        schedule_hash,
        busy,
        started: start + target.warmup,
        cut_short,
    })
}

fn busy_ratio(shard: &Shard) -> f64 {
    let stats = shard.stats();
    let total = stats.total_ns.load(Ordering::Relaxed).max(1);
    stats.busy_ns.load(Ordering::Relaxed) as f64 / total as f64
}

fn plan(target: &Target, thread: u32, threads: u32, start: Instant) -> Plan {
    let share = target.connections / threads + u32::from(thread < target.connections % threads);
    Plan {
        address: target.address,
        template: template(target),
        process: target.process.clone(),
        rate: target.rate,
        warmup: target.warmup,
        duration: target.duration,
        timeout: target.timeout,
        connections: share.max(1),
        thread,
        threads,
        seed: target.seed,
        keep: target.keep,
        start,
        patience: target.patience.clone(),
    }
}

fn template(target: &Target) -> Template {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n{}",
        target.method, target.path, target.host, target.headers
    );
    if !target.body.is_empty() || matches!(target.method.as_str(), "POST" | "PUT" | "PATCH") {
        head.push_str(&format!("Content-Length: {}\r\n", target.body.len()));
    }
    let method = if target.method == "HEAD" {
        Method::Head
    } else {
        Method::Get
    };
    Template {
        method,
        head: head.into_bytes(),
        body: Arc::from(target.body.as_slice()),
    }
}
