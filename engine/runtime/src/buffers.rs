//! Receive buffers that the kernel picks from: one provided-buffer ring a group.
//!
//! A received [`Chunk`] is a handle into the group's memory. Splitting shares the buffer; the last
//! handle to go gives it back to the kernel, exactly once (asserted in debug builds). There is no
//! copy between a receive and the send that forwards it.
//!
//! Two groups a shard: small buffers for idle connections and heads, large ones for bodies, so that
//! ten thousand idle connections do not need ten thousand large buffers.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// Number and size of the buffers of one group.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// A power of two, at most 32768.
    pub count: u16,
    /// Bytes a buffer.
    pub size: u32,
}

/// One provided-buffer ring and the memory behind it.
pub(crate) struct Group {
    id: u16,
    config: GroupConfig,
    ring: Mapping,
    memory: Mapping,
    tail: Cell<u16>,
    /// The first entry that is not taken, where the kernel does not take them itself.
    head: Cell<u16>,
    /// Handles alive for each buffer; zero means that the kernel owns it.
    handles: RefCell<Vec<u32>>,
    free: Cell<u16>,
}

impl Group {
    pub(crate) fn new(id: u16, config: GroupConfig) -> io::Result<Rc<Group>> {
        assert!(
            config.count.is_power_of_two() && config.count <= 32768,
            "ring size"
        );
        let count = usize::from(config.count);
        let ring = Mapping::anonymous(count * size_of::<BufRingEntry>())?;
        let memory = Mapping::anonymous(count * config.size as usize)?;
        let group = Group {
            id,
            config,
            ring,
            memory,
            tail: Cell::new(0),
            head: Cell::new(0),
            handles: RefCell::new(vec![0; count]),
            free: Cell::new(0),
        };
        for bid in 0..config.count {
            group.give(bid);
        }
        Ok(Rc::new(group))
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    pub(crate) fn entries(&self) -> u16 {
        self.config.count
    }

    pub(crate) fn ring_address(&self) -> u64 {
        self.ring.base.as_ptr() as u64
    }

    /// Buffers that the kernel may fill now.
    pub(crate) fn free(&self) -> u16 {
        self.free.get()
    }

    /// The buffer that the next receive fills, for a backend that receives by itself.
    pub(crate) fn first_free(&self) -> Option<Free> {
        let head = self.head.get();
        if head == self.tail.get() {
            return None;
        }
        let slot = usize::from(head & (self.config.count - 1));
        // SAFETY: `slot` is below the number of entries that the mapping was made for; between head
        // and tail every entry has been written, by this thread.
        let bid = unsafe { (*self.ring.base.as_ptr().cast::<BufRingEntry>().add(slot)).bid() };
        Some(Free {
            bid,
            address: self.address(bid).cast_mut(),
            len: self.config.size as usize,
        })
    }

    /// The one from [`Group::first_free`] is filled; [`Group::take`] follows.
    pub(crate) fn claim_first(&self) {
        self.head.set(self.head.get().wrapping_add(1));
    }

    /// Less than half is free.
    pub(crate) fn is_scarce(&self) -> bool {
        self.free.get() < self.config.count / 2
    }

    /// Takes a buffer that a completion named: `len` bytes of it are filled.
    pub(crate) fn take(self: &Rc<Self>, bid: u16, len: u32) -> Chunk {
        let mut handles = self.handles.borrow_mut();
        let count = &mut handles[usize::from(bid)];
        debug_assert_eq!(
            *count, 0,
            "the kernel filled a buffer that a chunk still holds"
        );
        *count = 1;
        self.free.set(self.free.get() - 1);
        debug_assert!(len <= self.config.size);
        Chunk {
            group: Rc::clone(self),
            bid,
            start: 0,
            len,
        }
    }

    fn release(&self, bid: u16) {
        let last = {
            let mut handles = self.handles.borrow_mut();
            let count = &mut handles[usize::from(bid)];
            debug_assert!(*count > 0, "a buffer is given back once");
            *count -= 1;
            *count == 0
        };
        if last {
            self.give(bid);
        }
    }

    fn give(&self, bid: u16) {
        let tail = self.tail.get();
        let slot = usize::from(tail & (self.config.count - 1));
        // SAFETY: `slot` is below the number of entries that the mapping was made for, and only
        // this thread writes entries; the kernel reads one only after the tail has moved past it.
        unsafe {
            let entry = &mut *self.ring.base.as_ptr().cast::<BufRingEntry>().add(slot);
            entry.set_addr(self.address(bid) as u64);
            entry.set_len(self.config.size);
            entry.set_bid(bid);
        }
        self.tail.set(tail.wrapping_add(1));
        self.free.set(self.free.get() + 1);
        // SAFETY: the tail is the `resv` field of the first entry (io_uring_register_buf_ring(3)),
        // inside the mapping, aligned for u16, and shared with the kernel only as an atomic.
        unsafe {
            let tail_ptr = BufRingEntry::tail(self.ring.base.as_ptr().cast::<BufRingEntry>());
            AtomicU16::from_ptr(tail_ptr.cast_mut()).store(self.tail.get(), Ordering::Release);
        }
    }

    fn address(&self, bid: u16) -> *const u8 {
        // SAFETY: `bid` is below `count`, so the offset stays inside the mapping.
        unsafe {
            self.memory
                .base
                .as_ptr()
                .add(usize::from(bid) * self.config.size as usize)
        }
    }
}

/// A buffer without an owner.
pub(crate) struct Free {
    pub(crate) bid: u16,
    pub(crate) address: *mut u8,
    pub(crate) len: usize,
}

/// Bytes that the kernel put into a shard's buffer: an owned handle, cheap to split.
pub struct Chunk {
    group: Rc<Group>,
    bid: u16,
    start: u32,
    len: u32,
}

impl Chunk {
    /// Cuts the first `at` bytes off into a handle of their own; this one keeps the rest.
    ///
    /// # Panics
    /// When `at` is larger than the chunk.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Chunk {
        assert!(at <= self.len as usize, "split inside the chunk");
        let at = at as u32;
        self.group.handles.borrow_mut()[usize::from(self.bid)] += 1;
        let front = Chunk {
            group: Rc::clone(&self.group),
            bid: self.bid,
            start: self.start,
            len: at,
        };
        self.start += at;
        self.len -= at;
        front
    }

    /// Less than half of the shard's buffers of this kind are free. They are everybody's: whoever may
    /// keep bytes for long copies them now and lets the chunk go.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.group.is_scarce()
    }

    /// Drops the first `n` bytes (all of them when there are fewer).
    pub fn advance(&mut self, n: usize) {
        let n = (n as u64).min(u64::from(self.len)) as u32;
        self.start += n;
        self.len -= n;
    }

    /// Keeps only the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        self.len = (n as u64).min(u64::from(self.len)) as u32;
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the handle keeps the buffer out of the kernel's hands, start + len never exceeds
        // what the completion reported, and nobody writes to a buffer while a handle is alive.
        unsafe {
            let address = self.group.address(self.bid).add(self.start as usize);
            std::slice::from_raw_parts(address, self.len as usize)
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.group.release(self.bid);
    }
}

/// Anonymous private memory, page aligned, unmapped on drop.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn anonymous(len: usize) -> io::Result<Mapping> {
        // SAFETY: a fresh anonymous mapping aliases nothing; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap never returns the zero page here");
        Ok(Mapping { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping that `anonymous` made.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Rc<Group> {
        Group::new(0, GroupConfig { count: 4, size: 64 }).unwrap()
    }

    #[test]
    fn the_last_handle_gives_the_buffer_back_once() {
        let group = group();
        assert_eq!(group.free(), 4);
        let mut chunk = group.take(2, 10);
        let front = chunk.split_to(4);
        assert_eq!((front.len(), chunk.len(), group.free()), (4, 6, 3));
        drop(chunk);
        assert_eq!(group.free(), 3);
        drop(front);
        assert_eq!(group.free(), 4);
    }

    #[test]
    fn advancing_past_the_end_leaves_an_empty_chunk() {
        let group = group();
        let mut chunk = group.take(0, 10);
        chunk.advance(3);
        chunk.truncate(100);
        assert_eq!(chunk.len(), 7);
        chunk.advance(1000);
        assert!(chunk.is_empty());
    }
}
