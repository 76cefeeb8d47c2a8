//! The report: the host, the targets, the medians and every sample, as Markdown.

use std::fmt::Write as _;

use evenkeel_benches::host::Facts;
use evenkeel_benches::origin::BODY_BYTES;

use crate::Options;
use crate::measure::{
    Figure, GRAY_RATE, LARGE_CONNECTIONS, MANY, OPEN_CONNECTIONS, ORIGINS, Run, SERVICE_MS, SLOWER,
};
use crate::proxy::Kind;
use crate::table::cell;
use evenkeel_benches::summary::{Summary, coverage};

pub(crate) fn text(options: &Options, arguments: &[String], start: &Facts, run: &Run) -> String {
    let mut text = String::from("# Evenkeel and its peers\n\n");
    let _ = writeln!(text, "    benches/peers/run{}\n", shown(arguments));
    if options.is_quick {
        text.push_str("A quick run shows that every proxy serves. Its figures mean nothing.\n\n");
    }
    introduction(&mut text, options, start, run);
    targets(&mut text, run);
    figures(&mut text, options, run);
    samples(&mut text, options, run);
    text
}

/// What the caller wrote: the programs' places are the script's own, and differ by machine.
fn shown(arguments: &[String]) -> String {
    let mut shown = String::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--evenkeel" | "--envoy" | "--out" => drop(arguments.next()),
            other => {
                let _ = write!(shown, " {other}");
            }
        }
    }
    shown
}

fn introduction(text: &mut String, options: &Options, start: &Facts, run: &Run) {
    let _ = writeln!(
        text,
        "{} rounds in {:.0} s; every proxy in turn within each phase of a round, in rotating order, as a \
         new process\nalone on one core, load and origins on another; loopback; answers of {BODY_BYTES} \
         bytes where nothing else is said. Closed\nloops run {:?} after {:?} of warm-up, open loops {:?}. \
         CPU is from {}.\n\n\
         Figures are `median [interval]`; a ratio is taken within each round. The interval is the \
         distribution-free one\nof order statistics, at least 95 % where there are six rounds or more; \
         with {} rounds it has {:.1} %, with {}\n(idle memory) {:.1} %.\n",
        options.rounds,
        run.took.as_secs_f64(),
        options.time,
        options.warm_up,
        options.open_time,
        run.account,
        options.rounds,
        100.0 * coverage(options.rounds),
        options.rounds.min(options.idle_rounds),
        100.0 * coverage(options.rounds.min(options.idle_rounds)),
    );
    let _ = writeln!(
        text,
        "Linux {}, {}, {} cores, congestion control {}; load average before {}, steal {:.1} %.\n",
        start.kernel,
        start.cpu,
        start.cores,
        start.congestion,
        start.load_average,
        start.steal_percent()
    );
    for proxy in &run.proxies {
        let _ = writeln!(text, "- {}: {}", proxy.kind.name(), proxy.version);
    }
    for missing in &run.missing {
        let _ = writeln!(text, "- MISSING, not measured: {missing}");
    }
    for failure in &run.failures {
        let _ = writeln!(text, "- FAILED: {failure}");
    }
}

/// Lines and targets are for Evenkeel on io_uring.
fn targets(text: &mut String, run: &Run) {
    let own = Kind::Uring;
    let many = run.ratio(Figure::ManyCpu, own, Kind::Nginx);
    let above = run.pairs(Figure::ManyCpu, own, Kind::Floor, |own, floor| own - floor);
    let envoy = run.ratio(Figure::ManyCpu, own, Kind::Envoy);
    let one = run.ratio(Figure::OneCpu, own, Kind::Nginx);
    let large = run.ratio(Figure::LargeBytes, own, Kind::Nginx);
    let idle = run.values(own, Figure::IdleBytes);
    text.push_str(
        "\n## Targets\n\n| target, evenkeel on uring | wanted | measured | |\n|---|---|---|---|\n",
    );
    let mut line = |what: String,
                    wanted: &str,
                    seen: Option<Summary>,
                    unit: f64,
                    met: &dyn Fn(Summary) -> bool| {
        let verdict = match seen {
            None => "not measured",
            Some(seen) if met(seen) => "met",
            Some(_) => "missed",
        };
        let _ = writeln!(
            text,
            "| {what} | {wanted} | {} | {verdict} |",
            cell(seen, unit, 2)
        );
    };
    line(
        format!("CPU/request at {MANY} connections, ratio to nginx"),
        "<= 0.92, interval below 1.0",
        many,
        1.0,
        &|seen| seen.median <= 0.92 && seen.high < 1.0,
    );
    line(
        format!("CPU/request at {MANY} connections above the floor, us"),
        "<= 1.0",
        above,
        1.0,
        &|seen| seen.median <= 1.0,
    );
    line(
        format!("CPU/request at {MANY} connections, ratio to Envoy"),
        "<= 0.33",
        envoy,
        1.0,
        &|seen| seen.median <= 0.33,
    );
    line(
        "CPU/request at 1 connection, ratio to nginx".into(),
        "<= 0.85",
        one,
        1.0,
        &|seen| seen.median <= 0.85,
    );
    line(
        "bytes per CPU second with bodies of 1 MiB, ratio to nginx".into(),
        ">= 1.0",
        large,
        1.0,
        &|seen| seen.median >= 1.0,
    );
    line(
        "memory of an idle connection, KiB".into(),
        "<= 1",
        idle,
        1024.0,
        &|seen| seen.median <= 1024.0,
    );
}

fn figures(text: &mut String, options: &Options, run: &Run) {
    let mut section = |heading: String, figures: &[Figure]| {
        let _ = write!(text, "\n## {heading}\n\n{}", run.table(figures));
    };
    section(
        format!("{MANY} connections, at saturation"),
        &[Figure::ManyCpu, Figure::ManyRate, Figure::ManyBusy],
    );
    section(
        "1 connection, at saturation".into(),
        &[Figure::OneCpu, Figure::OneRate],
    );
    let rate = Summary::of(run.half_rates.iter().copied()).map_or(0.0, |rate| rate.median);
    section(
        format!(
            "Half of nginx's maximum\n\nOpen loop with Poisson arrivals, {MANY} connections, {rate:.0} \
             requests/s (the median round); latency from the\nintended start, failures at their age. A \
             proxy whose own maximum is below that rate is overloaded here. Load and\norigin share a core: \
             where that is busy nearly all the time, latency is its own and says\nnothing of \
             the proxy."
        ),
        &[
            Figure::HalfCpu,
            Figure::HalfP50,
            Figure::HalfP99,
            Figure::HalfAnswered,
            Figure::HalfLag,
            Figure::HalfLoadCore,
        ],
    );
    section(
        format!("Bodies of 1 MiB, {LARGE_CONNECTIONS} connections, at saturation"),
        &[Figure::LargeBytes],
    );
    section(
        format!(
            "Gray failure\n\n{ORIGINS} origins without a queue, service time {SERVICE_MS} ms (half fixed, \
             half exponential), the last {SLOWER} times slower; open loop,\n{GRAY_RATE:.0} requests/s, \
             {OPEN_CONNECTIONS} connections. Balancing: evenkeel's default, nginx least_conn, HAProxy \
             leastconn, Envoy\nLEAST_REQUEST."
        ),
        &[Figure::GrayP99, Figure::GrayAnswered],
    );
    let fewer = if run.idle_connections < options.idle_connections {
        " (fewer than meant: the limit of open files)"
    } else {
        ""
    };
    section(
        format!(
            "Idle keep-alive connections\n\n{}{fewer}, each after one request, {:?} later: Pss after less \
             Pss before.\nFirst {} rounds. Memory of the kernel is not in it.",
            run.idle_connections,
            options.settle,
            options.rounds.min(options.idle_rounds)
        ),
        &[Figure::IdleBytes],
    );
}

fn samples(text: &mut String, options: &Options, run: &Run) {
    text.push_str("\n## Samples\n");
    for (heading, figure) in [
        ("64 connections", Figure::ManyCpu),
        ("64 connections", Figure::ManyRate),
        ("1 connection", Figure::OneCpu),
        ("Half of nginx's maximum", Figure::HalfCpu),
        ("Half of nginx's maximum", Figure::HalfP99),
        ("Bodies of 1 MiB", Figure::LargeBytes),
        ("Gray failure", Figure::GrayP99),
        ("Idle", Figure::IdleBytes),
    ] {
        let table = run.rounds(figure, options.rounds);
        let _ = write!(text, "\n{heading}, {}:\n\n{table}", figure.shown().0);
    }
}
