//! The request's passage through `policy::dispatch`, held so that nothing leaks: whatever way the
//! exchange ends, dispatch hears of it, also when its task is dropped half-way.

use evenkeel_base::Instant;
use evenkeel_policy::{Ask, Attempt, Failure, Outcome, Refusal, Replay, Request, Step};
use evenkeel_runtime::turn_now;

use crate::upstream::Upstream;

pub(crate) struct Guarded<'a> {
    upstream: &'a Upstream,
    request: Option<Request>,
    attempt: Option<Attempt>,
}

impl<'a> Guarded<'a> {
    pub(crate) fn begin(
        upstream: &'a Upstream,
        deadline: Instant,
        replay: Replay,
    ) -> Result<Guarded<'a>, Refusal> {
        let now = turn_now();
        let mut policy = upstream.policy.borrow_mut();
        let policy = &mut *policy;
        let request = policy
            .dispatch
            .begin(Ask { deadline, replay }, now, &mut policy.rng)?;
        Ok(Guarded {
            upstream,
            request: Some(request),
            attempt: None,
        })
    }

    /// What dispatch wants done now.
    pub(crate) fn poll(&mut self) -> Step {
        let mut policy = self.upstream.policy.borrow_mut();
        let policy = &mut *policy;
        let request = self
            .request
            .as_mut()
            .expect("polled while the request lives");
        let step = policy.dispatch.poll(request, turn_now(), &mut policy.rng);
        self.upstream.note_transitions(&mut policy.dispatch);
        match &step {
            Step::Attempt(attempt) => self.attempt = Some(*attempt),
            Step::Refuse(_) | Step::Over => self.request = None,
            Step::Wait => {}
        }
        step
    }

    /// A response head with this status has arrived.
    pub(crate) fn head(&mut self, status: u16) {
        let outcome = if status >= 500 {
            Outcome::Failure
        } else {
            Outcome::Success
        };
        let (Some(request), Some(attempt)) = (&mut self.request, &self.attempt) else {
            return;
        };
        let mut policy = self.upstream.policy.borrow_mut();
        let policy = &mut *policy;
        let _ =
            policy
                .dispatch
                .handle_head(request, attempt.id, outcome, turn_now(), &mut policy.rng);
    }

    /// The attempt broke.
    pub(crate) fn failed(&mut self, failure: Failure) {
        let (Some(request), Some(attempt)) = (&mut self.request, self.attempt.take()) else {
            return;
        };
        let mut policy = self.upstream.policy.borrow_mut();
        let policy = &mut *policy;
        let _ = policy.dispatch.handle_failure(
            request,
            attempt.id,
            failure,
            turn_now(),
            &mut policy.rng,
        );
        self.upstream.note_transitions(&mut policy.dispatch);
        self.request = None;
    }

    /// The answer is complete as far as the endpoint is concerned.
    pub(crate) fn done(&mut self) {
        let (Some(request), Some(attempt)) = (&mut self.request, self.attempt.take()) else {
            return;
        };
        self.upstream
            .policy
            .borrow_mut()
            .dispatch
            .handle_done(request, attempt.id, turn_now());
        self.request = None;
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if let Some(request) = &mut self.request {
            self.upstream
                .policy
                .borrow_mut()
                .dispatch
                .handle_cancel(request, turn_now());
        }
    }
}
