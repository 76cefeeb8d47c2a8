//! Where a number lives: the storage seam.
//!
//! A primitive is written once, generic over a store, and keeps its numbers in a [`Counter`] or in
//! one [`Word`]; what must agree is packed into the same word. [`Local`] is a plain cell that one
//! loop owns; [`Shared`] is an atomic on a cache line of its own that every loop may touch; what a
//! loop publishes for the others to read is in `exchange`. All atomic operations are relaxed: each
//! word stands for itself and publishes nothing else.
//!
//! Cost: `Local` a few instructions; `Shared` one locked instruction per change, plus the transfer
//! of the line when another core changed it last.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;

use crate::sync::AtomicU64;

/// Where a primitive keeps its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each loop keeps its own and sees nothing of the others.
    #[default]
    PerLoop,
    /// One number per process, touched by every loop.
    Shared,
    /// Each loop publishes its own and folds in the others' from time to time.
    Exchange,
}

/// A number that goes up and down by steps.
pub trait Counter {
    fn add(&self, n: u64);
    /// Takes `n` away. The caller has added it before: below zero is a bug, caught in debug builds.
    fn sub(&self, n: u64);
    fn load(&self) -> u64;
}

/// 64 bits that change as one.
pub trait Word {
    fn load(&self) -> u64;
    /// Replaces the word by `change(word)`, or leaves it when that gives `None`. `change` may run
    /// several times when other loops interfere, so it must not have effects. True when replaced.
    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> bool;
}

/// A cell of one loop.
#[derive(Debug, Default)]
pub struct Local(Cell<u64>);

/// A cell of the process.
#[derive(Debug, Default)]
pub struct Shared(CachePadded<AtomicU64>);

impl Local {
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Local(Cell::new(value))
    }
}

impl Shared {
    #[must_use]
    pub fn new(value: u64) -> Self {
        Shared(CachePadded::new(AtomicU64::new(value)))
    }
}

impl From<u64> for Local {
    fn from(value: u64) -> Self {
        Local::new(value)
    }
}

impl From<u64> for Shared {
    fn from(value: u64) -> Self {
        Shared::new(value)
    }
}

impl Counter for Local {
    fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    fn sub(&self, n: u64) {
        debug_assert!(self.0.get() >= n, "a counter goes below zero");
        self.0.set(self.0.get().saturating_sub(n));
    }

    fn load(&self) -> u64 {
        self.0.get()
    }
}

impl Word for Local {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn update(&self, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        match change(self.0.get()) {
            Some(next) => {
                self.0.set(next);
                true
            }
            None => false,
        }
    }
}

impl Counter for Shared {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    fn sub(&self, n: u64) {
        let before = self.0.fetch_sub(n, Relaxed);
        debug_assert!(before >= n, "a counter goes below zero");
    }

    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Word for Shared {
    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<S: Counter>(store: S) {
        store.add(3);
        store.sub(1);
        assert_eq!(store.load(), 2);
    }

    fn updates<S: Word>(store: S) {
        assert!(store.update(|v| Some(v + 7)));
        assert!(!store.update(|_| None));
        assert_eq!(store.load(), 7);
    }

    #[test]
    fn both_stores_count_and_update_alike() {
        counts(Local::default());
        counts(Shared::default());
        updates(Local::default());
        updates(Shared::default());
    }

    #[test]
    fn shared_cells_do_not_share_a_cache_line() {
        assert!(size_of::<Shared>() >= 64);
        assert_eq!(size_of::<Local>(), 8);
    }
}
