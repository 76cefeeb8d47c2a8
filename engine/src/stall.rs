//! Tells a slow receiver from one that has stopped: by the bytes that its kernel acknowledges, not by the
//! time that a send takes as a whole.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use evenkeel_base::Duration;
use evenkeel_runtime::{Send, Sleep, sleep_until, turn_now};

use crate::relay::RelayError;

/// Looks in one timeout. A send that ends before the first costs no look.
const LOOKS: u32 = 4;

/// Watches one send: it has stalled when no byte is acknowledged during `idle`, seen at most a quarter
/// of it late.
pub(crate) struct Stall {
    every: Duration,
    sleep: Sleep,
    seen: Option<i64>,
    still: u32,
}

impl Stall {
    pub(crate) fn new(idle: Duration) -> Stall {
        let every = idle / u64::from(LOOKS);
        Stall {
            every,
            sleep: sleep_until(turn_now() + every),
            seen: None,
            still: 0,
        }
    }

    /// Ready when `send` has stalled.
    pub(crate) fn poll(&mut self, send: &Send<'_>, cx: &mut Context<'_>) -> Poll<()> {
        while Pin::new(&mut self.sleep).poll(cx).is_ready() {
            let acknowledged = Some(send.acknowledged());
            self.still = if self.seen == acknowledged {
                self.still + 1
            } else {
                0
            };
            if self.still >= LOOKS {
                return Poll::Ready(());
            }
            self.seen = acknowledged;
            self.sleep.reset(turn_now() + self.every);
        }
        Poll::Pending
    }
}

/// Waits for a send as long as it makes progress within `idle`.
pub(crate) async fn finish_send(mut send: Send<'_>, idle: Duration) -> Result<(), RelayError> {
    let mut stall = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut send).poll(cx) {
            return Poll::Ready(result.map_err(|_| RelayError::Sink));
        }
        let stall = stall.get_or_insert_with(|| Stall::new(idle));
        stall.poll(&send, cx).map(|()| Err(RelayError::SinkStalled))
    })
    .await
}
