//! HdrHistogram's interval log, format 1.3: a line for each histogram of each interval.
//!
//! ```text
//! #[Histogram log format version 1.3]
//! #[StartTime: 1700000000.000 (seconds since epoch), Tue Nov 14 22:13:20 UTC 2023]
//! "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
//! Tag=lat,0.000,1.000,17.301,HISTFAAAA...
//! ```
//!
//! Times are seconds with three decimals, relative to StartTime. Interval_Max is in milliseconds: the
//! histograms hold nanoseconds. The payload is the compressed V2 encoding in base64, by the hdrhistogram
//! crate; that crate's own log writer knows neither the version line nor the legend.

mod read;

use std::io::{self, Write};
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_base::Duration;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::client::{LIMIT, Seconds, histogram};

pub use read::{Interval, LogError, MAX_INTERVALS, MAX_LINE, Reader};

const VERSION: &str = "#[Histogram log format version 1.3]";
const LEGEND: &str =
    r#""StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram""#;

/// Writes a log line by line.
pub struct Writer<W> {
    out: W,
    serializer: V2DeflateSerializer,
    payload: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a log; `start` is in milliseconds since 1970.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(mut out: W, start_ms: u64) -> io::Result<Writer<W>> {
        writeln!(out, "{VERSION}")?;
        writeln!(
            out,
            "#[StartTime: {} (seconds since epoch), {}]",
            seconds(start_ms),
            date(start_ms / 1000)
        )?;
        writeln!(out, "{LEGEND}")?;
        Ok(Writer {
            out,
            serializer: V2DeflateSerializer::new(),
            payload: Vec::new(),
        })
    }

    /// One interval of nanoseconds; `start_ms` counts from the log's start.
    ///
    /// # Errors
    /// When the log cannot be written, or a count is beyond `i64`.
    pub fn interval(
        &mut self,
        tag: &str,
        start_ms: u64,
        length_ms: u64,
        times: &Histogram<u64>,
    ) -> io::Result<()> {
        self.payload.clear();
        self.serializer
            .serialize(times, &mut self.payload)
            .map_err(io::Error::other)?;
        let payload = STANDARD.encode(&self.payload);
        let max = format!("{:.3}", times.max() as f64 / 1e6);
        self.line(tag, start_ms, length_ms, &max, &payload)
    }

    /// An interval whose payload is encoded already.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn line(
        &mut self,
        tag: &str,
        start_ms: u64,
        length_ms: u64,
        max: &str,
        payload: &str,
    ) -> io::Result<()> {
        if !tag.is_empty() {
            write!(self.out, "Tag={tag},")?;
        }
        let (start, length) = (seconds(start_ms), seconds(length_ms));
        writeln!(self.out, "{start},{length},{max},{payload}")
    }

    /// # Errors
    /// When the last lines cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a run's seconds, an interval for each tag that has times in it.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(
    out: impl Write,
    start: SystemTime,
    length: Duration,
    record: &Seconds,
) -> io::Result<()> {
    let since = start.duration_since(UNIX_EPOCH);
    let start_ms = since.unwrap_or(StdDuration::ZERO).as_millis() as u64;
    let mut writer = Writer::new(out, start_ms)?;
    let mut times = histogram();
    for second in 0..record.len() {
        let begin = second as u64 * 1000;
        let left = (length.as_nanos() / 1_000_000).saturating_sub(begin);
        // The last second of a day stands for all that follows it.
        let span = if second + 1 == LIMIT {
            left.max(1)
        } else {
            left.clamp(1, 1000)
        };
        for tag in record.tags() {
            record.fill(second, tag, &mut times);
            if !times.is_empty() {
                writer.interval(&tag.name(), begin, span, &times)?;
            }
        }
    }
    writer.finish()
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// The day as Java prints it, in UTC (days to civil date: Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date(unix: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (unix / 86_400, unix % 86_400);
    // Years begin in March, so that the odd day is the last one.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(951_827_696), "Tue Feb 29 12:34:56 UTC 2000");
        assert_eq!(date(1_700_000_000), "Tue Nov 14 22:13:20 UTC 2023");
    }

    #[test]
    fn a_line_has_its_tag_times_and_a_maximum_in_milliseconds() {
        let mut times = histogram();
        times.record(2_000_000).unwrap();
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 1_700_000_000_123).unwrap();
        writer.interval("lat", 61_005, 1000, &times).unwrap();
        writer.interval("", 0, 500, &times).unwrap();
        writer.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "#[Histogram log format version 1.3]");
        assert!(lines[1].starts_with("#[StartTime: 1700000000.123 (seconds since epoch), Tue Nov"));
        assert!(lines[3].starts_with("Tag=lat,61.005,1.000,2.001,HISTF"));
        assert!(lines[4].starts_with("0.000,0.500,2.001,HISTF"));
    }
}
