//! What one shard owns, and how its connections come and go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_base::Duration;
use evenkeel_http1::encode::Forwarded;
use evenkeel_http1::{Headers, Limits};
use evenkeel_policy::Process;
use evenkeel_runtime::{Event, spawn_local};

use crate::metrics::ShardMetrics;
use crate::plan::{ListenerPlan, Plan};
use crate::route::Route;
use crate::upstream::Upstream;

/// Scratch spaces kept for reuse.
const SPARE_SCRATCH: usize = 1024;

pub(crate) struct ShardState {
    pub(crate) index: u32,
    pub(crate) listeners: Vec<ListenerSettings>,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) metrics: Arc<ShardMetrics>,
    pub(crate) inflight: Inflight,
    pub(crate) drain: Event,
    draining: Cell<bool>,
    /// Downstream connections alive.
    pub(crate) connections: Cell<u64>,
    /// A connection ended.
    pub(crate) ended: Event,
    scratch: RefCell<Vec<Scratch>>,
}

/// A listener as this shard sees it.
pub(crate) struct ListenerSettings {
    pub(crate) max_connections: u64,
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) limits: Limits,
    pub(crate) max_body_bytes: u64,
    pub(crate) forwarded: Forwarded,
}

/// Memory for the header lines of one exchange.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) request: Headers,
    pub(crate) response: Headers,
}

impl ShardState {
    pub(crate) fn new(
        plan: &Plan,
        index: u32,
        processes: &[Arc<Process>],
        metrics: Arc<ShardMetrics>,
        inflight: Arc<AtomicU64>,
        seed: u64,
    ) -> Rc<ShardState> {
        let shards = plan.shards.len() as u64;
        let upstreams = plan.upstreams.iter().zip(processes).enumerate();
        let upstreams = upstreams
            .map(|(at, (plan, process))| Upstream::new(at, plan, Arc::clone(process), index, seed))
            .collect();
        let state = Rc::new(ShardState {
            index,
            listeners: plan
                .listeners
                .iter()
                .map(|l| ListenerSettings::new(l, shards))
                .collect(),
            routes: plan.routes.clone(),
            upstreams,
            metrics,
            inflight: Inflight {
                count: inflight,
                max: plan.max_inflight,
            },
            drain: Event::new(),
            draining: Cell::new(false),
            connections: Cell::new(0),
            ended: Event::new(),
            scratch: RefCell::new(Vec::new()),
        });
        for upstream in &state.upstreams {
            spawn_local(Rc::clone(&upstream.pool).sweep());
        }
        state
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// From now on every answer closes its connection, and idle ones close at once.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
        self.drain.notify_all();
    }

    pub(crate) fn take_scratch(&self) -> Scratch {
        self.scratch.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_scratch(&self, scratch: Scratch) {
        let mut spare = self.scratch.borrow_mut();
        if spare.len() < SPARE_SCRATCH {
            spare.push(scratch);
        }
    }
}

impl ListenerSettings {
    fn new(plan: &ListenerPlan, shards: u64) -> ListenerSettings {
        ListenerSettings {
            max_connections: plan.max_connections.div_ceil(shards).max(1),
            header_timeout: plan.header_timeout,
            idle_timeout: plan.idle_timeout,
            body_timeout: plan.body_timeout,
            limits: plan.limits,
            max_body_bytes: plan.max_body_bytes,
            forwarded: plan.forwarded,
        }
    }
}

/// The cap on requests in flight in the process: the one count that shards share on the path, and
/// only when it is configured.
pub(crate) struct Inflight {
    count: Arc<AtomicU64>,
    max: u64,
}

pub(crate) struct InflightPermit<'a>(Option<&'a AtomicU64>);

impl Inflight {
    pub(crate) fn enter(&self) -> Option<InflightPermit<'_>> {
        if self.max == 0 {
            return Some(InflightPermit(None));
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(InflightPermit(Some(&self.count)))
    }
}

impl Drop for InflightPermit<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
