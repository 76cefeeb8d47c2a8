//! The world around the engine: an open-loop load generator, origins that fail on purpose, and
//! reports that say how far they can be trusted.

mod chart;
pub mod cli;
pub mod client;
mod demo;
mod engine;
mod experiment;
pub mod formats;
pub mod host;
pub mod measurement;
pub mod origin;
mod results;
mod runtime;
mod selftest;
mod simulate;
pub mod slo;
pub mod statistics;
