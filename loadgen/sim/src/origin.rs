//! An endpoint as a first-come, first-served queue with c servers, or without a queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_base::{Duration, Instant};
use loadgen_scenario::fault::Effect;
use loadgen_scenario::{Faults, Law};

/// How long a refusal by fault takes.
const FAULT_TIME: Duration = Duration::from_micros(100);

/// One piece of work as an origin ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    Answer(Instant),
    Error(Instant),
    Reset(Instant),
    Never,
}

pub(crate) struct Origin {
    /// When each server is free; empty for as many servers as there is work.
    free_at: BinaryHeap<Reverse<Instant>>,
    service: Law,
    faults: Faults,
    seed: u64,
}

impl Origin {
    /// With `servers` servers, zero for no queue.
    pub(crate) fn new(servers: u32, service: Law, faults: Faults, seed: u64) -> Self {
        Origin {
            free_at: (0..servers).map(|_| Reverse(Instant::ZERO)).collect(),
            service,
            faults,
            seed,
        }
    }

    /// Takes the work of `request`, which arrives now. Calls come in the order of `now`; what
    /// happens is settled at once, because nothing that arrives later can overtake.
    pub(crate) fn serve(&mut self, request: u64, now: Instant) -> Reply {
        let mut start = self.free_at.peek().map_or(now, |free| now.max(free.0));
        loop {
            match self
                .faults
                .effect(start - Instant::ZERO, self.seed, request)
            {
                Effect::Error => return Reply::Error(start + FAULT_TIME),
                Effect::Reset => return Reply::Reset(start + FAULT_TIME),
                Effect::Hold(Duration::MAX) => return Reply::Never,
                Effect::Hold(until) => start = Instant::ZERO + until,
                Effect::Serve(factor) => {
                    let work = self.service.of_request(self.seed, request).as_secs_f64();
                    let end = start + Duration::from_secs_f64(work * factor);
                    if self.free_at.pop().is_some() {
                        self.free_at.push(Reverse(end));
                    }
                    return Reply::Answer(end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen_scenario::Fault;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn origin(servers: u32, faults: &[&str]) -> Origin {
        let faults = faults.iter().map(|text| Fault::parse(text).unwrap());
        let service = Law::Fixed(Duration::from_millis(10));
        Origin::new(servers, service, Faults::new(faults.collect()), 1)
    }

    #[test]
    fn work_waits_for_a_free_server_and_not_without_servers() {
        let mut queue = origin(2, &[]);
        let ends: Vec<Reply> = (0..4).map(|id| queue.serve(id, at(0))).collect();
        assert_eq!(ends, [10, 10, 20, 20].map(|ms| Reply::Answer(at(ms))));
        let mut endless = origin(0, &[]);
        assert!((0..9).all(|id| endless.serve(id, at(0)) == Reply::Answer(at(10))));
    }

    #[test]
    fn a_fault_is_looked_up_when_service_starts() {
        let mut queue = origin(1, &["slow:10x@5ms..50ms"]);
        assert_eq!(queue.serve(0, at(0)), Reply::Answer(at(10)));
        assert_eq!(queue.serve(1, at(1)), Reply::Answer(at(110)));
        let mut stalled = origin(0, &["stall@0s..1s"]);
        assert_eq!(stalled.serve(0, at(1)), Reply::Answer(at(1_010)));
        let mut dead = origin(0, &["stall"]);
        assert_eq!(dead.serve(0, at(1)), Reply::Never);
    }
}
