//! A report as a person reads it on a terminal.

use std::fmt::Write as _;

use super::{Quantiles, Report};

#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let r = report;
    let _ = writeln!(
        out,
        "{}  {} {}/s for {:.1} s, {} connections, {} thread{}, seed {}",
        r.target,
        r.arrivals,
        r.rate,
        r.duration_ns as f64 / 1e9,
        r.connections,
        r.threads,
        if r.threads == 1 { "" } else { "s" },
        r.seed
    );
    quantiles(&mut out, r);
    requests(&mut out, r);
    let _ = writeln!(out, "\n{}", r.verdict.name());
    for reason in &r.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    for measured in &r.slo {
        let _ = writeln!(out, "{measured}");
    }
    out
}

fn quantiles(out: &mut String, r: &Report) {
    let _ = writeln!(
        out,
        "\n                {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    for (name, q) in [
        ("response", &r.response),
        ("answered well", &r.response_ok),
        ("service", &r.service),
        ("send lag", &r.lag),
    ] {
        let Quantiles {
            mean_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            max_ns,
            ..
        } = *q;
        let _ = write!(out, "  {name:<14}");
        for value in [mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns] {
            let _ = write!(out, " {:>12}", ms(value));
        }
        out.push('\n');
    }
}

fn ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| "n/a".into(), super::ms)
}

fn requests(out: &mut String, r: &Report) {
    let classes = r.classes.iter().filter(|(_, n)| **n > 0);
    let classes: Vec<String> = classes.map(|(name, n)| format!("{name} {n}")).collect();
    let _ = writeln!(
        out,
        "\n  requests  {} due: {}",
        r.intended,
        classes.join(", ")
    );
    let status: Vec<String> = r.status.iter().map(|(s, n)| format!("{s}: {n}")).collect();
    if !status.is_empty() {
        let _ = writeln!(out, "  status    {}", status.join(", "));
    }
    let _ = writeln!(
        out,
        "  achieved  {:.1}/s answered, {:.1}/s of them well",
        r.achieved_rate, r.ok_rate
    );
    let _ = write!(
        out,
        "  network   {} of {} connections established",
        r.established, r.connections
    );
    for (count, what) in [
        (r.reconnects, "made again"),
        (r.failed_connects, "refused or lost"),
    ] {
        if count > 0 {
            let _ = write!(out, ", {count} {what}");
        }
    }
    out.push('\n');
    if r.response.censored > 0 {
        let _ = writeln!(
            out,
            "  censored  {} response times are lower bounds",
            r.response.censored
        );
    }
    if r.clamped > 0 {
        let _ = writeln!(out, "  clamped   {} response times are over 1 h", r.clamped);
    }
}
