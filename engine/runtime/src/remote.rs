//! What other threads may touch of a shard: a queue of woken tasks and the bell that ends its wait.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use async_task::Runnable;
use crossbeam_queue::SegQueue;

pub(crate) struct Remote {
    /// Bounded by the number of tasks: a task stands in it at most once.
    woken: SegQueue<Runnable>,
    /// True from the first ring until the shard has looked: further rings cost no system call.
    rung: AtomicBool,
    bell: OwnedFd,
}

impl Remote {
    pub(crate) fn new() -> io::Result<Remote> {
        // SAFETY: eventfd takes no pointers; the result is checked before it becomes an owner.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let bell = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Remote {
            woken: SegQueue::new(),
            rung: AtomicBool::new(false),
            bell,
        })
    }

    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    pub(crate) fn schedule(&self, runnable: Runnable) {
        self.woken.push(runnable);
        if !self.rung.swap(true, Ordering::AcqRel) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight bytes from a local array to a descriptor that this struct owns.
            // The only failure is a full counter, and then the bell is ringing anyway.
            unsafe {
                libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len());
            }
        }
    }

    /// Silences the bell; the caller takes what is queued after this, so nothing is missed.
    pub(crate) fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: reads eight bytes into a local array from an owned, non-blocking descriptor.
        unsafe {
            libc::read(
                self.bell.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            );
        }
        self.rung.store(false, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Option<Runnable> {
        self.woken.pop()
    }
}
