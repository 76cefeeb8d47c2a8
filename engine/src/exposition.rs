//! `GET /metrics`: OpenMetrics text, summed over shards.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use evenkeel_policy::{EndpointSnapshot, breaker};
use evenkeel_runtime::ShardStats;

use crate::metrics::{BUCKETS_US, Outcome, UpstreamCells};
use crate::state::{ShardReport, View};

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

pub(crate) fn render(view: &View<'_>) -> String {
    let mut text = Text(String::with_capacity(16 * 1024));
    requests(&mut text, view);
    durations(&mut text, view);
    connections(&mut text, view);
    configuration(&mut text, view);
    shards(&mut text, view);
    endpoints(&mut text, view);
    guards(&mut text, view);
    text.0.push_str("# EOF\n");
    text.0
}

/// Upstream names in order; requests without one come last, with an empty label.
fn names<'v>(view: &'v View<'_>) -> impl Iterator<Item = (usize, &'v str)> {
    let upstreams = view.version.upstreams.iter();
    let named = upstreams.map(|upstream| upstream.name.as_str());
    named.chain(std::iter::once("")).enumerate()
}

/// Over all shards, by the order of [`names`].
fn sum(view: &View<'_>, at: usize, cell: impl Fn(&UpstreamCells) -> &AtomicU64) -> u64 {
    let load = |cells: &UpstreamCells| cell(cells).load(Ordering::Relaxed);
    match view.version.upstreams.get(at) {
        Some(upstream) => upstream.cells.iter().map(|cells| load(cells)).sum(),
        None => {
            let shards = view.source.metrics.iter();
            shards.map(|shard| load(&shard.unrouted)).sum()
        }
    }
}

fn requests(text: &mut Text, view: &View<'_>) {
    text.family(
        "evenkeel_requests",
        "counter",
        "Requests answered or given up, by outcome.",
    );
    for (index, upstream) in names(view) {
        for (at, outcome) in Outcome::labels().enumerate() {
            let count = sum(view, index, |cells| &cells.outcomes[at]);
            // Families of many labels show only what has happened; the plain outcomes always.
            if count > 0 || (at < 3 && !upstream.is_empty()) {
                let labels = [("upstream", upstream), ("outcome", outcome)];
                text.sample("evenkeel_requests_total", &labels, count);
            }
        }
    }
    text.family("evenkeel_attempts", "counter", "Tries at endpoints.");
    for (index, upstream) in names(view).filter(|(_, name)| !name.is_empty()) {
        let labels = [("upstream", upstream), ("kind", "first")];
        text.sample(
            "evenkeel_attempts_total",
            &labels,
            sum(view, index, |c| &c.attempts),
        );
    }
    per_upstream(
        text,
        view,
        ("evenkeel_pool_reuses", "Attempts on an idle connection."),
        |cells| &cells.reused,
    );
    let help = "Attempts sent again on a new connection because the idle one had been closed.";
    per_upstream(text, view, ("evenkeel_connection_replays", help), |cells| {
        &cells.replays
    });
}

/// A counter with one series an upstream.
fn per_upstream(
    text: &mut Text,
    view: &View<'_>,
    (family, help): (&str, &str),
    cell: impl Fn(&UpstreamCells) -> &AtomicU64,
) {
    text.family(family, "counter", help);
    let name = format!("{family}_total");
    for (index, upstream) in names(view).filter(|(_, name)| !name.is_empty()) {
        let count = sum(view, index, &cell);
        text.sample(&name, &[("upstream", upstream)], count);
    }
}

fn durations(text: &mut Text, view: &View<'_>) {
    let name = "evenkeel_request_duration_seconds";
    text.family(
        name,
        "histogram",
        "From the first byte of a request to the end of its answer.",
    );
    for (index, upstream) in names(view).filter(|(_, name)| !name.is_empty()) {
        let mut total = 0;
        for (at, bound) in BUCKETS_US.iter().map(Some).chain([None]).enumerate() {
            total += sum(view, index, |cells| &cells.buckets[at]);
            let bound = match bound {
                Some(&us) => format!("{}", us as f64 / 1e6),
                None => "+Inf".into(),
            };
            let labels = [("upstream", upstream), ("le", bound.as_str())];
            text.sample("evenkeel_request_duration_seconds_bucket", &labels, total);
        }
        let labels = [("upstream", upstream)];
        text.sample("evenkeel_request_duration_seconds_count", &labels, total);
        let seconds = sum(view, index, |cells| &cells.duration_ns) as f64 / 1e9;
        text.sample("evenkeel_request_duration_seconds_sum", &labels, seconds);
    }
}

fn connections(text: &mut Text, view: &View<'_>) {
    let load = |f: fn(&crate::metrics::ShardMetrics) -> &AtomicU64| {
        view.source
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

fn configuration(text: &mut Text, view: &View<'_>) {
    if let Some(dropped) = &view.source.access_dropped {
        let help = "Lines of the access log that were dropped because its writer was behind.";
        text.family("evenkeel_access_log_dropped", "counter", help);
        let dropped = dropped.load(Ordering::Relaxed);
        text.sample("evenkeel_access_log_dropped_total", &[], dropped);
    }
    let applied = &view.source.applied;
    let help = "Reloads of the configuration, by result.";
    text.family("evenkeel_config_reloads", "counter", help);
    for (result, count) in [
        ("applied", &applied.reloads_applied),
        ("refused", &applied.reloads_refused),
    ] {
        let count = count.load(Ordering::Relaxed);
        text.sample(
            "evenkeel_config_reloads_total",
            &[("result", result)],
            count,
        );
    }
    let help = "The version of the configuration in force, from 1.";
    text.family("evenkeel_config_version", "gauge", help);
    text.sample("evenkeel_config_version", &[], view.version.version);
    let help = "When it came into force.";
    text.family("evenkeel_config_applied_timestamp_seconds", "gauge", help);
    let since = view.version.since.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs_f64();
    text.sample("evenkeel_config_applied_timestamp_seconds", &[], seconds);
}

fn shards(text: &mut Text, view: &View<'_>) {
    let help = "The backend in use.";
    text.family("evenkeel_runtime", "info", help);
    let backend = [("backend", view.source.backend.name())];
    text.sample("evenkeel_runtime_info", &backend, 1);
    let help = "Share of its time that the loop did not wait, since its start.";
    text.family("evenkeel_shard_busy_ratio", "gauge", help);
    for (index, stats) in view.source.stats.iter().enumerate() {
        let busy = stats.busy_ns.load(Ordering::Relaxed) as f64;
        let total = stats.total_ns.load(Ordering::Relaxed).max(1) as f64;
        let shard = index.to_string();
        text.sample(
            "evenkeel_shard_busy_ratio",
            &[("shard", &shard)],
            busy / total,
        );
    }
    type Counter = fn(&ShardStats) -> &AtomicU64;
    let counters: [(&str, &str, Counter); 3] = [
        ("turns", "Turns of the loop.", |stats| &stats.turns),
        (
            "enters",
            "Waits for the kernel, and submissions between them: one a turn.",
            |stats| &stats.enters,
        ),
        (
            "panics",
            "Connection tasks that ended by a panic.",
            |stats| &stats.panics,
        ),
    ];
    for (name, help, counter) in counters {
        let family = format!("evenkeel_shard_{name}");
        text.family(&family, "counter", help);
        for (index, stats) in view.source.stats.iter().enumerate() {
            let shard = index.to_string();
            let count = counter(stats).load(Ordering::Relaxed);
            text.sample(&format!("{family}_total"), &[("shard", &shard)], count);
        }
    }
}

fn endpoints(text: &mut Text, view: &View<'_>) {
    let help = "Attempts in flight, as each shard sees them.";
    each_view(
        text,
        view,
        ("evenkeel_endpoint_inflight", "gauge", help),
        |view| Some(view.inflight as f64),
    );
    let help = "Latency average to the response head, as each shard sees it.";
    each_view(
        text,
        view,
        ("evenkeel_endpoint_ewma_seconds", "gauge", help),
        |view| view.latency_ns.map(|ns| ns / 1e9),
    );
    text.family(
        "evenkeel_endpoint_ejections",
        "counter",
        "Ejections by detector.",
    );
    for (index, upstream) in view.version.upstreams.iter().enumerate() {
        for (at, endpoint) in upstream.endpoints.iter().enumerate() {
            let ejections = view
                .reports
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
    view: &View<'_>,
    (name, kind, help): (&str, &str, &str),
    value: impl Fn(&EndpointSnapshot) -> Option<f64>,
) {
    text.family(name, kind, help);
    for (index, upstream) in view.version.upstreams.iter().enumerate() {
        for (at, endpoint) in upstream.endpoints.iter().enumerate() {
            for report in &view.reports {
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

fn guards(text: &mut Text, view: &View<'_>) {
    text.family("evenkeel_shed", "counter", "Requests shed by the limiter.");
    for (index, upstream) in view.version.upstreams.iter().enumerate() {
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
            view.reports.iter().map(shed).sum::<u64>(),
        );
    }
    text.family(
        "evenkeel_breaker_state",
        "gauge",
        "0 closed, 1 half-open, 2 open, by shard.",
    );
    per_shard(text, view, "evenkeel_breaker_state", |snapshot| {
        Some(match snapshot.breaker {
            breaker::State::Closed { .. } => 0.0,
            breaker::State::HalfOpen { .. } => 1.0,
            breaker::State::Open { .. } => 2.0,
        })
    });
    text.family(
        "evenkeel_limit",
        "gauge",
        "The concurrency limit, each shard's part.",
    );
    per_shard(text, view, "evenkeel_limit", |snapshot| {
        snapshot.limiter.limit.map(f64::from)
    });
    text.family(
        "evenkeel_panic",
        "gauge",
        "1 while ejections are ignored, by shard.",
    );
    per_shard(text, view, "evenkeel_panic", |snapshot| {
        Some(f64::from(u8::from(snapshot.is_panicking)))
    });
}

fn per_shard(
    text: &mut Text,
    view: &View<'_>,
    name: &str,
    value: impl Fn(&evenkeel_policy::Snapshot) -> Option<f64>,
) {
    for (index, upstream) in view.version.upstreams.iter().enumerate() {
        for report in &view.reports {
            let shard = report.shard.to_string();
            let labels = [("upstream", upstream.name.as_str()), ("shard", &shard)];
            if let Some(value) = value(&report.upstreams[index]) {
                text.sample(name, &labels, value);
            }
        }
    }
}
