//! Several logs as one: counts add up tag by tag, and intervals keep their place in time.
//!
//! Quantiles do not add up; histograms do. What is kept for writing are the lines as they were read, so
//! that a merged log holds the same bytes as its sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::Path;

use hdrhistogram::Histogram;

use super::hlog::{Interval, LogError, MAX_INTERVALS, Reader, Writer};

/// Each has a dense histogram.
const MAX_TAGS: usize = 256;
const MAX_KEPT_BYTES: usize = 1 << 30;

/// Whether the single intervals are wanted beside the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervals {
    Kept,
    Dropped,
}

/// What went in so far.
pub struct Merge {
    sums: BTreeMap<String, Histogram<u64>>,
    lines: Vec<Line>,
    intervals: Intervals,
    count: usize,
    bytes: usize,
}

struct Line {
    tag: String,
    start_ms: u64,
    length_ms: u64,
    max: String,
    payload: String,
}

impl Merge {
    #[must_use]
    pub const fn new(intervals: Intervals) -> Merge {
        Merge {
            sums: BTreeMap::new(),
            lines: Vec::new(),
            intervals,
            count: 0,
            bytes: 0,
        }
    }

    /// Adds a whole log.
    ///
    /// # Errors
    /// When it cannot be read, or is too large together with what was added before; what it held up to that
    /// line is in the sums.
    pub fn add(&mut self, path: &Path) -> Result<(), LogError> {
        let name = path.display().to_string();
        let error = |line, fault: String| LogError {
            file: name.clone(),
            line,
            fault,
        };
        let file = File::open(path).map_err(|cause| error(1, format!("cannot open: {cause}")))?;
        let mut reader = Reader::new(BufReader::new(file), name.as_str())?;
        while let Some(interval) = reader.next_interval()? {
            let line = reader.line();
            self.add_interval(interval)
                .map_err(|fault| error(line, fault))?;
        }
        Ok(())
    }

    fn add_interval(&mut self, interval: Interval) -> Result<(), String> {
        self.count += 1;
        self.bytes += interval.payload.len();
        if self.count > MAX_INTERVALS {
            return Err(format!(
                "more than {MAX_INTERVALS} intervals; merge fewer logs"
            ));
        }
        let tags = self.sums.len();
        match self.sums.get_mut(&interval.tag) {
            Some(sum) => sum
                .add(&interval.histogram)
                .map_err(|cause| format!("cannot be added: {cause}; leave this log out"))?,
            None if tags == MAX_TAGS => {
                return Err(format!("more than {MAX_TAGS} tags; merge fewer logs"));
            }
            None => {
                let mut sum = interval.histogram;
                sum.auto(true);
                self.sums.insert(interval.tag.clone(), sum);
            }
        }
        if self.intervals == Intervals::Kept {
            if self.bytes > MAX_KEPT_BYTES {
                return Err("more than 1 GiB of intervals; merge fewer logs".into());
            }
            self.lines.push(Line {
                tag: interval.tag,
                start_ms: interval.start_ms,
                length_ms: interval.length_ms,
                max: interval.max,
                payload: interval.payload,
            });
        }
        Ok(())
    }

    /// The sum of all intervals of each tag; the tag is empty where a log has none.
    #[must_use]
    pub const fn sums(&self) -> &BTreeMap<String, Histogram<u64>> {
        &self.sums
    }

    /// Writes the kept intervals in order of time, those of the same time in order of the logs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, path: &Path) -> io::Result<()> {
        self.lines.sort_by_key(|line| line.start_ms);
        let begin = self.lines.first().map_or(0, |line| line.start_ms);
        let mut writer = Writer::new(BufWriter::new(File::create(path)?), begin)?;
        for line in &self.lines {
            let start = line.start_ms - begin;
            writer.line(&line.tag, start, line.length_ms, &line.max, &line.payload)?;
        }
        writer.finish()
    }

    /// A line for each tag, times in milliseconds.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        let widest = self.sums.keys().map(String::len).max().unwrap_or(0).max(6);
        let _ = writeln!(
            out,
            "{:<widest$} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "tag", "count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"
        );
        for (tag, sum) in &self.sums {
            let tag = if tag.is_empty() { "-" } else { tag };
            let _ = write!(out, "{tag:<widest$} {:>12}", sum.len());
            for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
                let _ = write!(
                    out,
                    " {:>12.3}",
                    sum.value_at_quantile(quantile) as f64 / 1e6
                );
            }
            out.push('\n');
        }
        out
    }
}
