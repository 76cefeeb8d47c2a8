//! Seeded randomness: xoshiro256++ from `rand_xoshiro`, whose streams are stable across versions.
//!
//! Every consumer forks its own generator, so that one more draw in one place does not shift the
//! draws of another: a scenario with one more arrival keeps its service times.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator. The same seed gives the same draws on any machine.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent generator for a part of the work; takes one draw from this one.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// An independent generator named by `stream`, without a draw from this one's sequence:
    /// the same seed and stream always give the same generator.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Rng {
        Rng::new(mix(seed ^ mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; zero when `bound` is zero. Lemire's multiply-shift: the bias is below
    /// `bound / 2^64`, far under anything a run can see.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)` with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `p` (clamped to `[0, 1]`).
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponential with the given mean, by inversion.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - u is in (0, 1]: the logarithm is finite.
        -mean * libm::log(1.0 - self.unit())
    }

    /// Standard normal, Box-Muller (one of the pair; the second is not kept, so that the state of
    /// the generator is its seed and the number of draws, nothing else).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.unit())
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads nearby keys.
#[must_use]
pub const fn mix(key: u64) -> u64 {
    let z = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_draws_and_forks_are_apart() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        let (mut left, mut right) = (a.fork(), a.fork());
        assert_ne!(left.next_u64(), right.next_u64());
        assert_eq!(Rng::stream(1, 2).next_u64(), Rng::stream(1, 2).next_u64());
        assert_ne!(Rng::stream(1, 2).next_u64(), Rng::stream(2, 1).next_u64());
    }

    #[test]
    fn draws_have_the_moments_of_their_law() {
        let mut rng = Rng::new(11);
        let n = 200_000;
        let (mut unit, mut exp, mut normal, mut square) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..n {
            unit += rng.unit();
            exp += rng.exponential(5.0);
            let z = rng.normal();
            normal += z;
            square += z * z;
        }
        let n = f64::from(n);
        assert!((unit / n - 0.5).abs() < 0.005);
        assert!((exp / n - 5.0).abs() < 0.05);
        assert!((normal / n).abs() < 0.01);
        assert!((square / n - 1.0).abs() < 0.02);
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(3);
        let mut hits = [0u32; 5];
        for _ in 0..50_000 {
            hits[rng.below(5) as usize] += 1;
        }
        assert!(
            hits.iter().all(|&h| (9_600..10_400).contains(&h)),
            "{hits:?}"
        );
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
