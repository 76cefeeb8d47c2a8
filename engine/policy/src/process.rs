//! The cells of one upstream that every loop of the process may touch.
//!
//! Built once per upstream and handed to every loop. What a loop keeps for itself is not here. Each
//! cell is an atomic on its own cache line; there is no lock and no ordered structure.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::breaker::Gate;
use crate::dispatch::{Config, Origins};
use crate::endpoint::EndpointId;
use crate::exchange::Pages;
use crate::latency::LatencyCell;
use crate::rediscovery::Stamp;
use crate::store::Shared;

/// Process-wide cells of one upstream.
pub struct Process {
    loops: u32,
    endpoints: Box<[Arc<EndpointCells>]>,
    pub(crate) half_open: Gate,
}

/// Process-wide cells of one endpoint, in an `Arc` of their own so that they can outlive one
/// version of the upstream's list.
#[derive(Default)]
pub(crate) struct EndpointCells {
    pub(crate) inflight: Shared,
    pub(crate) latency: LatencyCell<Shared>,
    pub(crate) rediscovery: Stamp,
    /// One page a loop; none when nothing is exchanged.
    pub(crate) pages: Pages,
}

impl EndpointCells {
    fn new(pages: u32) -> EndpointCells {
        EndpointCells {
            pages: (0..pages).map(|_| Default::default()).collect(),
            ..EndpointCells::default()
        }
    }
}

impl Process {
    /// Cells for every endpoint of `config`, for a process of `loops` loops (at least 1).
    #[must_use]
    pub fn new(config: &Config, loops: u32) -> Arc<Process> {
        let loops = loops.max(1);
        let pages = if config.exchanges() { loops } else { 0 };
        let cells = |_| Arc::new(EndpointCells::new(pages));
        Arc::new(Process {
            loops,
            endpoints: config.weights.iter().map(cells).collect(),
            half_open: Gate::default(),
        })
    }

    /// Cells for a new version of an upstream: those of endpoints that stay are the same ones, so that
    /// both versions count in them while requests of the old one end. The half-open gate is new.
    #[must_use]
    pub fn succeed(old: &Process, config: &Config, from: &Origins) -> Arc<Process> {
        let pages = if config.exchanges() { old.loops } else { 0 };
        let cells = |old_id: &Option<EndpointId>| {
            let known = old_id.map(|id| &old.endpoints[id.index()]);
            match known {
                Some(cells) if cells.pages.len() == pages as usize => Arc::clone(cells),
                known => {
                    let fresh = EndpointCells::new(pages);
                    if let Some(known) = known {
                        fresh.latency.inherit(known.latency.bits());
                    }
                    Arc::new(fresh)
                }
            }
        };
        Arc::new(Process {
            loops: old.loops,
            endpoints: from.iter().map(cells).collect(),
            half_open: Gate::default(),
        })
    }

    #[must_use]
    pub fn loops(&self) -> u32 {
        self.loops
    }

    #[must_use]
    pub fn endpoints(&self) -> u32 {
        self.endpoints.len() as u32
    }

    pub(crate) fn endpoint(&self, id: EndpointId) -> &EndpointCells {
        &self.endpoints[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_wide_cells_may_cross_threads() {
        fn crosses<T: Send + Sync>() {}
        crosses::<Process>();
    }
}
