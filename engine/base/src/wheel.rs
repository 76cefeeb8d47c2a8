//! One deadline wheel for all timers of a loop: insert and cancel in constant time, no allocation once
//! warm.
//!
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 7. Eight
//! levels of 64 slots; a slot of level 0 spans one tick of 2^14 ns (16.4 us), one of level n spans
//! 64^n ticks. A bitmap a level finds the next slot without walking empty ones. A timer moves down a
//! level when its slot is reached, so that it is touched at most once a level. Level 0 keeps exact
//! deadlines: nothing fires early, and nothing later than the first look after its deadline.

use alloc::vec::Vec;

use crate::time::Instant;

const TICK_SHIFT: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;

/// Names a timer; stale after it fired or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerKey {
    index: u32,
    generation: u32,
}

struct Entry<T> {
    deadline: Instant,
    value: Option<T>,
    generation: u32,
    level: u8,
    slot: u8,
    previous: u32,
    next: u32,
}

/// Timers that carry a `T` each.
pub struct Wheel<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    /// The tick up to which level 0 has been looked at; later timers hang relative to it.
    tick: u64,
    len: usize,
}

impl<T> Wheel<T> {
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Wheel {
            entries: Vec::new(),
            free: NONE,
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            tick: now.as_nanos() >> TICK_SHIFT,
            len: 0,
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a timer. A deadline in the past is due at the next [`Wheel::expire`].
    pub fn insert(&mut self, deadline: Instant, value: T) -> TimerKey {
        let index = self.allocate(deadline, value);
        self.link(index);
        self.len += 1;
        TimerKey {
            index,
            generation: self.entries[index as usize].generation,
        }
    }

    /// Takes a timer out; `None` when it has fired or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation != key.generation || entry.value.is_none() {
            return None;
        }
        self.unlink(key.index);
        self.release(key.index)
    }

    /// One timer whose deadline is not after `now`, if there is one. Call until `None`. Timers due
    /// within one tick of each other come in any order.
    pub fn expire(&mut self, now: Instant) -> Option<T> {
        let target = now.as_nanos() >> TICK_SHIFT;
        loop {
            // A clock that goes back leaves the wheel where it was.
            let slot = (self.tick & (SLOTS as u64 - 1)) as usize;
            if let Some(index) = self.due_in(slot, now) {
                self.unlink(index);
                return self.release(index);
            }
            if self.tick >= target {
                return None;
            }
            self.advance(target);
        }
    }

    /// When to look again: the earliest deadline, or a time before it at which a far timer moves to
    /// a finer level. Never later than the earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        if let Some(slot) = self.next_occupied(0) {
            let mut earliest = Instant::MAX;
            let mut at = self.heads[0][slot];
            while at != NONE {
                let entry = &self.entries[at as usize];
                earliest = earliest.min(entry.deadline);
                at = entry.next;
            }
            // A far slot may begin before this timer: its start is looked at first.
            return Some(
                self.far_start()
                    .map_or(earliest, |start| earliest.min(start)),
            );
        }
        self.far_start()
    }

    /// The earliest start of an occupied slot above level 0.
    fn far_start(&self) -> Option<Instant> {
        (1..LEVELS)
            .filter_map(|level| self.slot_start(level))
            .min()
            .map(|tick| Instant::from_nanos(tick.checked_shl(TICK_SHIFT).unwrap_or(u64::MAX)))
    }

    /// The first tick of the next occupied slot of a level above 0.
    fn slot_start(&self, level: usize) -> Option<u64> {
        let slot = self.next_occupied(level)? as u64;
        let shift = SLOT_BITS * level as u32;
        let current = self.tick >> shift;
        let ahead = slot.wrapping_sub(current) & (SLOTS as u64 - 1);
        // The current slot of a level holds only timers a whole turn away.
        let ahead = if ahead == 0 { SLOTS as u64 } else { ahead };
        Some((current + ahead) << shift)
    }

    /// The occupied slot that comes next in time on a level.
    fn next_occupied(&self, level: usize) -> Option<usize> {
        let bits = self.occupied[level];
        if bits == 0 {
            return None;
        }
        let current = ((self.tick >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1)) as u32;
        // Level 0's current slot is now; a higher level's current slot comes last.
        let from = if level == 0 {
            current
        } else {
            (current + 1) % SLOTS as u32
        };
        let ahead = bits.rotate_right(from).trailing_zeros();
        Some(((from + ahead) % SLOTS as u32) as usize)
    }

    /// Moves to the next tick with something to do, at most to `target`.
    fn advance(&mut self, target: u64) {
        let mut next = target;
        if let Some(slot) = self.next_occupied(0) {
            let ahead = (slot as u64).wrapping_sub(self.tick) & (SLOTS as u64 - 1);
            // The current slot's leftovers are not due in this tick: they are looked at in the next.
            next = next.min(self.tick + ahead.max(1));
        }
        for level in 1..LEVELS {
            if let Some(start) = self.slot_start(level) {
                next = next.min(start);
            }
        }
        let before = self.tick;
        self.tick = next;
        self.carry_over(before);
        for level in (1..LEVELS).rev() {
            self.cascade(level, before);
        }
    }

    /// Timers of the slot that was left behind undone hang in the new current slot.
    fn carry_over(&mut self, before: u64) {
        self.rehang(0, (before & (SLOTS as u64 - 1)) as usize);
    }

    /// When a level has entered a new slot, that slot's timers move down.
    fn cascade(&mut self, level: usize, before: u64) {
        let shift = SLOT_BITS * level as u32;
        if before >> shift != self.tick >> shift {
            self.rehang(level, ((self.tick >> shift) & (SLOTS as u64 - 1)) as usize);
        }
    }

    /// Takes all timers of a slot and hangs each where it belongs now.
    fn rehang(&mut self, level: usize, slot: usize) {
        let mut at = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while at != NONE {
            let next = self.entries[at as usize].next;
            self.link(at);
            at = next;
        }
    }

    fn due_in(&self, slot: usize, now: Instant) -> Option<u32> {
        let mut at = self.heads[0][slot];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.deadline <= now {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    fn allocate(&mut self, deadline: Instant, value: T) -> u32 {
        if self.free == NONE {
            let index = u32::try_from(self.entries.len()).expect("fewer timers than 2^32");
            self.entries.push(Entry {
                deadline,
                value: Some(value),
                generation: 0,
                level: 0,
                slot: 0,
                previous: NONE,
                next: NONE,
            });
            return index;
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        self.free = entry.next;
        entry.deadline = deadline;
        entry.value = Some(value);
        index
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        entry.value.take()
    }

    fn link(&mut self, index: u32) {
        let due = (self.entries[index as usize].deadline.as_nanos() >> TICK_SHIFT).max(self.tick);
        let (level, slot) = place(due, self.tick);
        let head = self.heads[level][slot];
        let entry = &mut self.entries[index as usize];
        entry.level = level as u8;
        entry.slot = slot as u8;
        entry.previous = NONE;
        entry.next = head;
        if head != NONE {
            self.entries[head as usize].previous = index;
        }
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let (level, slot) = (usize::from(entry.level), usize::from(entry.slot));
        let (previous, next) = (entry.previous, entry.next);
        if previous == NONE {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }
}

/// Level and slot of a tick seen from the current one: the level of the highest slot number in which
/// they differ.
fn place(due: u64, current: u64) -> (usize, usize) {
    let differing = due ^ current;
    let highest = 63 - (differing | 1).leading_zeros();
    let level = (highest / SLOT_BITS) as usize;
    if level >= LEVELS {
        // Further than the wheel: wait in the top level's last slot before the current one and come
        // again from there.
        let shift = SLOT_BITS * (LEVELS as u32 - 1);
        let slot = ((current >> shift) + SLOTS as u64 - 1) & (SLOTS as u64 - 1);
        return (LEVELS - 1, slot as usize);
    }
    let slot = (due >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1);
    (level, slot as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::time::Duration;
    use alloc::collections::BTreeMap;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn nothing_fires_early_and_everything_fires_when_due() {
        let mut wheel = Wheel::new(at(1_000_000));
        wheel.insert(at(5_000_001), 'a');
        assert_eq!(wheel.expire(at(5_000_000)), None);
        assert_eq!(wheel.expire(at(5_000_001)), Some('a'));
        assert!(wheel.is_empty());
        wheel.insert(at(3), 'b');
        assert_eq!(
            wheel.expire(at(5_000_001)),
            Some('b'),
            "a deadline in the past is due at once"
        );
    }

    #[test]
    fn a_cancelled_timer_is_gone_and_its_key_stale() {
        let mut wheel = Wheel::new(at(0));
        let key = wheel.insert(at(100), 1);
        assert_eq!(wheel.cancel(key), Some(1));
        assert_eq!(wheel.cancel(key), None);
        let other = wheel.insert(at(100), 2);
        assert_eq!(
            wheel.cancel(key),
            None,
            "the entry is used again under another key"
        );
        assert_eq!(wheel.cancel(other), Some(2));
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn a_lone_far_timer_is_looked_at_a_few_times_only() {
        let mut wheel = Wheel::new(at(0));
        let deadline = at(3_600_000_000_000);
        wheel.insert(deadline, ());
        let mut looks = 0;
        loop {
            let now = wheel.next_deadline().expect("one timer is there");
            assert!(now <= deadline);
            looks += 1;
            if wheel.expire(now).is_some() {
                assert_eq!(now, deadline);
                break;
            }
        }
        assert!(looks <= LEVELS + 1, "{looks} wake-ups");
    }

    #[test]
    fn agrees_with_a_sorted_list_under_random_use() {
        for seed in 0..200 {
            compare_with_model(seed);
        }
    }

    fn compare_with_model(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut now = at(rng.below(1 << 50));
        let mut wheel = Wheel::new(now);
        let mut model: BTreeMap<u32, (Instant, TimerKey)> = BTreeMap::new();
        for id in 0..400u32 {
            let span = 1u64 << rng.below(50);
            match rng.below(10) {
                0..5 => {
                    let deadline = now + Duration::from_nanos(rng.below(span));
                    model.insert(id, (deadline, wheel.insert(deadline, id)));
                }
                5 => {
                    if let Some((&id, &(_, key))) = model.iter().next() {
                        assert_eq!(wheel.cancel(key), Some(id));
                        model.remove(&id);
                    }
                }
                6 => now = wheel.next_deadline().unwrap_or(now).max(now),
                _ => now += Duration::from_nanos(rng.below(span)),
            }
            let earliest = model.values().map(|&(deadline, _)| deadline).min();
            if let (Some(next), Some(earliest)) = (wheel.next_deadline(), earliest) {
                assert!(
                    next <= earliest.max(now),
                    "seed {seed}: looks again too late"
                );
            }
            while let Some(fired) = wheel.expire(now) {
                let (deadline, _) = model.remove(&fired).expect("fires once");
                assert!(deadline <= now, "seed {seed}: early");
            }
            assert!(
                model.values().all(|&(deadline, _)| deadline > now),
                "seed {seed}: missed"
            );
            assert_eq!(wheel.len(), model.len());
        }
    }
}
