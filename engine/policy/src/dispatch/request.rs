//! One request as the dispatcher sees it, and the words it and the shell exchange.

use evenkeel_base::Instant;

use crate::attempts::AttemptId;
use crate::balance::Replay;
use crate::endpoint::EndpointId;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// When the whole request, every attempt included, is too late.
    pub deadline: Instant,
    pub replay: Replay,
}

/// A request on its way. Owned by the caller; it holds what it holds until
/// [`Dispatch::handle_done`](super::Dispatch::handle_done), `handle_failure` or `handle_cancel`
/// ends it.
#[derive(Debug)]
pub struct Request {
    pub(super) ask: Ask,
    pub(super) phase: Phase,
    /// Attempts begun.
    pub(super) attempts: u32,
}

impl Request {
    /// Attempts begun so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.ask.deadline
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Wants an attempt.
    Ready,
    /// An attempt is under way and no head has gone downstream.
    Trying(AttemptId),
    /// A head has gone downstream: nothing is retried any more.
    Answering(AttemptId),
    /// Nothing is held.
    Over,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Attempt(Attempt),
    /// Answer downstream with this refusal; the request is over.
    Refuse(Refusal),
    /// An attempt is under way: report what becomes of it.
    Wait,
    /// The request is over.
    Over,
}

/// One upstream try to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub endpoint: EndpointId,
    /// 1 for the first.
    pub number: u32,
    /// When this attempt has failed with a timeout; never later than the request's deadline.
    pub deadline: Instant,
}

/// Why a request is not served. Not an error: a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The limiter's limit is reached, or the loop's table of attempts is full.
    ShedLimiter,
    BreakerOpen,
    /// The upstream has no endpoint, or every one is ejected and panic is off.
    NoEndpoint,
    /// The deadline had passed before an attempt began.
    DeadlineInfeasible,
}

/// What an answer or a failure means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the head downstream, and what follows it.
    Forward,
    /// No more attempts: answer downstream with the failure, or cut the connection when a head has
    /// gone already. The request is over.
    Final,
    /// The attempt is not one of this request's any more (it ended before): drop what it brought.
    Stale,
}
