//! A new version of an upstream takes over from the one before: what was learned of an endpoint that
//! stays is kept.
//!
//! The old version lives on until its requests have ended and settles them in its own books; what is
//! kept per process (`shared`, `exchange`) is one book for both. Permits are not taken over: what is
//! still under way in the old version does not count against the new one's limit.

use evenkeel_base::Instant;

use super::{Dispatch, EndpointCounters};
use crate::endpoint::EndpointId;

/// For each endpoint of a new version, its place in the old one; `None` for one that is new.
pub type Origins = [Option<EndpointId>];

/// The endpoints that stay, as (new, old).
pub(crate) fn staying(from: &Origins) -> impl Iterator<Item = (EndpointId, EndpointId)> {
    let places = from.iter().enumerate();
    places.filter_map(|(new, old)| Some((EndpointId(new as u32), (*old)?)))
}

impl Dispatch {
    /// Takes over what `old` has learned. `self` is fresh and shares the process's cells with it
    /// ([`crate::Process::succeed`]).
    pub fn inherit(&mut self, old: &Dispatch, from: &Origins, now: Instant) {
        assert_eq!(
            from.len(),
            self.endpoint_counters.len(),
            "one origin an endpoint"
        );
        self.latency.inherit(&old.latency, from);
        self.outlier.inherit(&old.outlier, from);
        self.breaker.inherit(&old.breaker, now);
        self.balance.inherit(&old.balance, from);
        self.counters = old.counters;
        self.is_panicking = old.is_panicking;
        for (new, old_id) in staying(from) {
            let counters: EndpointCounters = old.endpoint_counters[old_id.index()];
            self.endpoint_counters[new.index()] = counters;
        }
        self.debug_check();
    }
}
