//! `[engine]`: the process as a whole.

use std::net::SocketAddr;
use std::path::PathBuf;

use evenkeel_base::Duration;

use super::choice::choice;
use super::reader::Reader;
use super::section::{Form, Kind, Preset, Section, Zero, key};
use super::shards::Shards;
use super::value;

#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    pub shards: Shards,
    pub runtime: Runtime,
    /// `None`: no admin listener.
    pub admin: Option<SocketAddr>,
    /// Empty: POST needs none.
    pub admin_token: String,
    /// Empty: no successor takes over.
    pub takeover: String,
    pub drain_timeout: Duration,
    /// Requests in flight in the process.
    pub max_inflight: Option<u32>,
    pub access_log: LogTarget,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Off,
    Stderr,
    File(PathBuf),
}

choice! {
    /// How shards talk to the kernel.
    Runtime {
        /// The best that the host allows.
        Auto = "auto",
        Uring = "uring",
        Epoll = "epoll",
        Glommio = "glommio",
    }
}

pub(super) static ENGINE: Section = Section {
    path: "engine",
    form: Form::Single,
    doc: "The process as a whole.",
    keys: &[
        key(
            "shards",
            Kind::Shards,
            Preset::Toml("\"all\""),
            "Event loops: a count, \"all\" cores that cgroup and affinity allow, or a list of cores \
             such as \"0,2-3\".",
        ),
        key(
            "runtime",
            Kind::Choice {
                words: &["auto", "uring", "epoll"],
                later: &["glommio"],
            },
            Preset::Toml("\"auto\""),
            "How shards talk to the kernel; auto takes io_uring, and epoll with a warning where that is \
             refused.",
        ),
        key(
            "admin",
            Kind::BindOrEmpty,
            Preset::Toml("\"127.0.0.1:9901\""),
            "Address of the admin listener; \"\" turns it off.",
        ),
        key(
            "admin_token",
            Kind::Token,
            Preset::Toml("\"\""),
            "What POST to the admin listener must carry as Authorization: Bearer TOKEN; \"\" asks for none.",
        ),
        key(
            "takeover",
            Kind::SocketPath,
            Preset::Toml("\"\""),
            "Unix socket at which a process that is started while this one runs takes over the listening \
             sockets; this one then drains; \"\" turns it off.",
        ),
        key(
            "drain_timeout",
            Kind::Duration(Zero::Allowed),
            Preset::Toml("\"30s\""),
            "After a signal to stop, requests under way have this long to end; 0 ends at once.",
        ),
        key(
            "max_inflight",
            Kind::Count {
                least: 0,
                most: 1_000_000_000,
            },
            Preset::Toml("0"),
            "Requests in flight in the process; further ones are refused; 0 is no cap.",
        ),
        key(
            "access_log",
            Kind::LogTarget,
            Preset::Toml("\"off\""),
            "One JSON line a request, to standard error or appended to a file, which a reload opens again. \
             Requests without an x-request-id get one then.",
        ),
    ],
    sections: &[],
    later: &[],
};

impl Engine {
    pub(super) fn read(mut reader: Reader<'_>) -> Engine {
        let engine = Engine {
            shards: reader.required("shards", |given, _| Shards::read(given)),
            runtime: reader.choice("runtime"),
            admin: reader.required("admin", |given, _| match given.as_str() {
                Some("") => Ok(None),
                _ => value::address(given, "\"127.0.0.1:9901\", or \"\" for none").map(Some),
            }),
            admin_token: reader.required("admin_token", |given, _| value::token(given)),
            takeover: reader.required("takeover", |given, _| value::socket_path(given)),
            drain_timeout: reader.duration("drain_timeout"),
            max_inflight: reader.cap("max_inflight"),
            access_log: reader.required("access_log", |given, _| value::log_target(given)),
        };
        reader.finish();
        engine
    }
}
