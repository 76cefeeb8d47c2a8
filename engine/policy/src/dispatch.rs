//! The order of a request's life, for one upstream on one loop.
//!
//! Once per request, in this order: rate limit, tier, deadline, budget deposit, bulkhead. Per
//! attempt (first, retry, hedge): breaker, limiter, pick. Recorded per attempt: endpoint (latency,
//! success, outlier), breaker, limiter. Then the fallback. Once a head has gone downstream nothing is
//! retried. This version has the deadline, the breaker, the limiter, the pick and the records, and
//! makes one attempt per request.
//!
//! Why this order: what refuses for the request's own sake comes before what costs the upstream
//! something, and the breaker before the limiter, so that an upstream that is given up takes no
//! permits. Whatever refuses later gives back what was taken earlier.
//!
//! The caller drives: [`Dispatch::begin`], then [`Dispatch::poll`] says what to do and `handle_*`
//! say what became of it. Latency is the time to the head. A failure is told to the guards when it
//! is seen; a success settles probes at the head and everything else when the body is complete, so
//! that an endpoint that breaks off every body is ejected although its heads are fine.
//!
//! Arithmetic lives in the siblings; here is only the order. Cost: no allocation after
//! construction.

mod config;
mod journal;
mod records;
mod request;
mod snapshot;
pub(crate) mod succession;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

use evenkeel_base::{Duration, Instant, Rng};

use crate::attempts::{self, AttemptId, Attempts, Stage};
use crate::balance::{Balance, Loads, Pick};
use crate::breaker::{self, Breaker, Permit};
use crate::endpoint::EndpointId;
use crate::exchange::Turn;
use crate::inflight::Inflight;
use crate::latency::Latency;
use crate::limiter::{self, Limiter};
use crate::outcome::{Failure, Outcome};
use crate::outlier::{Outlier, Ticket};
use crate::process::Process;
use crate::transition::Transition;
pub use config::Config;
use journal::Journal;
use request::Phase;
pub use request::{Ask, Attempt, Refusal, Request, Step, Verdict};
pub use snapshot::{Counters, EndpointCounters, EndpointSnapshot, LimiterSnapshot, Snapshot};
pub use succession::Origins;

/// The loops' turns begin evenly spread over the endpoints.
fn first_turn(endpoints: u32, loops: u32, loop_index: u32) -> u32 {
    let spread = u64::from(loop_index) * u64::from(endpoints) / u64::from(loops);
    spread as u32
}

/// One upstream on one loop.
pub struct Dispatch {
    config: Config,
    process: Arc<Process>,
    inflight: Inflight,
    latency: Latency,
    /// `None` when nothing is exchanged.
    turn: Option<Turn>,
    attempts: Attempts,
    balance: Balance,
    outlier: Outlier,
    breaker: Breaker,
    limiter: Limiter,
    /// What the journal was told last.
    is_panicking: bool,
    journal: Journal,
    counters: Counters,
    endpoint_counters: Box<[EndpointCounters]>,
}

impl Dispatch {
    /// The dispatcher of loop `loop_index` (from zero) among those that share `process`, which was
    /// made from an equal `config`.
    #[must_use]
    pub fn new(config: Config, process: Arc<Process>, loop_index: u32, now: Instant) -> Self {
        let endpoints = process.endpoints();
        assert!(loop_index < process.loops(), "one of the process's loops");
        assert_eq!(
            config.weights.len(),
            endpoints as usize,
            "the process was built for this upstream"
        );
        let loops = process.loops();
        Dispatch {
            inflight: Inflight::new(config.inflight, &process, loop_index),
            latency: Latency::new(&config.ewma, config.latency, &process, loop_index),
            turn: (config.exchanges()).then(|| Turn::new(config.exchange_interval, endpoints, now)),
            attempts: Attempts::new(config.max_attempts, endpoints),
            balance: Balance::new(
                config.balance,
                config.choices,
                config.ewma,
                &config.weights,
                first_turn(endpoints, loops, loop_index),
                now,
            ),
            outlier: Outlier::new(&config.outlier, endpoints, loops, loop_index),
            breaker: Breaker::new(&config.breaker, loops, loop_index),
            limiter: Limiter::new(&config.limiter, loops, loop_index),
            is_panicking: false,
            journal: Journal::new(),
            counters: Counters::default(),
            endpoint_counters: vec![EndpointCounters::default(); endpoints as usize].into(),
            process,
            config,
        }
    }

    /// The stages that a request passes once.
    ///
    /// # Errors
    /// The refusal to answer with; nothing is held then.
    pub fn begin(&mut self, ask: Ask, now: Instant, _rng: &mut Rng) -> Result<Request, Refusal> {
        if ask.deadline <= now {
            self.counters.deadline_infeasible += 1;
            return Err(Refusal::DeadlineInfeasible);
        }
        Ok(Request {
            ask,
            phase: Phase::Ready,
            attempts: 0,
        })
    }

    /// What to do now for `request`.
    pub fn poll(&mut self, request: &mut Request, now: Instant, rng: &mut Rng) -> Step {
        match request.phase {
            Phase::Trying(_) | Phase::Answering(_) => return Step::Wait,
            Phase::Over => return Step::Over,
            Phase::Ready => {}
        }
        let step = match self.attempt(request, now, rng) {
            Ok(attempt) => {
                request.phase = Phase::Trying(attempt.id);
                request.attempts = attempt.number;
                Step::Attempt(attempt)
            }
            Err(refusal) => {
                request.phase = Phase::Over;
                Step::Refuse(refusal)
            }
        };
        self.debug_check();
        step
    }

    /// The attempt's response head arrived. A 5xx is [`Outcome::Failure`] for the records and is
    /// forwarded all the same.
    pub fn handle_head(
        &mut self,
        request: &mut Request,
        attempt: AttemptId,
        outcome: Outcome,
        now: Instant,
        _rng: &mut Rng,
    ) -> Verdict {
        let found = self.attempts.find(attempt).copied();
        let (Some(known), Phase::Trying(current)) = (found, request.phase) else {
            return Verdict::Stale;
        };
        if current != attempt {
            return Verdict::Stale;
        }
        request.phase = Phase::Answering(attempt);
        self.sample(&known, outcome, now);
        let is_probe =
            matches!(known.permit, Permit::Probe { .. }) || known.ticket == Ticket::Probe;
        let stage = if outcome == Outcome::Success && !is_probe {
            Stage::SuccessPending
        } else {
            self.settle(&known, outcome, now);
            Stage::Settled
        };
        self.attempts.advance(attempt, stage);
        self.debug_check();
        Verdict::Forward
    }

    /// The attempt failed, before its head or in the middle of the body. It is over.
    pub fn handle_failure(
        &mut self,
        request: &mut Request,
        attempt: AttemptId,
        _failure: Failure,
        now: Instant,
        _rng: &mut Rng,
    ) -> Verdict {
        let Some(ended) = self.end(request, attempt) else {
            return Verdict::Stale;
        };
        match ended.stage {
            Stage::Waiting => {
                self.sample(&ended, Outcome::Failure, now);
                self.settle(&ended, Outcome::Failure, now);
            }
            Stage::SuccessPending => {
                self.latency.record_late_failure(ended.endpoint, now);
                self.settle(&ended, Outcome::Failure, now);
            }
            Stage::Settled => {}
        }
        self.debug_check();
        Verdict::Final
    }

    /// The attempt's answer is complete and its connection is free.
    pub fn handle_done(&mut self, request: &mut Request, attempt: AttemptId, now: Instant) {
        let Some(ended) = self.end(request, attempt) else {
            return;
        };
        match ended.stage {
            Stage::SuccessPending => self.settle(&ended, Outcome::Success, now),
            // Done without a head: there is nothing to record.
            Stage::Waiting => self.settle(&ended, Outcome::Ignored, now),
            Stage::Settled => {}
        }
        self.debug_check();
    }

    /// The downstream went away: whatever the request holds is given back and nothing is recorded.
    /// Does nothing for a request that is over.
    pub fn handle_cancel(&mut self, request: &mut Request, now: Instant) {
        let (Phase::Trying(attempt) | Phase::Answering(attempt)) = request.phase else {
            request.phase = Phase::Over;
            return;
        };
        if let Some(ended) = self.end(request, attempt)
            && ended.stage != Stage::Settled
        {
            self.settle(&ended, Outcome::Ignored, now);
        }
        self.debug_check();
    }

    /// The next change of state to tell, oldest first.
    pub fn poll_transition(&mut self) -> Option<Transition> {
        self.journal.pop()
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Panics when the parts disagree. Runs after every mutator in debug builds; O(endpoints).
    pub fn check_invariants(&self) {
        self.outlier.check_invariants();
        assert_eq!(
            self.limiter.inflight(),
            self.attempts.live(),
            "one permit per attempt"
        );
        let endpoints = (0..self.process.endpoints()).map(EndpointId);
        let live = u64::from(self.attempts.live());
        let seen: u64 = endpoints.clone().map(|id| self.inflight.load(id)).sum();
        // Where loops see each other, the others add theirs.
        assert!(seen >= live, "in flight: {seen} of {live} seen");
        if let Some(own) = endpoints
            .map(|id| self.inflight.own(id))
            .sum::<Option<u64>>()
        {
            // What a loop publishes holds its requests of the version before as well.
            let alone = self.config.inflight == crate::store::Placement::PerLoop;
            assert!(own >= live && (!alone || own == live), "in flight: {own}");
        }
    }

    /// Breaker, limiter, pick.
    fn attempt(
        &mut self,
        request: &Request,
        now: Instant,
        rng: &mut Rng,
    ) -> Result<Attempt, Refusal> {
        if request.ask.deadline <= now {
            self.counters.deadline_infeasible += 1;
            return Err(Refusal::DeadlineInfeasible);
        }
        self.handle_time(now);
        self.fold(now);
        let permit = self.pass_breaker(now)?;
        let picked = match self.pass_limiter() {
            Ok(()) => self.pick(request, now, rng),
            Err(refusal) => Err(refusal),
        };
        let pick = picked.inspect_err(|_| {
            let gate = &self.process.half_open;
            // An ignored result changes no state.
            let none = self.breaker.record(permit, Outcome::Ignored, gate, now);
            debug_assert_eq!(none, None);
        })?;
        let endpoint = pick.endpoint;
        let id = self.attempts.begin(attempts::Attempt {
            endpoint,
            begun: now,
            stage: Stage::Waiting,
            permit,
            ticket: self.outlier.begin(endpoint),
            is_look: pick.is_look,
        });
        self.inflight.begin(endpoint);
        self.counters.attempts += 1;
        self.counters.looks += u64::from(pick.is_look);
        self.endpoint_counters[endpoint.index()].picks += 1;
        let longest = self.config.per_try_timeout.unwrap_or(Duration::MAX);
        Ok(Attempt {
            id,
            endpoint,
            number: request.attempts + 1,
            deadline: request.ask.deadline.min(now + longest),
        })
    }

    fn pass_breaker(&mut self, now: Instant) -> Result<Permit, Refusal> {
        match self.breaker.admit(&self.process.half_open, now) {
            breaker::Admission::Admitted(permit) => Ok(permit),
            breaker::Admission::Observed => {
                self.counters.breaker_rejected += 1;
                Ok(Permit::Uncounted)
            }
            breaker::Admission::Rejected => {
                self.counters.breaker_rejected += 1;
                Err(Refusal::BreakerOpen)
            }
        }
    }

    fn pass_limiter(&mut self) -> Result<(), Refusal> {
        if self.attempts.is_full() {
            self.counters.shed_full += 1;
            return Err(Refusal::ShedLimiter);
        }
        match self.limiter.admit() {
            limiter::Admission::Admitted => Ok(()),
            limiter::Admission::Observed => {
                self.counters.shed_limiter += 1;
                Ok(())
            }
            limiter::Admission::Shed => {
                self.counters.shed_limiter += 1;
                Err(Refusal::ShedLimiter)
            }
        }
    }

    /// Gives the limiter's permit back when there is nobody to pick.
    fn pick(&mut self, request: &Request, now: Instant, rng: &mut Rng) -> Result<Pick, Refusal> {
        let loads = Loads {
            inflight: &self.inflight,
            latency: &self.latency,
            attempts: &self.attempts,
            outlier: &self.outlier,
            process: &self.process,
        };
        let picked = self.balance.pick(loads, request.ask.replay, now, rng);
        picked.ok_or_else(|| {
            self.limiter.release();
            self.counters.no_endpoint += 1;
            Refusal::NoEndpoint
        })
    }

    /// What time alone changes: ejections that end, a breaker that half opens, a lost probe.
    fn handle_time(&mut self, now: Instant) {
        while let Some(transition) = self.outlier.handle_time(now) {
            self.tell(transition);
        }
        self.tell_panic();
        let gate = &self.process.half_open;
        if let Some(transition) = self.breaker.handle_time(gate, now) {
            self.tell(transition);
        }
    }

    /// Takes in what the other loops published, when it is time.
    fn fold(&mut self, now: Instant) {
        if let Some(turn) = &mut self.turn
            && turn.is_due(now)
        {
            self.inflight.fold();
            self.latency.fold(now);
            let endpoints = (0..self.process.endpoints()).map(EndpointId);
            turn.done(
                endpoints.filter_map(|id| self.latency.view(id).latency_ns),
                now,
            );
        }
    }

    /// Frees what the attempt holds. `None` when it is not this request's attempt any more.
    fn end(&mut self, request: &mut Request, attempt: AttemptId) -> Option<attempts::Attempt> {
        let (Phase::Trying(current) | Phase::Answering(current)) = request.phase else {
            return None;
        };
        if current != attempt {
            return None;
        }
        let ended = self.attempts.end(attempt)?;
        request.phase = Phase::Over;
        self.inflight.end(ended.endpoint);
        self.limiter.release();
        Some(ended)
    }

    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        self.check_invariants();
    }
}
