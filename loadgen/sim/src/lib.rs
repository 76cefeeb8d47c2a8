//! A discrete-event world in virtual time that drives `evenkeel_policy::dispatch` itself.
//!
//! Loops, endpoints with servers, arrivals and faults come from the same descriptions that the wire
//! plays; every pick is made by the machine that the proxy runs. One seed gives the same run on any
//! machine.

mod demo;
mod origin;
mod report;
mod world;

pub use demo::{Demo, GRAY};
pub use report::Phase;
pub use world::{Class, Record, Run, World};
