//! Loops that serve arrivals at origins, in virtual time.
//!
//! The network delays every message by the same constant, so origins see work in the order of the
//! picks and a first-come queue settles each piece at once; what is left to order are the arrivals,
//! the ends of attempts and what shared servers finish.

mod queue;

use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};
use evenkeel_policy::{
    Ask, Attempt, Config, Dispatch, EndpointId, Failure, Outcome, Process, Replay, Step,
};
use loadgen_scenario::{Arrivals, Scenario};

use crate::origin::{Origin, Reply};
use queue::{Due, Queue};

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct World {
    pub scenario: Scenario,
    /// One upstream with the scenario's endpoints.
    pub policy: Config,
    pub chooser: Chooser,
    pub replay: Replay,
    pub seed: u64,
}

/// Who chooses the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// The product: `policy::dispatch`, a loop each.
    Policy,
    /// Someone who sees every queue as it is now: the shortest expected delay. No guards.
    Oracle,
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
    /// The loop it arrived at.
    pub owner: u32,
    pub class: Class,
    /// 1 for a request of the schedule, more for what the client sent again.
    pub try_number: u32,
    /// The true queue at the chosen endpoint less the shortest one, at the pick; `None` when it was
    /// not looked at.
    pub regret: Option<u32>,
}

/// What happened, in the order of intended starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub endpoints: u32,
    pub records: Vec<Record>,
    /// Of each endpoint, in all loops.
    pub ejections: Vec<u64>,
}

/// An attempt under way.
struct Flight {
    owner: u32,
    /// Index of the record.
    at: usize,
    /// `None` when the oracle chose.
    held: Option<(evenkeel_policy::Request, Attempt)>,
    endpoint: u32,
    deadline: Instant,
    class: Class,
    serial: u64,
}

struct Playing<'a> {
    world: &'a World,
    loops: Vec<(Dispatch, Rng)>,
    origins: Vec<Origin>,
    due: Queue,
    /// Slots of attempts; events hold indices into it, and serials against a slot's next use.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    serial: u64,
    records: Vec<Record>,
    requests: u64,
    retries: u64,
    oracle: Rng,
    /// One request in so many has its regret looked at.
    regret_every: usize,
}

impl World {
    /// The scenario with the product's defaults.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> World {
        let mut policy = Config::new(scenario.endpoints.weights.len() as u32);
        policy.weights.clone_from(&scenario.endpoints.weights);
        World {
            scenario,
            policy,
            chooser: Chooser::Policy,
            replay: Replay::Replayable,
            seed,
        }
    }

    /// Plays the scenario, and what it began to its end.
    ///
    /// # Panics
    /// When scenario and policy differ in the number of endpoints, or the policy breaks its own
    /// contract.
    #[must_use]
    pub fn run(&self) -> Run {
        let scenario = &self.scenario;
        let endpoints = self.policy.weights.len();
        assert_eq!(
            scenario.faults.len(),
            endpoints,
            "faults for every endpoint"
        );
        let mut playing = Playing::new(self);
        let arrivals = Arrivals::new(
            &scenario.arrivals,
            scenario.rate,
            scenario.length,
            0,
            1,
            self.seed,
        );
        for offset in arrivals {
            let now = Instant::ZERO + offset;
            playing.go_on_until(now);
            playing.requests += 1;
            playing.arrive(now, 1);
        }
        playing.go_on_until(Instant::MAX);
        playing.check_end();
        let ejections = playing.ejections();
        let mut records = playing.records;
        records.sort_by_key(|record| record.intended_at);
        Run {
            endpoints: endpoints as u32,
            records,
            ejections,
        }
    }
}

impl<'a> Playing<'a> {
    fn new(world: &'a World) -> Self {
        let scenario = &world.scenario;
        let process = Process::new(&world.policy, scenario.loops);
        let dispatch = |index| {
            let config = world.policy.clone();
            Dispatch::new(config, Arc::clone(&process), index, Instant::ZERO)
        };
        let faults = scenario.faults.iter().cloned();
        Playing {
            world,
            loops: (0..scenario.loops)
                .map(|index| (dispatch(index), Rng::stream(world.seed, u64::from(index))))
                .collect(),
            origins: faults
                .map(|faults| Origin::new(&scenario.endpoints, faults, world.seed))
                .collect(),
            due: Queue::default(),
            flights: Vec::new(),
            free: Vec::new(),
            serial: 0,
            records: Vec::new(),
            requests: 0,
            retries: 0,
            oracle: Rng::stream(world.seed, u64::MAX - 1),
            regret_every: (scenario.faults.len() / 16).max(1),
        }
    }

    fn arrive(&mut self, now: Instant, try_number: u32) {
        let at = self.records.len();
        let scenario = &self.world.scenario;
        let owner = scenario
            .split
            .loop_of(at as u64, scenario.loops, self.world.seed);
        self.records.push(Record {
            intended_at: now - Instant::ZERO,
            response: Duration::ZERO,
            endpoint: None,
            owner,
            class: Class::Refused,
            try_number,
            regret: None,
        });
        let deadline = now + scenario.client.timeout;
        let Some((endpoint, held)) = self.choose(owner, deadline, now) else {
            self.try_again(try_number, now);
            return;
        };
        let deadline = held
            .as_ref()
            .map_or(deadline, |(_, attempt)| attempt.deadline);
        self.records[at].endpoint = Some(endpoint);
        self.records[at].regret = self.regret(at, endpoint, now);
        self.serial += 1;
        let slot = self.take_slot(Flight {
            owner,
            at,
            held,
            endpoint,
            deadline,
            class: Class::Timeout,
            serial: self.serial,
        });
        self.serve(slot, now + scenario.endpoints.hop);
    }

    fn choose(
        &mut self,
        owner: u32,
        deadline: Instant,
        now: Instant,
    ) -> Option<(u32, Option<(evenkeel_policy::Request, Attempt)>)> {
        if self.world.chooser == Chooser::Oracle {
            return Some((self.least_delay(now), None));
        }
        let (dispatch, rng) = &mut self.loops[owner as usize];
        let ask = Ask {
            deadline,
            replay: self.world.replay,
        };
        let mut request = dispatch.begin(ask, now, rng).ok()?;
        match dispatch.poll(&mut request, now, rng) {
            Step::Attempt(attempt) => Some((attempt.endpoint.0, Some((request, attempt)))),
            Step::Refuse(_) | Step::Wait | Step::Over => None,
        }
    }

    /// The endpoint at which a request that arrives now would be done first, on average; one of the
    /// equals at random.
    fn least_delay(&mut self, now: Instant) -> u32 {
        let (mut best, mut least, mut equals) = (0, f64::INFINITY, 0);
        for (index, origin) in self.origins.iter().enumerate() {
            let delay = origin.expected_delay_s(now + self.world.scenario.endpoints.hop);
            if delay < least || equals == 0 {
                (best, least, equals) = (index, delay, 1);
            } else if delay == least {
                equals += 1;
                if self.oracle.below(equals) == 0 {
                    best = index;
                }
            }
        }
        best as u32
    }

    fn regret(&mut self, at: usize, endpoint: u32, now: Instant) -> Option<u32> {
        if !at.is_multiple_of(self.regret_every) {
            return None;
        }
        let mut least = u32::MAX;
        for origin in &mut self.origins {
            least = least.min(origin.present(now));
        }
        Some(self.origins[endpoint as usize].present(now) - least)
    }

    /// The work of a slot is at its origin at `now`.
    fn serve(&mut self, slot: usize, now: Instant) {
        let flight = self.flights[slot].as_mut().expect("under way");
        let origin = &mut self.origins[flight.endpoint as usize];
        let id = queue::pack(slot, flight.serial);
        let (sent, class) = match origin.serve(flight.at as u64, id, now) {
            Reply::Answer(at) => (at, Class::Ok),
            Reply::Error(at) => (at, Class::HttpError),
            Reply::Reset(at) => (at, Class::Reset),
            Reply::Never => (Instant::MAX, Class::Timeout),
            Reply::Later(at) => {
                self.due.push(at, Due::Serve(id));
                (Instant::MAX, Class::Timeout)
            }
            Reply::Shared => {
                let index = flight.endpoint;
                self.watch(index);
                (Instant::MAX, Class::Timeout)
            }
        };
        self.end_at(slot, sent, class);
    }

    /// An attempt whose answer is sent then ends a hop later, or at its deadline.
    fn end_at(&mut self, slot: usize, sent: Instant, class: Class) {
        let flight = self.flights[slot].as_mut().expect("under way");
        let end = sent + self.world.scenario.endpoints.hop;
        let (end, class) = if end >= flight.deadline {
            (flight.deadline, Class::Timeout)
        } else {
            (end, class)
        };
        flight.class = class;
        let id = queue::pack(slot, flight.serial);
        self.due.push(end, Due::End(id));
    }

    /// Comes back when a shared origin's next piece of work is done.
    fn watch(&mut self, endpoint: u32) {
        if let Some(at) = self.origins[endpoint as usize].next_end() {
            self.due.push(at, Due::Leave(endpoint));
        }
    }

    fn take_slot(&mut self, flight: Flight) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[slot] = Some(flight);
        slot
    }

    /// The slot that an event is about; `None` when its attempt is over.
    fn slot_of(&self, id: u64) -> Option<usize> {
        let (slot, serial) = queue::unpack(id);
        let flight = self.flights.get(slot)?.as_ref()?;
        (queue::pack(slot, flight.serial) == id && serial > 0).then_some(slot)
    }

    /// Does everything that is due before `now`.
    fn go_on_until(&mut self, now: Instant) {
        while let Some((when, due)) = self.due.pop_before(now) {
            match due {
                Due::End(id) => {
                    if let Some(slot) = self.slot_of(id) {
                        let flight = self.flights[slot].take().expect("just seen");
                        self.free.push(slot);
                        self.finish(flight, when);
                    }
                }
                Due::Serve(id) => {
                    if let Some(slot) = self.slot_of(id) {
                        self.serve(slot, when);
                    }
                }
                Due::Leave(endpoint) => self.leave(endpoint, when),
                Due::Retry(try_number) => self.arrive(when, try_number),
            }
        }
    }

    fn leave(&mut self, endpoint: u32, now: Instant) {
        let mut any = false;
        while let Some(id) = self.origins[endpoint as usize].leave(now) {
            any = true;
            // Its client may have gone long ago.
            if let Some(slot) = self.slot_of(id) {
                self.end_at(slot, now, Class::Ok);
            }
        }
        if any {
            self.watch(endpoint);
        }
    }

    fn finish(&mut self, flight: Flight, now: Instant) {
        let class = flight.class;
        if let Some((mut request, attempt)) = flight.held {
            let (dispatch, rng) = &mut self.loops[flight.owner as usize];
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
        }
        let record = &mut self.records[flight.at];
        record.response = now - (Instant::ZERO + record.intended_at);
        record.class = class;
        if class != Class::Ok {
            let try_number = record.try_number;
            self.try_again(try_number, now);
        }
    }

    /// What the client does about a failure: another request, as often as it may.
    fn try_again(&mut self, try_number: u32, now: Instant) {
        let client = self.world.scenario.client;
        let within_budget = client
            .budget
            .is_none_or(|budget| (self.retries as f64) < budget * self.requests as f64);
        if try_number <= client.retries && within_budget {
            self.retries += 1;
            self.due.push(now, Due::Retry(try_number + 1));
        }
    }

    fn ejections(&self) -> Vec<u64> {
        let of = |endpoint| {
            let loops = self.loops.iter();
            loops
                .map(|(dispatch, _)| dispatch.endpoint_counters(EndpointId(endpoint)).ejections)
                .sum()
        };
        (0..self.origins.len() as u32).map(of).collect()
    }

    fn check_end(&self) {
        assert!(self.flights.iter().all(Option::is_none), "all is over");
        for (dispatch, _) in &self.loops {
            assert_eq!(dispatch.snapshot(Instant::MAX).attempts, 0, "all is over");
        }
    }
}
