//! When requests are meant to start: decided before anything is sent, whatever the target does.

use evenkeel_base::{Duration, Instant, Rng};

/// The law of the gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Constant,
    Poisson,
}

/// The intended starts of one thread, as offsets from the start of the run.
///
/// The threads of a run interleave: constant arrivals take turns, Poisson ones are independent streams
/// whose sum is Poisson again.
#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Process,
    /// Requests a second of this thread.
    rate: f64,
    /// Of a constant process: this thread's first request and the step, in requests of the run.
    next_index: u64,
    step: u64,
    total_rate: f64,
    at: f64,
    end: Duration,
    rng: Rng,
}

impl Arrivals {
    /// Thread `thread` of `threads`, with `rate` requests a second in all, for `length`.
    #[must_use]
    pub fn new(
        process: Process,
        rate: f64,
        length: Duration,
        thread: u32,
        threads: u32,
        seed: u64,
    ) -> Arrivals {
        Arrivals {
            process,
            rate: rate / f64::from(threads.max(1)),
            next_index: u64::from(thread),
            step: u64::from(threads.max(1)),
            total_rate: rate,
            at: 0.0,
            end: length,
            rng: Rng::stream(seed, 0x6172_7269_7661_6c00 | u64::from(thread)),
        }
    }

    /// A number that two runs share exactly when all their intended starts are the same: FNV-1a over
    /// the offsets of every thread in turn.
    #[must_use]
    pub fn schedule_hash(
        process: Process,
        rate: f64,
        length: Duration,
        threads: u32,
        seed: u64,
    ) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for thread in 0..threads {
            for offset in Arrivals::new(process, rate, length, thread, threads, seed) {
                for byte in offset.as_nanos().to_le_bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        hash
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let offset = match self.process {
            // From the index, not from the last: no drift however long the run.
            Process::Constant => {
                let offset = self.next_index as f64 / self.total_rate;
                self.next_index += self.step;
                offset
            }
            Process::Poisson => {
                self.at += self.rng.exponential(1.0 / self.rate);
                self.at
            }
        };
        let offset = Duration::from_secs_f64(offset);
        if offset >= self.end {
            None
        } else {
            Some(offset)
        }
    }
}

/// The intended start as a time.
#[must_use]
pub fn at(start: Instant, offset: Duration) -> Instant {
    start + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_threads_take_turns_without_drift() {
        let length = Duration::from_secs(2);
        let mut all: Vec<Duration> = (0..3)
            .flat_map(|thread| Arrivals::new(Process::Constant, 1000.0, length, thread, 3, 1))
            .collect();
        all.sort();
        assert_eq!(all.len(), 2000);
        for (index, offset) in all.iter().enumerate() {
            let exact = index as u64 * 1_000_000;
            assert!(offset.as_nanos().abs_diff(exact) <= 1, "{index}: {offset}");
        }
    }

    #[test]
    fn poisson_gaps_have_mean_and_spread_of_their_law() {
        let length = Duration::from_secs(200);
        let offsets: Vec<f64> = Arrivals::new(Process::Poisson, 500.0, length, 0, 1, 7)
            .map(Duration::as_secs_f64)
            .collect();
        let gaps: Vec<f64> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.002).abs() < 0.000_03, "{mean}");
        assert!(
            (square.sqrt() / mean - 1.0).abs() < 0.02,
            "coefficient of variation"
        );
    }

    #[test]
    fn the_hash_tells_schedules_apart_and_knows_the_same_again() {
        let hash = |seed, rate| {
            Arrivals::schedule_hash(Process::Poisson, rate, Duration::from_secs(1), 2, seed)
        };
        assert_eq!(hash(1, 100.0), hash(1, 100.0));
        assert_ne!(hash(1, 100.0), hash(2, 100.0));
        assert_ne!(hash(1, 100.0), hash(1, 101.0));
    }
}
