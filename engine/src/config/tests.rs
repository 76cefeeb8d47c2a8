//! Whole files: what is read, and the exact lines for what is not.

mod agreement;
mod examples;
mod refusals;
mod robustness;

use super::*;
use evenkeel_base::Duration;

const MINIMAL: &str = "\
[[listener]]
bind = \"127.0.0.1:8080\"
[[upstream]]
endpoints = [\"127.0.0.1:9001\"]
";

fn config(text: &str) -> Config {
    parse(text, "test.toml")
        .unwrap_or_else(|problems| panic!("{problems}\n{text}"))
        .config
}

/// Every line about a file that cannot be used.
fn refusal(text: &str) -> Vec<String> {
    match parse(text, "f").map(|parsed| parsed.config) {
        Ok(config) => panic!("accepted as {config:?}:\n{text}"),
        Err(problems) => problems.lines().collect(),
    }
}

#[test]
fn a_listener_and_an_upstream_are_enough() {
    let config = config(MINIMAL);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.upstreams[0].name, "default");
    let timeout = Duration::from_secs(15);
    let everything = Route {
        path_prefix: "/".into(),
        host: String::new(),
        upstream: 0,
        timeout,
    };
    assert_eq!(config.routes, [everything]);
}

#[test]
fn defaults_are_those_of_the_contract() {
    let config = config(MINIMAL);
    let ms = Duration::from_millis;
    let engine = &config.engine;
    assert_eq!(
        (&engine.shards, engine.runtime),
        (&Shards::All, Runtime::Auto)
    );
    assert_eq!(engine.admin, Some("127.0.0.1:9901".parse().unwrap()));
    assert_eq!(
        (engine.drain_timeout, engine.max_inflight),
        (ms(30_000), None)
    );
    assert_eq!(
        config.state,
        State {
            inflight: Placement::PerLoop,
            latency: Placement::PerLoop,
            exchange_interval: None,
        }
    );
    let listener = &config.listeners[0];
    assert_eq!(
        (listener.max_connections, listener.backlog),
        (100_000, 4_096)
    );
    assert_eq!(listener.header_timeout, ms(10_000));
    assert_eq!(
        (listener.idle_timeout, listener.body_timeout),
        (ms(60_000), ms(30_000))
    );
    assert_eq!(
        (listener.max_header_bytes, listener.max_headers),
        (65_536, 100)
    );
    assert_eq!(
        (listener.max_body_bytes, listener.forwarded),
        (None, Forwarded::XForwarded)
    );
    let upstream = &config.upstreams[0];
    assert_eq!(upstream.balance, Balance::P2cEwma);
    let ewma = Ewma {
        averaging: Averaging::Decay(ms(2_500)),
        initial: Initial::Peers,
        explore_after: ms(1_000),
        pending_age: true,
    };
    assert_eq!(upstream.ewma, ewma);
    let outlier = Outlier {
        enforce: true,
        consecutive_failures: 5,
        base_ejection: ms(30_000),
        max_ejection: ms(300_000),
        max_ejected: 1.0,
        panic_threshold: 0.5,
        probe_on_return: true,
    };
    assert_eq!(upstream.outlier, outlier);
    let limiter = Limiter {
        enforce: true,
        kind: LimiterKind::Off,
        initial: 20,
    };
    assert_eq!(upstream.limiter, limiter);
    let breaker = Breaker {
        enforce: true,
        kind: BreakerKind::Off,
        consecutive: 5,
        open_for: ms(10_000),
        half_open_probes: 5,
        half_open_concurrency: 1,
        probe_lease: ms(5_000),
    };
    assert_eq!(upstream.breaker, breaker);
    assert_eq!(
        upstream.retry,
        Retry {
            per_try_timeout: None
        }
    );
    let pool = Pool {
        max_idle: 100,
        idle_timeout: ms(60_000),
        connect_timeout: ms(1_000),
    };
    assert_eq!(upstream.pool, pool);
}

#[test]
fn the_configuration_of_defaults_is_one() {
    let defaults = super::defaults().config;
    let mut minimal = config(MINIMAL);
    minimal.listeners[0].bind = defaults.listeners[0].bind;
    minimal.upstreams[0].endpoints = defaults.upstreams[0].endpoints.clone();
    assert_eq!(defaults, minimal);
}

#[test]
fn every_value_arrives_in_its_field() {
    let config = config(
        r#"
engine = { shards = "0,2-3", runtime = "uring", admin = "", drain_timeout = "0", max_inflight = 7 }
state = { mode = "shared", latency = "per-loop" }
[[listener]]
bind = "[::1]:0"
max_body_bytes = 0x10
forwarded = "both"
[[route]]
path_prefix = "/api/"
host = "API.Example"
upstream = "b"
timeout = "250ms"
[[upstream]]
name = "a"
endpoints = ["127.0.0.1:1"]
[[upstream]]
name = "b"
endpoints = ["127.0.0.1:1", { address = "[::1]:2", weight = 3 }]
balance = "least-request"
ewma.alpha = 1
ewma.initial = "5ms"
limiter = { kind = "fixed", initial = 64, enforce = false }
breaker.kind = "consecutive"
retry.per_try_timeout = "1.5s"
"#,
    );
    assert_eq!(config.engine.shards, Shards::Cores(vec![0, 2, 3]));
    assert_eq!(
        (config.engine.runtime, config.engine.admin),
        (Runtime::Uring, None)
    );
    assert_eq!(
        (config.engine.drain_timeout, config.engine.max_inflight),
        (Duration::ZERO, Some(7))
    );
    assert_eq!(
        config.state,
        State {
            inflight: Placement::Shared,
            latency: Placement::PerLoop,
            exchange_interval: None,
        }
    );
    assert_eq!(config.listeners[0].bind, "[::1]:0".parse().unwrap());
    assert_eq!(config.listeners[0].max_body_bytes, Some(16));
    assert_eq!(config.listeners[0].forwarded, Forwarded::Both);
    let timeout = Duration::from_millis(250);
    let route = Route {
        path_prefix: "/api/".into(),
        host: "api.example".into(),
        upstream: 1,
        timeout,
    };
    assert_eq!(config.routes, [route]);
    let b = &config.upstreams[1];
    let weighted = Endpoint {
        address: "[::1]:2".parse().unwrap(),
        weight: 3,
    };
    assert_eq!(b.endpoints[1], weighted);
    assert_eq!(b.balance, Balance::LeastRequest);
    assert_eq!(b.ewma.averaging, Averaging::Alpha(1.0));
    assert_eq!(b.ewma.initial, Initial::Latency(Duration::from_millis(5)));
    assert_eq!(
        b.limiter,
        Limiter {
            enforce: false,
            kind: LimiterKind::Fixed,
            initial: 64
        }
    );
    assert_eq!(b.breaker.kind, BreakerKind::Consecutive);
    assert_eq!(b.retry.per_try_timeout, Some(Duration::from_millis(1_500)));
}

#[test]
fn numbers_that_shards_cannot_divide_are_odd_and_usable() {
    let text = "\
[engine]
max_inflight = 3
[[listener]]
bind = \"127.0.0.1:8080\"
max_connections = 3
[[upstream]]
endpoints = [\"127.0.0.1:9001\"]
[upstream.limiter]
kind = \"fixed\"
initial = 2
[upstream.outlier]
consecutive_failures = 7
";
    let parsed = parse(text, "f").unwrap();
    assert_eq!(parsed.warnings(1).lines().count(), 0);
    let lines: Vec<String> = parsed.warnings(4).lines().collect();
    let cap = "for the process, but each of 4 shards gets at least 1; set it to 4 or more, or \
               engine.shards to";
    assert_eq!(
        lines,
        [
            format!("f:5:19: warning: listener.max_connections: is 3 {cap} 3 or fewer"),
            format!("f:10:11: warning: upstream.limiter.initial: is 2 {cap} 2 or fewer"),
            "f:12:24: warning: upstream.outlier.consecutive_failures: is 7 for the process, so that \
             some of 4 shards act on a single failure; set it to 8 or more, or engine.shards to 3 \
             or fewer"
                .to_owned(),
        ]
    );
}

#[test]
fn what_has_no_effect_is_odd_and_usable() {
    let text = format!(
        "{MINIMAL}limiter.initial = 9\nbreaker.consecutive = 3\n[[route]]\n[[route]]\nhost = \"a\"\n"
    );
    let lines: Vec<String> = parse(&text, "f").unwrap().warnings(1).lines().collect();
    assert_eq!(
        lines,
        [
            "f:5:19: warning: upstream.limiter.initial: has no effect while kind is \"off\", set \
             kind = \"fixed\"",
            "f:6:23: warning: upstream.breaker.consecutive: has no effect while kind is \"off\", \
             set kind = \"consecutive\"",
            "f:8:1: warning: route.path_prefix: never matches, put it before route 1 above",
        ]
    );
}
