//! The third placement: each loop publishes a page that it alone writes, and folds in the others'.
//!
//! A page is one cache line per endpoint and loop. Its owner changes it with a plain load and store:
//! no locked instruction and no retry. The others read it once per [`Interval`], in turns that had
//! work, so that an idle loop stays idle; between two folds a loop sees its own numbers live and the
//! others' as they were. The alternative of publishing at intervals, too, was rejected: a loop that
//! falls idle would leave its last page, attempts that ended long ago included, standing for ever.
//!
//! Means are published as (value, samples so far); a fold weights each loop's value by its samples
//! since the folding loop looked last, so that a loop without news has no say. Source of the idea:
//! gossip averaging (Kempe, Dobra, Gehrke, FOCS 2003), here with one hop and weights by evidence.
//!
//! Cost: a fold reads loops x endpoints lines.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;
use evenkeel_base::{Duration, Instant};

use crate::balance::lower_median;
use crate::store::{Counter, Word};
use crate::sync::AtomicU64;

/// Time between two folds of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interval {
    /// Half the median latency of the endpoints, within 0.2 ms to 20 ms.
    #[default]
    Auto,
    Every(Duration),
}

const AUTO_LEAST: Duration = Duration::from_micros(200);
const AUTO_MOST: Duration = Duration::from_millis(20);

impl Interval {
    /// The time to the next fold, when the median latency is `median_ns`.
    pub(crate) fn length(self, median_ns: Option<f32>) -> Duration {
        match self {
            Interval::Every(time) => time,
            Interval::Auto => {
                let half = Duration::from_nanos((median_ns.unwrap_or(0.0) / 2.0) as u64);
                half.clamp(AUTO_LEAST, AUTO_MOST)
            }
        }
    }
}

/// A cell that one loop writes and every loop reads.
#[derive(Debug, Default)]
pub(crate) struct Published(AtomicU64);

impl Counter for Published {
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    fn sub(&self, n: u64) {
        let before = self.0.load(Relaxed);
        debug_assert!(before >= n, "a counter goes below zero");
        self.0.store(before.saturating_sub(n), Relaxed);
    }

    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Word for Published {
    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn update(&self, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        let next = change(self.0.load(Relaxed));
        if let Some(next) = next {
            self.0.store(next, Relaxed);
        }
        next.is_some()
    }
}

/// What one loop says of one endpoint.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) inflight: Published,
    pub(crate) latency: Published,
    pub(crate) success: Published,
}

/// What every loop says of one endpoint; empty when nothing is exchanged.
pub(crate) type Pages = alloc::boxed::Box<[CachePadded<Entry>]>;

/// A mean as it is published: the value's `f32` bits above, the number of samples so far below
/// (modulo 2^32).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct News {
    pub(crate) value: f32,
    pub(crate) samples: u32,
}

impl News {
    pub(crate) fn from_bits(bits: u64) -> News {
        News {
            value: f32::from_bits((bits >> 32) as u32),
            samples: bits as u32,
        }
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.value.to_bits()) << 32 | u64::from(self.samples)
    }
}

/// Says `value` after one more sample.
pub(crate) fn publish(cell: &Published, value: f32) {
    cell.update(|bits| {
        let samples = News::from_bits(bits).samples.wrapping_add(1);
        Some(News { value, samples }.to_bits())
    });
}

/// The mean of the loops' values, each weighted by its samples since `seen`, which is brought up to
/// date. `None` when no loop but `own` has news: then its value stands as it is.
pub(crate) fn fold(
    published: impl Iterator<Item = News>,
    seen: &mut [u32],
    own: usize,
) -> Option<f32> {
    let (mut sum, mut weight) = (0.0f64, 0.0f64);
    let mut others_have_news = false;
    for (index, (news, seen)) in published.zip(seen).enumerate() {
        let new = news.samples.wrapping_sub(*seen);
        *seen = news.samples;
        if new > 0 {
            sum += f64::from(new) * f64::from(news.value);
            weight += f64::from(new);
            others_have_news |= index != own;
        }
    }
    others_have_news.then(|| (sum / weight) as f32)
}

/// When the next fold is due.
pub(crate) struct Turn {
    interval: Interval,
    next: Instant,
    latencies: Vec<f32>,
}

impl Turn {
    pub(crate) fn new(interval: Interval, endpoints: u32, now: Instant) -> Self {
        Turn {
            interval,
            next: now,
            latencies: Vec::with_capacity(endpoints as usize),
        }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// A fold is done; `latencies_ns` are those of the endpoints that have samples.
    pub(crate) fn done(&mut self, latencies_ns: impl Iterator<Item = f32>, now: Instant) {
        self.latencies.clear();
        self.latencies.extend(latencies_ns);
        let median_ns = lower_median(&mut self.latencies);
        self.next = now + self.interval.length(median_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fold_weighs_by_new_samples_and_the_silent_have_no_say() {
        let news = |value, samples| News { value, samples };
        let mut seen = [0, 0, 7];
        let published = [news(10.0, 1), news(40.0, 3), news(1e9, 7)];
        let folded = fold(published.into_iter(), &mut seen, 0);
        assert_eq!(folded, Some(32.5));
        assert_eq!(seen, [1, 3, 7]);
        assert_eq!(fold(published.into_iter(), &mut seen, 0), None);
    }

    #[test]
    fn own_news_alone_change_nothing() {
        let published = [News {
            value: 5.0,
            samples: 9,
        }];
        assert_eq!(fold(published.into_iter(), &mut [0], 0), None);
    }

    #[test]
    fn the_count_may_wrap() {
        let cell = Published::default();
        let word = News {
            value: 1.0,
            samples: u32::MAX,
        };
        cell.update(|_| Some(word.to_bits()));
        publish(&cell, 2.0);
        let news = News::from_bits(Word::load(&cell));
        assert_eq!((news.value, news.samples), (2.0, 0));
        let others = [news, news];
        assert_eq!(
            fold(others.into_iter(), &mut [u32::MAX, u32::MAX], 0),
            Some(2.0)
        );
    }

    #[test]
    fn the_automatic_interval_is_half_the_median_within_its_limits() {
        let at = |median_ns| Interval::Auto.length(median_ns);
        assert_eq!(at(Some(5e6)), Duration::from_micros(2_500));
        assert_eq!(at(None), AUTO_LEAST);
        assert_eq!(at(Some(1e9)), AUTO_MOST);
    }
}
