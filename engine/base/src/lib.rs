//! The pure ground of Evenkeel: time as a number, seeded randomness, averages, a timer wheel.
//!
//! Nothing here can read a clock or draw hidden randomness: `no_std`, and every float function comes
//! from `libm`, so that one seed gives the same bytes on any machine.
#![no_std]
extern crate alloc;

pub mod ewma;
pub mod rng;
pub mod time;
pub mod wheel;

pub use rng::Rng;
pub use time::{Duration, Instant};
