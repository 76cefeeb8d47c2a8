//! `[[listener]]`: where downstream connections come in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use evenkeel_base::Duration;

use super::choice::choice;
use super::reader::Reader;
use super::report::Meaning;
use super::section::{Form, Kind, Preset, Section, Zero, key};
use super::value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Port 0 takes a free one.
    pub bind: SocketAddr,
    pub max_connections: u32,
    pub backlog: u32,
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    /// Without progress.
    pub body_timeout: Duration,
    pub max_header_bytes: u32,
    pub max_headers: u32,
    pub max_body_bytes: Option<u64>,
    pub forwarded: Forwarded,
}

choice! {
    /// Which header fields tell an endpoint who the client is.
    Forwarded {
        Off = "off",
        /// X-Forwarded-For, -Proto and -Host.
        XForwarded = "x-forwarded",
        /// Forwarded (RFC 7239).
        Forwarded = "forwarded",
        Both = "both",
    }
}

pub(super) static LISTENER: Section = Section {
    path: "listener",
    form: Form::Repeated,
    doc: "An address that accepts downstream connections. At least one.",
    keys: &[
        key(
            "bind",
            Kind::Bind,
            Preset::Required {
                expected: "IP:port to listen on such as \"127.0.0.1:8080\"",
            },
            "IP:port to listen on; port 0 takes a free one, which the log names.",
        ),
        key(
            "max_connections",
            Kind::Count {
                least: 1,
                most: 10_000_000,
            },
            Preset::Toml("100000"),
            "Downstream connections in the process; clamped to the open-files limit.",
        ),
        key(
            "backlog",
            Kind::Count {
                least: 1,
                most: 65_535,
            },
            Preset::Toml("4096"),
            "Connections that may wait to be accepted, per shard; the kernel clamps it to somaxconn.",
        ),
        key(
            "header_timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"10s\""),
            "From the first byte of a request to the end of its head.",
        ),
        key(
            "idle_timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"60s\""),
            "A keep-alive connection without a request is closed after this long.",
        ),
        key(
            "body_timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"30s\""),
            "Longest pause without progress while a body is received or sent.",
        ),
        key(
            "max_header_bytes",
            Kind::Count {
                least: 256,
                most: 1_048_576,
            },
            Preset::Toml("65536"),
            "Size of a request head, the request line included.",
        ),
        key(
            "max_headers",
            Kind::Count {
                least: 1,
                most: 1_000,
            },
            Preset::Toml("100"),
            "Header fields of a request.",
        ),
        key(
            "max_body_bytes",
            Kind::Count {
                least: 0,
                most: u64::MAX >> 1,
            },
            Preset::Toml("0"),
            "Size of a request body; 0 is unlimited.",
        ),
        key(
            "forwarded",
            Kind::Choice {
                words: Forwarded::WORDS,
                later: &[],
            },
            Preset::Toml("\"x-forwarded\""),
            "Which header fields tell an endpoint who the client is.",
        ),
    ],
    sections: &[],
    later: &["accept"],
};

impl Listener {
    /// Every listener; none, or two on one address, is a problem.
    pub(super) fn read_all(root: &mut Reader<'_>, admin: Option<SocketAddr>) -> Vec<Listener> {
        let readers = root.sections(&LISTENER);
        if root.given("listener").is_none() {
            let text = "is missing, expected at least one [[listener]] with bind = \"IP:port\"";
            root.error(0, "listener", text);
        }
        let mut listeners: Vec<Listener> = Vec::new();
        for reader in readers {
            let at = reader.at("bind");
            let report = reader.report();
            let listener = Listener::read(reader);
            let bind = listener.bind;
            if bind.port() != 0 && listeners.iter().any(|other| other.bind == bind) {
                let text = format!("is \"{bind}\", expected an address that no listener above has");
                report.error(at, "listener.bind", text);
            }
            if bind.port() != 0 && admin == Some(bind) {
                let text = format!("is \"{bind}\", expected another address than engine.admin");
                report.error(at, "listener.bind", text);
            }
            listeners.push(listener);
        }
        listeners
    }

    fn read(mut reader: Reader<'_>) -> Listener {
        // A missing address is an error, so that nobody sees what stands here instead.
        const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let bind = reader.read("bind", |given, _| {
            value::address(given, "\"127.0.0.1:8080\"")
        });
        let listener = Listener {
            bind: bind.unwrap_or(UNKNOWN),
            max_connections: reader.count32("max_connections"),
            backlog: reader.count32("backlog"),
            header_timeout: reader.duration("header_timeout"),
            idle_timeout: reader.duration("idle_timeout"),
            body_timeout: reader.duration("body_timeout"),
            max_header_bytes: reader.count32("max_header_bytes"),
            max_headers: reader.count32("max_headers"),
            max_body_bytes: Some(reader.count("max_body_bytes")).filter(|&most| most > 0),
            forwarded: reader.choice("forwarded"),
        };
        reader.divided("max_connections", listener.max_connections, Meaning::Cap);
        reader.finish();
        listener
    }
}
