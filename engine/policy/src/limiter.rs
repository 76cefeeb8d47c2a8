//! How many attempts one loop keeps in flight at one upstream: a gate that sheds and queues nothing.
//!
//! `fixed` uses `initial` as its limit. The limit is per process; each loop holds its part. A permit
//! is taken per attempt and given back when the attempt ends, however it ends.
//!
//! Cost: a compare and an increment.

use crate::guard::Mode;
use crate::quota;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    Fixed,
    #[default]
    Off,
}

/// `[upstream.limiter]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub kind: Kind,
    /// The fixed limit, per process, at least 1.
    pub initial: u32,
    pub mode: Mode,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            kind: Kind::default(),
            initial: 20,
            mode: Mode::Enforce,
        }
    }
}

/// What the gate said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// Over the limit, and let through because the gate only observes.
    Observed,
    Shed,
}

pub(crate) struct Limiter {
    /// This loop's part; `None` admits everything.
    limit: Option<u32>,
    mode: Mode,
    inflight: u32,
}

impl Limiter {
    pub(crate) fn new(config: &Config, loops: u32, loop_index: u32) -> Self {
        let part = quota::part(config.initial.max(1), loops, loop_index);
        Limiter {
            limit: match config.kind {
                Kind::Fixed => Some(part),
                Kind::Off => None,
            },
            mode: config.mode,
            inflight: 0,
        }
    }

    /// Takes a permit, unless it sheds.
    pub(crate) fn admit(&mut self) -> Admission {
        let admission = match self.limit {
            Some(limit) if self.inflight >= limit => match self.mode {
                Mode::Enforce => return Admission::Shed,
                Mode::Observe => Admission::Observed,
            },
            _ => Admission::Admitted,
        };
        self.inflight += 1;
        admission
    }

    /// Gives a permit back.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.inflight > 0, "a permit is given back twice");
        self.inflight = self.inflight.saturating_sub(1);
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    pub(crate) fn inflight(&self) -> u32 {
        self.inflight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(initial: u32, mode: Mode) -> Limiter {
        let config = Config {
            kind: Kind::Fixed,
            initial,
            mode,
        };
        Limiter::new(&config, 1, 0)
    }

    #[test]
    fn at_the_limit_admit_refuses_and_queues_nothing() {
        let mut limiter = fixed(2, Mode::Enforce);
        assert_eq!(limiter.admit(), Admission::Admitted);
        assert_eq!(limiter.admit(), Admission::Admitted);
        for _ in 0..5 {
            assert_eq!(limiter.admit(), Admission::Shed);
        }
        assert_eq!(limiter.inflight(), 2, "refusals hold nothing");
        limiter.release();
        assert_eq!(limiter.admit(), Admission::Admitted);
    }

    #[test]
    fn the_limit_is_per_process_and_each_loop_has_its_part() {
        let config = Config {
            kind: Kind::Fixed,
            initial: 5,
            mode: Mode::Enforce,
        };
        let limits: [_; 2] = core::array::from_fn(|i| Limiter::new(&config, 2, i as u32).limit());
        assert_eq!(limits, [Some(3), Some(2)]);
    }

    #[test]
    fn observing_lets_through_what_it_would_shed() {
        let mut limiter = fixed(1, Mode::Observe);
        assert_eq!(limiter.admit(), Admission::Admitted);
        assert_eq!(limiter.admit(), Admission::Observed);
        assert_eq!(limiter.inflight(), 2);
    }
}
