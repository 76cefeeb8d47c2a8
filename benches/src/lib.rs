//! Shared helpers.

pub mod loops;
