//! Shared helpers.

pub mod heads;
pub mod loops;
