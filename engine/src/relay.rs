//! A body on its way through: decoded where it comes from, framed for where it goes, never held whole.
//!
//! At most one send and one receive are under way in each direction. A long body is received in large
//! one-shot buffers, asked for only while the last is being sent: that is the back-pressure. While the
//! shard's buffers are scarce, bytes are copied out of them and nothing is asked for until the last
//! send has ended: a thousand slow receivers leave half of the buffers to the others.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use evenkeel_base::Duration;
use evenkeel_http1::BodyReader;
use evenkeel_runtime::{Buffer, Chunk, Send, TcpStream, sleep_until, turn_now};

use crate::batch::{Batch, Outgoing};
use crate::stall::{Stall, finish_send};

/// Bodies with more than this to come are received in large buffers.
const BULK_ABOVE: u64 = 32 * 1024;

/// Who broke the transfer.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// The sender's connection failed or ended early.
    Source,
    /// The sender's framing is wrong.
    Malformed,
    /// The receiver's connection failed.
    Sink,
    /// No progress within the body timeout: on which side.
    SourceStalled,
    SinkStalled,
    /// More bytes than the configured limit.
    TooLarge,
}

/// One direction of one exchange.
pub(crate) struct Relay<'f, 't> {
    pub(crate) from: &'f TcpStream,
    pub(crate) to: &'t TcpStream,
    pub(crate) reader: BodyReader,
    pub(crate) outgoing: Outgoing,
    pub(crate) idle: Duration,
    /// Payload bytes let through, zero for no limit.
    pub(crate) max_bytes: u64,
    /// Payload bytes that have come so far.
    pub(crate) passed: &'f Cell<u64>,
}

/// A body that is complete at its source.
pub(crate) struct Relayed<'a> {
    /// What the source sent after the body.
    pub(crate) rest: Option<Chunk>,
    /// The last send, perhaps still under way.
    pub(crate) sending: Option<Send<'a>>,
}

impl<'t> Relay<'_, 't> {
    /// Sends `head`, then the body that begins in `rest`.
    pub(crate) async fn run(
        &mut self,
        head: Option<Buffer>,
        mut rest: Option<Chunk>,
    ) -> Result<Relayed<'t>, RelayError> {
        let mut batch = Batch::new(head);
        let mut sending = None;
        loop {
            while let Some(mut chunk) = rest.take() {
                let step = self
                    .reader
                    .read(&chunk)
                    .map_err(|_| RelayError::Malformed)?;
                let passed = self.passed.get() + step.data.len() as u64;
                self.passed.set(passed);
                // What a chunk announces counts before it comes.
                let announced = passed.saturating_add(self.reader.remaining_hint().unwrap_or(0));
                if self.max_bytes > 0 && announced > self.max_bytes {
                    return Err(RelayError::TooLarge);
                }
                if !step.data.is_empty() {
                    let mut data = chunk.split_to(step.data.end);
                    data.advance(step.data.start);
                    chunk.advance(step.consumed - step.data.end);
                    batch.data(data, self.outgoing);
                } else {
                    chunk.advance(step.consumed);
                }
                let done = self.reader.is_done();
                if !chunk.is_empty() {
                    rest = Some(chunk);
                }
                if done {
                    break;
                }
                if batch.is_full() {
                    self.flush(&mut batch, &mut sending).await?;
                }
            }
            if self.reader.is_done() {
                if self.outgoing == Outgoing::Chunked {
                    batch.last_chunk();
                }
                self.flush(&mut batch, &mut sending).await?;
                return Ok(Relayed { rest, sending });
            }
            self.flush(&mut batch, &mut sending).await?;
            match self.receive(&mut sending).await? {
                Some(chunk) => rest = Some(chunk),
                None => self.reader.eof().map_err(|_| RelayError::Source)?,
            }
        }
    }

    /// Starts the batch's send once the one before has ended.
    async fn flush(
        &self,
        batch: &mut Batch,
        sending: &mut Option<Send<'t>>,
    ) -> Result<(), RelayError> {
        let Some(pieces) = batch.take() else {
            return Ok(());
        };
        if let Some(before) = sending.take() {
            finish_send(before, self.idle).await?;
        }
        *sending = Some(self.to.send(pieces));
        Ok(())
    }

    /// The next bytes, while the send under way goes on. As long as it does the source is not late: it
    /// may be held back by it.
    async fn receive(&self, sending: &mut Option<Send<'t>>) -> Result<Option<Chunk>, RelayError> {
        let bulk = self
            .reader
            .remaining_hint()
            .is_none_or(|left| left > BULK_ABOVE);
        let mut late = pin!(sleep_until(turn_now() + self.idle));
        let mut stall = None;
        poll_fn(|cx| {
            if let Some(send) = sending {
                match Pin::new(send).poll(cx) {
                    Poll::Ready(Ok(())) => {
                        *sending = None;
                        let deadline = turn_now() + self.idle;
                        late.as_mut().get_mut().reset(deadline);
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayError::Sink)),
                    Poll::Pending => {}
                }
            }
            let received = if sending.is_some() && self.from.are_buffers_scarce() {
                // A slow receiver leaves the buffers to others; what is here already is copied.
                match self.from.take_queued() {
                    Some(chunk) => Poll::Ready(Ok(Some(chunk))),
                    None => Poll::Pending,
                }
            } else if bulk {
                self.from.poll_recv_bulk(cx)
            } else {
                self.from.poll_recv(cx)
            };
            match received {
                Poll::Ready(Ok(chunk)) => return Poll::Ready(Ok(chunk)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(RelayError::Source)),
                Poll::Pending => {}
            }
            if let Some(send) = sending {
                let stall = stall.get_or_insert_with(|| Stall::new(self.idle));
                return stall.poll(send, cx).map(|()| Err(RelayError::SinkStalled));
            }
            late.as_mut()
                .poll(cx)
                .map(|()| Err(RelayError::SourceStalled))
        })
        .await
    }
}
