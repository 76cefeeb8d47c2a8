//! The network stack: queues of new connections, and how packets reach the shards' cores.

use super::check::{Check, Topic};
use super::host::Card;
use super::parse::list;

const SOMAXCONN: Topic = Topic {
    name: "somaxconn",
    page: "tuning/host/somaxconn.md",
};
const SYN_COOKIES: Topic = Topic {
    name: "syn-cookies",
    page: "tuning/host/syn-cookies.md",
};
const SYN_BACKLOG: Topic = Topic {
    name: "syn-backlog",
    page: "tuning/host/syn-cookies.md",
};
const MIGRATE: Topic = Topic {
    name: "tcp-migrate-req",
    page: "tuning/host/tcp-migrate-req.md",
};
const BUSY_POLL: Topic = Topic {
    name: "busy-poll",
    page: "tuning/host/busy-poll.md",
};
const INTERRUPTS: Topic = Topic {
    name: "irq-placement",
    page: "tuning/host/irq-affinity.md",
};

/// Whether the kernel keeps as long a queue as the listeners ask for.
pub(super) fn somaxconn(value: Option<u64>, backlog: u64) -> Check {
    match value {
        None => SOMAXCONN.cannot_tell("net.core.somaxconn"),
        Some(value) if value < backlog => SOMAXCONN.warn(
            format!("{value} cuts the backlog of {backlog}: a burst of clients is dropped earlier"),
            format!("sysctl -w net.core.somaxconn={backlog}"),
        ),
        Some(value) => SOMAXCONN.ok(format!("{value} for a backlog of {backlog}")),
    }
}

/// Whether a flood of half-open connections leaves room for real ones.
pub(super) fn syn_cookies(value: Option<u64>) -> Check {
    let remedy = "sysctl -w net.ipv4.tcp_syncookies=1";
    match value {
        None => SYN_COOKIES.cannot_tell("net.ipv4.tcp_syncookies"),
        Some(0) => SYN_COOKIES.warn("off: a SYN flood shuts real clients out", remedy),
        Some(1) => SYN_COOKIES.ok("on when the queue is full"),
        Some(_) => SYN_COOKIES.warn(
            "always on: connections lose options that the cookie has no room for",
            remedy,
        ),
    }
}

/// Without cookies, this bounds the half-open connections.
pub(super) fn syn_backlog(value: Option<u64>, cookies: Option<u64>, backlog: u64) -> Check {
    match (value, cookies) {
        (None, _) => SYN_BACKLOG.cannot_tell("net.ipv4.tcp_max_syn_backlog"),
        (Some(value), Some(1..)) => {
            SYN_BACKLOG.ok(format!("{value}, and not used while SYN cookies are on"))
        }
        (Some(value), _) if value < backlog => SYN_BACKLOG.warn(
            format!("{value} is below the backlog of {backlog}, and SYN cookies are off"),
            format!("sysctl -w net.ipv4.tcp_max_syn_backlog={backlog}, or turn SYN cookies on"),
        ),
        (Some(value), _) => SYN_BACKLOG.ok(format!("{value} for a backlog of {backlog}")),
    }
}

/// Whether a listener that closes hands its queue to another one of the same address. The engine's
/// close together and share their port with no other process, so that either way is right.
pub(super) fn migrate(value: Option<u64>) -> Check {
    match value {
        None => MIGRATE.cannot_tell("net.ipv4.tcp_migrate_req"),
        Some(0) => MIGRATE.ok("off; no listener of this version takes over from another"),
        Some(_) => MIGRATE.ok("on"),
    }
}

/// Whether the kernel spins for packets behind the engine's back.
pub(super) fn busy_poll(poll: Option<u64>, read: Option<u64>) -> Check {
    match (poll, read) {
        (Some(0), Some(0)) => BUSY_POLL.ok("off: an idle engine uses no CPU"),
        (Some(poll), Some(read)) => BUSY_POLL.warn(
            format!(
                "net.core.busy_poll = {poll}, net.core.busy_read = {read}: every socket of the host \
                 spins for packets"
            ),
            "set both to 0 unless a measurement says otherwise",
        ),
        _ => BUSY_POLL.cannot_tell("net.core.busy_poll"),
    }
}

/// Whether the work of receiving packets is spread as the shards are. Good are: over all shards'
/// cores, or on none of them. Bad is some: those shards have less time than the others.
pub(super) fn interrupts(cards: Option<&[Card]>, shards: &[usize]) -> Check {
    let cards = match cards {
        None | Some([]) => {
            return INTERRUPTS.cannot_tell("/sys/class/net (no card with interrupts)");
        }
        Some(cards) => cards,
    };
    let uneven: Vec<&Card> = cards
        .iter()
        .filter(|card| {
            let shared = shards.iter().filter(|core| card.cores.contains(core));
            let shared = shared.count();
            shared != 0 && shared != shards.len()
        })
        .collect();
    let told = |cards: &[&Card]| {
        let told: Vec<String> = cards
            .iter()
            .map(|card| format!("{} on {}", card.name, list(&card.cores)))
            .collect();
        told.join(", ")
    };
    let where_shards = list(shards);
    match uneven.is_empty() {
        true => INTERRUPTS.ok(format!(
            "packets: {}; shards on {where_shards}",
            told(&cards.iter().collect::<Vec<_>>())
        )),
        false => INTERRUPTS.warn(
            format!(
                "packets arrive at some of the shards' cores only: {}; shards on {where_shards}",
                told(&uneven)
            ),
            "spread the card's queues over the shards' cores, or use RPS",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Ok, Warn};
    use super::*;

    #[test]
    fn queues_of_new_connections() {
        for (check, expected) in [
            (somaxconn(Some(128), 4096), Warn),
            (somaxconn(Some(4096), 4096), Ok),
            (somaxconn(None, 4096), Warn),
            (syn_cookies(Some(0)), Warn),
            (syn_cookies(Some(1)), Ok),
            (syn_cookies(Some(2)), Warn),
            (syn_cookies(None), Warn),
            (syn_backlog(Some(128), Some(1), 4096), Ok),
            (syn_backlog(Some(128), Some(0), 4096), Warn),
            (syn_backlog(Some(128), None, 4096), Warn),
            (syn_backlog(Some(4096), Some(0), 4096), Ok),
            (syn_backlog(None, Some(1), 4096), Warn),
            (migrate(Some(0)), Ok),
            (migrate(Some(1)), Ok),
            (migrate(None), Warn),
            (busy_poll(Some(0), Some(0)), Ok),
            (busy_poll(Some(50), Some(0)), Warn),
            (busy_poll(Some(0), Some(50)), Warn),
            (busy_poll(None, Some(0)), Warn),
        ] {
            assert_eq!(check.status, expected, "{check}");
        }
        let cut = somaxconn(Some(128), 4096);
        assert!(cut.remedy.contains("net.core.somaxconn=4096"), "{cut}");
    }

    #[test]
    fn packets_reach_all_shards_or_none() {
        let card = |name: &str, cores: &[usize]| Card {
            name: name.into(),
            cores: cores.to_vec(),
        };
        for (cards, shards, expected) in [
            (vec![card("eth0", &[0, 1])], &[0, 1][..], Ok),
            (vec![card("eth0", &[1])], &[0, 1], Warn),
            (vec![card("eth0", &[3])], &[0, 1], Ok),
            (vec![card("eth0", &[0])], &[0], Ok),
            (
                vec![card("eth0", &[0, 1]), card("eth1", &[0])],
                &[0, 1],
                Warn,
            ),
        ] {
            let check = interrupts(Some(&cards), shards);
            assert_eq!(check.status, expected, "{check}");
        }
        for nothing in [None, Some(&[][..])] {
            let check = interrupts(nothing, &[0]);
            assert_eq!(check.status, Warn);
            assert!(check.found.starts_with("cannot tell"), "{check}");
        }
        let check = interrupts(Some(&[card("a", &[0, 1]), card("b", &[1, 2])]), &[0, 1]);
        assert!(
            check.found.contains("b on 1-2") && !check.found.contains("a on"),
            "{check}"
        );
    }
}
