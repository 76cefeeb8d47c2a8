//! The endpoints a pick may choose, and fair draws among them.

use alloc::vec::Vec;

use evenkeel_base::Rng;

use crate::endpoint::EndpointId;
use crate::outlier::Outlier;

pub(super) struct Candidates {
    ids: Vec<EndpointId>,
    /// Running sum of weights, one per id; the last is the total.
    sums: Vec<u64>,
    is_uniform: bool,
    /// Of the outlier detector, when the list was made.
    revision: Option<u64>,
}

impl Candidates {
    pub(super) fn new(endpoints: usize) -> Self {
        Candidates {
            ids: Vec::with_capacity(endpoints),
            sums: Vec::with_capacity(endpoints),
            is_uniform: true,
            revision: None,
        }
    }

    /// Makes the list anew when an endpoint was ejected, came back or began its probe.
    pub(super) fn refresh(&mut self, weights: &[u32], outlier: &Outlier) {
        if self.revision == Some(outlier.revision()) {
            return;
        }
        self.revision = Some(outlier.revision());
        self.ids.clear();
        self.sums.clear();
        self.is_uniform = true;
        let mut sum = 0;
        for (index, weight) in weights.iter().enumerate() {
            let id = EndpointId(index as u32);
            if outlier.admits(id) {
                self.is_uniform &= self
                    .ids
                    .first()
                    .is_none_or(|f| weights[f.index()] == *weight);
                sum += u64::from(*weight);
                self.ids.push(id);
                self.sums.push(sum);
            }
        }
    }

    pub(super) fn ids(&self) -> &[EndpointId] {
        &self.ids
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// All weights are equal.
    pub(super) fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// One endpoint, with probability in proportion to its weight. The list is not empty.
    pub(super) fn draw(&self, rng: &mut Rng) -> EndpointId {
        if self.is_uniform {
            return self.ids[rng.below(self.ids.len() as u64) as usize];
        }
        self.ids[self.holder(rng.below(self.total()))]
    }

    /// Two distinct endpoints, the second by weight among the others; `None` when there are fewer.
    pub(super) fn draw_two(&self, rng: &mut Rng) -> Option<(EndpointId, EndpointId)> {
        let count = self.ids.len() as u64;
        if count < 2 {
            return None;
        }
        let (first, second) = if self.is_uniform {
            let first = rng.below(count);
            let second = rng.below(count - 1);
            // Skips over the first, so that every other one is as likely.
            (
                first as usize,
                (second + u64::from(second >= first)) as usize,
            )
        } else {
            let first = self.holder(rng.below(self.total()));
            let start = if first == 0 { 0 } else { self.sums[first - 1] };
            let width = self.sums[first] - start;
            let ticket = rng.below(self.total() - width);
            let skip = if ticket >= start { width } else { 0 };
            (first, self.holder(ticket + skip))
        };
        Some((self.ids[first], self.ids[second]))
    }

    /// Fills `drawn` with distinct endpoints, each next one by weight among those that are left; gives
    /// how many there are. The list is not empty.
    pub(super) fn draw_some(&self, drawn: &mut [EndpointId], rng: &mut Rng) -> usize {
        const TRIES: usize = 64;
        let wanted = drawn.len().min(self.ids.len());
        let mut count = 0;
        let draws = (0..TRIES).map(|_| self.draw(rng));
        // One weight far above the others may be drawn again and again: the list itself comes last.
        for id in draws.chain(self.ids.iter().copied()) {
            if count == wanted {
                break;
            }
            if !drawn[..count].contains(&id) {
                drawn[count] = id;
                count += 1;
            }
        }
        count
    }

    fn total(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }

    /// Position of the id whose interval of the running sum holds `ticket`.
    fn holder(&self, ticket: u64) -> usize {
        self.sums.partition_point(|sum| *sum <= ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_draws_are_distinct_and_as_many_as_there_are() {
        let mut candidates = Candidates::new(4);
        let outlier = Outlier::new(&crate::outlier::Config::default(), 4, 1, 0);
        candidates.refresh(&[1, 1, 5, 1], &outlier);
        let mut rng = Rng::stream(1, 1);
        for wanted in 1..=6 {
            let mut drawn = [EndpointId(0); 6];
            let count = candidates.draw_some(&mut drawn[..wanted], &mut rng);
            assert_eq!(count, wanted.min(4));
            let mut ids: Vec<u32> = drawn[..count].iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count);
        }
    }
    use alloc::vec;

    fn candidates(weights: &[u32]) -> Candidates {
        let outlier = Outlier::new(&Default::default(), weights.len() as u32, 1, 0);
        let mut candidates = Candidates::new(weights.len());
        candidates.refresh(weights, &outlier);
        candidates
    }

    #[test]
    fn draws_follow_the_weights() {
        let candidates = candidates(&[1, 2, 5]);
        let mut rng = Rng::new(1);
        let mut hits = [0u32; 3];
        for _ in 0..80_000 {
            hits[candidates.draw(&mut rng).index()] += 1;
        }
        for (hits, weight) in hits.into_iter().zip([1, 2, 5]) {
            assert!(hits.abs_diff(weight * 10_000) < 400, "{hits} for {weight}");
        }
    }

    #[test]
    fn two_draws_are_distinct_and_every_pair_occurs_as_often_as_it_should() {
        for weights in [vec![1, 1, 1, 1], vec![3, 1, 1, 1]] {
            let candidates = candidates(&weights);
            let total: u32 = weights.iter().sum();
            let mut rng = Rng::new(2);
            let mut pairs = [[0u32; 4]; 4];
            for _ in 0..120_000 {
                let (a, b) = candidates.draw_two(&mut rng).unwrap();
                pairs[a.index()][b.index()] += 1;
            }
            for a in 0..4 {
                assert_eq!(pairs[a][a], 0);
                for b in (0..4).filter(|b| *b != a) {
                    let expected = 120_000.0 * f64::from(weights[a]) / f64::from(total)
                        * f64::from(weights[b])
                        / f64::from(total - weights[a]);
                    let off = (f64::from(pairs[a][b]) - expected).abs();
                    assert!(
                        off < 0.05 * expected,
                        "{a},{b}: {} for {expected}",
                        pairs[a][b]
                    );
                }
            }
        }
    }

    #[test]
    fn one_candidate_has_no_pair() {
        let candidates = candidates(&[7]);
        assert_eq!(candidates.draw_two(&mut Rng::new(3)), None);
        assert_eq!(candidates.draw(&mut Rng::new(3)), EndpointId(0));
    }
}
