//! Evenkeel: a thread-per-core HTTP data plane that stays level when what is behind it does not.
//!
//! This crate is the shell: sockets, bytes and clocks around the decisions of `evenkeel-policy`. See
//! docs/ARCHITECTURE.md for the map.

mod access;
mod admin;
mod attempt;
mod batch;
mod carry;
pub mod cli;
mod client;
pub mod config;
mod doctor;
mod downstream;
mod exchange;
mod exposition;
pub mod head;
pub mod log;
mod metrics;
mod phase;
mod plan;
mod pool;
mod relay;
mod reply;
mod route;
pub mod serve;
mod shard;
mod sockets;
mod stall;
mod state;
mod state_json;
mod takeover;
mod tunnel;
mod upstream;
mod version;

pub use plan::Plan;
