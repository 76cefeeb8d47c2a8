//! What is to happen when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_base::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The attempt of this slot and serial ends.
    End(u64),
    /// It is looked at again by its origin.
    Serve(u64),
    /// A shared origin may be done with something.
    Leave(u32),
    /// The client sends again, for the so many-th time.
    Retry(u32),
}

/// Events by time, then in the order in which they were pushed.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(Instant, u64, Due)>>,
    pushed: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Instant, due: Due) {
        self.heap.push(Reverse((at, self.pushed, due)));
        self.pushed += 1;
    }

    /// The next event, if it is due before `limit`.
    pub(super) fn pop_before(&mut self, limit: Instant) -> Option<(Instant, Due)> {
        let Reverse((at, ..)) = self.heap.peek()?;
        if *at >= limit {
            return None;
        }
        let Reverse((at, _, due)) = self.heap.pop()?;
        Some((at, due))
    }
}

const SERIAL_BITS: u32 = 40;

/// A slot and the serial of its attempt (its lower 40 bits), as one number.
pub(super) fn pack(slot: usize, serial: u64) -> u64 {
    (slot as u64) << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1)
}

pub(super) fn unpack(id: u64) -> (usize, u64) {
    ((id >> SERIAL_BITS) as usize, id & ((1 << SERIAL_BITS) - 1))
}
