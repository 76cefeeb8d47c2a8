//! One upstream on one shard: its decisions, its connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_base::Rng;
use evenkeel_http1::Limits;
use evenkeel_policy::{Dispatch, Process, Transition};
use evenkeel_runtime::{Event, now};

use crate::plan::UpstreamPlan;
use crate::pool::{Pool, PoolConfig};

/// Transitions that wait to be logged, at most.
const MOST_TRANSITIONS: usize = 256;

pub(crate) struct Upstream {
    name: String,
    pub(crate) index: usize,
    pub(crate) policy: RefCell<Policy>,
    pub(crate) pool: Rc<Pool>,
    /// Of the heads that endpoints send.
    pub(crate) limits: Limits,
    transitions: RefCell<Vec<Transition>>,
    /// There are transitions to be told.
    pub(crate) changed: Event,
}

/// The pure part and the randomness it is handed.
pub(crate) struct Policy {
    pub(crate) dispatch: Dispatch,
    pub(crate) rng: Rng,
}

impl Upstream {
    pub(crate) fn new(
        index: usize,
        plan: &UpstreamPlan,
        process: Arc<Process>,
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
        let rng = Rng::stream(seed, (index as u64) << 32 | u64::from(shard));
        Upstream {
            name: plan.name.clone(),
            index,
            policy: RefCell::new(Policy { dispatch, rng }),
            pool: Pool::new(plan.addresses.clone(), pool),
            limits: Limits::default(),
            transitions: RefCell::new(Vec::with_capacity(MOST_TRANSITIONS)),
            changed: Event::new(),
        }
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

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
