//! The ways to the kernel, behind one shape: operations go in, completions come out.
//!
//! An operation carries a `user_data` that its completion repeats; the low 32 bits name the socket. A
//! multishot one completes again and again until a completion without `more`. What an operation points
//! to must stay where it is until then.

mod epoll;
mod uring;

use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use evenkeel_base::{Duration, Instant};
use socket2::SockRef;

use crate::buffers::Group;
use crate::error::StartError;
use crate::probe;
use crate::shard::ShardConfig;
use epoll::Poller;
pub(crate) use uring::{MEMLOCK_KIB, Ring};

/// Which way a shard takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring: one system call a turn.
    #[default]
    Uring,
    /// epoll: a system call an operation, wherever io_uring is refused.
    Epoll,
}

impl Backend {
    /// Its word in configurations and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Epoll => "epoll",
        }
    }

    /// Whether this process gets it here, for so many shards at once: all that they need is set up and
    /// taken down again.
    ///
    /// # Errors
    /// What a shard would fail with.
    pub fn probe(self, shards: usize) -> Result<(), StartError> {
        let config = ShardConfig::default();
        let mut set_up = Vec::new();
        for _ in 0..shards {
            let mut io = Io::new(self)?;
            for (id, buffers) in (0..).zip([config.head_buffers, config.body_buffers]) {
                io.register(&Group::new(id, buffers)?)?;
            }
            set_up.push(io);
        }
        Ok(())
    }

    /// io_uring where so many shards get it, else epoll and why.
    #[must_use]
    pub fn best(shards: usize) -> (Backend, Option<StartError>) {
        let usable = probe::uring().and_then(|found| match found.missing.first() {
            Some(what) => Err(StartError::TooOld { what }),
            None => Backend::Uring.probe(shards),
        });
        match usable {
            Ok(()) => (Backend::Uring, None),
            Err(why) => (Backend::Epoll, Some(why)),
        }
    }
}

/// What a socket may be asked for.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    /// Into a buffer of the group, again and again.
    ReceiveMulti { fd: RawFd, group: u16 },
    /// Into one buffer of the group; not more than so many bytes, zero for what it holds.
    Receive { fd: RawFd, group: u16, most: u32 },
    Send {
        fd: RawFd,
        bytes: *const u8,
        len: u32,
    },
    SendMessage {
        fd: RawFd,
        message: *const libc::msghdr,
    },
    Connect {
        fd: RawFd,
        address: *const libc::sockaddr,
        len: libc::socklen_t,
    },
    /// Connections as they come, again and again.
    AcceptMulti { fd: RawFd },
}

/// How an operation went: bytes, a descriptor, or an errno below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    /// The buffer that a receive has filled.
    pub(crate) buffer: Option<u16>,
    /// The operation goes on.
    pub(crate) more: bool,
}

/// How long a turn may sleep.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    No,
    Forever,
    Until(Instant),
}

impl Wait {
    /// What is left at `now`; `None` for ever.
    fn left(self, now: Instant) -> Option<Duration> {
        match self {
            Wait::No => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::Until(deadline) => Some(deadline - now),
        }
    }
}

/// The backend in use: chosen once, at the shard's start.
pub(crate) enum Io {
    Uring(Ring),
    Epoll(Poller),
}

impl Io {
    pub(crate) fn new(backend: Backend) -> Result<Io, StartError> {
        Ok(match backend {
            Backend::Uring => Io::Uring(Ring::new()?),
            Backend::Epoll => Io::Epoll(Poller::new()?),
        })
    }

    /// Hands a group of buffers over: receives name it by its id.
    pub(crate) fn register(&mut self, group: &Rc<Group>) -> Result<(), StartError> {
        match self {
            Io::Uring(ring) => ring.register(group),
            Io::Epoll(poller) => {
                poller.register(group);
                Ok(())
            }
        }
    }

    /// Completes each time that the descriptor has something to read, until one without `more`.
    pub(crate) fn watch_bell(&mut self, user_data: u64, fd: RawFd) -> Result<(), StartError> {
        match self {
            Io::Uring(ring) => ring.watch_bell(user_data, fd),
            Io::Epoll(poller) => poller.watch_bell(user_data, fd)?,
        }
        Ok(())
    }

    /// The ring waits only on a listener that blocks, epoll needs one that does not.
    pub(crate) fn prepare_listener(&self, fd: RawFd) {
        // SAFETY: the caller owns the descriptor for the time of this call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // Never refused for a socket.
        let _ = SockRef::from(&fd).set_nonblocking(matches!(self, Io::Epoll(_)));
    }

    pub(crate) fn submit(&mut self, user_data: u64, op: Op) {
        match self {
            Io::Uring(ring) => ring.submit(user_data, op),
            Io::Epoll(poller) => poller.submit(user_data, op),
        }
    }

    /// The operation completes soon, with `ECANCELED` unless it is too late for that.
    pub(crate) fn cancel(&mut self, user_data: u64) {
        match self {
            Io::Uring(ring) => ring.cancel(user_data),
            Io::Epoll(poller) => poller.cancel(user_data),
        }
    }

    /// Closes a descriptor without operations under way; `socket` is what their `user_data` named.
    pub(crate) fn close(&mut self, socket: u32, fd: RawFd) {
        match self {
            Io::Uring(ring) => ring.close(fd),
            Io::Epoll(poller) => poller.close(socket, fd),
        }
    }

    /// Lets the kernel work and, when nothing has completed, sleeps.
    pub(crate) fn turn(&mut self, wait: Wait, now: Instant) {
        match self {
            Io::Uring(ring) => ring.turn(wait, now),
            Io::Epoll(poller) => poller.turn(wait, now),
        }
    }

    /// Hands out what has completed.
    pub(crate) fn reap(&mut self, batch: &mut Vec<Completion>) {
        match self {
            Io::Uring(ring) => ring.reap(batch),
            Io::Epoll(poller) => poller.reap(batch),
        }
    }

    /// Waits and submissions: enters of the ring, or waits on the poll set.
    pub(crate) fn enters(&self) -> u64 {
        match self {
            Io::Uring(ring) => ring.enters,
            Io::Epoll(poller) => poller.waits,
        }
    }

    pub(crate) fn overflows(&self) -> u32 {
        match self {
            Io::Uring(ring) => ring.overflows(),
            Io::Epoll(_) => 0,
        }
    }
}
