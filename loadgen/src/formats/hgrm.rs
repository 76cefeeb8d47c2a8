//! A percentile distribution as text, in the dialect of HdrHistogram's Java `outputPercentileDistribution`.
//!
//! Columns `Value Percentile TotalCount 1/(1-Percentile)`, the value in milliseconds and the percentile as
//! a share of 1, five steps for every halving of what is left to 100 %.
//!
//! The steps are computed here and not by the hdrhistogram crate: it adds up shares of 1, where 0.1 three
//! times is above 0.3, and takes another bucket than Java, which adds up percents.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

const TICKS_PER_HALF_DISTANCE: u64 = 5;
const NS_PER_MS: f64 = 1e6;

/// One row of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The highest value of its bucket.
    pub value: u64,
    /// Above 0 and up to 100; the first row has 0.
    pub percentile: f64,
    /// Values up to and with this one.
    pub total: u64,
}

/// The rows of a distribution of nanoseconds; none for an empty histogram.
#[must_use]
pub fn rows(histogram: &Histogram<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut level, mut total) = (0.0, 0);
    for step in histogram.iter_recorded() {
        total += step.count_at_value();
        let value = histogram.highest_equivalent(step.value_iterated_to());
        while reached(total, histogram.len()) >= level {
            rows.push(Row {
                value,
                percentile: level,
                total,
            });
            level = next(level);
            // All are counted: the steps left would repeat this value up to the last row.
            if total >= histogram.len() {
                break;
            }
        }
    }
    if let Some(&last) = rows.last() {
        rows.push(Row {
            percentile: 100.0,
            ..last
        });
    }
    rows
}

fn reached(total: u64, of: u64) -> f64 {
    100.0 * total as f64 / of as f64
}

/// The step after `level`: the distance to 100 halves, and each half has the same number of steps.
fn next(level: f64) -> f64 {
    let halvings = ((100.0 / (100.0 - level)).ln() / 2_f64.ln()) as u32;
    let steps = TICKS_PER_HALF_DISTANCE << halvings.saturating_add(1).min(58);
    level + 100.0 / steps as f64
}

/// The distribution of a histogram of nanoseconds, in milliseconds.
#[must_use]
pub fn text(histogram: &Histogram<u64>) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for row in rows(histogram) {
        let value = row.value as f64 / NS_PER_MS;
        let share = row.percentile / 100.0;
        let _ = write!(out, "{value:12.3} {share:.12} {:10}", row.total);
        if row.percentile < 100.0 {
            let _ = write!(out, " {:14.2}", 1.0 / (1.0 - share));
        }
        out.push('\n');
    }
    out.push_str(&footer(histogram));
    out
}

/// The three lines below the rows, which wrk2 prints, too.
pub(super) fn footer(histogram: &Histogram<u64>) -> String {
    format!(
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n\
         #[Max     = {:12.3}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]\n",
        histogram.mean() / NS_PER_MS,
        histogram.stdev() / NS_PER_MS,
        histogram.max() as f64 / NS_PER_MS,
        histogram.len(),
        histogram.buckets(),
        sub_buckets(histogram.sigfig()),
    )
}

/// The power of two that resolves units up to twice ten to the number of significant digits.
fn sub_buckets(digits: u8) -> u64 {
    (2 * 10_u64.pow(digits.into())).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::histogram;

    #[test]
    fn tenths_fall_on_the_value_that_reaches_them() {
        let mut times = histogram();
        (1..=10).for_each(|ms| times.record(ms * 1_000_000).unwrap());
        let rows = rows(&times);
        let at = |percentile: f64| {
            let row = rows.iter().find(|row| row.percentile == percentile);
            row.unwrap().total
        };
        assert_eq!((at(10.0), at(30.0), at(50.0)), (1, 3, 5));
    }

    #[test]
    fn nothing_recorded_gives_a_header_and_a_footer() {
        let text = text(&histogram());
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("Total count    =            0]"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn one_value_is_every_percentile() {
        let mut times = histogram();
        times.record_n(2_000_000, 1_000_000_000).unwrap();
        let rows = rows(&times);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].percentile, rows[1].percentile), (0.0, 100.0));
    }
}
