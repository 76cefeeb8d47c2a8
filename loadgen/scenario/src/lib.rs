//! Arrivals, service times and faults, as values: the same description drives sockets and virtual time.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod fault;
pub mod law;

pub use arrivals::{Arrivals, Process};
pub use fault::{Fault, FaultKind, Faults};
pub use law::Law;
