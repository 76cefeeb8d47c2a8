//! An endpoint in virtual time: first come first served, processor sharing, or no queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_base::{Duration, Instant};
use loadgen_scenario::fault::Effect;
use loadgen_scenario::{Discipline, Endpoints, Faults, Law, Sharing};

/// How long a reset takes.
const RESET_TIME: Duration = Duration::from_micros(100);

/// What becomes of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    Answer(Instant),
    Error(Instant),
    Reset(Instant),
    Never,
    /// Held: look again then.
    Later(Instant),
    /// In service with others; [`Origin::leave`] says when it is done.
    Shared,
}

pub(crate) struct Origin {
    queue: Queue,
    service: Law,
    faults: Faults,
    seed: u64,
    /// Ends of what is present, as far as they are known.
    ends: BinaryHeap<Reverse<Instant>>,
}

enum Queue {
    /// When each server is free, and which it is.
    Fifo(BinaryHeap<Reverse<(Instant, u32)>>),
    Sharing(Sharing),
    None,
}

impl Origin {
    pub(crate) fn new(endpoints: &Endpoints, faults: Faults, seed: u64) -> Self {
        let servers = endpoints.servers;
        let free = (0..servers).map(|server| Reverse((Instant::ZERO, server)));
        Origin {
            queue: match endpoints.discipline {
                _ if servers == 0 => Queue::None,
                Discipline::Fifo => Queue::Fifo(free.collect()),
                Discipline::Ps => Queue::Sharing(Sharing::new(servers)),
            },
            service: endpoints.service,
            faults,
            seed,
            ends: BinaryHeap::new(),
        }
    }

    /// Takes the work of `request`, which arrives now; `id` is what [`Origin::leave`] calls it. Calls
    /// come in the order of `now`; with a first-come queue what happens is settled at once, because
    /// nothing that arrives later can overtake.
    pub(crate) fn serve(&mut self, request: u64, id: u64, now: Instant) -> Reply {
        let (mut start, server) = match &self.queue {
            Queue::Fifo(free_at) => free_at.peek().map_or((now, 0), |Reverse((free, server))| {
                (now.max(*free), *server)
            }),
            Queue::Sharing(_) | Queue::None => (now, 0),
        };
        let factor = loop {
            let since = start - Instant::ZERO;
            match self.faults.effect(since, self.seed, request, server) {
                Effect::Error(time) => return Reply::Error(self.note(start + time)),
                Effect::Reset => return Reply::Reset(self.note(start + RESET_TIME)),
                Effect::Lose | Effect::Hold(Duration::MAX) => return Reply::Never,
                Effect::Hold(until) if matches!(self.queue, Queue::Sharing(_)) => {
                    return Reply::Later(Instant::ZERO + until);
                }
                Effect::Hold(until) => start = Instant::ZERO + until,
                Effect::Serve(factor) => break factor,
            }
        };
        let work = self.service.of_request(self.seed, request).as_secs_f64();
        let work = Duration::from_secs_f64(work * factor);
        // A stall that began meanwhile holds finished work back, too.
        let done = start + work;
        let at_end = self
            .faults
            .effect(done - Instant::ZERO, self.seed, request, server);
        let done = match at_end {
            Effect::Hold(until) => Instant::ZERO + until,
            _ => done,
        };
        match &mut self.queue {
            Queue::Sharing(sharing) => {
                sharing.join(id, work, now);
                return Reply::Shared;
            }
            Queue::Fifo(free_at) => {
                free_at.pop();
                free_at.push(Reverse((done, server)));
            }
            Queue::None => {}
        }
        Reply::Answer(self.note(done))
    }

    fn note(&mut self, end: Instant) -> Instant {
        self.ends.push(Reverse(end));
        end
    }

    /// When the next shared piece of work is done, as long as none joins before.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        match &self.queue {
            Queue::Sharing(sharing) => sharing.next_end(),
            Queue::Fifo(_) | Queue::None => None,
        }
    }

    /// The shared piece of work that is done by `now`, if any.
    pub(crate) fn leave(&mut self, now: Instant) -> Option<u64> {
        match &mut self.queue {
            Queue::Sharing(sharing) => sharing.leave(now),
            Queue::Fifo(_) | Queue::None => None,
        }
    }

    /// Requests that wait or are in service; the true queue that a balancer would like to know.
    pub(crate) fn present(&mut self, now: Instant) -> u32 {
        while self.ends.peek().is_some_and(|end| end.0 <= now) {
            self.ends.pop();
        }
        let shared = match &self.queue {
            Queue::Sharing(sharing) => sharing.present(),
            Queue::Fifo(_) | Queue::None => 0,
        };
        (self.ends.len() + shared) as u32
    }

    /// The time that a request which arrives now would be here, on average; infinite when it would not
    /// be served well.
    pub(crate) fn expected_delay_s(&self, now: Instant) -> f64 {
        let (start, server) = match &self.queue {
            Queue::Fifo(free_at) => free_at.peek().map_or((now, 0), |Reverse((free, server))| {
                (now.max(*free), *server)
            }),
            Queue::Sharing(_) | Queue::None => (now, 0),
        };
        // No request has this number: what holds for a share of requests is not foreseen.
        let effect = self
            .faults
            .effect(start - Instant::ZERO, self.seed, u64::MAX, server);
        let Effect::Serve(factor) = effect else {
            return f64::INFINITY;
        };
        let crowd = match &self.queue {
            Queue::Sharing(sharing) => sharing.crowding(),
            Queue::Fifo(_) | Queue::None => 1.0,
        };
        (start - now).as_secs_f64() + self.service.mean().as_secs_f64() * factor * crowd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen_scenario::Fault;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn origin(servers: u32, discipline: Discipline, faults: &[&str]) -> Origin {
        let faults = faults.iter().map(|text| Fault::parse(text).unwrap());
        let endpoints = Endpoints {
            weights: vec![1],
            servers,
            discipline,
            service: Law::Fixed(Duration::from_millis(10)),
            hop: Duration::ZERO,
        };
        Origin::new(&endpoints, Faults::new(faults.collect()), 1)
    }

    #[test]
    fn work_waits_for_a_free_server_and_not_without_servers() {
        let mut queue = origin(2, Discipline::Fifo, &[]);
        let ends: Vec<Reply> = (0..4).map(|id| queue.serve(id, id, at(0))).collect();
        assert_eq!(ends, [10, 10, 20, 20].map(|ms| Reply::Answer(at(ms))));
        assert_eq!((queue.present(at(9)), queue.present(at(10))), (4, 2));
        let mut endless = origin(0, Discipline::Fifo, &[]);
        assert!((0..9).all(|id| endless.serve(id, id, at(0)) == Reply::Answer(at(10))));
    }

    #[test]
    fn a_fault_is_looked_up_when_service_starts() {
        let mut queue = origin(1, Discipline::Fifo, &["slow:10x@5ms..50ms"]);
        assert_eq!(queue.serve(0, 0, at(0)), Reply::Answer(at(10)));
        assert_eq!(queue.serve(1, 1, at(1)), Reply::Answer(at(110)));
        let mut stalled = origin(0, Discipline::Fifo, &["stall@0s..1s"]);
        assert_eq!(stalled.serve(0, 0, at(1)), Reply::Answer(at(1_010)));
        for fault in ["stall", "blackhole"] {
            assert_eq!(
                origin(0, Discipline::Fifo, &[fault]).serve(0, 0, at(1)),
                Reply::Never
            );
        }
    }

    #[test]
    fn a_slow_server_is_the_same_one_all_the_time() {
        let mut queue = origin(2, Discipline::Fifo, &["slow:10x/1"]);
        let ends: Vec<Reply> = (0..4).map(|id| queue.serve(id, id, at(0))).collect();
        assert_eq!(ends, [100, 10, 20, 30].map(|ms| Reply::Answer(at(ms))));
    }

    #[test]
    fn shared_work_leaves_when_it_is_done() {
        let mut queue = origin(1, Discipline::Ps, &[]);
        assert_eq!(queue.serve(0, 7, at(0)), Reply::Shared);
        assert_eq!(queue.serve(1, 8, at(0)), Reply::Shared);
        assert_eq!((queue.next_end(), queue.present(at(0))), (Some(at(20)), 2));
        assert_eq!(queue.leave(at(20)), Some(7));
        assert_eq!(queue.leave(at(20)), Some(8));
        assert_eq!(queue.leave(at(20)), None);
    }
}
