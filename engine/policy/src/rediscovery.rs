//! When a slow endpoint is worth another look: one process-wide word per endpoint.
//!
//! A balancer that avoids a slow endpoint never learns that it healed. So an endpoint whose cost is
//! worse than twice its peers' median and of which this loop has seen nothing for `explore_after`
//! gets the next request that may be retried. Looks are paid from a credit of 0.2 % of the loop's
//! picks, and while the endpoint is known to be slow there is one per `explore_after` in the whole
//! process, however many loops there are: a stamp per loop would send N requests a second to each
//! sick endpoint.
//!
//! The word holds the time of the last look and whether it found the endpoint well. A look that
//! did lifts the wait for every loop: each loop whose own view is still bad may look again at once,
//! one attempt at a time, within its credit, until its view has come round. The alternative, a
//! stamp of the last *sample* in the process, locks out a stale loop for ever once another loop has
//! found the way back: that one samples the endpoint hundreds of times a second.

use evenkeel_base::{Duration, Instant};

use crate::store::{Shared, Word};

/// Share of picks that may be looks.
pub(crate) const CREDIT_PER_PICK: f32 = 0.002;
/// Unused credit is kept up to this many looks, enough to bring one view round in a burst.
pub(crate) const CREDIT_MAX: f32 = 8.0;
/// A look comes after a long silence: its sample weighs at least this much.
pub(crate) const LOOK_WEIGHT: f32 = 0.5;
/// How much worse than the median an endpoint is before it is avoided rather than weighed.
pub(crate) const SICK: f32 = 2.0;

const WELL: u64 = 1;

/// Time of the last look in ns, shifted by one; the lowest bit says that it found the endpoint well.
#[derive(Default)]
pub(crate) struct Stamp(Shared);

impl Stamp {
    /// Takes the right to look now. `quiet` is how long this loop has seen nothing of the endpoint.
    pub(crate) fn claim(&self, explore_after: Duration, quiet: Duration, now: Instant) -> bool {
        let mut well = false;
        let claimed = self.0.update(|word| {
            well = word & WELL != 0;
            let last = Instant::from_nanos(word >> 1);
            let due = quiet >= explore_after && (word == 0 || now - last >= explore_after);
            (!well && due).then_some(now.as_nanos() << 1)
        });
        well || claimed
    }

    /// What a look found.
    pub(crate) fn settle(&self, finding: Finding, now: Instant) {
        let bit = match finding {
            Finding::Well => WELL,
            Finding::Sick => 0,
        };
        self.0.update(|_| Some(now.as_nanos() << 1 | bit));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Well,
    Sick,
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn one_look_per_interval_in_the_process_while_the_endpoint_is_sick() {
        let stamp = Stamp::default();
        assert!(stamp.claim(AFTER, AFTER, at(500)));
        assert!(!stamp.claim(AFTER, AFTER, at(900)), "another loop");
        stamp.settle(Finding::Sick, at(950));
        assert!(!stamp.claim(AFTER, AFTER, at(1_900)));
        assert!(stamp.claim(AFTER, AFTER, at(1_950)));
    }

    #[test]
    fn a_loop_that_saw_it_lately_does_not_look() {
        let stamp = Stamp::default();
        assert!(!stamp.claim(AFTER, Duration::from_millis(10), at(5_000)));
    }

    #[test]
    fn a_good_finding_lifts_the_wait_until_a_bad_one() {
        let stamp = Stamp::default();
        assert!(stamp.claim(AFTER, AFTER, at(1_000)));
        stamp.settle(Finding::Well, at(1_005));
        assert!(stamp.claim(AFTER, Duration::ZERO, at(1_006)));
        assert!(stamp.claim(AFTER, Duration::ZERO, at(1_007)));
        stamp.settle(Finding::Sick, at(1_050));
        assert!(!stamp.claim(AFTER, AFTER, at(1_060)));
    }
}
