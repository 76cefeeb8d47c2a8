//! Sockets on the ring: what is armed, what has arrived, who waits for it.
//!
//! Every operation's `user_data` is kind, generation and slot. A slot that its owner has let go stays
//! until its last completion; only then does the descriptor close.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel_base::Instant;
use io_uring::{opcode, squeue, types};
use slab::Slab;

use crate::buffers::{Chunk, Group};
use crate::error::StartError;
use crate::piece::Pieces;
use crate::remote::Remote;
use crate::sends::Sends;
use crate::shard::ShardConfig;
use crate::slot::{
    Accepting, Connecting, End, MAX_QUEUED_CHUNKS, Receive, SendState, Slot, SlotKey, remember,
};
use crate::uring::{Completion, Ring, Wait};

/// Which buffers a receive takes: small ones that wait for ever, or one large one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Head,
    Body,
}

/// Sockets that a listener may hold accepted before its multishot accept is stopped.
const MAX_ACCEPTED: usize = 1024;

const KIND_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    Ignore = 0,
    Receive = 1,
    Send = 2,
    Connect = 3,
    Accept = 4,
    Bell = 5,
}

fn user_data(kind: Kind, key: SlotKey) -> u64 {
    (kind as u64) << KIND_SHIFT
        | u64::from(key.generation) << GENERATION_SHIFT
        | u64::from(key.index)
}

/// Counters of one shard's driver, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverStats {
    /// `io_uring_enter` calls.
    pub enters: u64,
    /// Receives that found no free buffer.
    pub starved: u64,
    /// Completions that overflowed the queue (kept by the kernel, delivered late).
    pub overflows: u32,
    /// Sockets alive, listeners included.
    pub sockets: usize,
}

pub(crate) struct Driver {
    ring: Ring,
    slots: Slab<Slot>,
    sends: Sends,
    generation: u32,
    groups: [Rc<Group>; 2],
    starved: Vec<(SlotKey, Class)>,
    batch: Vec<Completion>,
    starved_total: u64,
    bell_rang: bool,
}

impl Driver {
    pub(crate) fn new(config: &ShardConfig, remote: &Remote) -> Result<Driver, StartError> {
        let mut ring = Ring::new()?;
        let groups = [
            Group::new(0, config.head_buffers)?,
            Group::new(1, config.body_buffers)?,
        ];
        for group in &groups {
            ring.register(group)?;
        }
        let bell = opcode::PollAdd::new(types::Fd(remote.bell()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data((Kind::Bell as u64) << KIND_SHIFT);
        ring.push(&bell);
        Ok(Driver {
            ring,
            slots: Slab::new(),
            sends: Sends::new(),
            generation: 0,
            groups,
            starved: Vec::new(),
            batch: Vec::with_capacity(1024),
            starved_total: 0,
            bell_rang: false,
        })
    }

    pub(crate) fn stats(&self) -> DriverStats {
        DriverStats {
            enters: self.ring.enters,
            starved: self.starved_total,
            overflows: self.ring.overflows(),
            sockets: self.slots.len(),
        }
    }

    pub(crate) fn sockets(&self) -> usize {
        self.slots.len()
    }

    /// One enter, then everything that has completed. Returns true when another thread rang.
    pub(crate) fn turn(&mut self, wait: Wait, now: Instant, remote: &Remote) -> bool {
        self.feed_starved();
        self.ring.turn(wait, now);
        let mut batch = std::mem::take(&mut self.batch);
        self.ring.reap(&mut batch);
        for completion in batch.drain(..) {
            self.complete(completion, remote);
        }
        self.batch = batch;
        std::mem::take(&mut self.bell_rang)
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

    fn submit(&mut self, kind: Kind, key: SlotKey, entry: squeue::Entry) {
        self.slot(key).ops += 1;
        self.ring.push(&entry.user_data(user_data(kind, key)));
    }

    fn submit_ignored(&mut self, entry: squeue::Entry) {
        self.ring
            .push(&entry.user_data((Kind::Ignore as u64) << KIND_SHIFT));
    }

    fn cancel(&mut self, kind: Kind, key: SlotKey) {
        self.submit_ignored(opcode::AsyncCancel::new(user_data(kind, key)).build());
    }

    // Receiving.

    pub(crate) fn poll_receive(
        &mut self,
        key: SlotKey,
        class: Class,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk>>> {
        let slot = self.slot(key);
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
        if self.slot(key).end.is_none() {
            self.arm_receive(key, Class::Head);
        }
    }

    /// Nothing received and not ended: a pooled connection that may carry a request.
    pub(crate) fn is_quiet(&mut self, key: SlotKey) -> bool {
        let slot = self.slot(key);
        slot.end.is_none() && slot.queued() == 0
    }

    fn arm_receive(&mut self, key: SlotKey, class: Class) {
        let (receive, fd, cancelling, starved) = {
            let slot = self.slot(key);
            (slot.receive, slot.fd, slot.cancelling, slot.starved)
        };
        match (receive, class) {
            _ if starved => {}
            (Receive::Idle, Class::Head) => {
                self.slot(key).receive = Receive::Multi;
                let entry = opcode::RecvMulti::new(types::Fd(fd), self.groups[0].id()).build();
                self.submit(Kind::Receive, key, entry);
            }
            (Receive::Idle, Class::Body) => {
                self.slot(key).receive = Receive::Single;
                let entry = opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)
                    .buf_group(self.groups[1].id())
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT);
                self.submit(Kind::Receive, key, entry);
            }
            (Receive::Multi, Class::Body) if !cancelling => {
                self.slot(key).cancelling = true;
                self.cancel(Kind::Receive, key);
            }
            _ => {}
        }
    }

    fn on_receive(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        let group = match slot.receive {
            Receive::Single => 1,
            Receive::Multi | Receive::Idle => 0,
        };
        if !completion.more() {
            slot.ops -= 1;
            slot.receive = Receive::Idle;
            slot.cancelling = false;
        }
        match completion.result {
            n if n > 0 => {
                let bid = completion
                    .buffer()
                    .expect("a receive with data names its buffer");
                let chunk = self.groups[group].take(bid, n as u32);
                if !slot.released {
                    slot.queue(chunk);
                }
            }
            0 => {
                if let Some(bid) = completion.buffer() {
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
        let overfull = slot.queued() >= MAX_QUEUED_CHUNKS
            && slot.receive == Receive::Multi
            && !slot.cancelling;
        slot.cancelling |= overfull;
        if let Some(waker) = slot.read_waker.take() {
            waker.wake();
        }
        if overfull {
            self.cancel(Kind::Receive, key);
        }
        self.close_if_done(key);
    }

    /// Receives that found no buffer go on when one has come back.
    fn feed_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
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
            if slot.released {
                self.close_if_done(key);
            } else {
                self.arm_receive(key, class);
            }
            false
        });
        self.starved.append(&mut waiting);
    }

    // Sending.

    /// Starts a send of all pieces. One at a time a socket.
    pub(crate) fn start_send(&mut self, key: SlotKey, pieces: Pieces) -> io::Result<()> {
        let slot = self.slot(key);
        if let SendState::Busy(_) = slot.send {
            return Err(io::Error::from_raw_os_error(libc::EALREADY));
        }
        if pieces.is_empty() {
            slot.send = SendState::Done(0);
            return Ok(());
        }
        let fd = slot.fd;
        let index = self.sends.insert(pieces);
        self.slot(key).send = SendState::Busy(index);
        let entry = self.sends.entry(index, fd);
        self.submit(Kind::Send, key, entry);
        Ok(())
    }

    pub(crate) fn poll_send(&mut self, key: SlotKey, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = self.slot(key);
        match slot.send {
            SendState::Busy(_) => {
                remember(&mut slot.write_waker, cx.waker());
                Poll::Pending
            }
            SendState::Idle | SendState::Done(0) => {
                slot.send = SendState::Idle;
                Poll::Ready(Ok(()))
            }
            SendState::Done(errno) => Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    fn on_send(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        slot.ops -= 1;
        let SendState::Busy(index) = slot.send else {
            unreachable!("a send completes while busy")
        };
        let fd = slot.fd;
        let released = slot.released;
        let outcome = match completion.result {
            n if n >= 0 => {
                if !self.sends.advance(index, n as usize) && !released {
                    let entry = self.sends.entry(index, fd);
                    self.submit(Kind::Send, key, entry);
                    return;
                }
                0
            }
            errno if errno == -libc::EINTR && !released => {
                let entry = self.sends.entry(index, fd);
                self.submit(Kind::Send, key, entry);
                return;
            }
            errno => -errno,
        };
        self.sends.remove(index);
        let slot = &mut self.slots[key.index as usize];
        slot.send = SendState::Done(outcome);
        if let Some(waker) = slot.write_waker.take() {
            waker.wake();
        }
        self.close_if_done(key);
    }

    /// Sends a FIN after what has been sent; the result is not waited for.
    pub(crate) fn shutdown(&mut self, key: SlotKey) {
        let fd = self.fd(key);
        self.submit_ignored(opcode::Shutdown::new(types::Fd(fd), libc::SHUT_WR).build());
    }

    // Connecting and accepting.

    pub(crate) fn start_connect(&mut self, fd: OwnedFd, address: socket2::SockAddr) -> SlotKey {
        let key = self.insert(fd);
        let connecting = Box::new(Connecting {
            address,
            result: None,
        });
        let (pointer, len) = (connecting.address.as_ptr().cast(), connecting.address.len());
        let slot = self.slot(key);
        slot.connect = Some(connecting);
        let entry = opcode::Connect::new(types::Fd(slot.fd), pointer, len).build();
        self.submit(Kind::Connect, key, entry);
        key
    }

    pub(crate) fn poll_connect(
        &mut self,
        key: SlotKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = self.slot(key);
        let Some(connecting) = &slot.connect else {
            return Poll::Ready(Ok(()));
        };
        match connecting.result {
            None => {
                remember(&mut slot.write_waker, cx.waker());
                Poll::Pending
            }
            Some(0) => {
                slot.connect = None;
                Poll::Ready(Ok(()))
            }
            Some(errno) => Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    fn on_connect(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        slot.ops -= 1;
        if let Some(connecting) = &mut slot.connect {
            connecting.result = Some(-completion.result);
        }
        if let Some(waker) = slot.write_waker.take() {
            waker.wake();
        }
        self.close_if_done(key);
    }

    pub(crate) fn start_listening(&mut self, fd: OwnedFd) -> SlotKey {
        let key = self.insert(fd);
        self.slot(key).accept = Some(Box::default());
        key
    }

    /// The next accepted socket, already a slot of its own.
    pub(crate) fn poll_accept(
        &mut self,
        key: SlotKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<SlotKey>> {
        let slot = self.slot(key);
        let fd = slot.fd;
        let accepting = slot.accept.as_mut().expect("a listener's slot");
        if let Some(accepted) = accepting.sockets.pop_front() {
            return Poll::Ready(Ok(self.insert_raw(accepted)));
        }
        if let Some(errno) = accepting.error.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno)));
        }
        let armed = std::mem::replace(&mut accepting.armed, true);
        remember(&mut slot.read_waker, cx.waker());
        if !armed {
            let entry = opcode::AcceptMulti::new(types::Fd(fd))
                .flags(libc::SOCK_CLOEXEC)
                .build();
            self.submit(Kind::Accept, key, entry);
        }
        Poll::Pending
    }

    fn on_accept(&mut self, key: SlotKey, completion: Completion) {
        let slot = &mut self.slots[key.index as usize];
        let released = slot.released;
        let accepting = slot.accept.get_or_insert_with(Box::<Accepting>::default);
        if !completion.more() {
            slot.ops -= 1;
            accepting.armed = false;
        }
        let mut overfull = false;
        match completion.result {
            fd if fd >= 0 && released => close_now(fd),
            fd if fd >= 0 => {
                accepting.sockets.push_back(fd);
                overfull = accepting.armed && accepting.sockets.len() >= MAX_ACCEPTED;
            }
            errno if errno == -libc::ECANCELED => {}
            // The client gave up between handshake and accept: nobody to tell.
            errno if errno == -libc::ECONNABORTED || errno == -libc::EINTR => {}
            errno => accepting.error = Some(-errno),
        }
        if let Some(waker) = slot.read_waker.take() {
            waker.wake();
        }
        if overfull {
            self.cancel(Kind::Accept, key);
        }
        self.close_if_done(key);
    }

    // Ends.

    /// The owner is gone: pending operations are cancelled, the descriptor closes after the last.
    pub(crate) fn release(&mut self, key: SlotKey) {
        let slot = self.slot(key);
        slot.released = true;
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
            self.submit_ignored(opcode::Close::new(types::Fd(fd)).build());
        }
    }

    fn complete(&mut self, completion: Completion, remote: &Remote) {
        let kind = completion.user_data >> KIND_SHIFT;
        if kind == Kind::Bell as u64 {
            remote.silence();
            self.bell_rang = true;
            if !completion.more() {
                let bell = opcode::PollAdd::new(types::Fd(remote.bell()), libc::POLLIN as u32)
                    .multi(true)
                    .build()
                    .user_data((Kind::Bell as u64) << KIND_SHIFT);
                self.ring.push(&bell);
            }
            return;
        }
        let key = SlotKey {
            index: completion.user_data as u32,
            generation: (completion.user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK,
        };
        if kind == Kind::Ignore as u64 {
            return;
        }
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
