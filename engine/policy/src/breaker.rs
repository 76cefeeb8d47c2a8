//! Whether an upstream is called at all.
//!
//! Source: Nygard, Release It!, "Circuit Breaker"; Resilience4j for the half-open state. Ours
//! differs: each probe is leased, so that a probe whose result never comes cannot hold the breaker
//! half open for ever, and the half-open gate is one word of the process, so that N loops do not
//! send N probes.
//!
//! States: Closed = traffic flows; `consecutive` failures in a row trip it. Open = refuses until
//! `open_for` has passed. HalfOpen = admits probes, `half_open_concurrency` at a time in the
//! process; enough successes close it, one failure or one lost lease opens it again. Each trip and
//! each close starts a new generation, and results of calls begun in an older one are ignored:
//! what was in flight at the trip says nothing about now.
//!
//! Each loop has its own breaker; absolute numbers are its part of the configured ones. Cost: a few
//! compares; one compare-and-swap per probe.

use alloc::vec::Vec;

use evenkeel_base::{Duration, Instant};

use crate::guard::Mode;
use crate::outcome::Outcome;
use crate::quota;
use crate::store::{Shared, Word};
use crate::transition::{Transition, Trip};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    Consecutive,
    #[default]
    Off,
}

/// `[upstream.breaker]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub kind: Kind,
    /// Failures in a row that trip it, per process; zero turns it off.
    pub consecutive: u32,
    pub open_for: Duration,
    /// Successes that close it, per process, at least 1.
    pub half_open_probes: u32,
    /// Probes in flight in the process, 1..=255.
    pub half_open_concurrency: u32,
    pub probe_lease: Duration,
    pub mode: Mode,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            kind: Kind::default(),
            consecutive: 5,
            open_for: Duration::from_secs(10),
            half_open_probes: 5,
            half_open_concurrency: 1,
            probe_lease: Duration::from_secs(5),
            mode: Mode::Enforce,
        }
    }
}

/// What a breaker shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { successes: u32 },
}

/// The right to call, to be settled by [`Breaker::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Counted {
        generation: u32,
    },
    Probe {
        generation: u32,
        number: u32,
    },
    /// Let through without a say: the breaker is off or only observes.
    Uncounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted(Permit),
    /// Would have been refused.
    Observed,
    Rejected,
}

/// A probe of this loop that has not settled.
#[derive(Clone, Copy, Debug)]
struct Lease {
    number: u32,
    due: Instant,
    place: Place,
}

pub(crate) struct Breaker {
    config: Config,
    /// This loop's parts.
    failures_to_trip: u32,
    successes_to_close: u32,
    state: State,
    generation: u32,
    leases: Vec<Lease>,
    next_lease: u32,
}

impl Breaker {
    pub(crate) fn new(config: &Config, loops: u32, loop_index: u32) -> Self {
        let consecutive = match config.kind {
            Kind::Consecutive => config.consecutive,
            Kind::Off => 0,
        };
        let concurrency = config.half_open_concurrency.clamp(1, Gate::MOST);
        Breaker {
            config: Config {
                half_open_concurrency: concurrency,
                ..*config
            },
            failures_to_trip: quota::part(consecutive, loops, loop_index),
            successes_to_close: quota::part(config.half_open_probes.max(1), loops, loop_index),
            state: State::Closed { failures: 0 },
            generation: 0,
            leases: Vec::with_capacity(concurrency as usize),
            next_lease: 0,
        }
    }

    /// A closed breaker keeps its count, short of a trip; an open one stays open, no longer than it would
    /// now be opened for; a half-open one starts its probes again.
    pub(crate) fn inherit(&mut self, old: &Breaker, now: Instant) {
        if self.failures_to_trip == 0 {
            return;
        }
        self.state = match old.state {
            State::Closed { failures } => State::Closed {
                failures: failures.min(self.failures_to_trip - 1),
            },
            State::Open { until } => State::Open {
                until: until.min(now + self.config.open_for),
            },
            State::HalfOpen { .. } => State::Open { until: now },
        };
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// What time alone changes. Call before [`Breaker::admit`].
    pub(crate) fn handle_time(&mut self, gate: &Gate, now: Instant) -> Option<Transition> {
        match self.state {
            State::Open { until } if now >= until => {
                self.state = State::HalfOpen { successes: 0 };
                Some(Transition::BreakerHalfOpened)
            }
            State::HalfOpen { .. } if self.leases.iter().any(|lease| now >= lease.due) => {
                Some(self.open(Trip::ProbeLost, gate, now))
            }
            _ => None,
        }
    }

    pub(crate) fn admit(&mut self, gate: &Gate, now: Instant) -> Admission {
        let generation = self.generation;
        if self.failures_to_trip == 0 {
            return Admission::Admitted(Permit::Uncounted);
        }
        let permit = match self.state {
            State::Closed { .. } => Some(Permit::Counted { generation }),
            State::Open { .. } => None,
            State::HalfOpen { .. } => self.probe(gate, now),
        };
        match (permit, self.config.mode) {
            (Some(permit), _) => Admission::Admitted(permit),
            (None, Mode::Observe) => Admission::Observed,
            (None, Mode::Enforce) => Admission::Rejected,
        }
    }

    /// Settles a permit. [`Outcome::Ignored`] only gives it back.
    pub(crate) fn record(
        &mut self,
        permit: Permit,
        outcome: Outcome,
        gate: &Gate,
        now: Instant,
    ) -> Option<Transition> {
        match permit {
            Permit::Counted { generation } if generation == self.generation => {
                self.record_counted(outcome, gate, now)
            }
            Permit::Probe { generation, number } if generation == self.generation => {
                self.record_probe(number, outcome, gate, now)
            }
            // Of an older generation: its lease went back when that generation ended.
            _ => None,
        }
    }

    fn record_counted(
        &mut self,
        outcome: Outcome,
        gate: &Gate,
        now: Instant,
    ) -> Option<Transition> {
        let State::Closed { failures } = &mut self.state else {
            return None;
        };
        match outcome {
            Outcome::Ignored => None,
            Outcome::Success => {
                *failures = 0;
                None
            }
            Outcome::Failure => {
                *failures = failures.saturating_add(1);
                let failures = *failures;
                (failures >= self.failures_to_trip)
                    .then(|| self.open(Trip::Consecutive { failures }, gate, now))
            }
        }
    }

    fn record_probe(
        &mut self,
        number: u32,
        outcome: Outcome,
        gate: &Gate,
        now: Instant,
    ) -> Option<Transition> {
        let at = self
            .leases
            .iter()
            .position(|lease| lease.number == number)?;
        gate.leave(self.leases.swap_remove(at).place);
        let State::HalfOpen { successes } = &mut self.state else {
            return None;
        };
        match outcome {
            Outcome::Ignored => None,
            Outcome::Failure => Some(self.open(Trip::ProbeFailed, gate, now)),
            Outcome::Success => {
                *successes += 1;
                if *successes < self.successes_to_close {
                    return None;
                }
                self.end_generation(gate);
                self.state = State::Closed { failures: 0 };
                Some(Transition::BreakerClosed)
            }
        }
    }

    fn probe(&mut self, gate: &Gate, now: Instant) -> Option<Permit> {
        let lease = self.config.probe_lease;
        let place = gate.enter(self.config.half_open_concurrency, lease, now)?;
        let number = self.next_lease;
        self.next_lease = number.wrapping_add(1);
        debug_assert!(self.leases.len() < self.leases.capacity());
        self.leases.push(Lease {
            number,
            due: now + lease,
            place,
        });
        Some(Permit::Probe {
            generation: self.generation,
            number,
        })
    }

    fn open(&mut self, cause: Trip, gate: &Gate, now: Instant) -> Transition {
        self.end_generation(gate);
        let until = now + self.config.open_for;
        self.state = State::Open { until };
        Transition::BreakerOpened { until, cause }
    }

    fn end_generation(&mut self, gate: &Gate) {
        self.generation = self.generation.wrapping_add(1);
        for lease in self.leases.drain(..) {
            gate.leave(lease.place);
        }
    }
}

/// A place in the gate, from one of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    epoch: u16,
}

/// Probes in flight in the whole process: count (8 bits), epoch (16), time of the last entry (40
/// bits of ms, 34 years). When the last entry is older than a lease, every place is void: the count
/// starts over in a new epoch, and who leaves a place of an old epoch changes nothing.
#[derive(Default)]
pub(crate) struct Gate(Shared);

impl Gate {
    const MOST: u32 = u8::MAX as u32;

    pub(crate) fn enter(&self, limit: u32, lease: Duration, now: Instant) -> Option<Place> {
        let now_ms = (now.as_nanos() / 1_000_000) & ((1 << 40) - 1);
        let mut place = Place { epoch: 0 };
        let entered = self.0.update(|word| {
            let (mut count, mut epoch, last_ms) = unpack(word);
            // Rounded up: a place is never void before its lease is over.
            let lease_ms = lease.as_nanos().div_ceil(1_000_000) + 1;
            if count > 0 && now_ms.saturating_sub(last_ms) >= lease_ms {
                count = 0;
                epoch = epoch.wrapping_add(1);
            }
            place = Place { epoch };
            (count < limit).then(|| pack(count + 1, epoch, now_ms))
        });
        entered.then_some(place)
    }

    pub(crate) fn leave(&self, place: Place) {
        self.0.update(|word| {
            let (count, epoch, last_ms) = unpack(word);
            (epoch == place.epoch && count > 0).then(|| pack(count - 1, epoch, last_ms))
        });
    }
}

fn pack(count: u32, epoch: u16, last_ms: u64) -> u64 {
    u64::from(count) << 56 | u64::from(epoch) << 40 | last_ms
}

fn unpack(word: u64) -> (u32, u16, u64) {
    (
        (word >> 56) as u32,
        (word >> 40) as u16,
        word & ((1 << 40) - 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn breaker() -> Breaker {
        Breaker::new(&config(), 1, 0)
    }

    fn config() -> Config {
        Config {
            kind: Kind::Consecutive,
            ..Config::default()
        }
    }

    fn admit(breaker: &mut Breaker, gate: &Gate, now: Instant) -> Option<Permit> {
        breaker.handle_time(gate, now);
        match breaker.admit(gate, now) {
            Admission::Admitted(permit) => Some(permit),
            _ => None,
        }
    }

    fn trip(breaker: &mut Breaker, gate: &Gate, now: Instant) {
        for _ in 0..5 {
            let permit = admit(breaker, gate, now).expect("closed");
            breaker.record(permit, Outcome::Failure, gate, now);
        }
        assert_eq!(admit(breaker, gate, now), None);
    }

    #[test]
    fn failures_in_a_row_open_it_and_successes_of_probes_close_it() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        trip(&mut breaker, &gate, at(0));
        assert_eq!(admit(&mut breaker, &gate, at(9)), None);
        for n in 1..=5 {
            let probe = admit(&mut breaker, &gate, at(10)).expect("half open");
            assert_eq!(admit(&mut breaker, &gate, at(10)), None, "one at a time");
            let transition = breaker.record(probe, Outcome::Success, &gate, at(10));
            assert_eq!(
                transition,
                (n == 5).then_some(Transition::BreakerClosed),
                "{n}"
            );
        }
        assert_eq!(breaker.state(), State::Closed { failures: 0 });
    }

    #[test]
    fn a_success_between_failures_keeps_it_closed_and_an_ignored_one_changes_nothing() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        for n in 0..20 {
            let permit = admit(&mut breaker, &gate, at(0)).unwrap();
            let outcome = if n % 5 == 4 {
                Outcome::Success
            } else {
                Outcome::Failure
            };
            breaker.record(permit, outcome, &gate, at(0));
            breaker.record(permit, Outcome::Ignored, &gate, at(0));
        }
        assert!(matches!(breaker.state(), State::Closed { .. }));
    }

    #[test]
    fn a_failed_probe_opens_it_again() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        trip(&mut breaker, &gate, at(0));
        let probe = admit(&mut breaker, &gate, at(10)).unwrap();
        breaker.record(probe, Outcome::Failure, &gate, at(11));
        assert_eq!(breaker.state(), State::Open { until: at(21) });
        assert!(admit(&mut breaker, &gate, at(21)).is_some());
    }

    #[test]
    fn results_of_calls_begun_before_the_trip_are_ignored() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        let old = admit(&mut breaker, &gate, at(0)).unwrap();
        trip(&mut breaker, &gate, at(0));
        let probe = admit(&mut breaker, &gate, at(10)).unwrap();
        assert_eq!(
            breaker.record(old, Outcome::Failure, &gate, at(10)),
            None,
            "not a failed probe"
        );
        assert_eq!(breaker.record(old, Outcome::Success, &gate, at(10)), None);
        assert_eq!(breaker.state(), State::HalfOpen { successes: 0 });
        breaker.record(probe, Outcome::Success, &gate, at(10));
        assert_eq!(breaker.state(), State::HalfOpen { successes: 1 });
    }

    #[test]
    fn a_lost_probe_counts_as_failed_when_its_lease_ends() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        trip(&mut breaker, &gate, at(0));
        let lost = admit(&mut breaker, &gate, at(10)).unwrap();
        assert_eq!(breaker.handle_time(&gate, at(14)), None);
        let opened = breaker.handle_time(&gate, at(15));
        assert_eq!(
            opened,
            Some(Transition::BreakerOpened {
                until: at(25),
                cause: Trip::ProbeLost
            })
        );
        breaker.record(lost, Outcome::Success, &gate, at(16));
        assert_eq!(breaker.state(), State::Open { until: at(25) });
        assert!(admit(&mut breaker, &gate, at(25)).is_some());
    }

    #[test]
    fn a_cancelled_probe_frees_its_place() {
        let (gate, mut breaker) = (Gate::default(), breaker());
        trip(&mut breaker, &gate, at(0));
        let probe = admit(&mut breaker, &gate, at(10)).unwrap();
        breaker.record(probe, Outcome::Ignored, &gate, at(10));
        assert!(admit(&mut breaker, &gate, at(10)).is_some());
    }

    #[test]
    fn the_gate_is_one_for_the_process_and_survives_a_loop_that_vanished() {
        let gate = Gate::default();
        let config = Config {
            consecutive: 10,
            ..config()
        };
        let mut loops: [Breaker; 2] = core::array::from_fn(|i| Breaker::new(&config, 2, i as u32));
        for breaker in &mut loops {
            trip(breaker, &gate, at(0));
        }
        let [first, second] = &mut loops;
        let stuck = admit(first, &gate, at(10)).unwrap();
        assert_eq!(
            admit(second, &gate, at(12)),
            None,
            "one probe in the process"
        );
        let taken = admit(second, &gate, at(16)).expect("the stuck place is void");
        first.record(stuck, Outcome::Ignored, &gate, at(16));
        assert_eq!(admit(first, &gate, at(16)), None, "it freed nothing");
        second.record(taken, Outcome::Success, &gate, at(16));
        assert!(admit(first, &gate, at(16)).is_some());
    }

    #[test]
    fn off_and_observing_refuse_nothing() {
        let gate = Gate::default();
        let mut off = Breaker::new(&Config::default(), 1, 0);
        let mut observing = Breaker::new(
            &Config {
                mode: Mode::Observe,
                ..config()
            },
            1,
            0,
        );
        for _ in 0..20 {
            let permit = admit(&mut off, &gate, at(0)).expect("off");
            off.record(permit, Outcome::Failure, &gate, at(0));
            if let Admission::Admitted(permit) = observing.admit(&gate, at(0)) {
                observing.record(permit, Outcome::Failure, &gate, at(0));
            }
        }
        assert_eq!(off.state(), State::Closed { failures: 0 });
        assert!(matches!(observing.state(), State::Open { .. }));
        assert_eq!(observing.admit(&gate, at(1)), Admission::Observed);
    }
}
