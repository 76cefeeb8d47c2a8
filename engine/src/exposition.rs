//! `GET /metrics`: OpenMetrics text, summed over shards.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_policy::{EndpointSnapshot, breaker};

use crate::metrics::{BUCKETS_US, Outcome, UpstreamCells};
use crate::state::{ShardReport, Source};

/// Text under construction; one family at a time, as the format wants it.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"{}\"", escape(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

pub(crate) fn render(source: &Source, reports: &[ShardReport]) -> String {
    let mut text = Text(String::with_capacity(16 * 1024));
    requests(&mut text, source);
    durations(&mut text, source);
    connections(&mut text, source);
    shards(&mut text, source);
    endpoints(&mut text, source, reports);
    guards(&mut text, source, reports);
    text.0.push_str("# EOF\n");
    text.0
}

/// Upstream names in cell order; requests without one come last, with an empty label.
fn names(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let named = source
        .upstreams
        .iter()
        .map(|upstream| upstream.name.as_str());
    named.chain(std::iter::once("")).enumerate()
}

fn sum(source: &Source, upstream: usize, cell: impl Fn(&UpstreamCells) -> &AtomicU64) -> u64 {
    let cells = source
        .metrics
        .iter()
        .map(|shard| &shard.upstreams[upstream]);
    cells.map(|cells| cell(cells).load(Ordering::Relaxed)).sum()
}

fn requests(text: &mut Text, source: &Source) {
    text.family(
        "evenkeel_requests",
        "counter",
        "Requests answered or given up, by outcome.",
    );
    for (index, upstream) in names(source) {
        for (at, outcome) in Outcome::labels().enumerate() {
            let count = sum(source, index, |cells| &cells.outcomes[at]);
            // Families of many labels show only what has happened; the plain outcomes always.
            if count > 0 || (at < 3 && !upstream.is_empty()) {
                let labels = [("upstream", upstream), ("outcome", outcome)];
                text.sample("evenkeel_requests_total", &labels, count);
            }
        }
    }
    text.family("evenkeel_attempts", "counter", "Tries at endpoints.");
    for (index, upstream) in names(source).filter(|(_, name)| !name.is_empty()) {
        let labels = [("upstream", upstream), ("kind", "first")];
        text.sample(
            "evenkeel_attempts_total",
            &labels,
            sum(source, index, |c| &c.attempts),
        );
    }
    per_upstream(
        text,
        source,
        ("evenkeel_pool_reuses", "Attempts on an idle connection."),
        |cells| &cells.reused,
    );
    let help = "Attempts sent again on a new connection because the idle one had been closed.";
    per_upstream(
        text,
        source,
        ("evenkeel_connection_replays", help),
        |cells| &cells.replays,
    );
}

/// A counter with one series an upstream.
fn per_upstream(
    text: &mut Text,
    source: &Source,
    (family, help): (&str, &str),
    cell: impl Fn(&UpstreamCells) -> &AtomicU64,
) {
    text.family(family, "counter", help);
    let name = format!("{family}_total");
    for (index, upstream) in names(source).filter(|(_, name)| !name.is_empty()) {
        let count = sum(source, index, &cell);
        text.sample(&name, &[("upstream", upstream)], count);
    }
}

fn durations(text: &mut Text, source: &Source) {
    let name = "evenkeel_request_duration_seconds";
    text.family(
        name,
        "histogram",
        "From the first byte of a request to the end of its answer.",
    );
    for (index, upstream) in names(source).filter(|(_, name)| !name.is_empty()) {
        let mut total = 0;
        for (at, bound) in BUCKETS_US.iter().map(Some).chain([None]).enumerate() {
            total += sum(source, index, |cells| &cells.buckets[at]);
            let bound = match bound {
                Some(&us) => format!("{}", us as f64 / 1e6),
                None => "+Inf".into(),
            };
            let labels = [("upstream", upstream), ("le", bound.as_str())];
            text.sample("evenkeel_request_duration_seconds_bucket", &labels, total);
        }
        let labels = [("upstream", upstream)];
        text.sample("evenkeel_request_duration_seconds_count", &labels, total);
        let seconds = sum(source, index, |cells| &cells.duration_ns) as f64 / 1e9;
        text.sample("evenkeel_request_duration_seconds_sum", &labels, seconds);
    }
}

fn connections(text: &mut Text, source: &Source) {
    let load = |f: fn(&crate::metrics::ShardMetrics) -> &AtomicU64| {
        source
            .metrics
            .iter()
            .map(|shard| f(shard).load(Ordering::Relaxed))
            .sum::<u64>()
    };
    text.family(
        "evenkeel_connections",
        "gauge",
        "Downstream connections open.",
    );
    text.sample("evenkeel_connections", &[], load(|shard| &shard.active));
    text.family(
        "evenkeel_connections_accepted",
        "counter",
        "Downstream connections accepted.",
    );
    text.sample(
        "evenkeel_connections_accepted_total",
        &[],
        load(|shard| &shard.accepted),
    );
    let help = "Connections closed at once because max_connections was reached.";
    text.family("evenkeel_connections_refused", "counter", help);
    text.sample(
        "evenkeel_connections_refused_total",
        &[],
        load(|s| &s.refused_connections),
    );
    text.family(
        "evenkeel_accept_errors",
        "counter",
        "Failed accepts, such as no descriptor left.",
    );
    text.sample(
        "evenkeel_accept_errors_total",
        &[],
        load(|shard| &shard.accept_errors),
    );
}

fn shards(text: &mut Text, source: &Source) {
    let help = "The backend in use.";
    text.family("evenkeel_runtime", "info", help);
    let backend = [("backend", source.backend.name())];
    text.sample("evenkeel_runtime_info", &backend, 1);
    let help = "Share of its time that the loop did not wait, since its start.";
    text.family("evenkeel_shard_busy_ratio", "gauge", help);
    for (index, stats) in source.stats.iter().enumerate() {
        let busy = stats.busy_ns.load(Ordering::Relaxed) as f64;
        let total = stats.total_ns.load(Ordering::Relaxed).max(1) as f64;
        let shard = index.to_string();
        text.sample(
            "evenkeel_shard_busy_ratio",
            &[("shard", &shard)],
            busy / total,
        );
    }
    text.family(
        "evenkeel_shard_panics",
        "counter",
        "Connection tasks that ended by a panic.",
    );
    for (index, stats) in source.stats.iter().enumerate() {
        let shard = index.to_string();
        let panics = stats.panics.load(Ordering::Relaxed);
        text.sample("evenkeel_shard_panics_total", &[("shard", &shard)], panics);
    }
}

fn endpoints(text: &mut Text, source: &Source, reports: &[ShardReport]) {
    let help = "Attempts in flight, as each shard sees them.";
    each_view(
        text,
        source,
        reports,
        ("evenkeel_endpoint_inflight", "gauge", help),
        |view| Some(view.inflight as f64),
    );
    let help = "Latency average to the response head, as each shard sees it.";
    each_view(
        text,
        source,
        reports,
        ("evenkeel_endpoint_ewma_seconds", "gauge", help),
        |view| view.latency_ns.map(|ns| ns / 1e9),
    );
    text.family(
        "evenkeel_endpoint_ejections",
        "counter",
        "Ejections by detector.",
    );
    for (index, upstream) in source.upstreams.iter().enumerate() {
        for (at, endpoint) in upstream.endpoints.iter().enumerate() {
            let ejections = reports
                .iter()
                .map(|r| r.upstreams[index].endpoints[at].counters.ejections);
            let labels = [
                ("upstream", upstream.name.as_str()),
                ("endpoint", endpoint),
                ("detector", "consecutive"),
            ];
            text.sample(
                "evenkeel_endpoint_ejections_total",
                &labels,
                ejections.sum::<u64>(),
            );
        }
    }
}

fn each_view(
    text: &mut Text,
    source: &Source,
    reports: &[ShardReport],
    (name, kind, help): (&str, &str, &str),
    value: impl Fn(&EndpointSnapshot) -> Option<f64>,
) {
    text.family(name, kind, help);
    for (index, upstream) in source.upstreams.iter().enumerate() {
        for (at, endpoint) in upstream.endpoints.iter().enumerate() {
            for report in reports {
                let shard = report.shard.to_string();
                let labels = [
                    ("upstream", upstream.name.as_str()),
                    ("endpoint", endpoint),
                    ("shard", &shard),
                ];
                if let Some(value) = value(&report.upstreams[index].endpoints[at]) {
                    text.sample(name, &labels, value);
                }
            }
        }
    }
}

fn guards(text: &mut Text, source: &Source, reports: &[ShardReport]) {
    text.family("evenkeel_shed", "counter", "Requests shed by the limiter.");
    for (index, upstream) in source.upstreams.iter().enumerate() {
        let shed = |r: &ShardReport| {
            let counters = r.upstreams[index].counters;
            counters.shed_limiter + counters.shed_full
        };
        let labels = [
            ("upstream", upstream.name.as_str()),
            ("reason", "limiter"),
            ("tier", ""),
        ];
        text.sample(
            "evenkeel_shed_total",
            &labels,
            reports.iter().map(shed).sum::<u64>(),
        );
    }
    text.family(
        "evenkeel_breaker_state",
        "gauge",
        "0 closed, 1 half-open, 2 open, by shard.",
    );
    per_shard(
        text,
        source,
        reports,
        "evenkeel_breaker_state",
        |snapshot| {
            Some(match snapshot.breaker {
                breaker::State::Closed { .. } => 0.0,
                breaker::State::HalfOpen { .. } => 1.0,
                breaker::State::Open { .. } => 2.0,
            })
        },
    );
    text.family(
        "evenkeel_limit",
        "gauge",
        "The concurrency limit, each shard's part.",
    );
    per_shard(text, source, reports, "evenkeel_limit", |snapshot| {
        snapshot.limiter.limit.map(f64::from)
    });
    text.family(
        "evenkeel_panic",
        "gauge",
        "1 while ejections are ignored, by shard.",
    );
    per_shard(text, source, reports, "evenkeel_panic", |snapshot| {
        Some(f64::from(u8::from(snapshot.is_panicking)))
    });
}

fn per_shard(
    text: &mut Text,
    source: &Source,
    reports: &[ShardReport],
    name: &str,
    value: impl Fn(&evenkeel_policy::Snapshot) -> Option<f64>,
) {
    for (index, upstream) in source.upstreams.iter().enumerate() {
        for report in reports {
            let shard = report.shard.to_string();
            let labels = [("upstream", upstream.name.as_str()), ("shard", &shard)];
            if let Some(value) = value(&report.upstreams[index]) {
                text.sample(name, &labels, value);
            }
        }
    }
}
