//! What one upstream is configured to do, already validated.

use alloc::vec;
use alloc::vec::Vec;

use evenkeel_base::Duration;

use crate::exchange::Interval;
use crate::store::Placement;
use crate::{balance, breaker, latency, limiter, outlier};

/// One upstream. Absolute numbers are per process.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// One weight per endpoint, at least 1 each; their number is the number of endpoints.
    pub weights: Vec<u32>,
    pub balance: balance::Kind,
    /// How many endpoints a pick of the p2c kinds compares, 2 to [`balance::MOST_CHOICES`].
    pub choices: u32,
    pub ewma: latency::Config,
    pub outlier: outlier::Config,
    pub breaker: breaker::Config,
    pub limiter: limiter::Config,
    /// Longest time of one attempt; `None`: whatever the request has left.
    pub per_try_timeout: Option<Duration>,
    pub inflight: Placement,
    pub latency: Placement,
    /// Time between two looks at what the other loops published.
    pub exchange_interval: Interval,
    /// Room for attempts in flight per loop; what is never used costs no memory.
    pub max_attempts: u32,
}

impl Config {
    /// The defaults, for `endpoints` endpoints of equal weight.
    #[must_use]
    pub fn new(endpoints: u32) -> Self {
        Config {
            weights: vec![1; endpoints as usize],
            balance: balance::Kind::default(),
            choices: 2,
            ewma: latency::Config::default(),
            outlier: outlier::Config::default(),
            breaker: breaker::Config::default(),
            limiter: limiter::Config::default(),
            per_try_timeout: None,
            inflight: Placement::PerLoop,
            latency: Placement::PerLoop,
            exchange_interval: Interval::Auto,
            max_attempts: 65_536,
        }
    }

    /// Whether any primitive lives in pages that the loops publish.
    #[must_use]
    pub fn exchanges(&self) -> bool {
        [self.inflight, self.latency].contains(&Placement::Exchange)
    }
}
