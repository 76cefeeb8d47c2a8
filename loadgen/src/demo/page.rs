//! `report.html`: one file that needs nothing else.

use std::fmt::Write as _;

use super::report::{self, COLUMNS, DemoReport, Plot, TimePoint};
use crate::chart::{self, Axis, Chart, Scale, Series, escape};

pub(crate) const STYLE: &str = "\
body{margin:2rem auto;max-width:900px;padding:0 1rem;background:var(--ground);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;display:block;overflow-x:auto;font-variant-numeric:tabular-nums;font-size:13px}\
th,td{padding:.3rem .5rem;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:13px}dd{margin:0}";

pub(crate) fn render(report: &DemoReport, plots: &[Plot]) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let s = &report.scenario;
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Evenkeel: one gray endpoint\
         </title><style>{}{STYLE}</style><h1>One gray endpoint, five ways to balance</h1>\
         <p>{} endpoints with {} servers each, service time {}, Poisson arrivals at {}/s over {} \
         connections, {} shards. After {} s one endpoint becomes {} times slower, for {} s. Every \
         arm gets the same schedule and the same work. Times run from the intended start of a \
         request to its last byte; failures stay in at their age.</p>",
        chart::STYLE,
        s.endpoints,
        s.servers_per_endpoint,
        escape(&s.service),
        s.rate_per_second,
        s.connections,
        s.shards,
        s.healthy_ns as f64 / 1e9,
        s.gray_factor,
        s.gray_ns as f64 / 1e9,
    );
    for sentence in report::sentences(report) {
        let _ = write!(out, "<p><strong>{}</strong></p>", escape(&sentence));
    }
    table(&mut out, report);
    section(
        &mut out,
        "Response time while one endpoint is gray, by quantile",
        &quantiles(plots),
    );
    section(
        &mut out,
        "p99 over time",
        &over_time(plots, "p99, ms", Scale::Log, |p| p.p99_ms),
    );
    let share = over_time(plots, "share of requests, %", Scale::Linear, |p| {
        p.share * 100.0
    });
    section(&mut out, "Share of the gray endpoint over time", &share);
    facts(&mut out, report);
    out.push_str("</html>\n");
    out
}

fn table(out: &mut String, report: &DemoReport) {
    out.push_str("<table><tr>");
    for column in COLUMNS {
        let _ = write!(out, "<th>{column}</th>");
    }
    out.push_str("</tr>");
    for row in report::rows(report) {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

fn section(out: &mut String, title: &str, svg: &str) {
    let _ = write!(out, "<h2>{title}</h2>{svg}");
}

fn quantiles(plots: &[Plot]) -> String {
    let mut series: Vec<Series<'_>> = plots
        .iter()
        .enumerate()
        .map(|(colour, plot)| Series {
            name: &plot.name,
            points: plot.gray.clone(),
            colour,
            dashed: false,
        })
        .collect();
    if let Some(plot) = plots.last() {
        let points = plot.healthy.clone();
        series.push(Series {
            name: "all healthy",
            points,
            colour: 5,
            dashed: true,
        });
    }
    Chart {
        title: "Response time by quantile",
        x: chart::quantile_axis(&series),
        y: Axis {
            label: "response time, ms",
            scale: Scale::Log,
            ticks: chart::log_ticks(&series),
        },
        series,
        areas: Vec::new(),
        band: None,
    }
    .render()
}

fn over_time(
    plots: &[Plot],
    label: &str,
    scale: Scale,
    value: impl Fn(&TimePoint) -> f64,
) -> String {
    let series: Vec<Series<'_>> = plots
        .iter()
        .enumerate()
        .map(|(colour, plot)| Series {
            name: &plot.name,
            points: plot
                .timeline
                .iter()
                .map(|point| (point.seconds, value(point)))
                .collect(),
            colour,
            dashed: false,
        })
        .collect();
    let last = series
        .iter()
        .flat_map(|s| s.points.iter())
        .fold(0.0f64, |m, p| m.max(p.0));
    let seconds = (0..=last.ceil() as u32).filter(|second| last < 10.0 || second % 2 == 0);
    let ticks = match scale {
        Scale::Log => chart::log_ticks(&series),
        Scale::Linear => (0..=6)
            .map(|n| (f64::from(n * 5), (n * 5).to_string()))
            .collect(),
    };
    let band = plots
        .first()
        .map(|plot| (plot.onset_s, plot.recovery_s, "one endpoint is gray"));
    Chart {
        title: label,
        x: Axis {
            label: "seconds",
            scale: Scale::Linear,
            ticks: seconds
                .map(|second| (f64::from(second), second.to_string()))
                .collect(),
        },
        y: Axis {
            label,
            scale,
            ticks,
        },
        series,
        areas: Vec::new(),
        band,
    }
    .render()
}

/// 1, 2, 5, 10 and so on around the data.
fn facts(out: &mut String, report: &DemoReport) {
    let _ = write!(out, "<h2>What stands behind the numbers</h2><dl>");
    let seed = report.seed.to_string();
    let mut facts = vec![("seed", seed), ("schedule", report.schedule_hash.clone())];
    if let Some(honesty) = report.honesty.as_object() {
        for (name, value) in honesty {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            facts.push((name, text));
        }
    }
    for (name, value) in facts {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    out.push_str("</dl>");
}
