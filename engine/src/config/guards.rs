//! `[upstream.outlier]`, `[upstream.limiter]`, `[upstream.breaker]`: what stands between a request
//! and an endpoint. Each decides, counts and reports without acting when `enforce` is false.

use evenkeel_base::Duration;

use super::choice::choice;
use super::reader::Reader;
use super::report::Meaning;
use super::section::{Form, Key, Kind, Preset, Section, Zero, key};

/// Ejects endpoints that fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    pub enforce: bool,
    /// In a row, in the process; 0 is off.
    pub consecutive_failures: u32,
    pub base_ejection: Duration,
    pub max_ejection: Duration,
    /// Fraction of the endpoints, rounded down.
    pub max_ejected: f64,
    /// With more than this fraction ejected, ejection is ignored.
    pub panic_threshold: f64,
    pub probe_on_return: bool,
}

/// Caps the attempts in flight at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    pub enforce: bool,
    pub kind: LimiterKind,
    /// The limit of `fixed`, in the process.
    pub initial: u32,
}

choice! {
    LimiterKind {
        Fixed = "fixed",
        Off = "off",
    }
}

/// Refuses requests to an upstream that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    pub enforce: bool,
    pub kind: BreakerKind,
    /// Failures in a row, in the process; 0 is off.
    pub consecutive: u32,
    pub open_for: Duration,
    /// Successes that close it again.
    pub half_open_probes: u32,
    pub half_open_concurrency: u32,
    /// A probe that takes longer counts as failed.
    pub probe_lease: Duration,
}

choice! {
    BreakerKind {
        Consecutive = "consecutive",
        Off = "off",
    }
}

const ENFORCE: Key = key(
    "enforce",
    Kind::Flag,
    Preset::Toml("true"),
    "false: decides, counts and reports, and does not act.",
);

const ROW: Kind = Kind::Count {
    least: 0,
    most: 1_000_000,
};

pub(super) static OUTLIER: Section = Section {
    path: "upstream.outlier",
    form: Form::Single,
    doc: "Ejects an endpoint that fails while its peers do not have to.",
    keys: &[
        ENFORCE,
        key(
            "consecutive_failures",
            ROW,
            Preset::Toml("5"),
            "Failures in a row that eject an endpoint; 0 is off.",
        ),
        key(
            "base_ejection",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"30s\""),
            "The n-th ejection in a row lasts n times this.",
        ),
        key(
            "max_ejection",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"300s\""),
            "Longest ejection.",
        ),
        key(
            "max_ejected",
            Kind::Fraction(Zero::Allowed),
            Preset::Toml("1.0"),
            "Fraction of the endpoints that may be ejected at a time, rounded down.",
        ),
        key(
            "panic_threshold",
            Kind::Fraction(Zero::Allowed),
            Preset::Toml("0.5"),
            "With strictly more than this fraction ejected, ejections are ignored while it lasts.",
        ),
        key(
            "probe_on_return",
            Kind::Flag,
            Preset::Toml("true"),
            "A returning endpoint gets one attempt at a time until its first success.",
        ),
    ],
    sections: &[],
    later: &[
        "success_rate_window",
        "success_rate_below_peers",
        "latency_above_peers",
        "min_volume",
    ],
};

pub(super) static LIMITER: Section = Section {
    path: "upstream.limiter",
    form: Form::Single,
    doc: "Caps the attempts in flight at the upstream; refuses and queues nothing.",
    keys: &[
        ENFORCE,
        key(
            "kind",
            Kind::Choice {
                words: LimiterKind::WORDS,
                later: &["gradient"],
            },
            Preset::Toml("\"off\""),
            "How the limit is found; fixed is the number in initial.",
        ),
        key(
            "initial",
            Kind::Count {
                least: 1,
                most: 1_000_000,
            },
            Preset::Toml("20"),
            "The limit: attempts in flight in the process.",
        ),
    ],
    sections: &[],
    later: &[
        "min",
        "max",
        "window",
        "min_samples",
        "dip_every",
        "tolerance",
        "smoothing",
    ],
};

pub(super) static BREAKER: Section = Section {
    path: "upstream.breaker",
    form: Form::Single,
    doc: "Refuses requests while the upstream as a whole fails, and lets probes find out when it heals.",
    keys: &[
        ENFORCE,
        key(
            "kind",
            Kind::Choice {
                words: BreakerKind::WORDS,
                later: &["rate"],
            },
            Preset::Toml("\"off\""),
            "What opens it; consecutive is failures in a row.",
        ),
        key(
            "consecutive",
            ROW,
            Preset::Toml("5"),
            "Failures in a row that open it; 0 is off.",
        ),
        key(
            "open_for",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"10s\""),
            "Time until probes may try.",
        ),
        key(
            "half_open_probes",
            Kind::Count {
                least: 1,
                most: 1_000,
            },
            Preset::Toml("5"),
            "Probes that must succeed before it closes.",
        ),
        key(
            "half_open_concurrency",
            Kind::Count {
                least: 1,
                most: 1_000,
            },
            Preset::Toml("1"),
            "Probes in flight in the process.",
        ),
        key(
            "probe_lease",
            Kind::Duration(Zero::Refused),
            Preset::Toml("\"5s\""),
            "A probe that has not settled by then counts as failed.",
        ),
    ],
    sections: &[],
    later: &["failure_rate", "slow_call", "window", "min_volume"],
};

impl Outlier {
    pub(super) fn read(mut reader: Reader<'_>) -> Outlier {
        let outlier = Outlier {
            enforce: reader.flag("enforce"),
            consecutive_failures: reader.count32("consecutive_failures"),
            base_ejection: reader.duration("base_ejection"),
            max_ejection: reader.duration("max_ejection"),
            max_ejected: reader.fraction("max_ejected"),
            panic_threshold: reader.fraction("panic_threshold"),
            probe_on_return: reader.flag("probe_on_return"),
        };
        if outlier.max_ejection < outlier.base_ejection {
            let Outlier {
                base_ejection,
                max_ejection,
                ..
            } = outlier;
            // At whichever the file gives: the other may be a default.
            let name = if reader.given("max_ejection").is_some() {
                "max_ejection"
            } else {
                "base_ejection"
            };
            let text = format!("the longest ejection, {max_ejection}, is shorter than the first");
            let text = format!("{text}, {base_ejection}, expected at least as long");
            reader.error(reader.at(name), name, text);
        }
        reader.divided(
            "consecutive_failures",
            outlier.consecutive_failures,
            Meaning::Row,
        );
        reader.finish();
        outlier
    }
}

impl Limiter {
    pub(super) fn read(mut reader: Reader<'_>) -> Limiter {
        let limiter = Limiter {
            enforce: reader.flag("enforce"),
            kind: reader.choice("kind"),
            initial: reader.count32("initial"),
        };
        match limiter.kind {
            LimiterKind::Fixed => reader.divided("initial", limiter.initial, Meaning::Cap),
            LimiterKind::Off if reader.given("initial").is_some() => {
                unused(&reader, "initial", "fixed");
            }
            LimiterKind::Off => {}
        }
        reader.finish();
        limiter
    }
}

impl Breaker {
    pub(super) fn read(mut reader: Reader<'_>) -> Breaker {
        let breaker = Breaker {
            enforce: reader.flag("enforce"),
            kind: reader.choice("kind"),
            consecutive: reader.count32("consecutive"),
            open_for: reader.duration("open_for"),
            half_open_probes: reader.count32("half_open_probes"),
            half_open_concurrency: reader.count32("half_open_concurrency"),
            probe_lease: reader.duration("probe_lease"),
        };
        match breaker.kind {
            BreakerKind::Consecutive => {
                reader.divided("consecutive", breaker.consecutive, Meaning::Row);
            }
            BreakerKind::Off if reader.given("consecutive").is_some() => {
                unused(&reader, "consecutive", "consecutive");
            }
            BreakerKind::Off => {}
        }
        reader.finish();
        breaker
    }
}

/// A number was given and nothing looks at it, because `kind` was left out or is off.
fn unused(reader: &Reader<'_>, name: &str, kind: &str) {
    let text = format!("has no effect while kind is \"off\", set kind = {kind:?}");
    reader.warning(reader.at(name), name, text);
}
