//! A connection that has become a tunnel: bytes pass in both directions as they come, until both sides
//! have ended, one has failed, or nothing has passed for too long.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use evenkeel_base::{Duration, Instant};
use evenkeel_runtime::{Chunk, TcpStream, sleep_until, turn_now};

/// Passes bytes on; first those that have come already.
pub(crate) async fn run(
    client: &TcpStream,
    endpoint: &TcpStream,
    from_client: Option<Chunk>,
    from_endpoint: Option<Chunk>,
    idle: Duration,
) {
    let moved = Cell::new(turn_now());
    let mut up = pin!(pass(client, endpoint, from_client, &moved));
    let mut down = pin!(pass(endpoint, client, from_endpoint, &moved));
    let mut sleep = pin!(sleep_until(moved.get() + idle));
    let (mut up_ended, mut down_ended) = (false, false);
    poll_fn(|cx| {
        for (way, ended) in [
            (
                up.as_mut() as std::pin::Pin<&mut dyn Future<Output = Passed>>,
                &mut up_ended,
            ),
            (down.as_mut(), &mut down_ended),
        ] {
            if *ended {
                continue;
            }
            match way.poll(cx) {
                Poll::Ready(Passed::Whole) => *ended = true,
                Poll::Ready(Passed::Broken) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
        if up_ended && down_ended {
            return Poll::Ready(());
        }
        // The timer is moved only when it fires: bytes that pass do not touch it.
        while sleep.as_mut().poll(cx).is_ready() {
            let until = moved.get() + idle;
            if turn_now() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().get_mut().reset(until);
        }
        Poll::Pending
    })
    .await;
}

enum Passed {
    /// Up to the end of the stream, which the other side has been told.
    Whole,
    Broken,
}

async fn pass(
    from: &TcpStream,
    to: &TcpStream,
    first: Option<Chunk>,
    moved: &Cell<Instant>,
) -> Passed {
    let mut next = first;
    loop {
        let chunk = match next.take() {
            Some(chunk) => chunk,
            None => match from.recv().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    to.shutdown();
                    return Passed::Whole;
                }
                Err(_) => return Passed::Broken,
            },
        };
        if to.send(chunk).await.is_err() {
            return Passed::Broken;
        }
        moved.set(turn_now());
    }
}
