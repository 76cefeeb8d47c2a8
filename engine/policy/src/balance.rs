//! Which endpoint gets an attempt.
//!
//! Source: Mitzenmacher, "The power of two choices" (2001); Finagle's peak EWMA and the tower and
//! linkerd balancers after it. Ours differs in four things: the draws are distinct; ties and
//! near ties go to the endpoint with fewer recent picks (per weight), then to a coin, never to the
//! first; the score divides by the square of the success mean; slow endpoints are looked at again
//! (`rediscovery`).
//!
//! `p2c-ewma` scores `(inflight + 1) * cost / weight`, smaller is better, with
//! `cost = (latency + 1) / max(0.01, success)^2`, latency in ns and at least the age of the oldest
//! attempt of this loop that waits for its head. `p2c` has cost 1. `least-request` takes the true
//! minimum of `(inflight + 1) / weight` over this view.
//!
//! Cost: p2c and p2c-ewma O(1) a pick plus a survey of all endpoints every `max(64, endpoints)`
//! picks or 50 ms; random O(1), with weights O(log endpoints); round-robin O(1), with weights
//! O(endpoints); least-request O(endpoints).

mod candidates;
mod look;
mod survey;

use alloc::boxed::Box;
use alloc::vec;

use evenkeel_base::{Instant, Rng};

use crate::attempts::Attempts;
use crate::dispatch::Origins;
use crate::dispatch::succession::staying;
use crate::endpoint::EndpointId;
use crate::inflight::Inflight;
use crate::latency::{self, Latency};
use crate::outlier::Outlier;
use crate::process::Process;
use crate::rediscovery::SICK;
use candidates::Candidates;
use survey::Survey;
pub(crate) use survey::lower_median;

/// Most endpoints that one pick compares.
pub const MOST_CHOICES: usize = 8;

/// Costs within this factor are a tie.
const NEAR: f32 = 1.25;

/// `balance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    RoundRobin,
    Random,
    LeastRequest,
    /// Two choices by attempts in flight.
    P2c,
    /// Two choices by attempts in flight, latency and success.
    #[default]
    P2cEwma,
}

/// Whether an attempt can be made again elsewhere, so that it may go to an endpoint that is
/// avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The request may be sent again (retried or hedged).
    Replayable,
    Once,
}

/// What the balancer reads and does not own.
#[derive(Clone, Copy)]
pub(crate) struct Loads<'a> {
    pub(crate) inflight: &'a Inflight,
    pub(crate) latency: &'a Latency,
    pub(crate) attempts: &'a Attempts,
    pub(crate) outlier: &'a Outlier,
    pub(crate) process: &'a Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) endpoint: EndpointId,
    /// A look at an endpoint that is avoided otherwise.
    pub(crate) is_look: bool,
}

pub(crate) struct Balance {
    kind: Kind,
    /// How many endpoints a pick of the p2c kinds compares.
    choices: usize,
    ewma: latency::Config,
    weights: Box<[u32]>,
    candidates: Candidates,
    survey: Survey,
    /// Picks per endpoint, halved at every survey.
    recent: Box<[f32]>,
    /// Looks that may be spent.
    credit: f32,
    turn: Turn,
}

/// Whose turn it is in round-robin.
struct Turn {
    /// Position among the candidates, when weights are equal.
    next: u32,
    /// Smooth weighted round-robin (nginx), when they are not.
    current: Box<[i64]>,
}

impl Balance {
    /// `first_turn` is the endpoint that round-robin begins with: loops that all began with the first
    /// one would send it a burst, one request each.
    pub(crate) fn new(
        kind: Kind,
        choices: u32,
        ewma: latency::Config,
        weights: &[u32],
        first_turn: u32,
        now: Instant,
    ) -> Self {
        let weights: Box<[u32]> = weights.iter().map(|weight| (*weight).max(1)).collect();
        Balance {
            kind,
            choices: choices.clamp(2, MOST_CHOICES as u32) as usize,
            ewma,
            candidates: Candidates::new(weights.len()),
            survey: Survey::new(weights.len(), now),
            recent: vec![0.0; weights.len()].into(),
            credit: 0.0,
            turn: Turn {
                next: first_turn,
                current: vec![0; weights.len()].into(),
            },
            weights,
        }
    }

    /// What stays known of the endpoints that stay: who had the picks of late, and the credit for looks.
    pub(crate) fn inherit(&mut self, old: &Balance, from: &Origins) {
        for (new, old_id) in staying(from) {
            self.recent[new.index()] = old.recent[old_id.index()];
        }
        self.credit = old.credit;
    }

    /// The endpoint of the next attempt; `None` when no endpoint is admissible.
    pub(crate) fn pick(
        &mut self,
        loads: Loads<'_>,
        replay: Replay,
        now: Instant,
        rng: &mut Rng,
    ) -> Option<Pick> {
        self.candidates.refresh(&self.weights, loads.outlier);
        if self.candidates.is_empty() {
            return None;
        }
        if let Some(endpoint) = self.look(loads, replay, now) {
            self.recent[endpoint.index()] += 1.0;
            return Some(Pick {
                endpoint,
                is_look: true,
            });
        }
        let endpoint = match self.kind {
            Kind::RoundRobin => self.next_turn(),
            Kind::Random => self.candidates.draw(rng),
            Kind::LeastRequest => self.least_loaded(loads, rng),
            Kind::P2c | Kind::P2cEwma => self.best_of_choices(loads, now, rng),
        };
        self.recent[endpoint.index()] += 1.0;
        Some(Pick {
            endpoint,
            is_look: false,
        })
    }

    /// An endpoint has its first sample: what its peers are taken for may change.
    pub(crate) fn handle_first_sample(&mut self) {
        self.survey.expire();
    }

    /// What an endpoint is taken for before its first sample.
    fn unknown_ns(&self) -> f32 {
        match self.ewma.initial {
            latency::Initial::Latency(latency) => latency.as_nanos() as f32,
            latency::Initial::Peers => self
                .survey
                .median_latency_ns()
                .unwrap_or(latency::UNKNOWN.as_nanos() as f32),
        }
    }

    /// Learned cost, without what is in flight.
    fn cost(&self, loads: Loads<'_>, id: EndpointId) -> f32 {
        let (latency, success) = self.learned(loads, id);
        cost_of(latency, success)
    }

    fn learned(&self, loads: Loads<'_>, id: EndpointId) -> (f32, f32) {
        if loads.outlier.is_on_probe(id) {
            return (self.unknown_ns(), 1.0);
        }
        let view = loads.latency.view(id);
        let latency = view.latency_ns.unwrap_or_else(|| self.unknown_ns());
        (latency, view.success)
    }

    fn standing(&self, loads: Loads<'_>, id: EndpointId, now: Instant) -> Standing {
        let load = self.load(loads, id);
        if self.kind != Kind::P2cEwma {
            return Standing { load, cost: 1.0 };
        }
        let (mut latency, success) = self.learned(loads, id);
        if self.ewma.pending_age {
            let age = loads.attempts.oldest_age(id, now);
            latency = latency.max(age.as_nanos() as f32);
        }
        let cost = cost_of(latency, success);
        Standing { load, cost }
    }

    fn load(&self, loads: Loads<'_>, id: EndpointId) -> f32 {
        (loads.inflight.load(id) + 1) as f32 / self.weights[id.index()] as f32
    }

    /// The best of as many distinct draws as are asked for.
    fn best_of_choices(&self, loads: Loads<'_>, now: Instant, rng: &mut Rng) -> EndpointId {
        if self.choices == 2 {
            return self.better_of_two(loads, now, rng);
        }
        let mut drawn = [EndpointId(0); MOST_CHOICES];
        let count = self.candidates.draw_some(&mut drawn[..self.choices], rng);
        let mut best = drawn[0];
        for &other in &drawn[1..count] {
            best = self.better_of(loads, (best, other), now, rng);
        }
        best
    }

    fn better_of_two(&self, loads: Loads<'_>, now: Instant, rng: &mut Rng) -> EndpointId {
        let Some((a, b)) = self.candidates.draw_two(rng) else {
            return self.candidates.draw(rng);
        };
        self.better_of(loads, (a, b), now, rng)
    }

    fn better_of(
        &self,
        loads: Loads<'_>,
        (a, b): (EndpointId, EndpointId),
        now: Instant,
        rng: &mut Rng,
    ) -> EndpointId {
        let (at_a, at_b) = (self.standing(loads, a, now), self.standing(loads, b, now));
        let (better, worse) = if at_a.score() <= at_b.score() {
            ((a, at_a), (b, at_b))
        } else {
            ((b, at_b), (a, at_a))
        };
        if !self.is_tie(loads, better, worse, now) {
            return better.0;
        }
        let rate = |id: EndpointId| self.recent[id.index()] / self.weights[id.index()] as f32;
        let (rate_a, rate_b) = (rate(a), rate(b));
        let a_wins = rate_a < rate_b || (rate_a == rate_b && rng.below(2) == 0);
        if a_wins { a } else { b }
    }

    /// Equal loads, and costs that the means cannot tell apart: nearly equal, or within a factor
    /// that a view of which nothing was heard for `explore_after` does not vouch for. Without this
    /// an endpoint whose mean is a hair above its peers' gets nothing while nothing is in flight,
    /// and its mean stays where it is.
    fn is_tie(
        &self,
        loads: Loads<'_>,
        (_, better): (EndpointId, Standing),
        (id, worse): (EndpointId, Standing),
        now: Instant,
    ) -> bool {
        if better.load != worse.load || worse.cost > SICK * better.cost {
            return false;
        }
        let after = self.ewma.explore_after;
        worse.cost <= NEAR * better.cost
            || (!after.is_zero() && loads.latency.age(id, now) >= after)
    }

    fn least_loaded(&self, loads: Loads<'_>, rng: &mut Rng) -> EndpointId {
        let ids = self.candidates.ids();
        let (mut best, mut least, mut ties) = (ids[0], f32::INFINITY, 0);
        for &id in ids {
            let load = self.load(loads, id);
            if load < least {
                (best, least, ties) = (id, load, 1);
            } else if load == least {
                // One pass: the k-th of the tied takes over with probability 1/k.
                ties += 1;
                if rng.below(ties) == 0 {
                    best = id;
                }
            }
        }
        best
    }

    fn next_turn(&mut self) -> EndpointId {
        let ids = self.candidates.ids();
        if self.candidates.is_uniform() {
            let at = self.turn.next % ids.len() as u32;
            self.turn.next = at + 1;
            return ids[at as usize];
        }
        let (mut best, mut total) = (ids[0], 0);
        for &id in ids {
            let weight = i64::from(self.weights[id.index()]);
            total += weight;
            self.turn.current[id.index()] += weight;
            if self.turn.current[id.index()] > self.turn.current[best.index()] {
                best = id;
            }
        }
        self.turn.current[best.index()] -= total;
        best
    }
}

/// Where an endpoint stands among the candidates; smaller is better.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// `(inflight + 1) / weight`.
    load: f32,
    cost: f32,
}

impl Standing {
    fn score(self) -> f32 {
        self.load * self.cost
    }
}

fn cost_of(latency_ns: f32, success: f32) -> f32 {
    let success = success.max(0.01);
    (latency_ns + 1.0) / (success * success)
}
