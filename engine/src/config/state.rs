//! `[state]`: where each primitive keeps its numbers.

use evenkeel_base::Duration;

use super::choice::choice;
use super::reader::Reader;
use super::section::{Form, Key, Kind, Preset, Section, key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub inflight: Placement,
    pub latency: Placement,
    /// `None` for half the median latency.
    pub exchange_interval: Option<Duration>,
}

choice! {
    /// Who sees a number.
    Placement {
        /// The event loop that counts it.
        PerLoop = "per-loop",
        /// Every event loop of the process.
        Shared = "shared",
        /// The event loop that counts it, and from time to time the others.
        Exchange = "exchange",
    }
}

const PLACEMENT: Kind = Kind::Choice {
    words: Placement::WORDS,
    later: &[],
};

pub(super) static STATE: Section = Section {
    path: "state",
    form: Form::Single,
    doc: "Where each primitive keeps its numbers: per-loop (each shard sees its own), shared (one \
          atomic for the process) or exchange (each shard publishes its own and folds in the others').",
    keys: &[
        key(
            "mode",
            PLACEMENT,
            Preset::Toml("\"per-loop\""),
            "All primitives at once.",
        ),
        placed(
            "inflight",
            "Attempts in flight at each endpoint; mode when not given.",
        ),
        placed(
            "latency",
            "Latency and success averages of each endpoint; mode when not given.",
        ),
        key(
            "exchange_interval",
            Kind::DurationOr {
                word: "auto",
                later: &[],
            },
            Preset::Toml("\"auto\""),
            "Time between two looks at what the other shards published; auto is half the median \
             latency, within 0.2 ms to 20 ms.",
        ),
    ],
    sections: &[],
    later: &["outlier", "limiter", "breaker", "retry_budget"],
};

const fn placed(name: &'static str, doc: &'static str) -> Key {
    key(name, PLACEMENT, Preset::Absent, doc)
}

impl State {
    pub(super) fn read(mut reader: Reader<'_>) -> State {
        let mode: Placement = reader.choice("mode");
        let state = State {
            inflight: reader.optional_choice("inflight").unwrap_or(mode),
            latency: reader.optional_choice("latency").unwrap_or(mode),
            exchange_interval: reader.duration_or_word("exchange_interval"),
        };
        reader.finish();
        state
    }
}
