//! Attempts in flight per endpoint: the first line of defence of every balancer that looks.
//!
//! An attempt counts from its pick until its connection is free. `per-loop`: each loop sees its own
//! attempts; `shared`: one atomic per endpoint, every loop sees all of them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::endpoint::EndpointId;
use crate::process::Process;
use crate::store::{Counter, Local, Placement};

pub(crate) enum Inflight {
    PerLoop(Box<[Local]>),
    Shared(Arc<Process>),
}

impl Inflight {
    pub(crate) fn new(placement: Placement, process: &Arc<Process>) -> Self {
        match placement {
            Placement::PerLoop => {
                Inflight::PerLoop((0..process.endpoints()).map(|_| Local::new(0)).collect())
            }
            Placement::Shared => Inflight::Shared(Arc::clone(process)),
        }
    }

    pub(crate) fn begin(&self, id: EndpointId) {
        match self {
            Inflight::PerLoop(cells) => cells[id.index()].add(1),
            Inflight::Shared(process) => process.endpoint(id).inflight.add(1),
        }
    }

    pub(crate) fn end(&self, id: EndpointId) {
        match self {
            Inflight::PerLoop(cells) => cells[id.index()].sub(1),
            Inflight::Shared(process) => process.endpoint(id).inflight.sub(1),
        }
    }

    pub(crate) fn load(&self, id: EndpointId) -> u64 {
        match self {
            Inflight::PerLoop(cells) => Counter::load(&cells[id.index()]),
            Inflight::Shared(process) => Counter::load(&process.endpoint(id).inflight),
        }
    }
}
