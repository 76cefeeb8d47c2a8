//! The balancer's side of re-discovery: who is due for a look, and what it found.

use evenkeel_base::{Duration, Instant};

use super::{Balance, Kind, Loads, Replay, cost_of};
use crate::endpoint::EndpointId;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::rediscovery::{CREDIT_MAX, CREDIT_PER_PICK, Finding, SICK};

impl Balance {
    /// A look has its result.
    pub(crate) fn settle_look(
        &self,
        endpoint: EndpointId,
        latency: Duration,
        outcome: Outcome,
        process: &Process,
        now: Instant,
    ) {
        let finding = match (outcome, self.survey.median_latency_ns()) {
            (Outcome::Ignored, _) => return,
            (Outcome::Success, Some(median)) if latency.as_nanos() as f32 <= SICK * median => {
                Finding::Well
            }
            _ => Finding::Sick,
        };
        process.endpoint(endpoint).rediscovery.settle(finding, now);
    }

    /// An endpoint that is due for a look, if this request may take it.
    pub(super) fn look(
        &mut self,
        loads: Loads<'_>,
        replay: Replay,
        now: Instant,
    ) -> Option<EndpointId> {
        if !matches!(self.kind, Kind::P2c | Kind::P2cEwma) {
            return None;
        }
        if self.survey.is_due(now) {
            self.take_survey(loads, now);
        }
        self.credit = (self.credit + CREDIT_PER_PICK).min(CREDIT_MAX);
        if replay == Replay::Once || self.credit < 1.0 {
            return None;
        }
        let id = self.survey.next_suspect()?;
        if loads.attempts.is_waiting(id) || !loads.outlier.admits(id) {
            return None;
        }
        if !self.survey.is_sick(self.cost(loads, id)) {
            self.survey.acquit(id);
            return None;
        }
        let stamp = &loads.process.endpoint(id).rediscovery;
        let quiet = loads.latency.age(id, now);
        if !stamp.claim(self.ewma.explore_after, quiet, now) {
            return None;
        }
        self.credit -= 1.0;
        Some(id)
    }

    fn take_survey(&mut self, loads: Loads<'_>, now: Instant) {
        for recent in &mut self.recent {
            *recent *= 0.5;
        }
        self.survey.start(now);
        if self.kind != Kind::P2cEwma {
            return;
        }
        for &id in self.candidates.ids() {
            let view = loads.latency.view(id);
            if let (Some(latency), false) = (view.latency_ns, loads.outlier.is_on_probe(id)) {
                self.survey.add(latency, cost_of(latency, view.success));
            }
        }
        self.survey.close();
        if self.ewma.explore_after.is_zero() {
            return;
        }
        for at in 0..self.candidates.ids().len() {
            let id = self.candidates.ids()[at];
            if self.survey.is_sick(self.cost(loads, id)) {
                self.survey.suspect(id);
            }
        }
    }
}
