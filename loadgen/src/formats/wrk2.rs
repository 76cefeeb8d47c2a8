//! The report of wrk2 with `--latency`, for scripts that read it.
//!
//! Where the two tools differ, the layout is wrk2's and the meaning is ours: the distribution holds every
//! request, a failed one at its age; `Req/Sec` is by second of the intended start; a request that was not
//! over at the end is a timeout. Bytes are not counted, so `read` and `Transfer/sec` are left out.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::hgrm::{self, rows};
use crate::client::{Class, Record};
use crate::measurement::Description;

/// The report of a run.
#[must_use]
pub fn text(description: &Description, record: &Record) -> String {
    let d = description;
    let seconds = d.duration_ns as f64 / 1e9;
    let mut out = String::new();
    let _ = writeln!(out, "Running {} test @ {}", length(seconds), d.target);
    let _ = writeln!(
        out,
        "  {} threads and {} connections",
        d.threads, d.connections
    );
    let _ = writeln!(
        out,
        "  Thread Stats{:>6}{:>11}{:>8}{:>12}",
        "Avg", "Stdev", "Max", "+/- Stdev"
    );
    out.push_str(&stats("Latency", &Stats::of(&record.response), time_us));
    let rates = rates(record, d.threads);
    out.push_str(&stats("Req/Sec", &Stats::over(&rates), metric));
    out.push_str(&distribution(&record.response));
    out.push_str(&totals(record, seconds));
    out
}

fn distribution(times: &Histogram<u64>) -> String {
    let mut out = String::from("  Latency Distribution (HdrHistogram - Recorded Latency)\n");
    for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0] {
        let us = times.value_at_percentile(percent) as f64 / 1e3;
        let _ = writeln!(out, "{percent:7.3}%{}", padded(&time_us(us), 10));
    }
    out.push_str("\n  Detailed Percentile spectrum:\n");
    out.push_str("       Value   Percentile   TotalCount 1/(1-Percentile)\n\n");
    for row in rows(times) {
        let share = row.percentile / 100.0;
        let (value, left) = (row.value as f64 / 1e6, 1.0 / (1.0 - share));
        let _ = writeln!(
            out,
            "{value:12.3} {share:12.6} {:12} {left:12.2}",
            row.total
        );
    }
    out.push_str(&hgrm::footer(times));
    out.push_str(&"-".repeat(58));
    out.push('\n');
    out
}

fn totals(record: &Record, seconds: f64) -> String {
    let mut out = String::new();
    let count = |class| record.count(class);
    let answered = count(Class::Ok) + count(Class::HttpError);
    let _ = writeln!(
        out,
        "  {answered} requests in {}",
        time_us(seconds * 1_000_000.0)
    );
    let timeouts = count(Class::Timeout) + count(Class::Unfinished);
    let (connect, read) = (count(Class::ConnectFail), count(Class::Reset));
    if connect + read + timeouts > 0 {
        let _ = writeln!(
            out,
            "  Socket errors: connect {connect}, read {read}, write 0, timeout {timeouts}"
        );
    }
    if count(Class::HttpError) > 0 {
        let _ = writeln!(
            out,
            "  Non-2xx or 3xx responses: {}",
            count(Class::HttpError)
        );
    }
    let rate = if seconds > 0.0 {
        answered as f64 / seconds
    } else {
        0.0
    };
    let _ = writeln!(out, "Requests/sec: {rate:9.2}");
    out
}

/// Requests of each second as one thread of `threads` has them.
fn rates(record: &Record, threads: u32) -> Vec<f64> {
    let curve = record.seconds.curve();
    let mut rates: Vec<f64> = vec![0.0; curve.last().map_or(0, |last| last.second + 1)];
    for point in curve {
        rates[point.second] = point.requests as f64 / f64::from(threads.max(1));
    }
    rates
}

#[derive(Default)]
struct Stats {
    mean: f64,
    stdev: f64,
    max: f64,
    /// Share in percent at most one standard deviation from the mean.
    within: f64,
}

impl Stats {
    /// Of nanoseconds, in microseconds.
    fn of(times: &Histogram<u64>) -> Stats {
        if times.is_empty() {
            return Stats::default();
        }
        let (mean, stdev) = (times.mean(), times.stdev());
        let within = times.count_between((mean - stdev).max(0.0) as u64, (mean + stdev) as u64);
        Stats {
            mean: mean / 1e3,
            stdev: stdev / 1e3,
            max: times.max() as f64 / 1e3,
            within: 100.0 * within as f64 / times.len() as f64,
        }
    }

    fn over(values: &[f64]) -> Stats {
        if values.is_empty() {
            return Stats::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = values.iter().map(|value| (value - mean).powi(2));
        let stdev = (square.sum::<f64>() / count).sqrt();
        let near = values.iter().filter(|value| (*value - mean).abs() <= stdev);
        Stats {
            mean,
            stdev,
            max: values.iter().copied().fold(0.0, f64::max),
            within: 100.0 * near.count() as f64 / count,
        }
    }
}

fn stats(name: &str, stats: &Stats, unit: fn(f64) -> String) -> String {
    format!(
        "    {name:<10}{}{}{}{:8.2}%\n",
        padded(&unit(stats.mean), 8),
        padded(&unit(stats.stdev), 10),
        padded(&unit(stats.max), 9),
        stats.within
    )
}

/// Right-aligned with room for a unit of two letters, so that the digits stand below each other.
fn padded(text: &str, width: usize) -> String {
    let letters = text.bytes().rev().take(2);
    let room = 2 - letters.filter(u8::is_ascii_alphabetic).count();
    format!("{text:>0$}{1:2$}", width - room, "", room)
}

fn time_us(us: f64) -> String {
    match us {
        us if us >= 60e6 => format!("{:.2}m", us / 60e6),
        us if us >= 1e6 => format!("{:.2}s", us / 1e6),
        us if us >= 1e3 => format!("{:.2}ms", us / 1e3),
        us => format!("{us:.2}us"),
    }
}

fn metric(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e3 => format!("{:.2}k", n / 1e3),
        n => format!("{n:.2}"),
    }
}

fn length(seconds: f64) -> String {
    match seconds {
        s if s >= 60.0 => format!("{:.0}m", s / 60.0),
        s => format!("{s:.0}s"),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_base::Duration;

    use super::*;
    use crate::client::{Keep, Sample};

    #[test]
    fn the_layout_is_wrk2s_line_by_line() {
        let mut record = Record::new(Keep::Histograms);
        for index in 0..2_000 {
            let time = Duration::from_micros(1_000 + index % 10);
            record.add(Sample {
                intended: Duration::from_millis(index),
                response: time,
                service: Some(time),
                lag: None,
                ttfb: None,
                class: if index == 7 { Class::Reset } else { Class::Ok },
                status: 200,
                origin: None,
            });
        }
        let text = text(
            &Description {
                target: "http://127.0.0.1:80/x".into(),
                arrivals: "constant".into(),
                rate: 1000.0,
                duration_ns: 2_000_000_000,
                connections: 10,
                threads: 1,
                seed: 1,
                request: crate::measurement::Request::default(),
            },
            &record,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Running 2s test @ http://127.0.0.1:80/x");
        assert_eq!(lines[1], "  1 threads and 10 connections");
        assert_eq!(
            lines[2],
            "  Thread Stats   Avg      Stdev     Max   +/- Stdev"
        );
        assert!(lines[3].starts_with("    Latency     1.00ms    "), "{text}");
        assert_eq!(
            lines[4],
            "    Req/Sec     1.00k     0.00     1.00k   100.00%"
        );
        assert_eq!(lines[6], " 50.000%    1.00ms");
        assert_eq!(lines[13], "100.000%    1.01ms");
        assert_eq!(lines[15], "  Detailed Percentile spectrum:");
        assert_eq!(
            lines[18],
            "       1.000     0.000000          200         1.00"
        );
        let last = "       1.009     1.000000         2000          inf";
        assert!(lines.contains(&last), "{text}");
        let tail: Vec<&str> = lines[lines.len() - 4..].to_vec();
        assert!(tail[0].starts_with("-----"), "{text}");
        assert_eq!(tail[1], "  1999 requests in 2.00s");
        assert_eq!(
            tail[2],
            "  Socket errors: connect 0, read 1, write 0, timeout 0"
        );
        assert_eq!(tail[3], "Requests/sec:    999.50");
    }

    #[test]
    fn units_keep_the_digits_aligned() {
        assert_eq!(padded("706.00us", 10), "  706.00us");
        assert_eq!(padded("1.05k", 8), "  1.05k ");
        assert_eq!(padded("212.65", 10), "  212.65  ");
        assert_eq!(time_us(300e6), "5.00m");
    }
}
