//! Every decision the proxy makes, and the order they are made in.
//!
//! Pure state machines: time and randomness are arguments, inputs borrow, outputs are values; no
//! I/O, no clock, no log, and no allocation after construction on the request path. [`dispatch`]
//! owns the order of a request's life; each sibling decides one thing. The same machines run in the
//! proxy, in the simulator and in property tests.
#![no_std]
extern crate alloc;
#[cfg(loom)]
extern crate std;

#[cfg(all(test, loom))]
mod interleavings;

mod attempts;
pub mod balance;
pub mod breaker;
pub mod dispatch;
mod endpoint;
mod exchange;
pub mod guard;
mod inflight;
pub mod latency;
pub mod limiter;
mod outcome;
pub mod outlier;
mod process;
pub mod quota;
mod rediscovery;
pub mod store;
mod sync;
mod transition;

pub use attempts::AttemptId;
pub use balance::Replay;
pub use dispatch::{
    Ask, Attempt, Config, Counters, Dispatch, EndpointCounters, EndpointSnapshot, Origins, Refusal,
    Request, Snapshot, Step, Verdict,
};
pub use endpoint::EndpointId;
pub use exchange::Interval;
pub use outcome::{Failure, Outcome};
pub use process::Process;
pub use store::Placement;
pub use transition::{Transition, Trip};
