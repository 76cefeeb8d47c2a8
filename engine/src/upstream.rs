//! One upstream on one shard: its decisions, its connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_base::Rng;
use evenkeel_http1::Limits;
use evenkeel_policy::{Dispatch, Origins, Process, Transition};
use evenkeel_runtime::{Event, now, spawn_local};

use crate::metrics::UpstreamCells;
use crate::plan::UpstreamPlan;
use crate::pool::{Pool, PoolConfig};
use crate::state::tell_transitions;

/// Transitions that wait to be logged, at most.
const MOST_TRANSITIONS: usize = 256;

pub(crate) struct Upstream {
    name: Arc<str>,
    pub(crate) cells: Arc<UpstreamCells>,
    pub(crate) policy: RefCell<Policy>,
    pub(crate) pool: Rc<Pool>,
    /// Of the heads that endpoints send.
    pub(crate) limits: Limits,
    transitions: RefCell<Vec<Transition>>,
    /// There are transitions to be told, or the upstream has been retired.
    pub(crate) changed: Event,
    retired: Cell<bool>,
}

/// The pure part and the randomness it is handed.
pub(crate) struct Policy {
    pub(crate) dispatch: Dispatch,
    pub(crate) rng: Rng,
}

impl Upstream {
    pub(crate) fn new(
        plan: &UpstreamPlan,
        process: Arc<Process>,
        cells: Arc<UpstreamCells>,
        shard: u32,
        seed: u64,
    ) -> Upstream {
        // Configured for the process: this shard's part, at least one.
        let max_idle = plan.pool.max_idle.div_ceil(process.loops() as usize);
        let pool = PoolConfig {
            max_idle,
            ..plan.pool
        };
        let dispatch = Dispatch::new(plan.policy.clone(), process, shard, now());
        let rng = Rng::stream(seed, u64::from(shard));
        Upstream {
            name: plan.name.as_str().into(),
            cells,
            policy: RefCell::new(Policy { dispatch, rng }),
            pool: Pool::new(plan.addresses.clone(), pool),
            limits: Limits::default(),
            transitions: RefCell::new(Vec::with_capacity(MOST_TRANSITIONS)),
            changed: Event::new(),
            retired: Cell::new(false),
        }
    }

    /// Starts the tasks that keep its pool clean and its changes told.
    pub(crate) fn start(self, shard: u32) -> Rc<Upstream> {
        let upstream = Rc::new(self);
        spawn_local(Rc::clone(&upstream.pool).sweep());
        spawn_local(tell_transitions(shard, Rc::clone(&upstream)));
        upstream
    }

    /// Takes over from an earlier version of this upstream what concerns the endpoints that stay.
    pub(crate) fn inherit(&self, old: &Upstream, from: &Origins) {
        let mut policy = self.policy.borrow_mut();
        policy
            .dispatch
            .inherit(&old.policy.borrow().dispatch, from, now());
        self.pool.inherit(&old.pool, from);
    }

    /// A later version has taken over: requests under way end here, and nothing is kept for others.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.pool.close();
        self.changed.notify_all();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Moves what the policies changed to where a task that is not on a request's path takes it.
    /// Nearly always there is nothing.
    pub(crate) fn note_transitions(&self, dispatch: &mut Dispatch) {
        while let Some(transition) = dispatch.poll_transition() {
            let mut transitions = self.transitions.borrow_mut();
            if transitions.len() < MOST_TRANSITIONS {
                transitions.push(transition);
            }
            self.changed.notify_all();
        }
    }

    pub(crate) fn take_transitions(&self) -> Vec<Transition> {
        self.transitions.borrow_mut().drain(..).collect()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}
