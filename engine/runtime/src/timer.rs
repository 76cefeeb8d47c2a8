//! Waiting for a time: every timer of a shard is an entry of one wheel.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use evenkeel_base::Instant;
use evenkeel_base::wheel::TimerKey;

use crate::shard::{Inner, current};

/// Resolves at the deadline, not before; [`Instant::MAX`] never.
pub struct Sleep {
    deadline: Instant,
    timer: Option<(TimerKey, Waker)>,
    inner: Rc<Inner>,
}

/// Waits until `deadline` on this thread's shard.
///
/// # Panics
/// Outside a shard's thread.
#[must_use]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        timer: None,
        inner: current(),
    }
}

impl Sleep {
    /// Moves the deadline: cheaper than a new timer.
    pub fn reset(&mut self, deadline: Instant) {
        self.cancel();
        self.deadline = deadline;
    }

    fn cancel(&mut self) {
        if let Some((key, _)) = self.timer.take() {
            self.inner.timers.borrow_mut().cancel(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.inner.turn_now() >= self.deadline {
            self.cancel();
            return Poll::Ready(());
        }
        if self.deadline == Instant::MAX {
            return Poll::Pending;
        }
        if self
            .timer
            .as_ref()
            .is_none_or(|(_, waker)| !waker.will_wake(cx.waker()))
        {
            self.cancel();
            let waker = cx.waker().clone();
            let key = self
                .inner
                .timers
                .borrow_mut()
                .insert(self.deadline, waker.clone());
            self.timer = Some((key, waker));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The time ran out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline passed")]
pub struct Elapsed;

/// Runs `future` until it is done or the deadline passes; a future that is ready wins a tie.
///
/// # Errors
/// [`Elapsed`] when the deadline passed first; the future is dropped then.
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep_until(deadline));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
