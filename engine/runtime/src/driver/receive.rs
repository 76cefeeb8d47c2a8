//! Receiving: multishot into small buffers, one large buffer at a time for bodies, and the wait when
//! there is none.

use std::io;
use std::task::{Context, Poll};

use super::{Driver, Kind};
use crate::backend::{Completion, Op};
use crate::buffers::Chunk;
use crate::slot::{End, MAX_QUEUED_CHUNKS, Receive, SlotKey, remember};

/// Chunks that one socket may hold while buffers are scarce.
const FEW_CHUNKS: usize = 2;
/// What is received at once into a large buffer while those are scarce: it will be copied.
const SCARCE_BYTES: u32 = 16 * 1024;

/// Which buffers a receive takes: small ones that wait for ever, or one large one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Head,
    Body,
}

impl Driver {
    pub(crate) fn poll_receive(
        &mut self,
        key: SlotKey,
        class: Class,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk>>> {
        let slot = self.slot(key);
        slot.watched = false;
        if let Some(chunk) = slot.dequeue() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        match slot.end {
            Some(End::Eof) => return Poll::Ready(Ok(None)),
            Some(End::Error(errno)) => {
                return Poll::Ready(Err(io::Error::from_raw_os_error(errno)));
            }
            None => {}
        }
        remember(&mut slot.read_waker, cx.waker());
        self.arm_receive(key, class);
        Poll::Pending
    }

    /// What has been received already; the kernel is asked for no more, and is stopped when it goes on by
    /// itself.
    pub(crate) fn take_queued(&mut self, key: SlotKey) -> Option<Chunk> {
        let slot = self.slot(key);
        let stop = slot.receive == Receive::Multi && !slot.cancelling;
        slot.cancelling |= stop;
        let chunk = slot.dequeue();
        if stop {
            self.cancel(Kind::Receive, key);
        }
        chunk
    }

    /// Less than half of the buffers of some kind are free.
    pub(crate) fn is_scarce(&self) -> bool {
        self.groups.iter().any(|group| group.is_scarce())
    }

    /// Ready once the connection is reset or failed: an end of stream is not a failure.
    pub(crate) fn poll_failed(&mut self, key: SlotKey, cx: &mut Context<'_>) -> Poll<io::Error> {
        let slot = self.slot(key);
        match slot.end {
            Some(End::Error(errno)) => return Poll::Ready(io::Error::from_raw_os_error(errno)),
            Some(End::Eof) => return Poll::Pending,
            None => {}
        }
        remember(&mut slot.read_waker, cx.waker());
        if slot.queued() < MAX_QUEUED_CHUNKS {
            self.arm_receive(key, Class::Head);
        }
        Poll::Pending
    }

    /// Starts watching an idle connection; [`Driver::is_quiet`] then tells whether it may be used.
    pub(crate) fn watch(&mut self, key: SlotKey) {
        self.slot(key).watched = true;
        if self.slot(key).end.is_none() {
            self.arm_receive(key, Class::Head);
        }
    }

    /// Nothing received and not ended: a pooled connection that may carry a request.
    pub(crate) fn is_quiet(&mut self, key: SlotKey) -> bool {
        let slot = self.slot(key);
        slot.end.is_none() && slot.queued() == 0
    }

    pub(super) fn arm_receive(&mut self, key: SlotKey, class: Class) {
        let (receive, fd, cancelling, starved) = {
            let slot = self.slot(key);
            (slot.receive, slot.fd, slot.cancelling, slot.starved)
        };
        match (receive, class) {
            _ if starved => {}
            (Receive::Idle, Class::Head) => {
                self.slot(key).receive = Receive::Multi;
                let group = self.groups[0].id();
                self.submit(Kind::Receive, key, Op::ReceiveMulti { fd, group });
            }
            (Receive::Idle, Class::Body) => {
                self.slot(key).receive = Receive::Single;
                let group = self.groups[1].id();
                let most = if self.groups[1].is_scarce() {
                    SCARCE_BYTES
                } else {
                    0
                };
                self.submit(Kind::Receive, key, Op::Receive { fd, group, most });
            }
            (Receive::Multi, Class::Body) if !cancelling => {
                self.slot(key).cancelling = true;
                self.cancel(Kind::Receive, key);
            }
            _ => {}
        }
    }

    pub(super) fn on_receive(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        let group = match slot.receive {
            Receive::Single => 1,
            Receive::Multi | Receive::Idle => 0,
        };
        if !completion.more {
            slot.ops -= 1;
            slot.receive = Receive::Idle;
            slot.cancelling = false;
        }
        match completion.result {
            n if n > 0 => {
                let bid = completion
                    .buffer
                    .expect("a receive with data names its buffer");
                let chunk = self.groups[group].take(bid, n as u32);
                if !slot.released {
                    slot.queue(chunk);
                }
            }
            0 => {
                if let Some(bid) = completion.buffer {
                    drop(self.groups[group].take(bid, 0));
                }
                slot.end = Some(End::Eof);
            }
            errno if errno == -libc::ENOBUFS => {
                slot.starved = true;
                self.starved_total += 1;
                let class = if group == 0 { Class::Head } else { Class::Body };
                self.starved.push((key, class));
                return;
            }
            // Cancelled by us: the waiting receive is woken and arms what it wants.
            errno if errno == -libc::ECANCELED || errno == -libc::EINTR => {}
            errno => slot.end = Some(End::Error(-errno)),
        }
        self.disturbed |= slot.watched;
        let most = if self.groups[0].is_scarce() {
            FEW_CHUNKS
        } else {
            MAX_QUEUED_CHUNKS
        };
        let overfull = slot.queued() >= most && slot.receive == Receive::Multi && !slot.cancelling;
        slot.cancelling |= overfull;
        if let Some(waker) = slot.read_waker.take() {
            waker.wake();
        }
        let watch_again = slot.watched
            && !slot.released
            && slot.receive == Receive::Idle
            && slot.end.is_none()
            && slot.queued() == 0;
        if overfull {
            self.cancel(Kind::Receive, key);
        }
        // The watch began while the receive was being cancelled: nobody else would start another.
        if watch_again {
            self.arm_receive(key, Class::Head);
        }
        self.close_if_done(key);
    }

    /// Receives that found no buffer go on when one has come back. True when a task has been woken: it
    /// runs before the next wait.
    pub(super) fn feed_starved(&mut self) -> bool {
        if self.starved.is_empty() {
            return false;
        }
        let mut woke = false;
        let mut budget = [self.groups[0].free(), self.groups[1].free()];
        let mut waiting = std::mem::take(&mut self.starved);
        waiting.retain(|&(key, class)| {
            let index = usize::from(class == Class::Body);
            let alive = self
                .slots
                .get(key.index as usize)
                .is_some_and(|slot| slot.generation == key.generation);
            if !alive {
                return false;
            }
            if budget[index] == 0 {
                return true;
            }
            budget[index] -= 1;
            let slot = self.slot(key);
            slot.starved = false;
            match slot.read_waker.take() {
                // It may want the other kind by now.
                Some(reader) => {
                    reader.wake();
                    woke = true;
                }
                None => self.arm_receive(key, class),
            }
            false
        });
        self.starved.append(&mut waiting);
        woke
    }
}
