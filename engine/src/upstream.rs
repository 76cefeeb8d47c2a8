//! One upstream on one shard: its decisions, its connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_base::Rng;
use evenkeel_http1::Limits;
use evenkeel_policy::{Dispatch, Process};
use evenkeel_runtime::now;

use crate::plan::UpstreamPlan;
use crate::pool::{Pool, PoolConfig};

pub(crate) struct Upstream {
    name: String,
    pub(crate) index: usize,
    pub(crate) policy: RefCell<Policy>,
    pub(crate) pool: Rc<Pool>,
    /// Of the heads that endpoints send.
    pub(crate) limits: Limits,
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
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
