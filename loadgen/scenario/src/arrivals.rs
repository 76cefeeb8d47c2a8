//! When requests are meant to start: decided before anything is sent, whatever the target does.

use std::sync::Arc;

use evenkeel_base::{Duration, Instant, Rng};

/// The law of the gaps. All but the first and the last are Poisson streams with a rate of their own
/// at every time.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    Constant,
    Poisson,
    /// The full rate for `on`, then `off_rate` for `off`, over and over.
    Bursts {
        on: Duration,
        off: Duration,
        off_rate: f64,
    },
    /// Another rate from `at` on.
    Step {
        at: Duration,
        to: f64,
    },
    /// From the full rate at `from` to another at `until`, in a straight line; flat before and after.
    Ramp {
        from: Duration,
        until: Duration,
        to: f64,
    },
    /// These offsets, in order, once; the rate says nothing then.
    Replay(Arc<[Duration]>),
}

/// The intended starts of one thread, as offsets from the start of the run.
///
/// The threads of a run interleave: constant and replayed arrivals take turns, Poisson ones are
/// independent streams whose sum is Poisson again.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Of constant and replayed arrivals: the next request of the run, and the step to this thread's
    /// next one.
    next_index: u64,
    step: u64,
    source: Source,
    end: Duration,
    rng: Rng,
}

#[derive(Clone, Debug)]
enum Source {
    /// Requests a second in all.
    Constant(f64),
    /// Requests a second of this thread, and the time of the last one in seconds.
    Poisson {
        rate: f64,
        at: f64,
    },
    Shaped(Shape),
    Replay(Arc<[Duration]>),
}

/// A Poisson stream whose rate is a straight line in each of some stretches of time.
///
/// A stream of rate one is stretched by the inverse of the expected number of arrivals (the time
/// change of Cox and Lewis): exact, and without rejection.
#[derive(Clone, Debug)]
struct Shape {
    /// Stretches that are left, the next one last.
    stretches: Vec<Stretch>,
    /// Expected arrivals from the start of the next stretch to the last arrival.
    done: f64,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: f64,
    length: f64,
    /// Requests a second at its start and at its end.
    first: f64,
    last: f64,
}

impl Stretch {
    fn arrivals(self) -> f64 {
        self.length * (self.first + self.last) / 2.0
    }

    /// The time at which so many arrivals are expected.
    fn time_of(self, arrivals: f64) -> f64 {
        let slope = (self.last - self.first) / self.length;
        // From first t + slope t^2 / 2 = arrivals, in the form that does not cancel.
        let root = libm::sqrt((self.first * self.first + 2.0 * slope * arrivals).max(0.0));
        self.from + 2.0 * arrivals / (self.first + root)
    }
}

impl Shape {
    fn new(process: &Process, rate: f64, length: Duration, threads: f64) -> Shape {
        let end = length.as_secs_f64();
        let mut stretches = Vec::new();
        let mut at = 0.0;
        let mut add = |until: f64, first: f64, last: f64| {
            let until = until.min(end);
            if until > at {
                stretches.push(Stretch {
                    from: at,
                    length: until - at,
                    first: first / threads,
                    last: last / threads,
                });
                at = until;
            }
            at < end
        };
        match *process {
            Process::Bursts { on, off, off_rate } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                let mut start = 0.0;
                while add(start + on, rate, rate) && add(start + on + off, off_rate, off_rate) {
                    start += on + off;
                }
            }
            Process::Step { at, to } => {
                add(at.as_secs_f64(), rate, rate);
                add(end, to, to);
            }
            Process::Ramp { from, until, to } => {
                let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
                add(from, rate, rate);
                // One that is cut by the end ends where its line is then.
                let cut = rate + (to - rate) * ((end.min(until) - from) / (until - from));
                add(until, rate, cut);
                add(end, to, to);
            }
            Process::Constant | Process::Poisson | Process::Replay(_) => {
                add(end, rate, rate);
            }
        }
        stretches.reverse();
        Shape {
            stretches,
            done: 0.0,
        }
    }

    fn next(&mut self, rng: &mut Rng) -> Option<f64> {
        self.done += rng.exponential(1.0);
        loop {
            let stretch = *self.stretches.last()?;
            if self.done < stretch.arrivals() {
                return Some(stretch.time_of(self.done));
            }
            self.done -= stretch.arrivals();
            self.stretches.pop();
        }
    }
}

impl Arrivals {
    /// Thread `thread` of `threads`, with `rate` requests a second in all, for `length`.
    #[must_use]
    pub fn new(
        process: &Process,
        rate: f64,
        length: Duration,
        thread: u32,
        threads: u32,
        seed: u64,
    ) -> Arrivals {
        let threads = threads.max(1);
        let parts = f64::from(threads);
        Arrivals {
            next_index: u64::from(thread),
            step: u64::from(threads),
            source: match process {
                Process::Constant => Source::Constant(rate),
                Process::Poisson => Source::Poisson {
                    rate: rate / parts,
                    at: 0.0,
                },
                Process::Replay(offsets) => Source::Replay(Arc::clone(offsets)),
                shaped => Source::Shaped(Shape::new(shaped, rate, length, parts)),
            },
            end: length,
            rng: Rng::stream(seed, 0x6172_7269_7661_6c00 | u64::from(thread)),
        }
    }

    /// A number that two runs share exactly when all their intended starts are the same: FNV-1a over
    /// the offsets of every thread in turn.
    #[must_use]
    pub fn schedule_hash(
        process: &Process,
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
        let index = self.next_index;
        self.next_index += self.step;
        let offset = match &mut self.source {
            // From the index, not from the last: no drift however long the run.
            Source::Constant(rate) => Duration::from_secs_f64(index as f64 / *rate),
            Source::Poisson { rate, at } => {
                *at += self.rng.exponential(1.0 / *rate);
                Duration::from_secs_f64(*at)
            }
            Source::Shaped(shape) => Duration::from_secs_f64(shape.next(&mut self.rng)?),
            Source::Replay(offsets) => *offsets.get(index as usize)?,
        };
        (offset < self.end).then_some(offset)
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
            .flat_map(|thread| Arrivals::new(&Process::Constant, 1000.0, length, thread, 3, 1))
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
        let offsets: Vec<f64> = Arrivals::new(&Process::Poisson, 500.0, length, 0, 1, 7)
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
            Arrivals::schedule_hash(&Process::Poisson, rate, Duration::from_secs(1), 2, seed)
        };
        assert_eq!(hash(1, 100.0), hash(1, 100.0));
        assert_ne!(hash(1, 100.0), hash(2, 100.0));
        assert_ne!(hash(1, 100.0), hash(1, 101.0));
    }

    fn count(process: &Process, length_s: u64, from_s: f64, until_s: f64) -> f64 {
        let seeds = 20;
        let inside = |seed| {
            Arrivals::new(process, 500.0, Duration::from_secs(length_s), 0, 1, seed)
                .map(Duration::as_secs_f64)
                .filter(|at| (from_s..until_s).contains(at))
                .count()
        };
        (0..seeds).map(inside).sum::<usize>() as f64 / seeds as f64
    }

    #[test]
    fn shaped_rates_are_what_they_say_at_their_times() {
        let s = Duration::from_secs;
        let step = Process::Step {
            at: s(4),
            to: 1500.0,
        };
        let near = |seen: f64, wanted: f64| {
            // Twenty seeds: five standard deviations of a Poisson count.
            let slack = 5.0 * (wanted / 20.0).sqrt();
            assert!((seen - wanted).abs() < slack, "{seen}, not {wanted}");
        };
        near(count(&step, 10, 0.0, 4.0), 2000.0);
        near(count(&step, 10, 4.0, 10.0), 9000.0);
        let bursts = Process::Bursts {
            on: s(1),
            off: s(3),
            off_rate: 100.0,
        };
        near(count(&bursts, 10, 4.0, 5.0), 500.0);
        near(count(&bursts, 10, 5.0, 8.0), 300.0);
        let ramp = Process::Ramp {
            from: s(2),
            until: s(12),
            to: 1500.0,
        };
        near(count(&ramp, 20, 0.0, 2.0), 1000.0);
        near(count(&ramp, 20, 2.0, 7.0), 3750.0);
        near(count(&ramp, 20, 12.0, 20.0), 12000.0);
        // Cut by the end of the run, a ramp is the same ramp.
        near(count(&ramp, 7, 2.0, 7.0), 3750.0);
    }

    #[test]
    fn every_process_is_in_order_and_its_threads_add_up() {
        let s = Duration::from_secs;
        let replay: Arc<[Duration]> = (0..900).map(|n| Duration::from_millis(n * 10)).collect();
        for process in [
            Process::Constant,
            Process::Poisson,
            Process::Step { at: s(1), to: 50.0 },
            Process::Bursts {
                on: s(1),
                off: s(1),
                off_rate: 0.0,
            },
            Process::Replay(Arc::clone(&replay)),
        ] {
            let thread = |thread, threads| {
                let all = Arrivals::new(&process, 300.0, s(10), thread, threads, 3);
                let all: Vec<Duration> = all.collect();
                assert!(all.is_sorted(), "{process:?}");
                assert!(all.iter().all(|at| *at < s(10)));
                all.len() as f64
            };
            let (whole, parts) = (thread(0, 1), (0..4).map(|at| thread(at, 4)).sum::<f64>());
            assert!(
                (whole - parts).abs() < 0.1 * whole,
                "{process:?}: {whole}, {parts}"
            );
        }
        let one: Vec<Duration> =
            Arrivals::new(&Process::Replay(Arc::clone(&replay)), 1.0, s(100), 0, 1, 1).collect();
        assert_eq!(one[..], replay[..]);
    }
}
