//! The values behind `GET /state` and the counters, of one loop.

use alloc::vec::Vec;

use evenkeel_base::Instant;

use super::Dispatch;
use crate::breaker;
use crate::endpoint::EndpointId;

/// One loop's view of its upstream. Made on the admin path; allocates.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub endpoints: Vec<EndpointSnapshot>,
    pub limiter: LimiterSnapshot,
    pub breaker: breaker::State,
    /// Ejection is ignored because too many endpoints are out.
    pub is_panicking: bool,
    /// Endpoints that are ejected or on probe.
    pub out: u32,
    /// Attempts of this loop that are not over.
    pub attempts: u32,
    pub counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointSnapshot {
    pub id: EndpointId,
    pub weight: u32,
    /// Attempts in flight, as far as this loop sees.
    pub inflight: u64,
    /// Mean latency in ns; `None` before the first sample.
    pub latency_ns: Option<f64>,
    /// Mean success, 0..=1.
    pub success: f64,
    pub ejected_until: Option<Instant>,
    /// Back from an ejection without a success yet.
    pub is_on_probe: bool,
    pub counters: EndpointCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterSnapshot {
    /// This loop's part; `None` when there is no limiter.
    pub limit: Option<u32>,
    pub inflight: u32,
}

/// What has happened in this loop since it began. A guard that only observes counts what it would
/// have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub attempts: u64,
    pub shed_limiter: u64,
    /// Sheds because the table of attempts was full.
    pub shed_full: u64,
    pub breaker_rejected: u64,
    pub no_endpoint: u64,
    pub deadline_infeasible: u64,
    pub breaker_opened: u64,
    pub breaker_half_opened: u64,
    pub breaker_closed: u64,
    /// Picks that were looks at an endpoint that is avoided otherwise.
    pub looks: u64,
    /// Transitions that nobody took in time.
    pub transitions_lost: u64,
}

/// Of one endpoint in this loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    pub picks: u64,
    pub failures: u64,
    /// By the only detector there is: consecutive failures (and failed probes after them).
    pub ejections: u64,
}

impl Dispatch {
    /// Everything at a glance, as far as this loop sees. Allocates: for the admin path.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let endpoints = self.config.weights.iter().enumerate();
        Snapshot {
            endpoints: endpoints
                .map(|(index, weight)| self.endpoint_snapshot(index as u32, *weight, now))
                .collect(),
            limiter: LimiterSnapshot {
                limit: self.limiter.limit(),
                inflight: self.limiter.inflight(),
            },
            breaker: self.breaker.state(),
            is_panicking: self.outlier.is_panicking(),
            out: self.outlier.out(),
            attempts: self.attempts.live(),
            counters: self.counters(),
        }
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            transitions_lost: self.journal.lost(),
            ..self.counters
        }
    }

    /// Of one endpoint; zeros for an id that this upstream does not have.
    #[must_use]
    pub fn endpoint_counters(&self, id: EndpointId) -> EndpointCounters {
        let counters = self.endpoint_counters.get(id.index());
        counters.copied().unwrap_or_default()
    }

    fn endpoint_snapshot(&self, index: u32, weight: u32, now: Instant) -> EndpointSnapshot {
        let id = EndpointId(index);
        let view = self.latency.view(id);
        EndpointSnapshot {
            id,
            weight,
            inflight: self.inflight.load(id),
            latency_ns: view.latency_ns.map(f64::from),
            success: f64::from(view.success),
            // Ejections end at the next pick; one that is due already is over.
            ejected_until: self.outlier.ejected_until(id).filter(|until| *until > now),
            is_on_probe: self.outlier.is_on_probe(id),
            counters: self.endpoint_counters(id),
        }
    }
}
