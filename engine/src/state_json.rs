//! `GET /state`: what each shard thinks of each endpoint, and the merged view.

use evenkeel_base::Instant;
use evenkeel_policy::EndpointSnapshot;
use evenkeel_policy::breaker;
use serde_json::{Value, json};

use crate::log;
use crate::state::{ShardReport, UpstreamNames, View};

pub(crate) fn render(view: &View<'_>) -> String {
    let (source, reports) = (view.source, &view.reports);
    let upstreams: Vec<Value> = view
        .version
        .upstreams
        .iter()
        .enumerate()
        .map(|(index, names)| upstream(index, names, reports))
        .collect();
    let document = json!({
        "configuration": {
            "version": view.version.version,
            "applied_at": log::timestamp(view.version.since),
        },
        "runtime": source.backend.name(),
        "draining": source.is_draining(),
        "shards": source.stats.len(),
        "shards_reporting": reports.len(),
        "upstreams": upstreams,
    });
    let mut text = serde_json::to_string_pretty(&document).expect("plain values");
    text.push('\n');
    text
}

fn upstream(index: usize, names: &UpstreamNames, reports: &[ShardReport]) -> Value {
    let endpoints: Vec<Value> = names
        .endpoints
        .iter()
        .enumerate()
        .map(|(at, address)| endpoint(index, at, address, reports))
        .collect();
    let shards: Vec<Value> = reports
        .iter()
        .map(|report| {
            let snapshot = &report.upstreams[index];
            json!({
                "shard": report.shard,
                "breaker": breaker_name(snapshot.breaker),
                "limit": snapshot.limiter.limit,
                "limiter_inflight": snapshot.limiter.inflight,
                "panic": snapshot.is_panicking,
                "attempts_in_flight": snapshot.attempts,
                "idle_connections": report.idle_connections[index],
                "rediscovery_looks": snapshot.counters.looks,
            })
        })
        .collect();
    json!({ "name": names.name, "endpoints": endpoints, "shards": shards })
}

fn endpoint(upstream: usize, at: usize, address: &str, reports: &[ShardReport]) -> Value {
    let views: Vec<(&ShardReport, &EndpointSnapshot)> = reports
        .iter()
        .map(|report| (report, &report.upstreams[upstream].endpoints[at]))
        .collect();
    let shards: Vec<Value> = views
        .iter()
        .map(|(report, view)| {
            json!({
                "shard": report.shard,
                "inflight": view.inflight,
                "ewma_ns": view.latency_ns.map(|ns| ns as u64),
                "success": view.success,
                "ejected_for_ms": left_ms(view.ejected_until, report.now),
                "on_probe": view.is_on_probe,
                "picks": view.counters.picks,
                "failures": view.counters.failures,
                "ejections": view.counters.ejections,
            })
        })
        .collect();
    let sum = |f: fn(&EndpointSnapshot) -> u64| views.iter().map(|(_, v)| f(v)).sum::<u64>();
    let known: Vec<f64> = views
        .iter()
        .filter_map(|(_, view)| view.latency_ns)
        .collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    json!({
        "address": address,
        "weight": views.first().map(|(_, view)| view.weight),
        "shards": shards,
        "merged": {
            "picks": sum(|view| view.counters.picks),
            "failures": sum(|view| view.counters.failures),
            "ejections": sum(|view| view.counters.ejections),
            "ewma_ns": (!known.is_empty()).then_some(mean as u64),
            "ejected_in_shards": views.iter().filter(|(_, v)| v.ejected_until.is_some()).count(),
        },
    })
}

fn left_ms(until: Option<Instant>, now: Instant) -> Option<u64> {
    until.map(|until| (until - now).as_millis())
}

pub(crate) fn breaker_name(state: breaker::State) -> &'static str {
    match state {
        breaker::State::Closed { .. } => "closed",
        breaker::State::Open { .. } => "open",
        breaker::State::HalfOpen { .. } => "half-open",
    }
}
