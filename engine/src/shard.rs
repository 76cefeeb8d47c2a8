//! What one shard owns, and how its connections come and go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_base::{Duration, Rng};
use evenkeel_http1::encode::Forwarded;
use evenkeel_http1::{Headers, Limits};
use evenkeel_runtime::{Event, now};

use crate::access::Sink;
use crate::metrics::ShardMetrics;
use crate::plan::ListenerPlan;
use crate::version::{Blueprint, Serving};

/// Scratch spaces kept for reuse.
const SPARE_SCRATCH: usize = 1024;

pub(crate) struct ShardState {
    pub(crate) index: u32,
    version: RefCell<Rc<Serving>>,
    listeners: RefCell<Vec<Rc<Listener>>>,
    pub(crate) metrics: Arc<ShardMetrics>,
    /// `None` without an access log.
    pub(crate) access: Option<Sink>,
    /// For request ids.
    pub(crate) rng: RefCell<Rng>,
    /// Requests in flight in the process: the one count that shards share on the path, and only when
    /// it is capped.
    inflight: Arc<AtomicU64>,
    draining: Cell<bool>,
    /// Downstream connections alive.
    pub(crate) connections: Cell<u64>,
    /// Sockets that are accepted from.
    pub(crate) listening: Cell<u32>,
    /// A connection ended, or a socket is accepted from no more.
    pub(crate) ended: Event,
    scratch: RefCell<Vec<Scratch>>,
}

/// A listener on this shard, as its connections see it.
pub(crate) struct Listener {
    settings: RefCell<Rc<ListenerSettings>>,
    leaving: Cell<bool>,
    handed_over: Cell<bool>,
    /// The listener leaves: no more connections, and those that there are end with their request.
    pub(crate) left: Event,
}

impl Listener {
    fn new(settings: ListenerSettings) -> Rc<Listener> {
        Rc::new(Listener {
            settings: RefCell::new(Rc::new(settings)),
            leaving: Cell::new(false),
            handed_over: Cell::new(false),
            left: Event::new(),
        })
    }

    pub(crate) fn settings(&self) -> Rc<ListenerSettings> {
        Rc::clone(&self.settings.borrow())
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Another process accepts what still waits in its sockets.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over.get()
    }

    fn leave(&self) {
        self.leaving.set(true);
        self.left.notify_all();
    }
}

/// What a listener's connections keep to.
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
        blueprint: &Blueprint,
        index: u32,
        metrics: Arc<ShardMetrics>,
        inflight: Arc<AtomicU64>,
        access: Option<Sink>,
    ) -> Rc<ShardState> {
        let version = Serving::first(blueprint, index, seed());
        let shards = blueprint.plan.shards.len() as u64;
        let listeners = blueprint.plan.listeners.iter();
        let listeners = listeners.map(|plan| Listener::new(ListenerSettings::new(plan, shards)));
        Rc::new(ShardState {
            index,
            version: RefCell::new(Rc::new(version)),
            listeners: RefCell::new(listeners.collect()),
            metrics,
            access,
            rng: RefCell::new(Rng::stream(seed(), u64::from(index))),
            inflight,
            draining: Cell::new(false),
            connections: Cell::new(0),
            listening: Cell::new(0),
            ended: Event::new(),
            scratch: RefCell::new(Vec::new()),
        })
    }

    /// The version that a request which begins now is served by.
    pub(crate) fn version(&self) -> Rc<Serving> {
        Rc::clone(&self.version.borrow())
    }

    pub(crate) fn listeners(&self) -> Vec<Rc<Listener>> {
        self.listeners.borrow().clone()
    }

    /// Goes over to another version, in one step as far as requests can see. For each of its listeners
    /// `places` tells the place in the version before.
    pub(crate) fn apply(&self, blueprint: &Blueprint, places: &[Option<usize>]) {
        let version = Serving::succeed(blueprint, self.index, seed(), &self.version());
        let shards = blueprint.plan.shards.len() as u64;
        let old = self.listeners();
        let mut listeners = Vec::new();
        for (plan, place) in blueprint.plan.listeners.iter().zip(places) {
            let settings = ListenerSettings::new(plan, shards);
            listeners.push(match place {
                Some(place) => {
                    *old[*place].settings.borrow_mut() = Rc::new(settings);
                    Rc::clone(&old[*place])
                }
                None => Listener::new(settings),
            });
        }
        for (at, listener) in old.iter().enumerate() {
            if !places.contains(&Some(at)) {
                listener.leave();
            }
        }
        *self.version.borrow_mut() = Rc::new(version);
        *self.listeners.borrow_mut() = listeners;
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// From now on every answer closes its connection, and idle ones close at once.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
        for listener in self.listeners() {
            listener.leave();
        }
    }

    /// As [`ShardState::start_draining`], while another process takes what waits in the sockets. Returns
    /// when this one takes nothing any more.
    pub(crate) async fn hand_over(&self) {
        for listener in self.listeners() {
            listener.handed_over.set(true);
        }
        self.start_draining();
        while self.listening.get() > 0 {
            self.ended.wait().await;
        }
    }

    /// A place among the requests in flight in the process; `None` at the cap (zero for no cap).
    pub(crate) fn enter(&self, max: u64) -> Option<InflightPermit<'_>> {
        if max == 0 {
            return Some(InflightPermit(None));
        }
        if self.inflight.fetch_add(1, Ordering::Relaxed) >= max {
            self.inflight.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(InflightPermit(Some(&self.inflight)))
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

pub(crate) struct InflightPermit<'a>(Option<&'a AtomicU64>);

impl Drop for InflightPermit<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Differs from process to process and from version to version.
fn seed() -> u64 {
    u64::from(std::process::id()) ^ now().as_nanos()
}
