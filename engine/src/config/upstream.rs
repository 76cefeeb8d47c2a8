//! `[[upstream]]`: a set of endpoints that serve the same requests, and how they are chosen.

use evenkeel_base::Duration;

use super::choice::choice;
use super::endpoint::{ENDPOINT, ENDPOINTS, Endpoint};
use super::guards::{BREAKER, Breaker, LIMITER, Limiter, OUTLIER, Outlier};
use super::reader::Reader;
use super::report::Meaning;
use super::section::{Form, Kind, Preset, Section, Zero, key};
use super::value;

#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    pub name: String,
    /// At least one; no address twice.
    pub endpoints: Vec<Endpoint>,
    pub balance: Balance,
    pub ewma: Ewma,
    pub outlier: Outlier,
    pub limiter: Limiter,
    pub breaker: Breaker,
    pub retry: Retry,
    pub pool: Pool,
}

/// Upstreams at most.
pub(super) const MOST_UPSTREAMS: usize = 1024;

choice! {
    /// How an endpoint is chosen.
    Balance {
        RoundRobin = "round-robin",
        Random = "random",
        LeastRequest = "least-request",
        /// Power of two choices by attempts in flight.
        P2c = "p2c",
        /// Power of two choices by attempts in flight, latency and success.
        P2cEwma = "p2c-ewma",
    }
}

/// How latency is averaged, and when an endpoint is looked at again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ewma {
    pub averaging: Averaging,
    pub initial: Initial,
    /// Zero is off.
    pub explore_after: Duration,
    pub pending_age: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// By time, with this time constant.
    Decay(Duration),
    /// The same weight for every sample, above 0 and up to 1.
    Alpha(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// The median of its peers.
    Peers,
    Latency(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// `None`: an attempt may take as long as its request.
    pub per_try_timeout: Option<Duration>,
}

/// Keep-alive connections to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Per endpoint, in the process; 0 keeps none.
    pub max_idle: u32,
    pub idle_timeout: Duration,
    pub connect_timeout: Duration,
}

pub(super) static UPSTREAM: Section = Section {
    path: "upstream",
    form: Form::Repeated,
    doc: "Endpoints that serve the same requests, and how one is chosen. At least one.",
    keys: &[
        key(
            "name",
            Kind::Name,
            Preset::Toml("\"default\""),
            "What routes, metrics and the admin listener call it; one of its own for each upstream.",
        ),
        key(
            "endpoints",
            Kind::Endpoints(&ENDPOINT),
            Preset::Required {
                expected: ENDPOINTS,
            },
            "IP:port each, or a table { address, weight }.",
        ),
        key(
            "balance",
            Kind::Choice {
                words: Balance::WORDS,
                later: &[],
            },
            Preset::Toml("\"p2c-ewma\""),
            "How an endpoint is chosen; p2c looks at attempts in flight only, p2c-ewma at latency and \
             success too.",
        ),
    ],
    sections: &[&EWMA, &OUTLIER, &LIMITER, &BREAKER, &RETRY, &POOL],
    later: &["subset", "bulkhead", "hedge", "fallback", "health_check"],
};

static EWMA: Section = Section {
    path: "upstream.ewma",
    form: Form::Single,
    doc: "How latency and success are averaged for p2c-ewma.",
    keys: &[
        key(
            "decay",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"2.5s\""),
            "Time constant of the averages.",
        ),
        key(
            "alpha",
            Kind::Fraction(Zero::Refused),
            Preset::Absent,
            "Instead of decay: the same weight for every sample, above 0 and up to 1.",
        ),
        key(
            "initial",
            Kind::DurationOr {
                word: "peers",
                later: &[],
            },
            Preset::Toml("\"peers\""),
            "Latency that a new endpoint starts from: the median of its peers, or a duration.",
        ),
        key(
            "explore_after",
            Kind::Duration(Zero::Allowed),
            Preset::Toml("\"1s\""),
            "A slow endpoint that nobody looked at for this long gets the next request that may be \
             retried; 0 is off.",
        ),
        key(
            "pending_age",
            Kind::Flag,
            Preset::Toml("true"),
            "Latency is at least the age of the oldest outstanding attempt.",
        ),
    ],
    sections: &[],
    later: &["slow_start"],
};

static RETRY: Section = Section {
    path: "upstream.retry",
    form: Form::Single,
    doc: "What an attempt may cost.",
    keys: &[key(
        "per_try_timeout",
        Kind::DurationOr {
            word: "off",
            later: &["auto"],
        },
        Preset::Toml("\"off\""),
        "One attempt, from its start to the head of its answer; off is the route's timeout alone.",
    )],
    sections: &[],
    later: &[
        "max_attempts",
        "budget",
        "budget_ratio",
        "budget_max",
        "budget_initial",
        "budget_min_per_second",
        "backoff_base",
        "backoff_max",
        "jitter",
        "retry_on",
        "idempotent_only",
        "replay_bytes",
    ],
};

static POOL: Section = Section {
    path: "upstream.pool",
    form: Form::Single,
    doc: "Keep-alive connections to the endpoints.",
    keys: &[
        key(
            "max_idle",
            Kind::Count {
                least: 0,
                most: 1_000_000,
            },
            Preset::Toml("100"),
            "Idle connections kept for each endpoint, in the process; 0 keeps none.",
        ),
        key(
            "idle_timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"60s\""),
            "An idle connection is closed after this long.",
        ),
        key(
            "connect_timeout",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"1s\""),
            "Time to establish a connection.",
        ),
    ],
    sections: &[],
    later: &["max_connections"],
};

impl Upstream {
    /// Every upstream; none, or a name twice, is a problem.
    pub(super) fn read_all(root: &mut Reader<'_>) -> Vec<Upstream> {
        let readers = root.sections(&UPSTREAM);
        if root.given("upstream").is_none() {
            let text =
                "is missing, expected at least one [[upstream]] with endpoints = [\"IP:port\"]";
            root.error(0, "upstream", text);
        }
        if readers.len() > MOST_UPSTREAMS {
            let number = readers.len();
            let text = format!("is there {number} times, expected at most {MOST_UPSTREAMS}");
            root.error(root.at("upstream"), "upstream", text);
            return Vec::new();
        }
        let mut upstreams: Vec<Upstream> = Vec::new();
        for reader in readers {
            let (at, report) = (reader.at("name"), reader.report());
            let written = reader.written("name");
            let upstream = Upstream::read(reader);
            let stands = written.is_none_or(|written| written == upstream.name);
            if stands && upstreams.iter().any(|other| other.name == upstream.name) {
                let name = &upstream.name;
                let text = format!("is {name:?}, expected a name that no upstream above has");
                report.error(at, "upstream.name", text);
            }
            upstreams.push(upstream);
        }
        upstreams
    }

    fn read(mut reader: Reader<'_>) -> Upstream {
        let upstream = Upstream {
            name: reader.required("name", |given, _| value::name(given)),
            endpoints: Endpoint::read_all(&mut reader),
            balance: reader.choice("balance"),
            ewma: Ewma::read(reader.section(&EWMA)),
            outlier: Outlier::read(reader.section(&OUTLIER)),
            limiter: Limiter::read(reader.section(&LIMITER)),
            breaker: Breaker::read(reader.section(&BREAKER)),
            retry: Retry::read(reader.section(&RETRY)),
            pool: Pool::read(reader.section(&POOL)),
        };
        reader.finish();
        upstream
    }
}

impl Ewma {
    fn read(mut reader: Reader<'_>) -> Ewma {
        let decay = reader.duration("decay");
        let alpha = reader.optional_fraction("alpha");
        if let (Some(decay), Some(alpha)) = (reader.given("decay"), reader.given("alpha")) {
            let text = "decay and alpha are both given, keep one of them";
            let name = if alpha > decay { "alpha" } else { "decay" };
            reader.error(alpha.max(decay), name, text);
        }
        let ewma = Ewma {
            averaging: alpha.map_or(Averaging::Decay(decay), Averaging::Alpha),
            initial: reader
                .duration_or_word("initial")
                .map_or(Initial::Peers, Initial::Latency),
            explore_after: reader.duration("explore_after"),
            pending_age: reader.flag("pending_age"),
        };
        reader.finish();
        ewma
    }
}

impl Retry {
    fn read(mut reader: Reader<'_>) -> Retry {
        let retry = Retry {
            per_try_timeout: reader.duration_or_word("per_try_timeout"),
        };
        reader.finish();
        retry
    }
}

impl Pool {
    fn read(mut reader: Reader<'_>) -> Pool {
        let pool = Pool {
            max_idle: reader.count32("max_idle"),
            idle_timeout: reader.duration("idle_timeout"),
            connect_timeout: reader.duration("connect_timeout"),
        };
        reader.divided("max_idle", pool.max_idle, Meaning::Cap);
        reader.finish();
        pool
    }
}
