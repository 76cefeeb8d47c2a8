//! `evenkeel doctor`: is this host fit for what the configuration asks?
//!
//! [`host`] reads, [`parse`] understands, the checks judge: each takes plain values and gives one
//! finding. What cannot be known is a warning that says so.

mod check;
mod cores;
mod host;
mod kernel;
mod limits;
mod network;
mod parse;

use std::path::Path;

use evenkeel_runtime::{allowed_cores, probe};

use crate::config::{Config, Runtime, Shards};
use check::Findings;
use host::Host;

/// What the configuration asks of the host.
struct Wanted {
    /// Cores with a shard each.
    shards: Vec<usize>,
    /// Downstream connections in the process.
    connections: u64,
    /// The longest queue of a listener.
    backlog: u64,
    /// io_uring, and nothing else.
    only_uring: bool,
}

impl Wanted {
    fn new(config: &Config, allowed: &[usize]) -> Wanted {
        let shards = match &config.engine.shards {
            Shards::All => allowed.to_vec(),
            // More than there are: the numbers stand for cores that are missing.
            Shards::Count(count) => {
                let missing = allowed.iter().max().map_or(0, |last| last + 1)..;
                let cores = allowed.iter().copied().chain(missing);
                cores.take(*count as usize).collect()
            }
            Shards::Cores(cores) => cores.iter().map(|&core| core as usize).collect(),
        };
        let listeners = &config.listeners;
        Wanted {
            shards,
            connections: listeners.iter().map(|l| u64::from(l.max_connections)).sum(),
            backlog: listeners
                .iter()
                .map(|l| l.backlog.into())
                .max()
                .unwrap_or(0),
            only_uring: config.engine.runtime != Runtime::Auto,
        }
    }
}

/// The text or the JSON to print, and whether the host is fit.
#[must_use]
pub(crate) fn examine(config: &Config, json: bool) -> (String, bool) {
    let findings = findings(config, &Host::at(Path::new("/")));
    let text = match json {
        true => format!("{:#}", findings.json()),
        false => findings.to_string(),
    };
    (text, findings.fit())
}

fn findings(config: &Config, host: &Host) -> Findings {
    let allowed = allowed_cores();
    let wanted = Wanted::new(config, &allowed);
    let shards = wanted.shards.len() as u64;
    let ring = probe::uring();
    let fallback = !wanted.only_uring && kernel::has_epoll();
    Findings(vec![
        kernel::allowed(
            &ring,
            host.sysctl("kernel.io_uring_disabled"),
            host.seccomp(),
            fallback,
        ),
        kernel::features(&ring, host.release().as_deref(), fallback),
        limits::memlock(
            &ring,
            host.limit("Max locked memory"),
            host.capable(limits::CAP_IPC_LOCK),
            shards,
        ),
        limits::open_files(host.limit("Max open files"), wanted.connections, shards),
        network::somaxconn(host.sysctl("net.core.somaxconn"), wanted.backlog),
        network::syn_cookies(host.sysctl("net.ipv4.tcp_syncookies")),
        network::syn_backlog(
            host.sysctl("net.ipv4.tcp_max_syn_backlog"),
            host.sysctl("net.ipv4.tcp_syncookies"),
            wanted.backlog,
        ),
        network::migrate(host.sysctl("net.ipv4.tcp_migrate_req")),
        network::busy_poll(
            host.sysctl("net.core.busy_poll"),
            host.sysctl("net.core.busy_read"),
        ),
        network::interrupts(host.cards().as_deref(), &wanted.shards),
        cores::shards(&wanted.shards, &allowed),
        cores::quota(host.quota(), shards),
        cores::isolation(host.isolated().as_deref(), &wanted.shards),
        cores::governor(
            &wanted
                .shards
                .iter()
                .map(|&core| host.governor(core))
                .collect::<Vec<_>>(),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use check::Status;

    fn config(engine: &str) -> Config {
        let text = format!(
            "[engine]\n{engine}\n\
             [[listener]]\nbind = \"127.0.0.1:1\"\nmax_connections = 10\nbacklog = 7\n\
             [[listener]]\nbind = \"127.0.0.1:2\"\nmax_connections = 20\nbacklog = 9\n\
             [[upstream]]\nendpoints = [\"127.0.0.1:3\"]\n"
        );
        crate::config::parse(&text, "f").unwrap().config
    }

    #[test]
    fn wants_come_from_the_configuration() {
        let wanted = Wanted::new(&config("runtime = \"uring\""), &[2, 5]);
        assert_eq!(wanted.shards, [2, 5]);
        assert_eq!((wanted.connections, wanted.backlog), (30, 9));
        assert!(wanted.only_uring);
        for (shards, cores) in [
            ("1", vec![2]),
            ("3", vec![2, 5, 6]),
            ("\"0-1,9\"", vec![0, 1, 9]),
        ] {
            let wanted = Wanted::new(&config(&format!("shards = {shards}")), &[2, 5]);
            assert_eq!(wanted.shards, cores);
            assert!(!wanted.only_uring);
        }
    }

    #[test]
    fn a_host_that_says_nothing_is_warned_about_and_not_failed() {
        let nowhere = Path::new("/nonexistent/evenkeel");
        for check in findings(&config(""), &Host::at(nowhere)).0 {
            // What the probe and the affinity say does not come from files.
            if ["io_uring", "io_uring-features", "shards"].contains(&check.topic.name) {
                continue;
            }
            assert_eq!(check.status, Status::Warn, "{check}");
            assert!(check.found.starts_with("cannot tell"), "{check}");
        }
    }
}
