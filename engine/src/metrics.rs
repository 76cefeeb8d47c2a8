//! Counters of the request path: each shard writes its own, padded; the admin thread reads them all.
//!
//! A shard is the only writer of its cells, so that an update is a load and a store without a locked
//! instruction. Sums over shards are made when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_base::Duration;

use crate::reply::Reason;

/// How a request ended: the label `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    ClientError,
    ServerError,
    ClientGone,
    Refused(Reason),
}

impl Outcome {
    const PLAIN: [(Outcome, &'static str); 4] = [
        (Outcome::Success, "success"),
        (Outcome::ClientError, "client-error"),
        (Outcome::ServerError, "server-error"),
        (Outcome::ClientGone, "client-gone"),
    ];

    pub(crate) const COUNT: usize = Outcome::PLAIN.len() + Reason::ALL.len();

    pub(crate) const fn of_status(status: u16) -> Outcome {
        match status {
            500.. => Outcome::ServerError,
            400.. => Outcome::ClientError,
            _ => Outcome::Success,
        }
    }

    fn index(self) -> usize {
        match self {
            Outcome::Success => 0,
            Outcome::ClientError => 1,
            Outcome::ServerError => 2,
            Outcome::ClientGone => 3,
            Outcome::Refused(reason) => Outcome::PLAIN.len() + reason as usize,
        }
    }

    /// Every label, in the order of [`Outcome::index`].
    pub(crate) fn labels() -> impl Iterator<Item = &'static str> {
        let plain = Outcome::PLAIN.iter().map(|&(_, name)| name);
        plain.chain(Reason::ALL.iter().map(|reason| reason.name()))
    }
}

/// Upper bounds of the duration buckets in microseconds; the last bucket is open.
pub(crate) const BUCKETS_US: [u64; 20] = [
    100, 250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 25_000, 50_000, 75_000,
    100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 15_000_000,
];

/// Counters of one upstream on one shard, on cache lines of their own; also those of requests that never
/// reached an upstream.
#[repr(align(128))]
pub(crate) struct UpstreamCells {
    pub(crate) outcomes: [AtomicU64; Outcome::COUNT],
    pub(crate) attempts: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) replays: AtomicU64,
    pub(crate) buckets: [AtomicU64; BUCKETS_US.len() + 1],
    pub(crate) duration_ns: AtomicU64,
}

impl Default for UpstreamCells {
    fn default() -> Self {
        UpstreamCells {
            outcomes: [const { AtomicU64::new(0) }; Outcome::COUNT],
            attempts: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS_US.len() + 1],
            duration_ns: AtomicU64::new(0),
        }
    }
}

impl UpstreamCells {
    /// A request is over.
    pub(crate) fn request(&self, outcome: Outcome, took: Duration) {
        add(&self.outcomes[outcome.index()], 1);
        let took_us = took.as_nanos() / 1_000;
        let bucket = BUCKETS_US.partition_point(|&bound| bound < took_us);
        add(&self.buckets[bucket], 1);
        add(&self.duration_ns, took.as_nanos());
    }

    /// An attempt begins, on a connection that was idle or on a new one.
    pub(crate) fn attempt(&self, reused: bool) {
        add(&self.attempts, 1);
        add(&self.reused, u64::from(reused));
    }

    /// An attempt goes on, on a new connection.
    pub(crate) fn replay(&self) {
        add(&self.replays, 1);
    }
}

/// Counters of one shard, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct ShardMetrics {
    /// Of requests that were refused before their upstream was known.
    pub(crate) unrouted: UpstreamCells,
    pub(crate) accepted: AtomicU64,
    pub(crate) active: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
}

/// Adds to a cell that only this thread writes.
pub(crate) fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_cell_and_a_label_of_its_own() {
        let mut seen = [false; Outcome::COUNT];
        let plain = Outcome::PLAIN.iter().map(|&(outcome, _)| outcome);
        for outcome in plain.chain(Reason::ALL.iter().map(|&reason| Outcome::Refused(reason))) {
            assert!(
                !std::mem::replace(&mut seen[outcome.index()], true),
                "{outcome:?}"
            );
        }
        assert!(seen.iter().all(|&seen| seen));
        let mut labels: Vec<_> = Outcome::labels().collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Outcome::COUNT);
    }

    #[test]
    fn durations_fall_into_the_bucket_that_holds_them() {
        let cells = UpstreamCells::default();
        for (us, bucket) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (15_000_000, 19),
            (15_000_001, 20),
        ] {
            let before = cells.buckets[bucket].load(Ordering::Relaxed);
            cells.request(Outcome::Success, Duration::from_micros(us));
            let after = cells.buckets[bucket].load(Ordering::Relaxed);
            assert_eq!(after, before + 1, "{us} us");
        }
    }
}
