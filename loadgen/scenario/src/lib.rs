//! Arrivals, service times and faults, as values: the same description drives sockets and virtual time.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod fault;
mod file;
pub mod law;
mod library;
mod scenario;
mod sharing;
mod split;

pub use arrivals::{Arrivals, Process};
pub use fault::{Fault, FaultKind, Faults};
pub use file::Problem;
pub use law::Law;
pub use library::LIBRARY;
pub use scenario::{Client, Discipline, Endpoints, Scenario};
pub use sharing::Sharing;
pub use split::Split;
