//! What a shard tells about itself: the values behind `/state` and `/metrics`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use evenkeel_base::{Duration, Instant};
use evenkeel_policy::{Snapshot, Transition};
use evenkeel_runtime::{Backend, Receiver, Sender, ShardStats, mailbox, now, timeout_at};

use crate::log::{self, Level};
use crate::metrics::{ShardMetrics, UpstreamCells};
use crate::serve::Event;
use crate::shard::ShardState;
use crate::upstream::Upstream;
use crate::version::Blueprint;

/// Where a shard's answer goes.
pub(crate) type Query = Sender<ShardReport>;

/// A shard that does not answer within this is reported as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// One shard's view of everything.
pub(crate) struct ShardReport {
    pub(crate) shard: u32,
    /// Of the configuration; what follows is in its order.
    version: u64,
    pub(crate) now: Instant,
    pub(crate) upstreams: Vec<Snapshot>,
    pub(crate) idle_connections: Vec<usize>,
}

impl ShardReport {
    fn of(shard: &ShardState) -> ShardReport {
        let now = now();
        let version = shard.version();
        let upstreams = &version.upstreams;
        ShardReport {
            shard: shard.index,
            version: version.number,
            now,
            upstreams: upstreams
                .iter()
                .map(|u| u.policy.borrow().dispatch.snapshot(now))
                .collect(),
            idle_connections: upstreams.iter().map(|u| u.pool.len()).collect(),
        }
    }
}

/// Answers the admin thread.
pub(crate) async fn answer_queries(shard: Rc<ShardState>, mut queries: Receiver<Query>) {
    while let Some(reply) = queries.recv().await {
        drop(reply.send(ShardReport::of(&shard)));
    }
}

/// Writes ejections, trips and their ends to the log, off the request's path; sleeps in between. Ends
/// when the upstream is retired.
pub(crate) async fn tell_transitions(shard: u32, upstream: Rc<Upstream>) {
    while !upstream.is_retired() {
        let changed = upstream.changed.wait();
        for transition in upstream.take_transitions() {
            log_transition(shard, upstream.name(), &transition);
        }
        changed.await;
    }
}

fn log_transition(shard: u32, upstream: &str, transition: &Transition) {
    let level = match transition {
        Transition::Restored { .. }
        | Transition::Probing { .. }
        | Transition::PanicLeft { .. }
        | Transition::BreakerClosed
        | Transition::BreakerHalfOpened => Level::Info,
        _ => Level::Warn,
    };
    let fields = [("upstream", upstream), ("shard", &shard.to_string())];
    log::event(level, &format!("{transition:?}"), &fields);
}

/// Everything that the admin thread may look at.
pub(crate) struct Source {
    pub(crate) backend: Backend,
    /// Where the admin listener is.
    pub(crate) admin: SocketAddr,
    pub(crate) metrics: Vec<Arc<ShardMetrics>>,
    pub(crate) stats: Vec<Arc<ShardStats>>,
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) applied: Arc<Applied>,
    /// `None` without an access log.
    pub(crate) access_dropped: Option<Arc<AtomicU64>>,
    pub(crate) queries: Vec<Sender<Query>>,
    /// Where the process hears what administrators ask for; `None` when nobody listens.
    pub(crate) control: Option<mpsc::Sender<Event>>,
}

/// The configuration that is in force, and how it came to be.
pub(crate) struct Applied {
    current: Mutex<Arc<Published>>,
    pub(crate) reloads_applied: AtomicU64,
    pub(crate) reloads_refused: AtomicU64,
}

/// What the admin thread knows of a version.
pub(crate) struct Published {
    pub(crate) version: u64,
    pub(crate) since: SystemTime,
    /// Required by POST unless empty.
    pub(crate) admin_token: String,
    pub(crate) upstreams: Vec<UpstreamNames>,
}

/// Names that snapshots leave out, and the counters.
pub(crate) struct UpstreamNames {
    pub(crate) name: String,
    pub(crate) endpoints: Vec<String>,
    /// One a shard.
    pub(crate) cells: Vec<Arc<UpstreamCells>>,
}

impl Applied {
    pub(crate) fn new(first: &Blueprint) -> Applied {
        Applied {
            current: Mutex::new(Arc::new(Published::new(first))),
            reloads_applied: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
        }
    }

    /// Every shard has gone over to this version.
    pub(crate) fn publish(&self, blueprint: &Blueprint) {
        *self.lock() = Arc::new(Published::new(blueprint));
        self.reloads_applied.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn current(&self) -> Arc<Published> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Published>> {
        // Holders do not panic; the value is whole in any case.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Published {
    fn new(blueprint: &Blueprint) -> Published {
        let plans = blueprint.plan.upstreams.iter().zip(blueprint.cells());
        let upstreams = plans.map(|(upstream, cells)| UpstreamNames {
            name: upstream.name.clone(),
            endpoints: upstream.addresses.iter().map(ToString::to_string).collect(),
            cells,
        });
        Published {
            version: blueprint.number,
            since: SystemTime::now(),
            admin_token: blueprint.plan.admin_token.clone(),
            upstreams: upstreams.collect(),
        }
    }
}

/// A moment of the process, for a page.
pub(crate) struct View<'a> {
    pub(crate) source: &'a Source,
    pub(crate) version: Arc<Published>,
    /// Of the shards that serve this version and answered.
    pub(crate) reports: Vec<ShardReport>,
}

impl Source {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Asks every shard; one that has ended, is stuck, or is just going over to another version is left
    /// out.
    pub(crate) async fn view(&self) -> View<'_> {
        let mut waiting = Vec::new();
        for query in &self.queries {
            let (sender, receiver) = mailbox(1);
            if query.send(sender).is_ok() {
                waiting.push(receiver);
            }
        }
        let deadline = now() + PATIENCE;
        let mut reports = Vec::new();
        for mut receiver in waiting {
            if let Ok(Some(report)) = timeout_at(deadline, receiver.recv()).await {
                reports.push(report);
            }
        }
        let version = self.applied.current();
        reports.retain(|report: &ShardReport| report.version == version.version);
        View {
            source: self,
            version,
            reports,
        }
    }
}
