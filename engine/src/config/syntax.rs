//! Text that is not TOML, explained in the form of every other problem.

use std::collections::BTreeSet;

use toml::de::Error;

use super::problem::{Found, Severity};

/// The first error of each line: the parser goes on after an error and stumbles over the rest of the
/// line.
pub(super) fn explain(text: &str, errors: &[Error]) -> Vec<Found> {
    let mut errors: Vec<(usize, &Error)> = errors
        .iter()
        .map(|error| (error.span().map_or(0, |span| span.start), error))
        .collect();
    errors.sort_by_key(|&(at, _)| at);
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut seen = BTreeSet::new();
    errors
        .into_iter()
        .filter(|&(at, _)| seen.insert(line_ends.partition_point(|&end| end < at)))
        .map(|(at, error)| Found {
            at,
            severity: Severity::Error,
            key: "syntax".to_owned(),
            text: sentence(error.message()),
        })
        .collect()
}

fn sentence(message: &str) -> String {
    let message = message.lines().collect::<Vec<_>>().join(" ");
    let unquoted = [
        "string values must be quoted",
        "invalid boolean",
        "invalid float",
        "invalid integer",
        "invalid datetime",
    ];
    if unquoted.iter().any(|start| message.starts_with(start)) {
        // What a bare word looks like to the parser says little to the person who left out quotes.
        return "not a number, true or false, expected quotes around text: \"...\"".to_owned();
    }
    match message.as_str() {
        "duplicate key" => "duplicate key, remove one of the two".to_owned(),
        "missing assignment between key-value pairs, expected `=`"
        | "key with no value, expected `=`" => {
            "key without a value, expected KEY = VALUE".to_owned()
        }
        _ => message,
    }
}
