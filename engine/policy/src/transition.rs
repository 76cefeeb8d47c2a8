//! What changed: for logs, counters and the decisions page. A policy returns these and never logs.

use evenkeel_base::Instant;

use crate::endpoint::EndpointId;

/// A change of state worth telling, with the numbers that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Out of the balance until `until`, for the `times`-th time in a row, after so many failures
    /// in a row (zero: a probe on return failed).
    Ejected {
        endpoint: EndpointId,
        until: Instant,
        times: u32,
        consecutive: u32,
    },
    /// The ejection is over; one attempt at a time until the first success.
    Probing {
        endpoint: EndpointId,
    },
    /// Back in the balance.
    Restored {
        endpoint: EndpointId,
    },
    /// So many endpoints are out that ejection is ignored.
    PanicEntered {
        out: u32,
    },
    PanicLeft {
        out: u32,
    },
    /// The breaker refuses until `until`.
    BreakerOpened {
        until: Instant,
        cause: Trip,
    },
    BreakerHalfOpened,
    BreakerClosed,
}

/// Why a breaker opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trip {
    Consecutive {
        failures: u32,
    },
    ProbeFailed,
    /// A probe did not settle within its lease.
    ProbeLost,
}
