//! A discrete-event world in virtual time that drives `evenkeel_policy::dispatch` itself.
//!
//! Loops, endpoints with servers, arrivals and faults come from the same descriptions that the wire
//! plays; every pick is made by the machine that the proxy runs. One seed gives the same run on any
//! machine.

mod demo;
pub mod ewma_weight;
mod measures;
mod origin;
mod report;
mod summary;
mod two_choices;
mod world;

pub use demo::{Demo, GRAY};
pub use measures::Measures;
pub use report::Phase;
pub use summary::Mean;
pub use two_choices::{Counts, Strategy, Throw};
pub use world::{Chooser, Class, Record, Run, World};
