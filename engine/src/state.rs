//! What a shard tells about itself: the values behind `/state` and `/metrics`.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_base::{Duration, Instant};
use evenkeel_policy::{Snapshot, Transition};
use evenkeel_runtime::{
    Backend, Receiver, Sender, ShardStats, mailbox, now, spawn_local, timeout_at,
};

use crate::log::{self, Level};
use crate::metrics::ShardMetrics;
use crate::plan::Plan;
use crate::shard::ShardState;

/// Where a shard's answer goes.
pub(crate) type Query = Sender<ShardReport>;

/// A shard that does not answer within this is reported as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// One shard's view of everything.
pub(crate) struct ShardReport {
    pub(crate) shard: u32,
    pub(crate) now: Instant,
    pub(crate) upstreams: Vec<Snapshot>,
    pub(crate) idle_connections: Vec<usize>,
}

impl ShardReport {
    fn of(shard: &ShardState) -> ShardReport {
        let now = now();
        let upstreams = &shard.upstreams;
        ShardReport {
            shard: shard.index,
            now,
            upstreams: upstreams
                .iter()
                .map(|u| u.policy.borrow().dispatch.snapshot(now))
                .collect(),
            idle_connections: upstreams.iter().map(|u| u.pool.len()).collect(),
        }
    }
}

/// Answers the admin thread, and logs what the policies changed.
pub(crate) async fn answer_queries(shard: Rc<ShardState>, mut queries: Receiver<Query>) {
    for index in 0..shard.upstreams.len() {
        spawn_local(log_transitions(Rc::clone(&shard), index));
    }
    while let Some(reply) = queries.recv().await {
        drop(reply.send(ShardReport::of(&shard)));
    }
}

/// Writes ejections, trips and their ends to the log, off the request's path; sleeps in between.
async fn log_transitions(shard: Rc<ShardState>, index: usize) {
    let upstream = &shard.upstreams[index];
    loop {
        let changed = upstream.changed.wait();
        for transition in upstream.take_transitions() {
            log_transition(&shard, upstream.name(), &transition);
        }
        changed.await;
    }
}

fn log_transition(shard: &ShardState, upstream: &str, transition: &Transition) {
    let level = match transition {
        Transition::Restored { .. }
        | Transition::Probing { .. }
        | Transition::PanicLeft { .. }
        | Transition::BreakerClosed
        | Transition::BreakerHalfOpened => Level::Info,
        _ => Level::Warn,
    };
    let fields = [("upstream", upstream), ("shard", &shard.index.to_string())];
    log::event(level, &format!("{transition:?}"), &fields);
}

/// Everything that the admin thread may look at.
pub(crate) struct Source {
    pub(crate) backend: Backend,
    pub(crate) upstreams: Vec<UpstreamNames>,
    pub(crate) metrics: Vec<Arc<ShardMetrics>>,
    pub(crate) stats: Vec<Arc<ShardStats>>,
    pub(crate) draining: Arc<AtomicBool>,
    queries: Vec<Sender<Query>>,
}

/// Names that snapshots leave out.
pub(crate) struct UpstreamNames {
    pub(crate) name: String,
    pub(crate) endpoints: Vec<String>,
}

impl Source {
    pub(crate) fn new(
        plan: &Plan,
        backend: Backend,
        metrics: Vec<Arc<ShardMetrics>>,
        stats: Vec<Arc<ShardStats>>,
        draining: Arc<AtomicBool>,
        queries: Vec<Sender<Query>>,
    ) -> Source {
        let upstreams = plan.upstreams.iter().map(|upstream| UpstreamNames {
            name: upstream.name.clone(),
            endpoints: upstream.addresses.iter().map(ToString::to_string).collect(),
        });
        Source {
            backend,
            upstreams: upstreams.collect(),
            metrics,
            stats,
            draining,
            queries,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Asks every shard; one that has ended or is stuck is left out.
    pub(crate) async fn reports(&self) -> Vec<ShardReport> {
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
        reports
    }
}
