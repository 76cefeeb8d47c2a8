//! Sockets and their operations: what is armed, what has arrived, who waits for it.
//!
//! Every operation's `user_data` is kind, generation and slot. A slot that its owner has let go stays
//! until its last completion; only then does the descriptor close.

mod open;
mod receive;
mod send;

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use evenkeel_base::Instant;
use slab::Slab;

use crate::backend::{Completion, Io, Op, Wait};
use crate::buffers::Group;
use crate::error::StartError;
use crate::remote::Remote;
use crate::sends::Sends;
use crate::shard::ShardConfig;
use crate::slot::{Receive, SendState, Slot, SlotKey};

pub(crate) use receive::Class;

const KIND_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    Receive = 1,
    Send = 2,
    Connect = 3,
    Accept = 4,
    Bell = 5,
}

const BELL: u64 = (Kind::Bell as u64) << KIND_SHIFT;

fn user_data(kind: Kind, key: SlotKey) -> u64 {
    (kind as u64) << KIND_SHIFT
        | u64::from(key.generation) << GENERATION_SHIFT
        | u64::from(key.index)
}

/// Counters of one shard's driver, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverStats {
    /// Waits for the kernel: `io_uring_enter` or `epoll_pwait2` calls.
    pub enters: u64,
    /// Receives that found no free buffer.
    pub starved: u64,
    /// Completions that overflowed the queue (kept by the kernel, delivered late).
    pub overflows: u32,
    /// Sockets alive, listeners included.
    pub sockets: usize,
}

pub(crate) struct Driver {
    io: Io,
    slots: Slab<Slot>,
    sends: Sends,
    generation: u32,
    groups: [Rc<Group>; 2],
    starved: Vec<(SlotKey, Class)>,
    batch: Vec<Completion>,
    starved_total: u64,
    bell_rang: bool,
    disturbed: bool,
}

impl Driver {
    pub(crate) fn new(config: &ShardConfig, remote: &Remote) -> Result<Driver, StartError> {
        let mut io = Io::new(config.backend)?;
        let groups = [
            Group::new(0, config.head_buffers)?,
            Group::new(1, config.body_buffers)?,
        ];
        for group in &groups {
            io.register(group)?;
        }
        io.watch_bell(BELL, remote.bell())?;
        Ok(Driver {
            io,
            slots: Slab::new(),
            sends: Sends::new(),
            generation: 0,
            groups,
            starved: Vec::new(),
            batch: Vec::with_capacity(1024),
            starved_total: 0,
            bell_rang: false,
            disturbed: false,
        })
    }

    pub(crate) fn stats(&self) -> DriverStats {
        DriverStats {
            enters: self.io.enters(),
            starved: self.starved_total,
            overflows: self.io.overflows(),
            sockets: self.slots.len(),
        }
    }

    pub(crate) fn sockets(&self) -> usize {
        self.slots.len()
    }

    /// One enter, then everything that has completed. Returns true when another thread rang.
    pub(crate) fn turn(&mut self, wait: Wait, now: Instant, remote: &Remote) -> bool {
        let wait = if self.feed_starved() { Wait::No } else { wait };
        self.io.turn(wait, now);
        let mut batch = std::mem::take(&mut self.batch);
        self.io.reap(&mut batch);
        for completion in batch.drain(..) {
            self.complete(completion, remote);
        }
        self.batch = batch;
        std::mem::take(&mut self.bell_rang)
    }

    /// A watched connection has ended or has bytes, since the last call.
    pub(crate) fn take_disturbed(&mut self) -> bool {
        std::mem::take(&mut self.disturbed)
    }

    pub(crate) fn insert(&mut self, fd: OwnedFd) -> SlotKey {
        self.insert_raw(fd.into_raw_fd())
    }

    fn insert_raw(&mut self, fd: RawFd) -> SlotKey {
        self.generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        let index = self.slots.insert(Slot::new(fd, self.generation));
        let index = u32::try_from(index).expect("fewer sockets than 2^32");
        SlotKey {
            index,
            generation: self.generation,
        }
    }

    fn slot(&mut self, key: SlotKey) -> &mut Slot {
        let slot = self
            .slots
            .get_mut(key.index as usize)
            .expect("the owner keeps its slot");
        debug_assert_eq!(slot.generation, key.generation);
        slot
    }

    pub(crate) fn fd(&self, key: SlotKey) -> RawFd {
        self.slots[key.index as usize].fd
    }

    fn submit(&mut self, kind: Kind, key: SlotKey, op: Op) {
        self.slot(key).ops += 1;
        self.io.submit(user_data(kind, key), op);
    }

    fn cancel(&mut self, kind: Kind, key: SlotKey) {
        self.io.cancel(user_data(kind, key));
    }

    /// The owner is gone: pending operations are cancelled, the descriptor closes after the last.
    pub(crate) fn release(&mut self, key: SlotKey) {
        let slot = self.slot(key);
        slot.released = true;
        slot.starved = false;
        slot.clear_queue();
        slot.read_waker = None;
        slot.write_waker = None;
        let receiving = slot.receive != Receive::Idle && !slot.cancelling;
        let sending = matches!(slot.send, SendState::Busy(_));
        let connecting = slot.connect.as_ref().is_some_and(|c| c.result.is_none());
        let accepting = slot.accept.as_mut().map(|accept| {
            accept.sockets.drain(..).for_each(close_now);
            accept.armed
        });
        if receiving {
            self.cancel(Kind::Receive, key);
        }
        if sending {
            self.cancel(Kind::Send, key);
        }
        if connecting {
            self.cancel(Kind::Connect, key);
        }
        if accepting == Some(true) {
            self.cancel(Kind::Accept, key);
        }
        self.close_if_done(key);
    }

    fn close_if_done(&mut self, key: SlotKey) {
        let slot = &self.slots[key.index as usize];
        if slot.released && slot.ops == 0 {
            let fd = slot.fd;
            self.slots.remove(key.index as usize);
            self.io.close(key.index, fd);
        }
    }

    fn complete(&mut self, completion: Completion, remote: &Remote) {
        let kind = completion.user_data >> KIND_SHIFT;
        if kind == Kind::Bell as u64 {
            remote.silence();
            self.bell_rang = true;
            if !completion.more {
                self.io
                    .watch_bell(BELL, remote.bell())
                    .expect("it was watched before");
            }
            return;
        }
        let key = SlotKey {
            index: completion.user_data as u32,
            generation: (completion.user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK,
        };
        let known = self
            .slots
            .get(key.index as usize)
            .map(|slot| slot.generation);
        if known != Some(key.generation) {
            debug_assert!(false, "a slot outlives its operations");
            return;
        }
        match kind {
            k if k == Kind::Receive as u64 => self.on_receive(key, completion),
            k if k == Kind::Send as u64 => self.on_send(key, completion),
            k if k == Kind::Connect as u64 => self.on_connect(key, completion),
            _ => self.on_accept(key, completion),
        }
    }
}

fn close_now(fd: RawFd) {
    // SAFETY: `fd` came out of an accept completion and has no other owner.
    unsafe {
        libc::close(fd);
    }
}
