//! Versions of the configuration: made once for the process, taken over by each shard in one step.
//!
//! A request holds the version that it began with. What a version no longer has lives until its last
//! request has ended. An upstream that a reload does not touch stays the same object; one that it
//! changes inherits what was learned of the endpoints that stay.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::{EndpointId, Process};

use crate::metrics::UpstreamCells;
use crate::plan::{Plan, UpstreamPlan};
use crate::route::Route;
use crate::upstream::Upstream;

/// A version as every shard makes it: with the cells that they share.
pub(crate) struct Blueprint {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) plan: Plan,
    upstreams: Vec<Prepared>,
}

/// One upstream of a version.
struct Prepared {
    origin: Origin,
    process: Arc<Process>,
    /// One a shard.
    cells: Vec<Arc<UpstreamCells>>,
}

/// Where an upstream comes from.
enum Origin {
    New,
    /// The same as this one of the version before.
    Kept(usize),
    /// Takes over from this one of the version before; for each endpoint, its place there.
    Changed(usize, Vec<Option<EndpointId>>),
}

impl Blueprint {
    pub(crate) fn first(plan: Plan) -> Blueprint {
        let shards = plan.shards.len();
        let upstreams = plan.upstreams.iter().map(|upstream| Prepared {
            origin: Origin::New,
            process: Process::new(&upstream.policy, shards as u32),
            cells: new_cells(shards),
        });
        Blueprint {
            number: 1,
            upstreams: upstreams.collect(),
            plan,
        }
    }

    /// The version that comes after this one.
    pub(crate) fn next(&self, plan: Plan) -> Blueprint {
        let upstreams = plan.upstreams.iter().map(|new| self.prepare(new));
        Blueprint {
            number: self.number + 1,
            upstreams: upstreams.collect(),
            plan,
        }
    }

    fn prepare(&self, new: &UpstreamPlan) -> Prepared {
        let shards = self.plan.shards.len();
        let old_plans = &self.plan.upstreams;
        let Some(at) = old_plans.iter().position(|old| old.name == new.name) else {
            return Prepared {
                origin: Origin::New,
                process: Process::new(&new.policy, shards as u32),
                cells: new_cells(shards),
            };
        };
        let (old, cells) = (&self.upstreams[at], self.upstreams[at].cells.clone());
        if old_plans[at] == *new {
            return Prepared {
                origin: Origin::Kept(at),
                process: Arc::clone(&old.process),
                cells,
            };
        }
        let from = places(&old_plans[at].addresses, &new.addresses);
        Prepared {
            process: Process::succeed(&old.process, &new.policy, &from),
            origin: Origin::Changed(at, from),
            cells,
        }
    }

    /// Counters of each upstream, one a shard.
    pub(crate) fn cells(&self) -> Vec<Vec<Arc<UpstreamCells>>> {
        let all = self.upstreams.iter();
        all.map(|prepared| prepared.cells.clone()).collect()
    }
}

fn new_cells(shards: usize) -> Vec<Arc<UpstreamCells>> {
    (0..shards).map(|_| Arc::default()).collect()
}

/// For each of the new addresses, its place among the old ones. An address that stands there more than
/// once is matched in order.
fn places(old: &[SocketAddr], new: &[SocketAddr]) -> Vec<Option<EndpointId>> {
    let mut taken = vec![false; old.len()];
    let mut place = |address: &SocketAddr| {
        let found = (0..old.len()).find(|&at| !taken[at] && old[at] == *address)?;
        taken[found] = true;
        Some(EndpointId(found as u32))
    };
    new.iter().map(&mut place).collect()
}

/// What one shard routes by.
pub(crate) struct Serving {
    pub(crate) number: u64,
    pub(crate) routes: Vec<Route>,
    pub(crate) upstreams: Vec<Rc<Upstream>>,
    /// Requests in flight in the process; zero for no cap.
    pub(crate) max_inflight: u64,
}

impl Serving {
    pub(crate) fn first(blueprint: &Blueprint, shard: u32, seed: u64) -> Serving {
        Serving::build(blueprint, shard, seed, &[])
    }

    /// Takes over from `old`, whose upstreams that do not go on are told so.
    pub(crate) fn succeed(blueprint: &Blueprint, shard: u32, seed: u64, old: &Serving) -> Serving {
        let version = Serving::build(blueprint, shard, seed, &old.upstreams);
        for upstream in &old.upstreams {
            if !version
                .upstreams
                .iter()
                .any(|new| Rc::ptr_eq(new, upstream))
            {
                upstream.retire();
            }
        }
        version
    }

    fn build(blueprint: &Blueprint, shard: u32, seed: u64, old: &[Rc<Upstream>]) -> Serving {
        let plans = blueprint.plan.upstreams.iter().enumerate();
        let build = |((index, plan), prepared): ((usize, &UpstreamPlan), &Prepared)| {
            let fresh = || {
                let stream = seed ^ (blueprint.number << 48) ^ ((index as u64) << 32);
                let cells = Arc::clone(&prepared.cells[shard as usize]);
                Upstream::new(plan, Arc::clone(&prepared.process), cells, shard, stream)
            };
            match &prepared.origin {
                Origin::New => fresh().start(shard),
                Origin::Kept(at) => Rc::clone(&old[*at]),
                Origin::Changed(at, from) => {
                    let upstream = fresh();
                    upstream.inherit(&old[*at], from);
                    upstream.start(shard)
                }
            }
        };
        Serving {
            number: blueprint.number,
            routes: blueprint.plan.routes.clone(),
            upstreams: plans.zip(&blueprint.upstreams).map(build).collect(),
            max_inflight: blueprint.plan.max_inflight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_stay_are_found_by_address_and_those_named_twice_in_order() {
        let addresses = |ports: &[u16]| -> Vec<SocketAddr> {
            let address = |&port: &u16| ([127, 0, 0, 1], port).into();
            ports.iter().map(address).collect()
        };
        let (old, new) = (addresses(&[1, 2, 2, 3]), addresses(&[2, 4, 2, 2, 1]));
        let found: Vec<_> = places(&old, &new)
            .into_iter()
            .map(|place| place.map(|id| id.0))
            .collect();
        assert_eq!(found, [Some(1), None, Some(2), None, Some(0)]);
    }
}
