//! What a look over all endpoints found: the medians, and who is far above them.
//!
//! A pick must not read every endpoint, so it works with the last survey. The medians are lower
//! medians over all endpoints with samples: for an endpoint above twice that value, removing it from
//! the list does not move the median, so this is the median of its peers.

use alloc::vec::Vec;

use evenkeel_base::{Duration, Instant};

use crate::endpoint::EndpointId;
use crate::rediscovery::SICK;

const LONGEST: Duration = Duration::from_millis(50);
const FEWEST_PICKS: u32 = 64;

pub(super) struct Survey {
    /// Picks between surveys.
    stride: u32,
    picks: u32,
    taken_at: Instant,
    latencies: Vec<f32>,
    costs: Vec<f32>,
    median_latency_ns: Option<f32>,
    median_cost: Option<f32>,
    suspects: Vec<EndpointId>,
    /// Whose turn it is among the suspects.
    cursor: usize,
}

impl Survey {
    pub(super) fn new(endpoints: usize, now: Instant) -> Self {
        Survey {
            stride: FEWEST_PICKS.max(endpoints as u32),
            picks: 0,
            taken_at: now,
            latencies: Vec::with_capacity(endpoints),
            costs: Vec::with_capacity(endpoints),
            median_latency_ns: None,
            median_cost: None,
            suspects: Vec::with_capacity(endpoints),
            cursor: 0,
        }
    }

    /// Counts a pick; true when it is time for the next survey.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.picks += 1;
        self.picks >= self.stride || now - self.taken_at >= LONGEST
    }

    /// Makes the next pick due.
    pub(super) fn expire(&mut self) {
        self.picks = self.stride;
    }

    pub(super) fn start(&mut self, now: Instant) {
        self.picks = 0;
        self.taken_at = now;
        self.latencies.clear();
        self.costs.clear();
        self.suspects.clear();
    }

    pub(super) fn add(&mut self, latency_ns: f32, cost: f32) {
        self.latencies.push(latency_ns);
        self.costs.push(cost);
    }

    pub(super) fn close(&mut self) {
        self.median_latency_ns = lower_median(&mut self.latencies);
        self.median_cost = lower_median(&mut self.costs);
    }

    pub(super) fn suspect(&mut self, id: EndpointId) {
        self.suspects.push(id);
    }

    pub(super) fn acquit(&mut self, id: EndpointId) {
        self.suspects.retain(|suspect| *suspect != id);
    }

    /// The suspects in turn.
    pub(super) fn next_suspect(&mut self) -> Option<EndpointId> {
        self.cursor = self.cursor.wrapping_add(1);
        let at = self.cursor.checked_rem(self.suspects.len())?;
        Some(self.suspects[at])
    }

    pub(super) fn median_latency_ns(&self) -> Option<f32> {
        self.median_latency_ns
    }

    pub(super) fn is_sick(&self, cost: f32) -> bool {
        self.median_cost.is_some_and(|median| cost > SICK * median)
    }
}

/// The middle value, the lower one of two; the order of `values` is lost.
pub(crate) fn lower_median(values: &mut [f32]) -> Option<f32> {
    if values.is_empty() {
        return None;
    }
    let at = (values.len() - 1) / 2;
    let (_, median, _) = values.select_nth_unstable_by(at, f32::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_median_is_that_of_the_peers_of_whoever_is_above_it() {
        assert_eq!(lower_median(&mut []), None);
        assert_eq!(lower_median(&mut [5.0]), Some(5.0));
        assert_eq!(lower_median(&mut [50.0, 5.0]), Some(5.0));
        assert_eq!(lower_median(&mut [50.0, 5.0, 6.0]), Some(6.0));
        assert_eq!(lower_median(&mut [50.0, 5.0, 6.0, 60.0]), Some(6.0));
    }

    #[test]
    fn surveys_come_by_picks_or_by_time() {
        let mut survey = Survey::new(5, Instant::ZERO);
        assert!(!(1..64).any(|_| survey.is_due(Instant::ZERO)));
        assert!(survey.is_due(Instant::ZERO));
        survey.start(Instant::ZERO);
        assert!(survey.is_due(Instant::ZERO + LONGEST));
        survey.start(Instant::ZERO + LONGEST);
        survey.expire();
        assert!(survey.is_due(Instant::ZERO + LONGEST));
    }

    #[test]
    fn suspects_take_turns_and_an_acquitted_one_is_gone() {
        let mut survey = Survey::new(3, Instant::ZERO);
        assert_eq!(survey.next_suspect(), None);
        survey.suspect(EndpointId(0));
        survey.suspect(EndpointId(2));
        let turns = [survey.next_suspect(), survey.next_suspect()];
        assert_ne!(turns[0], turns[1]);
        survey.acquit(EndpointId(0));
        assert_eq!(survey.next_suspect(), Some(EndpointId(2)));
    }
}
