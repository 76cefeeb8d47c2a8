//! The ring itself: set-up with every flag that the kernel must have, submission, one enter a turn.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use evenkeel_base::{Duration, Instant};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{
    CompletionQueue, EnterFlags, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue,
};

use super::{Completion, Op, Wait};
use crate::buffers::Group;
use crate::error::StartError;

const SQ_ENTRIES: u32 = 512;
const CQ_ENTRIES: u32 = 4096;
/// What one shard's ring asks of the memlock limit: the two queues, the index array and the two
/// provided-buffer rings, rounded up.
pub(crate) const MEMLOCK_KIB: u32 = 256;

/// The most completions that one turn hands out before tasks run.
const REAP_BUDGET: usize = 1024;
/// Of operations whose completion says nothing.
const IGNORED: u64 = u64::MAX;

/// The three halves of an `IoUring`, apart, so that the registered descriptor stays in use.
pub(crate) struct Ring {
    submitter: ManuallyDrop<Submitter<'static>>,
    sq: ManuallyDrop<SubmissionQueue<'static>>,
    cq: ManuallyDrop<CompletionQueue<'static>>,
    owner: *mut IoUring,
    enter_flags: EnterFlags,
    groups: Vec<Rc<Group>>,
    pub(crate) enters: u64,
}

impl Ring {
    pub(crate) fn new() -> Result<Ring, StartError> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(CQ_ENTRIES)
            .setup_clamp()
            .build(SQ_ENTRIES)
            .map_err(setup_error)?;
        let params = ring.params();
        if !params.is_feature_ext_arg() {
            return Err(StartError::TooOld {
                what: "timeouts in enter (EXT_ARG)",
            });
        }
        if !params.is_feature_nodrop() {
            return Err(StartError::TooOld {
                what: "lossless completion overflow (NODROP)",
            });
        }
        let enter_flags = if params.is_feature_no_iowait() {
            EnterFlags::NO_IOWAIT
        } else {
            EnterFlags::empty()
        };
        let owner = Box::into_raw(Box::new(ring));
        // SAFETY: `owner` is freed only in Drop, after the three halves; nothing else uses it.
        let (mut submitter, sq, cq) = unsafe { (*owner).split() };
        // Saves a descriptor lookup an enter; kernels that have DEFER_TASKRUN have it.
        let _ = submitter.register_ring_fd();
        Ok(Ring {
            submitter: ManuallyDrop::new(submitter),
            sq: ManuallyDrop::new(sq),
            cq: ManuallyDrop::new(cq),
            owner,
            enter_flags,
            groups: Vec::new(),
            enters: 0,
        })
    }

    /// Registers a group's buffers; the ring keeps the group alive until it is gone itself.
    pub(crate) fn register(&mut self, group: &Rc<Group>) -> Result<(), StartError> {
        // SAFETY: the group's ring is a page-aligned mapping of `entries` entries; the clone kept in
        // `groups` outlives the io_uring (see Drop).
        let done = unsafe {
            self.submitter.register_buf_ring_with_flags(
                group.ring_address(),
                group.entries(),
                group.id(),
                0,
            )
        };
        match done {
            Ok(()) => {
                self.groups.push(Rc::clone(group));
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(StartError::TooOld {
                what: "provided-buffer rings",
            }),
            Err(error) => Err(setup_error(error)),
        }
    }

    pub(crate) fn submit(&mut self, user_data: u64, op: Op) {
        let entry = match op {
            Op::ReceiveMulti { fd, group } => opcode::RecvMulti::new(Fd(fd), group).build(),
            Op::Receive { fd, group, most } => {
                opcode::Recv::new(Fd(fd), std::ptr::null_mut(), most)
                    .buf_group(group)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Op::Send { fd, bytes, len } => opcode::Send::new(Fd(fd), bytes, len)
                .flags(libc::MSG_NOSIGNAL)
                .build(),
            Op::SendMessage { fd, message } => opcode::SendMsg::new(Fd(fd), message)
                .flags(libc::MSG_NOSIGNAL as u32)
                .build(),
            Op::Connect { fd, address, len } => opcode::Connect::new(Fd(fd), address, len).build(),
            Op::AcceptMulti { fd } => opcode::AcceptMulti::new(Fd(fd))
                .flags(libc::SOCK_CLOEXEC)
                .build(),
        };
        self.push(&entry.user_data(user_data));
    }

    pub(crate) fn cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data).build();
        self.push(&entry.user_data(IGNORED));
    }

    pub(crate) fn close(&mut self, fd: RawFd) {
        self.push(&opcode::Close::new(Fd(fd)).build().user_data(IGNORED));
    }

    pub(crate) fn watch_bell(&mut self, user_data: u64, fd: RawFd) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
            .multi(true)
            .build();
        self.push(&entry.user_data(user_data));
    }

    /// Queues an operation for the next enter.
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the callers in `driver` keep what an entry points to alive in the slot or the
            // send table until the completion with its user_data is reaped.
            if unsafe { self.sq.push(entry) }.is_ok() {
                return;
            }
            self.sq.sync();
            self.enter(0, None);
        }
    }

    /// The one system call of a turn: submits what is queued and, when `wait` says so, sleeps until a
    /// completion or the deadline.
    pub(crate) fn turn(&mut self, wait: Wait, now: Instant) {
        self.sq.sync();
        match wait.left(now) {
            Some(Duration::ZERO) => self.enter(0, None),
            left => self.enter(1, left),
        }
    }

    fn enter(&mut self, want: usize, timeout: Option<Duration>) {
        let time = timeout.map(|left| {
            let nanos = left.as_nanos();
            Timespec::new()
                .sec(nanos / 1_000_000_000)
                .nsec((nanos % 1_000_000_000) as u32)
        });
        let mut args = SubmitArgs::new();
        if let Some(time) = &time {
            args = args.timespec(time);
        }
        self.enters += 1;
        match self
            .submitter
            .submit_with_args_and_flags(want, &args, self.enter_flags)
        {
            Ok(_) => {}
            // Timed out, interrupted, or completions to reap first: the caller reaps and comes again.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY)
                ) => {}
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => panic!("io_uring_enter: {error}"),
        }
        self.sq.sync();
    }

    /// Hands out completions that have arrived, at most [`REAP_BUDGET`].
    pub(crate) fn reap(&mut self, batch: &mut Vec<Completion>) {
        self.cq.sync();
        for entry in self.cq.by_ref().take(REAP_BUDGET) {
            if entry.user_data() == IGNORED {
                continue;
            }
            batch.push(Completion {
                user_data: entry.user_data(),
                result: entry.result(),
                buffer: cqueue::buffer_select(entry.flags()),
                more: cqueue::more(entry.flags()),
            });
        }
        self.cq.sync();
    }

    pub(crate) fn overflows(&self) -> u32 {
        self.cq.overflow()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the halves borrow from `owner` and go first; each is dropped once, here.
        unsafe {
            ManuallyDrop::drop(&mut self.cq);
            ManuallyDrop::drop(&mut self.sq);
            ManuallyDrop::drop(&mut self.submitter);
            drop(Box::from_raw(self.owner));
        }
        // `groups` goes after this body: the kernel no longer knows their memory.
    }
}

fn setup_error(error: io::Error) -> StartError {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => StartError::Refused(error),
        Some(libc::ENOMEM) => StartError::Memlock(error),
        Some(libc::EINVAL) => StartError::TooOld {
            what: "SINGLE_ISSUER, DEFER_TASKRUN or TASKRUN_FLAG",
        },
        _ => StartError::Io(error),
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: `owner` lives until Drop.
        unsafe { (*self.owner).as_raw_fd() }
    }
}
