//! The attempts of one loop that are not over: a slab with one waiting list per endpoint.
//!
//! Attempts begin in time order and join their endpoint's list at the tail, so the head is the
//! oldest and its age is read without a search. An attempt leaves the list when its head arrives
//! (its latency is known then) or when it ends. The lists are links inside the slots.
//!
//! The table has a fixed number of slots, reserved once; a slot that was never used costs address
//! space and no memory. Ids carry a generation, so that an id that outlives its attempt finds
//! nothing.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use evenkeel_base::{Duration, Instant};

use crate::breaker::Permit;
use crate::endpoint::EndpointId;
use crate::outlier::Ticket;

/// The name of an attempt inside its loop and upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptId {
    slot: u32,
    generation: u32,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No head yet; in the endpoint's waiting list.
    Waiting,
    /// The head arrived and settled the guards' verdict.
    Settled,
    /// The head arrived well; the guards hear of it when the body is complete.
    SuccessPending,
}

/// What the dispatcher remembers of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) endpoint: EndpointId,
    pub(crate) begun: Instant,
    pub(crate) stage: Stage,
    pub(crate) permit: Permit,
    pub(crate) ticket: Ticket,
    /// Picked to look at an endpoint that is avoided otherwise.
    pub(crate) is_look: bool,
}

/// Index of a slot; [`NONE`] ends a list.
type Link = u32;
const NONE: Link = u32::MAX;

struct Slot {
    /// Odd while the slot is in use.
    generation: u32,
    previous: Link,
    /// Next in the waiting list, or next free slot.
    next: Link,
    attempt: Attempt,
}

#[derive(Clone, Copy)]
struct List {
    head: Link,
    tail: Link,
}

pub(crate) struct Attempts {
    slots: Vec<Slot>,
    limit: u32,
    free: Link,
    live: u32,
    waiting: Box<[List]>,
}

impl Attempts {
    /// Room for `limit` attempts on `endpoints` endpoints.
    pub(crate) fn new(limit: u32, endpoints: u32) -> Self {
        let empty = List {
            head: NONE,
            tail: NONE,
        };
        Attempts {
            slots: Vec::with_capacity(limit as usize),
            limit,
            free: NONE,
            live: 0,
            waiting: vec![empty; endpoints as usize].into_boxed_slice(),
        }
    }

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// Takes a slot and joins the endpoint's waiting list. The caller has checked [`Self::is_full`].
    pub(crate) fn begin(&mut self, attempt: Attempt) -> AttemptId {
        debug_assert!(!self.is_full() && attempt.stage == Stage::Waiting);
        let slot = if self.free == NONE {
            self.slots.push(Slot {
                generation: 0,
                previous: NONE,
                next: NONE,
                attempt,
            });
            self.slots.len() as u32 - 1
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            slot
        };
        let list = &mut self.waiting[attempt.endpoint.index()];
        let previous = core::mem::replace(&mut list.tail, slot);
        if previous == NONE {
            list.head = slot;
        } else {
            self.slots[previous as usize].next = slot;
        }
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.previous = previous;
        entry.next = NONE;
        entry.attempt = attempt;
        self.live += 1;
        AttemptId {
            slot,
            generation: entry.generation,
        }
    }

    pub(crate) fn find(&self, id: AttemptId) -> Option<&Attempt> {
        self.slots
            .get(id.slot as usize)
            .filter(|slot| slot.generation == id.generation)
            .map(|slot| &slot.attempt)
    }

    /// The head arrived: leaves the waiting list and moves to `stage`.
    pub(crate) fn advance(&mut self, id: AttemptId, stage: Stage) {
        if self
            .find(id)
            .is_some_and(|attempt| attempt.stage == Stage::Waiting)
        {
            self.unlink(id.slot);
            self.slots[id.slot as usize].attempt.stage = stage;
        }
    }

    /// Frees the slot. `None` when the attempt is over already.
    pub(crate) fn end(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = *self.find(id)?;
        if attempt.stage == Stage::Waiting {
            self.unlink(id.slot);
        }
        let free = core::mem::replace(&mut self.free, id.slot);
        let slot = &mut self.slots[id.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        self.live -= 1;
        Some(attempt)
    }

    /// Age of the endpoint's oldest attempt that waits for its head; zero when there is none.
    pub(crate) fn oldest_age(&self, endpoint: EndpointId, now: Instant) -> Duration {
        match self.waiting[endpoint.index()].head {
            NONE => Duration::ZERO,
            head => now - self.slots[head as usize].attempt.begun,
        }
    }

    /// Whether an attempt on the endpoint waits for its head.
    pub(crate) fn is_waiting(&self, endpoint: EndpointId) -> bool {
        self.waiting[endpoint.index()].head != NONE
    }

    fn unlink(&mut self, slot: Link) {
        let Slot {
            previous,
            next,
            attempt,
            ..
        } = self.slots[slot as usize];
        let list = &mut self.waiting[attempt.endpoint.index()];
        if previous == NONE {
            list.head = next;
        } else {
            self.slots[previous as usize].next = next;
        }
        let list = &mut self.waiting[attempt.endpoint.index()];
        if next == NONE {
            list.tail = previous;
        } else {
            self.slots[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::Rng;
    use proptest::prelude::*;

    fn attempt(endpoint: u32, begun: Instant) -> Attempt {
        Attempt {
            endpoint: EndpointId(endpoint),
            begun,
            stage: Stage::Waiting,
            permit: Permit::Uncounted,
            ticket: Ticket::Counted,
            is_look: false,
        }
    }

    #[test]
    fn an_id_that_outlived_its_attempt_finds_nothing() {
        let mut attempts = Attempts::new(1, 1);
        let old = attempts.begin(attempt(0, Instant::ZERO));
        assert!(attempts.is_full());
        assert!(attempts.end(old).is_some());
        let new = attempts.begin(attempt(0, Instant::ZERO));
        assert!(attempts.end(old).is_none() && attempts.find(old).is_none());
        attempts.advance(old, Stage::Settled);
        assert_eq!(attempts.find(new).map(|a| a.stage), Some(Stage::Waiting));
    }

    proptest! {
        #[test]
        fn oldest_age_is_that_of_a_naive_list(seed: u64) {
            let mut rng = Rng::new(seed);
            let mut attempts = Attempts::new(64, 3);
            let mut naive: Vec<(AttemptId, u32, Instant, bool)> = Vec::new();
            for step in 0..500u64 {
                let now = Instant::from_nanos(step);
                match rng.below(3) {
                    0 if !attempts.is_full() => {
                        let endpoint = rng.below(3) as u32;
                        naive.push((attempts.begin(attempt(endpoint, now)), endpoint, now, true));
                    }
                    1 if !naive.is_empty() => {
                        let at = rng.below(naive.len() as u64) as usize;
                        attempts.advance(naive[at].0, Stage::Settled);
                        naive[at].3 = false;
                    }
                    _ if !naive.is_empty() => {
                        let at = rng.below(naive.len() as u64) as usize;
                        let (id, endpoint, ..) = naive.remove(at);
                        prop_assert_eq!(attempts.end(id).unwrap().endpoint, EndpointId(endpoint));
                    }
                    _ => {}
                }
                prop_assert_eq!(attempts.live() as usize, naive.len());
                for endpoint in 0..3 {
                    let oldest = naive
                        .iter()
                        .filter(|(_, e, _, waiting)| *e == endpoint && *waiting)
                        .map(|(_, _, begun, _)| now - *begun)
                        .max()
                        .unwrap_or(Duration::ZERO);
                    prop_assert_eq!(attempts.oldest_age(EndpointId(endpoint), now), oldest);
                }
            }
        }
    }
}
