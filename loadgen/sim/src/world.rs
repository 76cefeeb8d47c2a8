//! Loops that serve arrivals at origins, in virtual time.
//!
//! The network delays every message by the same constant, so origins see work in the order of the
//! picks and settle each piece at once; what is left to order are the arrivals and the ends of
//! attempts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::{
    Ask, Attempt, Config, Dispatch, Failure, Outcome, Process, Replay, Request, Step,
};
use loadgen_scenario::{Arrivals, Faults, Law, arrivals};

use crate::origin::{Origin, Reply};

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct World {
    /// One upstream; its weights say how many endpoints there are.
    pub policy: Config,
    pub loops: u32,
    /// Requests a second in all; each arrives at a loop at random.
    pub rate: f64,
    pub arrivals: arrivals::Process,
    pub length: Duration,
    /// Servers per endpoint, zero for no queue.
    pub servers: u32,
    pub service: Law,
    /// One per endpoint.
    pub faults: Vec<Faults>,
    /// One way between loop and origin.
    pub hop: Duration,
    /// Of a whole request.
    pub timeout: Duration,
    pub replay: Replay,
    pub seed: u64,
}

/// How a request ended. Each is in exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Ok,
    /// A 5xx head.
    HttpError,
    Reset,
    Timeout,
    Refused,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Intended start since the beginning of the run.
    pub intended_at: Duration,
    /// Intended start to end; the age at which it was given up when it was not answered.
    pub response: Duration,
    /// Index of the endpoint; `None` when it was refused.
    pub endpoint: Option<u32>,
    pub class: Class,
}

/// What happened, in the order of intended starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub endpoints: u32,
    pub records: Vec<Record>,
}

/// The end of an attempt under way.
struct Ending {
    owner: u32,
    /// Index of the record.
    at: usize,
    request: Request,
    attempt: Attempt,
    class: Class,
}

/// Orders endings by time, then by the order in which they were scheduled.
type Due = Reverse<(Instant, u64, usize)>;

struct Playing<'a> {
    world: &'a World,
    loops: Vec<(Dispatch, Rng)>,
    origins: Vec<Origin>,
    due: BinaryHeap<Due>,
    /// Slots of endings; `due` holds indices into it.
    endings: Vec<Option<Ending>>,
    free: Vec<usize>,
    scheduled: u64,
    records: Vec<Record>,
}

impl World {
    /// Plays the world to the end of its last request.
    ///
    /// # Panics
    /// When `faults` and the endpoints differ in number, or the policy breaks its own contract.
    #[must_use]
    pub fn run(&self) -> Run {
        let endpoints = self.policy.weights.len();
        assert_eq!(self.faults.len(), endpoints, "faults for every endpoint");
        let mut playing = Playing::new(self);
        let mut doors = Rng::stream(self.seed, u64::MAX);
        for offset in Arrivals::new(&self.arrivals, self.rate, self.length, 0, 1, self.seed) {
            let now = Instant::ZERO + offset;
            playing.finish_until(now);
            let owner = doors.below(u64::from(self.loops)) as u32;
            playing.arrive(owner, offset, now);
        }
        playing.finish_until(Instant::MAX);
        for (dispatch, _) in &playing.loops {
            assert_eq!(dispatch.snapshot(Instant::MAX).attempts, 0, "all is over");
        }
        Run {
            endpoints: endpoints as u32,
            records: playing.records,
        }
    }
}

impl<'a> Playing<'a> {
    fn new(world: &'a World) -> Self {
        let process = Process::new(&world.policy, world.loops);
        let dispatch = |index| {
            let config = world.policy.clone();
            Dispatch::new(config, Arc::clone(&process), index, Instant::ZERO)
        };
        let faults = world.faults.iter().cloned();
        Playing {
            world,
            loops: (0..world.loops)
                .map(|index| (dispatch(index), Rng::stream(world.seed, u64::from(index))))
                .collect(),
            origins: faults
                .map(|faults| Origin::new(world.servers, world.service, faults, world.seed))
                .collect(),
            due: BinaryHeap::new(),
            endings: Vec::new(),
            free: Vec::new(),
            scheduled: 0,
            records: Vec::new(),
        }
    }

    fn arrive(&mut self, owner: u32, intended_at: Duration, now: Instant) {
        let at = self.records.len();
        self.records.push(Record {
            intended_at,
            response: Duration::ZERO,
            endpoint: None,
            class: Class::Refused,
        });
        let (dispatch, rng) = &mut self.loops[owner as usize];
        let ask = Ask {
            deadline: now + self.world.timeout,
            replay: self.world.replay,
        };
        let Ok(mut request) = dispatch.begin(ask, now, rng) else {
            return;
        };
        let Step::Attempt(attempt) = dispatch.poll(&mut request, now, rng) else {
            return;
        };
        self.records[at].endpoint = Some(attempt.endpoint.0);
        let origin = &mut self.origins[attempt.endpoint.0 as usize];
        let (sent, class) = match origin.serve(at as u64, now + self.world.hop) {
            Reply::Answer(at) => (at, Class::Ok),
            Reply::Error(at) => (at, Class::HttpError),
            Reply::Reset(at) => (at, Class::Reset),
            Reply::Never => (Instant::MAX, Class::Timeout),
        };
        let end = sent + self.world.hop;
        let (end, class) = if end >= attempt.deadline {
            (attempt.deadline, Class::Timeout)
        } else {
            (end, class)
        };
        self.schedule(
            end,
            Ending {
                owner,
                at,
                request,
                attempt,
                class,
            },
        );
    }

    fn schedule(&mut self, when: Instant, ending: Ending) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.endings.push(None);
            self.endings.len() - 1
        });
        self.endings[slot] = Some(ending);
        self.due.push(Reverse((when, self.scheduled, slot)));
        self.scheduled += 1;
    }

    /// Ends every attempt that is due before `now`.
    fn finish_until(&mut self, now: Instant) {
        while let Some(&Reverse((when, _, slot))) = self.due.peek()
            && when < now
        {
            self.due.pop();
            self.free.push(slot);
            let ending = self.endings[slot]
                .take()
                .expect("a slot is due exactly once");
            self.finish(ending, when);
        }
    }

    fn finish(&mut self, ending: Ending, now: Instant) {
        let Ending {
            owner,
            at,
            mut request,
            attempt,
            class,
        } = ending;
        let (dispatch, rng) = &mut self.loops[owner as usize];
        let head = match class {
            Class::Ok => Ok(Outcome::Success),
            Class::HttpError => Ok(Outcome::Failure),
            Class::Reset => Err(Failure::Reset),
            Class::Timeout | Class::Refused => Err(Failure::Timeout),
        };
        match head {
            Ok(outcome) => {
                let _ = dispatch.handle_head(&mut request, attempt.id, outcome, now, rng);
                dispatch.handle_done(&mut request, attempt.id, now);
            }
            Err(failure) => {
                let _ = dispatch.handle_failure(&mut request, attempt.id, failure, now, rng);
            }
        }
        let record = &mut self.records[at];
        record.response = now - (Instant::ZERO + record.intended_at);
        record.class = class;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_policy::balance::Kind;

    fn world(kind: Kind) -> World {
        let mut policy = Config::new(3);
        policy.balance = kind;
        World {
            policy,
            loops: 2,
            rate: 1_000.0,
            arrivals: arrivals::Process::Poisson,
            length: Duration::from_secs(2),
            servers: 8,
            service: Law::Exponential(Duration::from_millis(5)),
            faults: vec![Faults::default(); 3],
            hop: Duration::from_micros(100),
            timeout: Duration::from_secs(15),
            replay: Replay::Replayable,
            seed: 7,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_another_seed_another() {
        let world = world(Kind::P2cEwma);
        assert_eq!(world.run(), world.run());
        let other = World {
            seed: 8,
            ..world.clone()
        };
        assert_ne!(world.run(), other.run());
    }

    #[test]
    fn an_exponential_server_queue_has_the_sojourn_of_m_m_1() {
        // One endpoint, one server, rho 0.5: the sojourn is exponential with mean S / (1 - rho).
        let mut world = World {
            policy: Config::new(1),
            faults: vec![Faults::default()],
            servers: 1,
            rate: 100.0,
            length: Duration::from_secs(1_000),
            hop: Duration::ZERO,
            ..world(Kind::Random)
        };
        world.timeout = Duration::from_secs(100);
        let run = world.run();
        let total: f64 = run.records.iter().map(|r| r.response.as_secs_f64()).sum();
        let mean = total / run.records.len() as f64;
        assert!((mean - 0.010).abs() < 0.0005, "{mean}");
    }

    #[test]
    fn what_is_never_answered_times_out_at_its_age() {
        let world = World {
            faults: vec![Faults::new(vec![loadgen_scenario::Fault::parse("stall").unwrap()]); 3],
            timeout: Duration::from_millis(200),
            ..world(Kind::P2cEwma)
        };
        let run = world.run();
        assert!(!run.records.is_empty());
        for record in &run.records {
            assert_eq!(record.class, Class::Timeout);
            assert_eq!(record.response, Duration::from_millis(200));
        }
    }
}
