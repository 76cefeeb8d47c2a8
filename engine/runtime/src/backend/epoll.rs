//! The operations of the ring carried out by plain system calls, when epoll says that they can be.
//!
//! Each socket is registered once, edge-triggered; what epoll has said is kept until a call shows that
//! it is no longer so. Every call is one that does not block.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use evenkeel_base::{Duration, Instant};

use super::{Completion, Op, Wait};
use crate::buffers::Group;

/// Events that one wait may bring.
const EVENTS: usize = 512;
/// Receives or accepts of one socket before the others have their turn.
const BURST: usize = 16;
/// Turns that may hand out completions without a look at the other sockets.
const UNSEEN_TURNS: u32 = 4;
const BELL: u64 = u64::MAX;

pub(crate) struct Poller {
    epoll: OwnedFd,
    /// By the socket's number.
    sockets: Vec<Socket>,
    groups: Vec<Rc<Group>>,
    /// Sockets whose operations are to be tried.
    ready: Vec<u32>,
    /// Those that are being tried; empty between turns.
    trying: Vec<u32>,
    done: Vec<Completion>,
    bell: u64,
    events: Vec<libc::epoll_event>,
    unseen: u32,
    /// The kernel has waits in nanoseconds (`epoll_pwait2`, Linux 5.11), and they are allowed.
    fine: bool,
    pub(crate) waits: u64,
}

/// What is known of a socket, and what it has been asked for.
#[derive(Default)]
struct Socket {
    registered: bool,
    /// A listener: another process may hold the same socket.
    listens: bool,
    readable: bool,
    /// The other side has ended or the connection has failed: a short read is not the last.
    ended: bool,
    full: bool,
    /// Stands among the ready ones.
    queued: bool,
    input: Option<Input>,
    output: Option<Output>,
}

struct Input {
    user_data: u64,
    op: Op,
}

struct Output {
    user_data: u64,
    op: Op,
    /// A connect that is under way.
    started: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// Waits for epoll.
    Blocked,
    /// Nothing more to do now.
    Done,
    /// Others first.
    Again,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        // SAFETY: takes no pointers; the result is checked before it becomes an owner.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poller {
            epoll,
            sockets: Vec::new(),
            groups: Vec::new(),
            ready: Vec::new(),
            trying: Vec::new(),
            done: Vec::new(),
            bell: 0,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            unseen: 0,
            fine: true,
            waits: 0,
        })
    }

    pub(crate) fn register(&mut self, group: &Rc<Group>) {
        debug_assert_eq!(usize::from(group.id()), self.groups.len());
        self.groups.push(Rc::clone(group));
    }

    pub(crate) fn watch_bell(&mut self, user_data: u64, fd: RawFd) -> io::Result<()> {
        self.bell = user_data;
        self.add(fd, libc::EPOLLIN, BELL)
    }

    fn add(&self, fd: RawFd, interest: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest as u32,
            u64: data,
        };
        // SAFETY: reads one local struct; a bad descriptor is an error.
        let done = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd,
                &raw mut event,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    pub(crate) fn submit(&mut self, user_data: u64, op: Op) {
        let socket = user_data as u32;
        let place = socket as usize;
        if place >= self.sockets.len() {
            self.sockets.resize_with(place + 1, Socket::default);
        }
        let known = &mut self.sockets[place];
        match op {
            Op::ReceiveMulti { .. } | Op::Receive { .. } | Op::AcceptMulti { .. } => {
                debug_assert!(known.input.is_none(), "one receive or accept at a time");
                known.listens |= matches!(op, Op::AcceptMulti { .. });
                known.input = Some(Input { user_data, op });
            }
            Op::Send { .. } | Op::SendMessage { .. } | Op::Connect { .. } => {
                debug_assert!(known.output.is_none(), "one send or connect at a time");
                known.output = Some(Output {
                    user_data,
                    op,
                    started: false,
                });
                // At once, as the ring does in order: what follows may be the close.
                self.try_output(socket);
                return;
            }
        }
        self.queue(socket);
    }

    fn queue(&mut self, socket: u32) {
        let known = &mut self.sockets[socket as usize];
        if !known.queued {
            known.queued = true;
            self.ready.push(socket);
        }
    }

    pub(crate) fn cancel(&mut self, user_data: u64) {
        let Some(known) = self.sockets.get_mut(user_data as u32 as usize) else {
            return;
        };
        let input = known.input.take_if(|input| input.user_data == user_data);
        let output = known.output.take_if(|output| output.user_data == user_data);
        if input.is_some() || output.is_some() {
            self.finish(user_data, -libc::ECANCELED);
        }
    }

    pub(crate) fn close(&mut self, socket: u32, fd: RawFd) {
        if let Some(known) = self.sockets.get_mut(socket as usize) {
            debug_assert!(known.input.is_none() && known.output.is_none());
            if known.registered && known.listens {
                // SAFETY: takes no pointers; the set forgets a socket by itself only with its last
                // descriptor, wherever that is.
                unsafe {
                    let epoll = self.epoll.as_raw_fd();
                    libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut());
                }
            }
            // A place among the ready ones stays and finds nothing to do.
            *known = Socket {
                queued: known.queued,
                ..Socket::default()
            };
        }
        // SAFETY: the driver gives its descriptor away here, once. The poll set forgets a connection.
        unsafe {
            libc::close(fd);
        }
    }

    pub(crate) fn turn(&mut self, wait: Wait, now: Instant) {
        self.try_ready();
        if self.done.is_empty() {
            let left = if self.ready.is_empty() {
                wait.left(now)
            } else {
                Some(Duration::ZERO)
            };
            self.look(left);
            self.try_ready();
        } else if self.unseen >= UNSEEN_TURNS {
            self.look(Some(Duration::ZERO));
            self.try_ready();
        } else {
            self.unseen += 1;
        }
    }

    pub(crate) fn reap(&mut self, batch: &mut Vec<Completion>) {
        batch.append(&mut self.done);
    }

    /// Waits until a socket changes, at most for `left`.
    fn look(&mut self, left: Option<Duration>) {
        self.unseen = 0;
        self.waits += 1;
        let count = self.wait(left);
        for at in 0..count {
            let event = self.events[at];
            let (what, socket) = (event.events as i32, event.u64);
            if socket == BELL {
                self.done.push(Completion {
                    user_data: self.bell,
                    result: 0,
                    buffer: None,
                    more: true,
                });
                continue;
            }
            let known = &mut self.sockets[socket as usize];
            let ended = what & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
            known.ended |= ended;
            known.readable |= ended || what & libc::EPOLLIN != 0;
            if what & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) != 0 {
                known.full = false;
            }
            if known.input.is_some() || known.output.is_some() {
                self.queue(socket as u32);
            }
        }
    }

    fn wait(&mut self, left: Option<Duration>) -> usize {
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        if self.fine {
            let time = left.map(|left| libc::timespec {
                tv_sec: (left.as_nanos() / 1_000_000_000) as libc::time_t,
                tv_nsec: (left.as_nanos() % 1_000_000_000) as libc::c_long,
            });
            let time = time
                .as_ref()
                .map_or(std::ptr::null(), |time| &raw const *time);
            // SAFETY: the array has room for EVENTS entries, the time is a local, there is no mask.
            let count =
                unsafe { libc::epoll_pwait2(epoll, events, EVENTS as i32, time, std::ptr::null()) };
            match count {
                0.. => return count as usize,
                _ => match io::Error::last_os_error().raw_os_error() {
                    Some(libc::ENOSYS | libc::EPERM) => self.fine = false,
                    _ => return 0,
                },
            }
        }
        // Rounded up: a wait that ends before its deadline would be repeated at once.
        let millis = left.map_or(-1, |left| {
            i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        // SAFETY: as above.
        let count = unsafe { libc::epoll_wait(epoll, events, EVENTS as i32, millis) };
        count.max(0) as usize
    }

    fn try_ready(&mut self) {
        // What is queued meanwhile waits for the next time: nobody is starved.
        std::mem::swap(&mut self.ready, &mut self.trying);
        for at in 0..self.trying.len() {
            let socket = self.trying[at];
            self.sockets[socket as usize].queued = false;
            let output = self.try_output(socket);
            if self.try_input(socket) == Tried::Again || output == Tried::Again {
                self.queue(socket);
            }
        }
        self.trying.clear();
    }

    fn try_output(&mut self, socket: u32) -> Tried {
        let known = &mut self.sockets[socket as usize];
        let Some(output) = &mut known.output else {
            return Tried::Done;
        };
        if known.full {
            return Tried::Blocked;
        }
        let (user_data, op, started) = (output.user_data, output.op, output.started);
        let (fd, result) = match op {
            Op::Connect { fd, .. } if started => (fd, connected(fd)),
            Op::Connect { fd, address, len } => {
                output.started = true;
                (fd, connect(fd, address, len))
            }
            Op::Send { fd, bytes, len } => (fd, send(fd, bytes, len)),
            Op::SendMessage { fd, message } => (fd, send_message(fd, message)),
            Op::ReceiveMulti { .. } | Op::Receive { .. } | Op::AcceptMulti { .. } => {
                unreachable!("kept as input")
            }
        };
        let blocked = result == -libc::EAGAIN || result == -libc::EINPROGRESS;
        if blocked {
            known.full = true;
            if let Err(errno) = self.ensure_registered(socket, fd) {
                self.sockets[socket as usize].output = None;
                self.finish(user_data, -errno);
            }
            return Tried::Blocked;
        }
        known.output = None;
        self.finish(user_data, result);
        Tried::Done
    }

    fn try_input(&mut self, socket: u32) -> Tried {
        let Some(input) = &self.sockets[socket as usize].input else {
            return Tried::Done;
        };
        let (user_data, op) = (input.user_data, input.op);
        let (Op::ReceiveMulti { fd, .. } | Op::Receive { fd, .. } | Op::AcceptMulti { fd }) = op
        else {
            unreachable!("kept as output")
        };
        if let Err(errno) = self.ensure_registered(socket, fd) {
            self.end_input(socket, user_data, -errno);
            return Tried::Done;
        }
        for _ in 0..BURST {
            if !self.sockets[socket as usize].readable {
                return Tried::Blocked;
            }
            let goes_on = match op {
                Op::AcceptMulti { .. } => self.accept_one(socket, user_data, fd),
                Op::ReceiveMulti { group, .. } => self.receive(socket, user_data, fd, group, None),
                Op::Receive { group, most, .. } => {
                    self.receive(socket, user_data, fd, group, Some(most))
                }
                Op::Send { .. } | Op::SendMessage { .. } | Op::Connect { .. } => unreachable!(),
            };
            if !goes_on {
                return Tried::Done;
            }
        }
        Tried::Again
    }

    /// True when the accept goes on.
    fn accept_one(&mut self, socket: u32, user_data: u64, fd: RawFd) -> bool {
        match accept(fd) {
            result if result == -libc::EAGAIN => {
                self.sockets[socket as usize].readable = false;
                true
            }
            accepted if accepted >= 0 => {
                self.done.push(Completion {
                    user_data,
                    result: accepted,
                    buffer: None,
                    more: true,
                });
                true
            }
            // What waits is still there: the next accept tries again.
            result => {
                self.end_input(socket, user_data, result);
                false
            }
        }
    }

    /// True when the receive goes on: it is a multishot one without `once`, else one of that many bytes
    /// at most, zero for what a buffer holds.
    fn receive(
        &mut self,
        socket: u32,
        user_data: u64,
        fd: RawFd,
        group: u16,
        once: Option<u32>,
    ) -> bool {
        let multi = once.is_none();
        let group = &self.groups[usize::from(group)];
        let Some(free) = group.first_free() else {
            self.end_input(socket, user_data, -libc::ENOBUFS);
            return false;
        };
        let known = &mut self.sockets[socket as usize];
        let len = match once {
            None | Some(0) => free.len,
            Some(most) => free.len.min(most as usize),
        };
        match receive(fd, free.address, len) {
            result if result == -libc::EAGAIN => {
                known.readable = false;
                true
            }
            n if n > 0 => {
                group.claim_first();
                // Less than there was room for: that was all, unless the end comes behind it.
                known.readable = n as usize == len || known.ended;
                if !multi {
                    known.input = None;
                }
                self.done.push(Completion {
                    user_data,
                    result: n,
                    buffer: Some(free.bid),
                    more: multi,
                });
                multi
            }
            end => {
                self.end_input(socket, user_data, end);
                false
            }
        }
    }

    fn ensure_registered(&mut self, socket: u32, fd: RawFd) -> Result<(), i32> {
        if self.sockets[socket as usize].registered {
            return Ok(());
        }
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.add(fd, interest, u64::from(socket))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        self.sockets[socket as usize].registered = true;
        Ok(())
    }

    fn end_input(&mut self, socket: u32, user_data: u64, result: i32) {
        self.sockets[socket as usize].input = None;
        self.finish(user_data, result);
    }

    fn finish(&mut self, user_data: u64, result: i32) {
        self.done.push(Completion {
            user_data,
            result,
            buffer: None,
            more: false,
        });
    }
}

/// A call's result as a completion has it: the value, or an errno below zero.
fn outcome(result: libc::ssize_t) -> i32 {
    if result < 0 {
        return -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
    }
    // No call here is asked for more than an i32 holds.
    result as i32
}

fn receive(fd: RawFd, address: *mut u8, len: usize) -> i32 {
    // SAFETY: the group gives a free buffer of that length; nobody else has a handle to it.
    outcome(unsafe { libc::recv(fd, address.cast(), len, libc::MSG_DONTWAIT) })
}

fn send(fd: RawFd, bytes: *const u8, len: u32) -> i32 {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: whoever submitted the send keeps the bytes in place until it completes.
    outcome(unsafe { libc::send(fd, bytes.cast(), len as usize, flags) })
}

fn send_message(fd: RawFd, message: *const libc::msghdr) -> i32 {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: as above, for the vectors that the message points to as well.
    outcome(unsafe { libc::sendmsg(fd, message, flags) })
}

fn connect(fd: RawFd, address: *const libc::sockaddr, len: libc::socklen_t) -> i32 {
    set_nonblocking(fd);
    // SAFETY: whoever submitted the connect keeps the address in place until it completes.
    outcome(unsafe { libc::connect(fd, address, len) } as libc::ssize_t)
}

/// How a connect that was under way has ended.
fn connected(fd: RawFd) -> i32 {
    let mut errno: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes one int to a local of that size.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut errno).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return outcome(result as libc::ssize_t);
    }
    -errno
}

fn accept(fd: RawFd) -> i32 {
    let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: no address is asked for; the new descriptor's owner is whoever reads the completion.
    outcome(unsafe { libc::accept4(fd, address, len, libc::SOCK_CLOEXEC) } as libc::ssize_t)
}

/// For the calls that have no flag of their own for it.
fn set_nonblocking(fd: RawFd) {
    // SAFETY: takes no pointers; on failure the call that follows blocks for its own time.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}
