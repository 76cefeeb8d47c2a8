//! Evenkeel: a thread-per-core HTTP data plane that stays level when what is behind it does not.
//!
//! This crate is the shell: sockets, bytes and clocks around the decisions of `evenkeel-policy`. See
//! docs/ARCHITECTURE.md for the map.

mod attempt;
mod batch;
mod carry;
mod client;
mod downstream;
mod exchange;
mod head;
mod metrics;
mod phase;
mod plan;
mod pool;
mod relay;
mod reply;
mod route;
mod shard;
mod upstream;

pub use plan::Plan;
