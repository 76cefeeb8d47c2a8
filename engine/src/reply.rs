//! Answers that the engine gives itself: one status, one reason, one line of text.

use evenkeel_http1::encode::{self, OwnResponse};
use evenkeel_http1::{Method, RequestError, Version};
use evenkeel_policy::Refusal;
use evenkeel_runtime::{Buffer, buffer};

/// Why the engine answers instead of an endpoint: the value of `x-evenkeel-reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    BadRequest,
    HeaderTooLarge,
    HeaderTimeout,
    BodyTimeout,
    BodyTooLarge,
    NoRoute,
    ShedLimiter,
    BreakerOpen,
    NoEndpoint,
    Overloaded,
    Draining,
    DeadlineInfeasible,
    Timeout,
    UpstreamReset,
    UpstreamConnect,
    UpstreamProtocol,
}

impl Reason {
    pub(crate) const ALL: [Reason; 16] = [
        Reason::BadRequest,
        Reason::HeaderTooLarge,
        Reason::HeaderTimeout,
        Reason::BodyTimeout,
        Reason::BodyTooLarge,
        Reason::NoRoute,
        Reason::ShedLimiter,
        Reason::BreakerOpen,
        Reason::NoEndpoint,
        Reason::Overloaded,
        Reason::Draining,
        Reason::DeadlineInfeasible,
        Reason::Timeout,
        Reason::UpstreamReset,
        Reason::UpstreamConnect,
        Reason::UpstreamProtocol,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Reason::BadRequest => "bad-request",
            Reason::HeaderTooLarge => "header-too-large",
            Reason::HeaderTimeout => "header-timeout",
            Reason::BodyTimeout => "body-timeout",
            Reason::BodyTooLarge => "body-too-large",
            Reason::NoRoute => "no-route",
            Reason::ShedLimiter => "shed-limiter",
            Reason::BreakerOpen => "breaker-open",
            Reason::NoEndpoint => "no-endpoint",
            Reason::Overloaded => "overloaded",
            Reason::Draining => "draining",
            Reason::DeadlineInfeasible => "deadline-infeasible",
            Reason::Timeout => "timeout",
            Reason::UpstreamReset => "upstream-reset",
            Reason::UpstreamConnect => "upstream-connect",
            Reason::UpstreamProtocol => "upstream-protocol",
        }
    }

    /// `x-evenkeel-reason`, and `retry-after` where the client may come again.
    const fn header_lines(self) -> &'static str {
        match self {
            Reason::BadRequest => "x-evenkeel-reason: bad-request\r\n",
            Reason::HeaderTooLarge => "x-evenkeel-reason: header-too-large\r\n",
            Reason::HeaderTimeout => "x-evenkeel-reason: header-timeout\r\n",
            Reason::BodyTimeout => "x-evenkeel-reason: body-timeout\r\n",
            Reason::BodyTooLarge => "x-evenkeel-reason: body-too-large\r\n",
            Reason::NoRoute => "x-evenkeel-reason: no-route\r\n",
            Reason::ShedLimiter => "x-evenkeel-reason: shed-limiter\r\nretry-after: 1\r\n",
            Reason::BreakerOpen => "x-evenkeel-reason: breaker-open\r\nretry-after: 1\r\n",
            Reason::NoEndpoint => "x-evenkeel-reason: no-endpoint\r\nretry-after: 1\r\n",
            Reason::Overloaded => "x-evenkeel-reason: overloaded\r\nretry-after: 1\r\n",
            Reason::Draining => "x-evenkeel-reason: draining\r\nretry-after: 1\r\n",
            Reason::DeadlineInfeasible => "x-evenkeel-reason: deadline-infeasible\r\n",
            Reason::Timeout => "x-evenkeel-reason: timeout\r\n",
            Reason::UpstreamReset => "x-evenkeel-reason: upstream-reset\r\n",
            Reason::UpstreamConnect => "x-evenkeel-reason: upstream-connect\r\n",
            Reason::UpstreamProtocol => "x-evenkeel-reason: upstream-protocol\r\n",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Reason::BadRequest => "the request cannot be read",
            Reason::HeaderTooLarge => "the head of the request is too large",
            Reason::HeaderTimeout => "the head of the request took too long",
            Reason::BodyTimeout => "the body of the request made no progress",
            Reason::BodyTooLarge => "the body of the request is larger than allowed here",
            Reason::NoRoute => "no route matches this path and host",
            Reason::ShedLimiter => "too many requests are in flight",
            Reason::BreakerOpen => "the circuit breaker is open",
            Reason::NoEndpoint => "no endpoint may take the request now",
            Reason::Overloaded => "too many requests are in flight in this process",
            Reason::Draining => "this process is shutting down",
            Reason::DeadlineInfeasible => "the deadline has passed before the work could begin",
            Reason::Timeout => "the endpoint did not answer in time",
            Reason::UpstreamReset => "the endpoint closed the connection without an answer",
            Reason::UpstreamConnect => "no connection to the endpoint",
            Reason::UpstreamProtocol => "the endpoint's answer is not valid HTTP",
        }
    }

    pub(crate) const fn status(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::NoRoute => 404,
            Reason::HeaderTimeout | Reason::BodyTimeout => 408,
            Reason::BodyTooLarge => 413,
            Reason::HeaderTooLarge => 431,
            Reason::UpstreamReset | Reason::UpstreamConnect | Reason::UpstreamProtocol => 502,
            Reason::ShedLimiter
            | Reason::BreakerOpen
            | Reason::NoEndpoint
            | Reason::Overloaded
            | Reason::Draining => 503,
            Reason::DeadlineInfeasible | Reason::Timeout => 504,
        }
    }
}

/// A request that gets an answer of the engine's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) reason: Reason,
    /// One line for a person.
    pub(crate) text: &'static str,
}

impl Refused {
    pub(crate) const fn new(reason: Reason) -> Refused {
        Refused {
            status: reason.status(),
            reason,
            text: reason.text(),
        }
    }

    pub(crate) const fn request(error: RequestError) -> Refused {
        let reason = if error.status() == 431 {
            Reason::HeaderTooLarge
        } else {
            Reason::BadRequest
        };
        Refused {
            status: error.status(),
            reason,
            text: error.text(),
        }
    }

    pub(crate) const fn policy(refusal: Refusal) -> Refused {
        Refused::new(match refusal {
            Refusal::ShedLimiter => Reason::ShedLimiter,
            Refusal::BreakerOpen => Reason::BreakerOpen,
            Refusal::NoEndpoint => Reason::NoEndpoint,
            Refusal::DeadlineInfeasible => Reason::DeadlineInfeasible,
        })
    }

    /// The whole answer, ready to send.
    pub(crate) fn encode(&self, method: Method, version: Version, keep_alive: bool) -> Buffer {
        let mut out = buffer();
        let vec = out.vec();
        let mut text = buffer();
        text.vec().extend_from_slice(self.text.as_bytes());
        text.vec().push(b'\n');
        let response = OwnResponse {
            status: self.status,
            content_type: "text/plain",
            extra: self.reason.header_lines(),
            body: &text,
            keep_alive,
            version,
            method,
        };
        encode::own_response(vec, &response);
        out
    }
}
