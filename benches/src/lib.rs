//! Shared helpers: what more than one bench needs.

pub mod edge;
pub mod frame;
pub mod heads;
pub mod host;
pub mod load;
pub mod loops;
pub mod origin;
pub mod ring;
pub mod summary;
