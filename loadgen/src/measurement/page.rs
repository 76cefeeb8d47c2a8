//! `report.html` of `loadgen run`: one file that needs nothing else.

use std::fmt::Write as _;

use super::{Report, text};
use crate::chart::{self, Area, Axis, Chart, Scale, Series, escape};
use crate::client::{Ended, Seconds, Tag, histogram};
use crate::demo::page::STYLE;

/// Parts that the run is cut into, to show how far a quantile moves within it.
const PARTS: usize = 10;

#[must_use]
pub fn page(report: &Report, ended: &Ended) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>loadgen: {target}</title>\
         <style>{}{STYLE}pre{{overflow-x:auto;font-size:13px}}</style><h1>{target}</h1>\
         <p><strong>{}</strong></p>",
        chart::STYLE,
        report.verdict.name(),
        target = escape(&report.target),
    );
    for reason in &report.reasons {
        let _ = write!(out, "<p>{}</p>", escape(reason));
    }
    for measured in &report.slo {
        let _ = write!(out, "<p>{}</p>", escape(&measured.to_string()));
    }
    let _ = write!(out, "<pre>{}</pre>", escape(&text(report)));
    let seconds = &ended.record.seconds;
    section(
        &mut out,
        "Response time by quantile; the shade spans tenths of the run",
        &quantiles(ended),
    );
    section(
        &mut out,
        "Response time over time",
        &over_time(seconds, Tag::Lat),
    );
    section(
        &mut out,
        "Send lag over time: how late the generator itself was",
        &over_time(seconds, Tag::Lag),
    );
    facts(&mut out, report);
    out.push_str("</html>\n");
    out
}

fn section(out: &mut String, title: &str, chart: &str) {
    let _ = write!(out, "<h2>{title}</h2>{chart}");
}

fn quantiles(ended: &Ended) -> String {
    let record = &ended.record;
    let lines = [
        ("response", &record.response),
        ("answered well", &record.ok),
        ("service", &record.service),
        ("send lag", &record.lag),
    ];
    let series = lines.iter().enumerate();
    let series: Vec<Series<'_>> = series
        .filter(|(_, (_, times))| !times.is_empty())
        .map(|(colour, (name, times))| Series {
            name,
            points: chart::quantile_curve(times),
            colour: [4, 3, 1, 5][colour],
            dashed: colour == 3,
        })
        .collect();
    let y = chart::log_ticks(&series);
    Chart {
        title: "Response time by quantile",
        x: chart::quantile_axis(&series),
        y: Axis {
            label: "ms",
            scale: Scale::Log,
            ticks: y,
        },
        areas: spread(&record.seconds),
        series,
        band: None,
    }
    .render()
}

/// Between the least and the largest of each quantile in tenths of the run.
fn spread(seconds: &Seconds) -> Vec<Area> {
    if seconds.len() < PARTS {
        return Vec::new();
    }
    let part = |index: usize| {
        let mut times = histogram();
        for second in seconds.len() * index / PARTS..seconds.len() * (index + 1) / PARTS {
            seconds.fill(second, Tag::Lat, &mut times);
        }
        chart::quantile_curve(&times)
    };
    let parts: Vec<Vec<(f64, f64)>> = (0..PARTS).map(part).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let points = (0..shortest).map(|at| {
        let values = parts.iter().map(|part| part[at].1);
        let (low, high) = values.fold((f64::MAX, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        (parts[0][at].0, low, high)
    });
    vec![Area {
        points: points.collect(),
        colour: 4,
    }]
}

fn over_time(seconds: &Seconds, tag: Tag) -> String {
    let mut lines = [0.5, 0.99, 1.0].map(|q| (q, Vec::new()));
    for second in 0..seconds.len() {
        let mut times = histogram();
        seconds.fill(second, tag, &mut times);
        if !times.is_empty() {
            for (quantile, points) in &mut lines {
                let value = times.value_at_quantile(*quantile) as f64 / 1e6;
                points.push((second as f64 + 0.5, value));
            }
        }
    }
    let names = ["p50", "p99", "max"];
    let series: Vec<Series<'_>> = lines
        .into_iter()
        .zip(names)
        .enumerate()
        .map(|(at, ((_, points), name))| Series {
            name,
            points,
            colour: [3, 4, 5][at],
            dashed: at == 2,
        })
        .collect();
    let step = seconds.len().div_ceil(12).max(1);
    let ticks = (0..=seconds.len()).step_by(step);
    Chart {
        title: "Over time",
        x: Axis {
            label: "seconds of intended start",
            scale: Scale::Linear,
            ticks: ticks.map(|at| (at as f64, at.to_string())).collect(),
        },
        y: Axis {
            label: "ms",
            scale: Scale::Log,
            ticks: chart::log_ticks(&series),
        },
        areas: Vec::new(),
        series,
        band: None,
    }
    .render()
}

fn facts(out: &mut String, report: &Report) {
    out.push_str("<h2>What stands behind the numbers</h2><dl>");
    let mut fact = |name: &str, value: &str| {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    fact("seed", &report.seed.to_string());
    fact("schedule", &report.schedule_hash);
    for (name, value) in report.honesty.as_object().into_iter().flatten() {
        fact(name, value.to_string().trim_matches('"'));
    }
    out.push_str("</dl>");
}
