//! What a choice is worth: the fullest endpoint after requests that never end.
//!
//! Balls into bins, thrown by the product's own picks. Closed forms: one random choice gives Poisson
//! bins; the best of d is the fluid limit `s_i' = s_{i-1}^d - s_i^d` of the share of bins with at
//! least i balls (Mitzenmacher, "The power of two choices in randomized load balancing", 2001); the
//! maximum over M bins is taken as if they were independent. Round robin and the best of all are
//! exact.

use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::balance::Kind;
use evenkeel_policy::{Ask, Config, Dispatch, Interval, Placement, Process, Replay, Step};

/// How a request is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Random,
    RoundRobin,
    /// The least loaded of so many random ones.
    BestOf(u32),
    /// The least loaded of all.
    BestOfAll,
}

impl Strategy {
    pub const ALL: [Strategy; 5] = [
        Strategy::Random,
        Strategy::RoundRobin,
        Strategy::BestOf(2),
        Strategy::BestOf(3),
        Strategy::BestOfAll,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Random => "random",
            Strategy::RoundRobin => "round-robin",
            Strategy::BestOf(2) => "two choices",
            Strategy::BestOf(3) => "three choices",
            Strategy::BestOf(_) => "some choices",
            Strategy::BestOfAll => "all choices",
        }
    }
}

/// What a loop knows of the others' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// One loop sees them all, at once.
    Live,
    /// Its own at once, the others' as they were at most a quarter of a round (M / 4 requests) ago.
    Exchanged,
    /// Its own only.
    Own,
}

impl Counts {
    pub const ALL: [Counts; 3] = [Counts::Live, Counts::Exchanged, Counts::Own];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Counts::Live => "live",
            Counts::Exchanged => "exchanged",
            Counts::Own => "own",
        }
    }

    fn placement(self) -> Placement {
        match self {
            Counts::Live | Counts::Own => Placement::PerLoop,
            Counts::Exchanged => Placement::Exchange,
        }
    }
}

/// Requests that are placed by `strategy` and stay.
#[derive(Clone, Copy, Debug)]
pub struct Throw {
    pub strategy: Strategy,
    pub counts: Counts,
    pub endpoints: u32,
    /// Requests for each endpoint, on average.
    pub per_endpoint: u32,
    /// Of counts that are not live.
    pub loops: u32,
}

/// Between two requests.
const GAP: Duration = Duration::from_micros(1);

impl Throw {
    /// The most requests at one endpoint.
    ///
    /// # Panics
    /// When the policy refuses a request, which nothing here gives it a reason for.
    #[must_use]
    pub fn maximum(&self, seed: u64) -> u32 {
        let mut config = Config::new(self.endpoints);
        (config.balance, config.choices) = match self.strategy {
            Strategy::Random => (Kind::Random, 2),
            Strategy::RoundRobin => (Kind::RoundRobin, 2),
            Strategy::BestOf(choices) => (Kind::P2c, choices),
            Strategy::BestOfAll => (Kind::LeastRequest, 2),
        };
        config.inflight = self.counts.placement();
        let quarter = u64::from(self.endpoints).div_ceil(4);
        config.exchange_interval = Interval::Every(GAP * quarter);
        let count = match self.counts {
            Counts::Live => 1,
            Counts::Exchanged | Counts::Own => self.loops,
        };
        let process = Process::new(&config, count);
        let loops = 0..count;
        let mut loops: Vec<(Dispatch, Rng)> = loops
            .map(|index| {
                let process = Arc::clone(&process);
                let dispatch = Dispatch::new(config.clone(), process, index, Instant::ZERO);
                (dispatch, Rng::stream(seed, u64::from(index)))
            })
            .collect();
        let mut doors = Rng::stream(seed, u64::MAX);
        let mut bins = vec![0u32; self.endpoints as usize];
        let ask = Ask {
            deadline: Instant::MAX,
            replay: Replay::Once,
        };
        for ball in 0..u64::from(self.endpoints * self.per_endpoint) {
            let now = Instant::ZERO + GAP * ball;
            let (dispatch, rng) = &mut loops[doors.below(u64::from(count)) as usize];
            let mut request = dispatch.begin(ask, now, rng).expect("a deadline far ahead");
            match dispatch.poll(&mut request, now, rng) {
                Step::Attempt(attempt) => bins[attempt.endpoint.0 as usize] += 1,
                step => panic!("an attempt, not {step:?}"),
            }
        }
        bins.into_iter().max().unwrap_or(0)
    }

    /// What theory expects of live counts; `None` for counts that are not.
    #[must_use]
    pub fn expected_maximum(&self) -> Option<f64> {
        if self.counts != Counts::Live {
            return None;
        }
        let load = f64::from(self.per_endpoint);
        Some(match self.strategy {
            Strategy::Random => expected_maximum(&poisson_tails(load), self.endpoints),
            Strategy::BestOf(choices) => {
                expected_maximum(&fluid_tails(load, choices), self.endpoints)
            }
            Strategy::RoundRobin | Strategy::BestOfAll => load,
        })
    }
}

/// `E max = sum over k >= 1 of 1 - (1 - s_k)^M` for independent bins with `P(X >= k) = s_k`.
fn expected_maximum(tails: &[f64], endpoints: u32) -> f64 {
    let none = |tail: &f64| libm::pow(1.0 - tail.clamp(0.0, 1.0), f64::from(endpoints));
    tails.iter().map(|tail| 1.0 - none(tail)).sum()
}

/// Levels that are looked at; what lies above is far below one request.
const LEVELS: usize = 100;

/// `P(X >= k)` for k from 1, X Poisson.
fn poisson_tails(mean: f64) -> Vec<f64> {
    let (mut term, mut tail) = (libm::exp(-mean), 1.0);
    let mut tails = Vec::with_capacity(LEVELS);
    for k in 1..=LEVELS {
        tail -= term;
        tails.push(tail.max(0.0));
        term *= mean / k as f64;
    }
    tails
}

/// The fluid limit at time `load`, by the classic Runge-Kutta method.
fn fluid_tails(load: f64, choices: u32) -> Vec<f64> {
    const STEPS: usize = 2_000;
    let h = load / STEPS as f64;
    let slope = |s: &[f64]| -> Vec<f64> {
        let power = |value: f64| libm::pow(value, f64::from(choices));
        let below = |i: usize| if i == 0 { 1.0 } else { s[i - 1] };
        (0..s.len())
            .map(|i| power(below(i)) - power(s[i]))
            .collect()
    };
    let step = |s: &[f64], k: &[f64], by: f64| -> Vec<f64> {
        s.iter().zip(k).map(|(s, k)| s + by * k).collect()
    };
    let mut s = vec![0.0; LEVELS];
    for _ in 0..STEPS {
        let k1 = slope(&s);
        let k2 = slope(&step(&s, &k1, h / 2.0));
        let k3 = slope(&step(&s, &k2, h / 2.0));
        let k4 = slope(&step(&s, &k3, h));
        for i in 0..LEVELS {
            s[i] += h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_maximum(throw: Throw) -> f64 {
        let seeds = 40;
        let total: u32 = (0..seeds).map(|seed| throw.maximum(seed)).sum();
        f64::from(total) / seeds as f64
    }

    fn throw(strategy: Strategy, counts: Counts) -> Throw {
        Throw {
            strategy,
            counts,
            endpoints: 100,
            per_endpoint: 1,
            loops: 8,
        }
    }

    #[test]
    fn live_counts_meet_the_closed_forms() {
        for strategy in Strategy::ALL {
            let throw = throw(strategy, Counts::Live);
            let (seen, expected) = (mean_maximum(throw), throw.expected_maximum().unwrap());
            assert!(
                (seen - expected).abs() <= 0.35,
                "{strategy:?}: {seen}, not {expected}"
            );
        }
    }

    #[test]
    fn counts_of_other_loops_are_worth_something_and_all_choices_of_stale_ones_are_not() {
        let of = |strategy, counts| mean_maximum(throw(strategy, counts));
        let two = Strategy::BestOf(2);
        assert!(of(two, Counts::Live) < of(two, Counts::Own));
        assert!(of(two, Counts::Live) <= of(two, Counts::Exchanged));
        assert!(of(Strategy::BestOfAll, Counts::Own) > of(Strategy::BestOfAll, Counts::Live));
    }

    #[test]
    fn tails_are_those_of_the_textbook() {
        let poisson = poisson_tails(1.0);
        assert!((poisson[0] - 0.632_120).abs() < 1e-5 && (poisson[2] - 0.080_301).abs() < 1e-5);
        // s_1' = 1 - s_1^2 has the solution tanh t.
        assert!((fluid_tails(1.0, 2)[0] - libm::tanh(1.0)).abs() < 1e-6);
    }
}
