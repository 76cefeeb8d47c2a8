//! `[state]`: where each primitive keeps its numbers.

use super::choice::choice;
use super::reader::Reader;
use super::section::{Form, Key, Kind, Preset, Section, key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub inflight: Placement,
    pub latency: Placement,
}

choice! {
    /// Who sees a number.
    Placement {
        /// The event loop that counts it.
        PerLoop = "per-loop",
        /// Every event loop of the process.
        Shared = "shared",
    }
}

const PLACEMENT: Kind = Kind::Choice {
    words: Placement::WORDS,
    later: &["exchange"],
};

pub(super) static STATE: Section = Section {
    path: "state",
    form: Form::Single,
    doc: "Where each primitive keeps its numbers: per-loop (each shard sees its own) or shared (one \
          atomic for the process).",
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
    ],
    sections: &[],
    later: &[
        "outlier",
        "limiter",
        "breaker",
        "retry_budget",
        "exchange_interval",
    ],
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
        };
        reader.finish();
        state
    }
}
