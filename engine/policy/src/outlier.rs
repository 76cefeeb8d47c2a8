//! Which endpoints are taken out of the balance because they fail.
//!
//! Source: Envoy's outlier detection and gRFC A50, `consecutive_failures` only. Ours differs: a
//! returning endpoint is on probe (one attempt at a time until the first success, and a failed
//! probe ejects again for longer), and ejections stay recorded during panic.
//!
//! States of an endpoint: `Healthy -> Ejected -> Probing -> Healthy | Ejected`. Ejected and Probing
//! are "out". The n-th ejection in a row lasts `min(base_ejection * n, max_ejection)`; n falls by
//! one for each `base_ejection` the endpoint has been healthy since it came back.
//!
//! Panic: while strictly more than `panic_threshold` of the endpoints are out, every endpoint is
//! admissible; what is recorded stays. Attempts that reach an ejected endpoint that way, or that
//! began before its ejection, say nothing to the detector.
//!
//! Cost: O(1) per attempt; one pass over the endpoints when an ejection ends.

use alloc::boxed::Box;

use evenkeel_base::{Duration, Instant};

use crate::dispatch::Origins;
use crate::dispatch::succession::staying;
use crate::endpoint::EndpointId;
use crate::guard::Mode;
use crate::outcome::Outcome;
use crate::quota;
use crate::transition::Transition;

/// `[upstream.outlier]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Failures in a row that eject, per process; zero turns the detector off.
    pub consecutive_failures: u32,
    pub base_ejection: Duration,
    pub max_ejection: Duration,
    /// Fraction of the endpoints that may be out at once, 0..=1, rounded down.
    pub max_ejected: f64,
    /// Fraction of the endpoints; 0..=1, at 1 there is no panic.
    pub panic_threshold: f64,
    pub on_return: OnReturn,
    pub mode: Mode,
}

/// How an endpoint comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReturn {
    /// One attempt at a time until the first success.
    Probe,
    /// At once and whole.
    Restore,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            consecutive_failures: 5,
            base_ejection: Duration::from_secs(30),
            max_ejection: Duration::from_secs(300),
            max_ejected: 1.0,
            panic_threshold: 0.5,
            on_return: OnReturn::Probe,
            mode: Mode::Enforce,
        }
    }
}

/// What an attempt's result will mean to the detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    Counted,
    Probe,
    /// Begun on an endpoint that was out.
    Uncounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy { failures: u32 },
    Ejected { until: Instant },
    Probing { probe: Probe },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Wanted,
    Outstanding,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    state: State,
    /// Ejections in a row, before what health since `back_at` takes off.
    times: u32,
    back_at: Instant,
}

pub(crate) struct Outlier {
    config: Config,
    /// This loop's part of `consecutive_failures`.
    threshold: u32,
    members: Box<[Member]>,
    out: u32,
    /// No ejection ends before this.
    next_return: Instant,
    /// Grows whenever the set of admissible endpoints may have changed.
    revision: u64,
}

impl Outlier {
    pub(crate) fn new(config: &Config, endpoints: u32, loops: u32, loop_index: u32) -> Self {
        let healthy = Member {
            state: State::Healthy { failures: 0 },
            times: 0,
            back_at: Instant::ZERO,
        };
        Outlier {
            config: *config,
            threshold: quota::part(config.consecutive_failures, loops, loop_index),
            members: (0..endpoints).map(|_| healthy).collect(),
            out: 0,
            next_return: Instant::MAX,
            revision: 0,
        }
    }

    /// Ejections and their history, of the endpoints that stay. A probe under way reports to `old`:
    /// another one is wanted here.
    pub(crate) fn inherit(&mut self, old: &Outlier, from: &Origins) {
        for (new, old_id) in staying(from) {
            let mut member = old.members[old_id.index()];
            match &mut member.state {
                State::Healthy { .. } => {}
                State::Ejected { until } => {
                    self.out += 1;
                    self.next_return = self.next_return.min(*until);
                }
                State::Probing { probe } => {
                    self.out += 1;
                    *probe = Probe::Wanted;
                }
            }
            self.members[new.index()] = member;
        }
        self.revision += 1;
    }

    /// Whether ejection is ignored because too many endpoints are out.
    pub(crate) fn is_panicking(&self) -> bool {
        let threshold = self.config.panic_threshold * self.members.len() as f64;
        self.config.mode == Mode::Enforce && f64::from(self.out) > threshold
    }

    /// Endpoints that are ejected or on probe.
    pub(crate) fn out(&self) -> u32 {
        self.out
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether a pick may choose the endpoint.
    pub(crate) fn admits(&self, id: EndpointId) -> bool {
        if self.config.mode == Mode::Observe || self.is_panicking() {
            return true;
        }
        match self.members[id.index()].state {
            State::Healthy { .. } => true,
            State::Ejected { .. } => false,
            State::Probing { probe } => probe == Probe::Wanted,
        }
    }

    /// Whether the endpoint is back from an ejection without a success yet. What was learned before
    /// the ejection is why it was ejected, not what it is now.
    pub(crate) fn is_on_probe(&self, id: EndpointId) -> bool {
        matches!(self.members[id.index()].state, State::Probing { .. })
    }

    pub(crate) fn ejected_until(&self, id: EndpointId) -> Option<Instant> {
        match self.members[id.index()].state {
            State::Ejected { until } => Some(until),
            _ => None,
        }
    }

    /// An attempt on the endpoint begins.
    pub(crate) fn begin(&mut self, id: EndpointId) -> Ticket {
        match &mut self.members[id.index()].state {
            State::Healthy { .. } => Ticket::Counted,
            State::Probing { probe } if *probe == Probe::Wanted => {
                *probe = Probe::Outstanding;
                self.revision += 1;
                Ticket::Probe
            }
            State::Probing { .. } | State::Ejected { .. } => Ticket::Uncounted,
        }
    }

    /// An attempt that began with `ticket` has its result.
    pub(crate) fn record(
        &mut self,
        id: EndpointId,
        ticket: Ticket,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Transition> {
        let member = &mut self.members[id.index()];
        match (&mut member.state, ticket, outcome) {
            (State::Healthy { failures }, Ticket::Counted, Outcome::Success) => {
                *failures = 0;
                None
            }
            (State::Healthy { failures }, Ticket::Counted, Outcome::Failure) => {
                *failures = failures.saturating_add(1);
                let failures = *failures;
                if self.threshold > 0 && failures >= self.threshold && self.has_room() {
                    Some(self.eject(id, failures, now))
                } else {
                    None
                }
            }
            (State::Probing { probe }, Ticket::Probe, outcome) => {
                *probe = Probe::Wanted;
                self.revision += 1;
                match outcome {
                    Outcome::Success => Some(self.restore(id, now)),
                    Outcome::Failure => Some(self.eject(id, 0, now)),
                    Outcome::Ignored => None,
                }
            }
            _ => None,
        }
    }

    /// Brings back one endpoint whose ejection is over; call until it gives `None`.
    pub(crate) fn handle_time(&mut self, now: Instant) -> Option<Transition> {
        if now < self.next_return {
            return None;
        }
        let mut due = None;
        self.next_return = Instant::MAX;
        for (index, member) in self.members.iter().enumerate() {
            if let State::Ejected { until } = member.state {
                self.next_return = self.next_return.min(until);
                if until <= now && due.is_none() {
                    due = Some(EndpointId(index as u32));
                }
            }
        }
        let id = due?;
        self.revision += 1;
        match self.config.on_return {
            OnReturn::Restore => Some(self.restore(id, now)),
            OnReturn::Probe => {
                self.members[id.index()].state = State::Probing {
                    probe: Probe::Wanted,
                };
                Some(Transition::Probing { endpoint: id })
            }
        }
    }

    /// Whether one more endpoint may be out.
    fn has_room(&self) -> bool {
        let most = self.config.max_ejected * self.members.len() as f64;
        // The cast rounds down.
        self.out < most as u32
    }

    fn eject(&mut self, id: EndpointId, failures: u32, now: Instant) -> Transition {
        let member = &mut self.members[id.index()];
        if matches!(member.state, State::Healthy { .. }) {
            self.out += 1;
            let base = self.config.base_ejection.as_nanos().max(1);
            let forgiven = (now - member.back_at).as_nanos() / base;
            member.times = u64::from(member.times).saturating_sub(forgiven) as u32;
        }
        member.times = member.times.saturating_add(1);
        let span = self.config.base_ejection * u64::from(member.times);
        let until = now + span.min(self.config.max_ejection);
        member.state = State::Ejected { until };
        self.next_return = self.next_return.min(until);
        self.revision += 1;
        Transition::Ejected {
            endpoint: id,
            until,
            times: member.times,
            consecutive: failures,
        }
    }

    fn restore(&mut self, id: EndpointId, now: Instant) -> Transition {
        let member = &mut self.members[id.index()];
        member.state = State::Healthy { failures: 0 };
        member.back_at = now;
        self.out -= 1;
        self.revision += 1;
        Transition::Restored { endpoint: id }
    }

    pub(crate) fn check_invariants(&self) {
        let out = self
            .members
            .iter()
            .filter(|m| !matches!(m.state, State::Healthy { .. }))
            .count();
        assert_eq!(
            out, self.out as usize,
            "the count of endpoints that are out"
        );
        for member in &self.members {
            if let State::Ejected { until } = member.state {
                assert!(until >= self.next_return, "an ejection ends unnoticed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(0);
    const B: EndpointId = EndpointId(1);

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn detector(endpoints: u32, change: impl FnOnce(&mut Config)) -> Outlier {
        let mut config = Config::default();
        change(&mut config);
        Outlier::new(&config, endpoints, 1, 0)
    }

    /// Ejects a healthy endpoint by failures alone.
    fn fail(outlier: &mut Outlier, id: EndpointId, now: Instant) -> Option<Transition> {
        let mut last = None;
        for _ in 0..5 {
            let ticket = outlier.begin(id);
            last = outlier.record(id, ticket, Outcome::Failure, now);
        }
        outlier.check_invariants();
        last
    }

    #[test]
    fn five_failures_in_a_row_eject_and_a_success_between_does_not() {
        let mut outlier = detector(3, |_| {});
        for n in 0..12 {
            let outcome = if n % 4 == 3 {
                Outcome::Success
            } else {
                Outcome::Failure
            };
            let ticket = outlier.begin(A);
            assert_eq!(outlier.record(A, ticket, outcome, at(0)), None);
        }
        let ejected = fail(&mut outlier, A, at(1));
        assert_eq!(
            ejected,
            Some(Transition::Ejected {
                endpoint: A,
                until: at(31),
                times: 1,
                consecutive: 5
            })
        );
        assert!(!outlier.admits(A) && outlier.admits(B));
    }

    #[test]
    fn the_threshold_is_per_process_and_each_loop_has_its_part() {
        let mut second = Outlier::new(&Config::default(), 3, 2, 1);
        let ticket = second.begin(A);
        assert_eq!(second.record(A, ticket, Outcome::Failure, at(0)), None);
        assert!(second.record(A, ticket, Outcome::Failure, at(0)).is_some());
    }

    #[test]
    fn zero_consecutive_failures_never_ejects() {
        let mut outlier = detector(3, |c| c.consecutive_failures = 0);
        for _ in 0..100 {
            assert_eq!(fail(&mut outlier, A, at(0)), None);
        }
    }

    #[test]
    fn a_returned_endpoint_admits_one_probe_at_a_time_until_a_success() {
        let mut outlier = detector(3, |_| {});
        fail(&mut outlier, A, at(0));
        assert_eq!(outlier.handle_time(at(29)), None);
        let probing = Some(Transition::Probing { endpoint: A });
        assert_eq!(outlier.handle_time(at(30)), probing);
        assert_eq!(outlier.handle_time(at(30)), None);
        assert!(outlier.admits(A));
        let probe = outlier.begin(A);
        assert!(!outlier.admits(A), "one at a time");
        assert_eq!(outlier.record(A, probe, Outcome::Ignored, at(30)), None);
        assert!(outlier.admits(A), "a cancelled probe frees the place");
        let probe = outlier.begin(A);
        let late = outlier.record(A, Ticket::Counted, Outcome::Success, at(31));
        assert_eq!(late, None, "an attempt from before the ejection");
        let restored = outlier.record(A, probe, Outcome::Success, at(31));
        assert_eq!(restored, Some(Transition::Restored { endpoint: A }));
        outlier.check_invariants();
        assert!(outlier.admits(A) && outlier.out() == 0);
    }

    #[test]
    fn a_failed_probe_ejects_for_longer_up_to_the_maximum() {
        let mut outlier = detector(3, |c| c.max_ejection = Duration::from_secs(70));
        fail(&mut outlier, A, at(0));
        let mut now = at(30);
        for expected in [60, 70, 70] {
            assert!(outlier.handle_time(now).is_some());
            let probe = outlier.begin(A);
            outlier.record(A, probe, Outcome::Failure, now);
            let until = outlier.ejected_until(A).unwrap();
            assert_eq!((until - now).as_nanos(), expected * 1_000_000_000);
            now = until;
        }
    }

    #[test]
    fn health_takes_off_one_ejection_per_base_ejection() {
        let mut outlier = detector(3, |c| c.on_return = OnReturn::Restore);
        let span = |outlier: &Outlier, now: Instant| {
            (outlier.ejected_until(A).unwrap() - now).as_nanos() / 1_000_000_000
        };
        fail(&mut outlier, A, at(100));
        assert_eq!(span(&outlier, at(100)), 30);
        outlier.handle_time(at(130));
        fail(&mut outlier, A, at(131));
        assert_eq!(span(&outlier, at(131)), 60);
        outlier.handle_time(at(191));
        fail(&mut outlier, A, at(191 + 65));
        assert_eq!(span(&outlier, at(256)), 30, "two forgiven, one added");
    }

    #[test]
    fn exactly_half_out_is_not_panic_and_leaving_panic_restores_the_ejections() {
        let mut outlier = detector(4, |_| {});
        for (n, panics) in [(0, false), (1, false), (2, true)] {
            fail(&mut outlier, EndpointId(n), at(u64::from(n)));
            assert_eq!(outlier.is_panicking(), panics);
        }
        assert!((0..4).all(|n| outlier.admits(EndpointId(n))));
        assert!(outlier.ejected_until(A).is_some(), "still recorded");
        let during = outlier.begin(A);
        assert_eq!(during, Ticket::Uncounted);
        outlier.handle_time(at(30));
        let probe = outlier.begin(A);
        outlier.record(A, probe, Outcome::Success, at(30));
        assert!(!outlier.is_panicking());
        assert!(!outlier.admits(B) && !outlier.admits(EndpointId(2)));
    }

    #[test]
    fn the_fraction_that_may_be_out_is_rounded_down() {
        let mut outlier = detector(5, |c| c.max_ejected = 0.5);
        let ejected = (0..5)
            .filter(|n| fail(&mut outlier, EndpointId(*n), at(0)).is_some())
            .count();
        assert_eq!(ejected, 2);
        let mut inert = detector(9, |c| c.max_ejected = 0.1);
        assert_eq!(fail(&mut inert, A, at(0)), None);
    }

    #[test]
    fn observing_ejects_on_paper_only() {
        let mut outlier = detector(1, |c| c.mode = Mode::Observe);
        assert!(fail(&mut outlier, A, at(0)).is_some());
        assert!(outlier.admits(A) && !outlier.is_panicking());
        assert!(outlier.ejected_until(A).is_some());
    }
}
