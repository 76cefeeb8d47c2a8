//! What the driver knows of one socket: small, in a slab, without buffers of its own while idle.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::task::Waker;

use socket2::SockAddr;

use crate::buffers::Chunk;

/// Chunks that one socket may hold before its multishot receive is stopped.
pub(crate) const MAX_QUEUED_CHUNKS: usize = 16;

/// Names a socket: index in the slab and a generation, so that a late completion for a closed socket
/// finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    Idle,
    Multi,
    Single,
}

/// Why nothing more will be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Eof,
    Error(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    Idle,
    /// Index in the driver's table of sends.
    Busy(u32),
    /// Finished, result not yet picked up: zero or an errno.
    Done(i32),
}

pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) fd: RawFd,
    /// Operations in the kernel's hands: the descriptor closes when there are none.
    pub(crate) ops: u8,
    pub(crate) released: bool,
    pub(crate) receive: Receive,
    pub(crate) cancelling: bool,
    pub(crate) starved: bool,
    /// Idle in somebody's keeping: whatever is received is told to all who wait for a disturbance.
    pub(crate) watched: bool,
    pub(crate) end: Option<End>,
    first: Option<Chunk>,
    rest: VecDeque<Chunk>,
    pub(crate) send: SendState,
    pub(crate) connect: Option<Box<Connecting>>,
    pub(crate) accept: Option<Box<Accepting>>,
    pub(crate) read_waker: Option<Waker>,
    pub(crate) write_waker: Option<Waker>,
}

const _: () = assert!(
    size_of::<Slot>() <= 512,
    "an idle connection is a slot of at most 512 bytes"
);

/// An address that the kernel may still read, and the outcome.
pub(crate) struct Connecting {
    pub(crate) address: SockAddr,
    pub(crate) result: Option<i32>,
}

#[derive(Default)]
pub(crate) struct Accepting {
    pub(crate) armed: bool,
    /// No more than what has been accepted already.
    pub(crate) stopping: bool,
    pub(crate) sockets: VecDeque<RawFd>,
    pub(crate) error: Option<i32>,
}

impl Slot {
    pub(crate) fn new(fd: RawFd, generation: u32) -> Slot {
        Slot {
            generation,
            fd,
            ops: 0,
            released: false,
            receive: Receive::Idle,
            cancelling: false,
            starved: false,
            watched: false,
            end: None,
            first: None,
            rest: VecDeque::new(),
            send: SendState::Idle,
            connect: None,
            accept: None,
            read_waker: None,
            write_waker: None,
        }
    }

    pub(crate) fn queue(&mut self, chunk: Chunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.push_back(chunk);
        }
    }

    pub(crate) fn dequeue(&mut self) -> Option<Chunk> {
        let chunk = self.first.take()?;
        self.first = self.rest.pop_front();
        if self.first.is_none() && self.rest.capacity() > 0 {
            // Going idle: give the memory of a burst back.
            self.rest = VecDeque::new();
        }
        Some(chunk)
    }

    pub(crate) fn queued(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(crate) fn clear_queue(&mut self) {
        self.first = None;
        self.rest = VecDeque::new();
    }
}

/// Keeps a waker without cloning when it is the same one.
pub(crate) fn remember(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) if known.will_wake(waker) => {}
        _ => *place = Some(waker.clone()),
    }
}
