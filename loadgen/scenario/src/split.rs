//! Which loop a request arrives at.

use evenkeel_base::Rng;

/// How requests spread over loops. The same request goes to the same loop in every run of a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// Each loop as likely.
    Uniform,
    /// The first half of the loops (rounded down, at least one) together get this share, evenly; the
    /// others the rest.
    Skewed(f64),
    /// Every request comes over one of so many connections, each of which belongs to a random loop.
    Connections(u32),
}

impl Split {
    #[must_use]
    pub fn loop_of(self, request: u64, loops: u32, seed: u64) -> u32 {
        if loops <= 1 {
            return 0;
        }
        let mut rng = Rng::stream(seed ^ 0x7370_6c69_7400, request);
        match self {
            Split::Uniform => rng.below(u64::from(loops)) as u32,
            Split::Skewed(share) => {
                let first = (loops / 2).max(1);
                if rng.unit() < share {
                    rng.below(u64::from(first)) as u32
                } else {
                    first + rng.below(u64::from(loops - first)) as u32
                }
            }
            Split::Connections(connections) => {
                let connection = rng.below(u64::from(connections.max(1)));
                let mut home = Rng::stream(seed ^ 0x686f_6d65_7300, connection);
                home.below(u64::from(loops)) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(split: Split, loops: u32) -> Vec<f64> {
        let mut counts = vec![0.0; loops as usize];
        for request in 0..40_000 {
            counts[split.loop_of(request, loops, 1) as usize] += 1.0 / 40_000.0;
        }
        counts
    }

    #[test]
    fn shares_are_what_they_say() {
        assert!(
            shares(Split::Uniform, 4)
                .iter()
                .all(|s| (s - 0.25).abs() < 0.01)
        );
        let skewed = shares(Split::Skewed(0.8), 4);
        assert!((skewed[0] + skewed[1] - 0.8).abs() < 0.01, "{skewed:?}");
        assert!((skewed[2] - 0.1).abs() < 0.01, "{skewed:?}");
        assert_eq!(Split::Skewed(0.5).loop_of(7, 1, 1), 0);
    }

    #[test]
    fn few_connections_are_uneven() {
        let shares = shares(Split::Connections(8), 8);
        assert!(shares.contains(&0.0), "{shares:?}");
        assert!(shares.iter().any(|share| *share > 0.2), "{shares:?}");
    }
}
