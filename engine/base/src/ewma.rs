//! A decaying mean packed into one 64-bit word, so that a cell or an atomic can hold it whole.
//!
//! `v' = v + w (x - v)`. The weight `w` of a sample is either a constant per sample ([`Alpha`]) or
//! follows the time since the previous sample ([`Decay`]): `w = max(1 - exp(-dt / tau), floor)`.
//! The time term says how old evidence may grow; the floor says how little one sample may count,
//! however dense the traffic. Without a floor a mean over `tau` of dense traffic needs a good part
//! of `tau` to notice a change; with a floor of 1 on rises it is the peak EWMA of Finagle,
//! linkerd and tower, which forgets the mean and keeps the tail. Rise and fall have their own
//! floors; docs/policies/balancer.md compares them.
//!
//! Layout: the value's `f32` bits above, a stamp of the last sample below. The stamp counts units
//! of 2^14 ns (16.4 us) and wraps every 2^32 units, 19.5 hours. A mean that nobody fed for a
//! multiple of 19.5 hours looks freshly fed, so that the next sample gets its floor and no more;
//! no other consequence. Stamps up to a second ahead of `now` (another loop's clock reading) count
//! as zero time passed.

use crate::time::{Duration, Instant};

/// One stamp unit is `2^UNIT_SHIFT` ns.
const UNIT_SHIFT: u32 = 14;
const UNIT_NS: f32 = (1u32 << UNIT_SHIFT) as f32;
/// Differences in the last second before the wrap are a stamp from ahead, not 19.5 hours.
const AHEAD: u32 = u32::MAX - (1_000_000_000u64 >> UNIT_SHIFT) as u32;

/// A mean and the time of its last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ewma(u64);

impl Ewma {
    /// No sample yet. (Its value's bits are a NaN.)
    pub const EMPTY: Ewma = Ewma(u64::MAX);

    /// A mean of exactly `value`, sampled at `now`. NaN makes it empty.
    #[must_use]
    pub fn new(value: f32, now: Instant) -> Self {
        if value.is_nan() {
            return Ewma::EMPTY;
        }
        Ewma(u64::from(value.to_bits()) << 32 | u64::from(stamp(now)))
    }

    /// Reads back what [`Ewma::to_bits`] gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Ewma(bits)
    }

    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The mean, `None` before the first sample.
    #[must_use]
    pub fn value(self) -> Option<f32> {
        let value = f32::from_bits((self.0 >> 32) as u32);
        if value.is_nan() { None } else { Some(value) }
    }

    /// Time since the last sample, to 16.4 us and modulo 19.5 hours; [`Duration::MAX`] when empty.
    #[must_use]
    pub fn age(self, now: Instant) -> Duration {
        match self.value() {
            None => Duration::MAX,
            Some(_) => Duration::from_nanos(u64::from(self.elapsed(now)) << UNIT_SHIFT),
        }
    }

    /// Units since the last sample; zero for a stamp up to a second ahead.
    fn elapsed(self, now: Instant) -> u32 {
        let units = stamp(now).wrapping_sub(self.0 as u32);
        if units > AHEAD { 0 } else { units }
    }

    /// The mean after one more sample of weight `w`; the first sample is taken whole.
    fn fold(self, sample: f32, w: f32, now: Instant) -> Ewma {
        match self.value() {
            Some(value) => Ewma::new(value + w * (sample - value), now),
            None => Ewma::new(sample, now),
        }
    }
}

fn stamp(now: Instant) -> u32 {
    (now.as_nanos() >> UNIT_SHIFT) as u32
}

/// Weights by time, with floors per sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// Time constant. Zero: every sample replaces the mean.
    pub tau: Duration,
    /// Least weight of a sample above the mean, 0..=1.
    pub rise: f32,
    /// Least weight of a sample below the mean, 0..=1.
    pub fall: f32,
}

impl Decay {
    fn weight(self, mean: Ewma, sample: f32, now: Instant) -> f32 {
        let tau = self.tau.as_nanos() as f32;
        let floor = match mean.value() {
            Some(value) if sample > value => self.rise,
            _ => self.fall,
        };
        if tau == 0.0 {
            return 1.0;
        }
        let dt = mean.elapsed(now) as f32 * UNIT_NS;
        (1.0 - libm::expf(-dt / tau)).max(floor)
    }
}

/// The same weight for every sample, 0 < alpha <= 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alpha(pub f32);

/// How samples are weighted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighting {
    Decay(Decay),
    Alpha(Alpha),
}

impl Weighting {
    /// The mean after `sample`. A NaN sample changes nothing.
    #[must_use]
    pub fn fold(self, mean: Ewma, sample: f32, now: Instant) -> Ewma {
        self.fold_at_least(mean, sample, 0.0, now)
    }

    /// The mean after a `sample` that weighs at least `floor`: for a sample known to be worth more
    /// than its neighbours, such as the first look at an endpoint after a long while.
    #[must_use]
    pub fn fold_at_least(self, mean: Ewma, sample: f32, floor: f32, now: Instant) -> Ewma {
        if sample.is_nan() {
            return mean;
        }
        let w = match self {
            Weighting::Decay(decay) => decay.weight(mean, sample, now),
            Weighting::Alpha(Alpha(alpha)) => alpha,
        };
        mean.fold(sample, w.max(floor).min(1.0), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_millis(2_500);
    const PLAIN: Weighting = Weighting::Decay(Decay {
        tau: TAU,
        rise: 0.0,
        fall: 0.0,
    });

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn empty_has_no_value_and_the_first_sample_is_taken_whole() {
        assert_eq!(Ewma::EMPTY.value(), None);
        assert_eq!(Ewma::EMPTY.age(at(5)), Duration::MAX);
        let mean = PLAIN.fold(Ewma::EMPTY, 7.0, at(1_000));
        assert_eq!(mean.value(), Some(7.0));
        assert_eq!(Ewma::from_bits(mean.to_bits()), mean);
    }

    #[test]
    fn one_time_constant_closes_63_percent_of_the_gap_however_it_is_cut() {
        let start = Ewma::new(100.0, at(0));
        let once = PLAIN.fold(start, 0.0, at(2_500)).value().unwrap();
        let mut many = start;
        for step in 1..=250 {
            many = PLAIN.fold(many, 0.0, at(step * 10));
        }
        assert!((once - 36.79).abs() < 0.1, "{once}");
        assert!((many.value().unwrap() - once).abs() < 0.5, "{many:?}");
    }

    #[test]
    fn floors_hold_where_time_stands_still() {
        let floors = Weighting::Decay(Decay {
            tau: TAU,
            rise: 0.5,
            fall: 0.25,
        });
        let mean = Ewma::new(8.0, at(3));
        assert_eq!(floors.fold(mean, 16.0, at(3)).value(), Some(12.0));
        assert_eq!(floors.fold(mean, 4.0, at(3)).value(), Some(7.0));
        assert_eq!(PLAIN.fold(mean, 16.0, at(3)).value(), Some(8.0));
        assert_eq!(
            PLAIN.fold_at_least(mean, 16.0, 0.5, at(3)).value(),
            Some(12.0)
        );
    }

    #[test]
    fn a_stamp_from_ahead_is_zero_time_and_a_wrap_is_survived() {
        let ahead = Ewma::new(1.0, at(900));
        assert_eq!(ahead.age(at(100)), Duration::ZERO);
        assert_eq!(PLAIN.fold(ahead, 9.0, at(100)).value(), Some(1.0));
        let before_wrap = Instant::from_nanos((u64::from(u32::MAX) << UNIT_SHIFT) - 5);
        let mean = Ewma::new(1.0, before_wrap);
        let age = mean.age(before_wrap + Duration::from_secs(2));
        assert!(
            age.as_nanos().abs_diff(2_000_000_000) < 1 << 15,
            "{age} after two seconds across the wrap"
        );
    }

    #[test]
    fn alpha_ignores_time_and_nan_changes_nothing() {
        let alpha = Weighting::Alpha(Alpha(0.2));
        let mean = Ewma::new(10.0, at(0));
        assert_eq!(alpha.fold(mean, 20.0, at(0)).value(), Some(12.0));
        assert_eq!(alpha.fold(mean, 20.0, at(60_000)).value(), Some(12.0));
        assert_eq!(alpha.fold(mean, f32::NAN, at(9)), mean);
        assert_eq!(Ewma::new(f32::NAN, at(0)), Ewma::EMPTY);
    }
}
