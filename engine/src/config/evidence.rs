//! Why a default is what it is, and the page that lists them all, tuning/defaults.md.

use std::fmt::Write as _;

use evenkeel_runtime::{GroupConfig, ShardConfig, probe};

use super::ROOT;
use super::reference::{default, value};

/// For keys whose default somebody argued or measured; the others are as most proxies have them.
pub(super) const WHY: &[(&str, &str)] = &[
    (
        "state.exchange_interval",
        "short against a change of load; what a fold costs is in benches/policy/RESULTS.md",
    ),
    (
        "listener.backlog",
        "the kernel's own somaxconn since Linux 5.4; more would be cut",
    ),
    ("route.timeout", "Envoy's"),
    (
        "upstream.balance",
        "the only one that kept the tail with one gray endpoint of five: docs/experiments/gray-failure-wire.md",
    ),
    (
        "upstream.ewma.decay",
        "10 s in Finagle, linkerd and Envoy; shorter heals sooner and, where samples are rare, misjudges more: \
         docs/experiments/ewma-weight.md",
    ),
    (
        "upstream.ewma.initial",
        "a fixed guess starves new endpoints (too high) or floods them (too low); linkerd has 30 ms, tower 1 s",
    ),
    (
        "upstream.ewma.explore_after",
        "without it a healed endpoint stays outcast: docs/policies/balancer.md",
    ),
    (
        "upstream.outlier.consecutive_failures",
        "Envoy's and Finagle's",
    ),
    ("upstream.outlier.base_ejection", "Envoy's and gRPC's (A50)"),
    ("upstream.outlier.max_ejection", "Envoy's and gRPC's (A50)"),
    (
        "upstream.outlier.max_ejected",
        "the usual 0.1 ejects nobody where there are fewer than 10 endpoints",
    ),
    (
        "upstream.outlier.panic_threshold",
        "Envoy's; exactly half is not panic",
    ),
    (
        "upstream.breaker.half_open_probes",
        "docs/policies/breaker.md",
    ),
    (
        "upstream.breaker.probe_lease",
        "Resilience4j has none by default and can stay half open for ever",
    ),
    ("upstream.pool.idle_timeout", "nginx's"),
    ("upstream.pool.connect_timeout", "linkerd's"),
];

const OPENING: &str = "\
# Defaults

This page is generated from the table of keys that the parser follows, and from the runtime's own numbers;
a test holds it to them. What each key means stands in [docs/CONFIGURATION.md](../docs/CONFIGURATION.md).
A key without a reason has the value that is usual among proxies, and no measurement of ours behind it.

| key | default | range or unit | why |
|---|---|---|---|
";

/// The page, as it stands in the tree.
#[must_use]
pub fn page() -> String {
    let mut page = OPENING.to_owned();
    ROOT.walk(&mut |section| {
        for key in section.keys {
            let path = section.path_of(key.name);
            let why = WHY.iter().find(|(name, _)| *name == path);
            let why = why.map_or("", |(_, why)| why);
            let (default, value) = (default(key.preset), value(&key.kind));
            let _ = writeln!(page, "| `{path}` | {default} | {value} | {why} |");
        }
    });
    fixed(&mut page);
    page
}

/// What no key changes.
fn fixed(page: &mut String) {
    let ShardConfig {
        head_buffers,
        body_buffers,
        ..
    } = ShardConfig::default();
    let kib = |group: GroupConfig| group.size / 1024;
    let mib = |group: GroupConfig| (u64::from(group.count) * u64::from(group.size)) >> 20;
    let rows = [
        (
            "buffers for heads",
            format!(
                "{} of {} KiB: {} MiB",
                head_buffers.count,
                kib(head_buffers),
                mib(head_buffers)
            ),
        ),
        (
            "buffers for bodies",
            format!(
                "{} of {} KiB: {} MiB",
                body_buffers.count,
                kib(body_buffers),
                mib(body_buffers)
            ),
        ),
        (
            "locked memory for the ring, at most",
            format!("{} KiB", probe::memlock_per_shard() / 1024),
        ),
    ];
    page.push_str("\n## Fixed, for each shard\n\n| what | how much |\n|---|---|\n");
    for (what, how_much) in rows {
        let _ = writeln!(page, "| {what} | {how_much} |");
    }
}
