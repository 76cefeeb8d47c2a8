//! An allocator that counts, for tests that promise how often a shard's thread allocates: on the path
//! of a request never.
//!
//! A test makes [`Counting`] its global allocator. Only shards' threads are counted: each has a [`Tally`]
//! of its own from its start on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's allocator; it counts for threads that have a tally.
pub struct Counting;

/// What one thread has asked the allocator for, since its start.
#[derive(Default)]
pub struct Tally {
    allocations: AtomicU64,
    reallocations: AtomicU64,
    /// The next request leaves its backtrace.
    watched: AtomicBool,
    offence: Mutex<Option<String>>,
}

/// What a thread asked for between two moments.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub allocations: u64,
    pub reallocations: u64,
    /// Size and backtrace of the first request.
    pub first: Option<String>,
}

thread_local! {
    // Neither its first use nor its end needs the allocator: it is a constant without a destructor.
    static TALLY: Cell<Option<&'static Tally>> = const { Cell::new(None) };
}

/// Tallies by the names of their threads, in the order of their starts.
static TALLIES: Mutex<Vec<(String, &'static Tally)>> = Mutex::new(Vec::new());

/// The tally of the shard with this name; of several the last that was started.
#[must_use]
pub fn tally(shard: &str) -> Option<&'static Tally> {
    let tallies = lock(&TALLIES);
    let mut latest = tallies.iter().rev();
    latest
        .find(|(name, _)| name == shard)
        .map(|&(_, tally)| tally)
}

/// Counts for the calling thread from here on. A tally is never freed: a thread may outlive its shard.
pub(crate) fn enrol(name: &str) {
    let tally: &'static Tally = Box::leak(Box::default());
    lock(&TALLIES).push((name.to_owned(), tally));
    TALLY.set(Some(tally));
}

impl Tally {
    /// What the thread asks for while `during` runs on the caller's.
    pub fn asked(&self, during: impl FnOnce()) -> Asked {
        let counts = || {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (count(&self.allocations), count(&self.reallocations))
        };
        *lock(&self.offence) = None;
        let before = counts();
        self.watched.store(true, Ordering::Relaxed);
        during();
        self.watched.store(false, Ordering::Relaxed);
        let after = counts();
        Asked {
            allocations: after.0 - before.0,
            reallocations: after.1 - before.1,
            first: lock(&self.offence).take(),
        }
    }

    fn note(&'static self, counter: &AtomicU64, size: usize) {
        counter.fetch_add(1, Ordering::Relaxed);
        if self.watched.load(Ordering::Relaxed) && self.watched.swap(false, Ordering::Relaxed) {
            // Taking a backtrace allocates: that is not counted.
            TALLY.set(None);
            let text = format!("{size} bytes\n{}", Backtrace::force_capture());
            *lock(&self.offence) = Some(text);
            TALLY.set(Some(self));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: every call goes to `System` as it came; the counting before it touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(tally) = TALLY.get() {
            tally.note(&tally.allocations, layout.size());
        }
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(tally) = TALLY.get() {
            tally.note(&tally.allocations, layout.size());
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(tally) = TALLY.get() {
            tally.note(&tally.reallocations, size);
        }
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
