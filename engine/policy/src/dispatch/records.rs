//! Who hears of an attempt's result, and what is told about it.

use evenkeel_base::Instant;

use super::Dispatch;
use crate::attempts::Attempt;
use crate::latency::Sample;
use crate::outcome::Outcome;
use crate::rediscovery::LOOK_WEIGHT;
use crate::transition::Transition;

impl Dispatch {
    /// Latency and success of the endpoint.
    pub(super) fn sample(&mut self, attempt: &Attempt, outcome: Outcome, now: Instant) {
        let endpoint = attempt.endpoint;
        let latency = now - attempt.begun;
        if outcome != Outcome::Ignored && self.latency.view(endpoint).latency_ns.is_none() {
            self.balance.handle_first_sample();
        }
        let floor = if attempt.is_look { LOOK_WEIGHT } else { 0.0 };
        let sample = Sample {
            latency,
            outcome,
            floor,
        };
        self.latency.record(endpoint, sample, now);
        if attempt.is_look {
            self.balance
                .settle_look(endpoint, latency, outcome, &self.process, now);
        }
    }

    /// The guards hear the attempt's outcome, once.
    pub(super) fn settle(&mut self, attempt: &Attempt, outcome: Outcome, now: Instant) {
        let endpoint = attempt.endpoint;
        if outcome == Outcome::Failure {
            self.endpoint_counters[endpoint.index()].failures += 1;
        }
        let ticket = attempt.ticket;
        if let Some(transition) = self.outlier.record(endpoint, ticket, outcome, now) {
            self.tell(transition);
            self.tell_panic();
        }
        let gate = &self.process.half_open;
        if let Some(transition) = self.breaker.record(attempt.permit, outcome, gate, now) {
            self.tell(transition);
        }
    }

    pub(super) fn tell(&mut self, transition: Transition) {
        match transition {
            Transition::Ejected { endpoint, .. } => {
                self.endpoint_counters[endpoint.index()].ejections += 1;
            }
            Transition::BreakerOpened { .. } => self.counters.breaker_opened += 1,
            Transition::BreakerHalfOpened => self.counters.breaker_half_opened += 1,
            Transition::BreakerClosed => self.counters.breaker_closed += 1,
            _ => {}
        }
        self.journal.push(transition);
    }

    pub(super) fn tell_panic(&mut self) {
        let is_panicking = self.outlier.is_panicking();
        if core::mem::replace(&mut self.is_panicking, is_panicking) != is_panicking {
            let out = self.outlier.out();
            self.journal.push(if is_panicking {
                Transition::PanicEntered { out }
            } else {
                Transition::PanicLeft { out }
            });
        }
    }
}
