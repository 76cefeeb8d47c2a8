//! A median and how far it can be trusted.
//!
//! The interval is that of two order statistics: the true median lies between the k-th smallest and the
//! k-th largest of n values with probability `1 - 2 P(B < k)`, B binomial with n and one half, whatever
//! the distribution. k is the largest with 95 % or more; below six values there is none, and the
//! interval is from least to most with the coverage that this has.

/// Of at least one value.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

const CONFIDENCE: f64 = 0.95;

impl Summary {
    /// `None` without values.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let place = rank(count).checked_sub(1)?;
        let middle = values[count / 2];
        Some(Summary {
            median: if count % 2 == 1 {
                middle
            } else {
                f64::midpoint(values[count / 2 - 1], middle)
            },
            low: values[place],
            high: values[count - 1 - place],
        })
    }
}

/// k for so many values; zero for none.
fn rank(count: usize) -> usize {
    let least = usize::from(count > 0);
    let enough = |k: &usize| coverage_of(count, *k) >= CONFIDENCE;
    (1..=count / 2).take_while(enough).last().unwrap_or(least)
}

/// Probability that the interval of so many values has the true median.
#[must_use]
pub fn coverage(count: usize) -> f64 {
    coverage_of(count, rank(count))
}

fn coverage_of(count: usize, k: usize) -> f64 {
    // Terms of the binomial from the smallest on: each from the one before.
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for i in 0..k {
        below += term;
        term *= (count - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Summary {
        Summary::of(values.iter().copied()).expect("there are values")
    }

    #[test]
    fn ten_values_give_the_second_from_either_end() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let summary = of(&values);
        assert_eq!((summary.low, summary.median, summary.high), (2.0, 5.5, 9.0));
        assert!((coverage(10) - (1.0 - 22.0 / 1024.0)).abs() < 1e-12);
    }

    #[test]
    fn few_values_give_least_and_most_and_say_what_that_covers() {
        let summary = of(&[3.0, 1.0, 2.0]);
        assert_eq!((summary.low, summary.median, summary.high), (1.0, 2.0, 3.0));
        assert!((coverage(3) - 0.75).abs() < 1e-12);
        assert!(coverage(5) < 0.95 && coverage(6) > 0.95);
        assert_eq!((of(&[4.0]).low, coverage(1)), (4.0, 0.0));
    }

    #[test]
    fn without_values_there_is_no_summary() {
        assert!(Summary::of(std::iter::empty()).is_none());
    }
}
