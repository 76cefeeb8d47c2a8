//! The reference page of the configuration, docs/CONFIGURATION.md.

use std::fmt::Write as _;

use super::ROOT;
use super::endpoint::MOST_ENDPOINTS;
use super::section::{Form, Key, Kind, Preset, Section, Zero};

const OPENING: &str = "\
# Configuration

This page is generated from the same table of keys that the parser and `evenkeel schema` follow; a
test holds it to them.

A configuration is one TOML file. `evenkeel check --config FILE` reports every problem at once, as
`FILE:LINE:COL: key: what is wrong, what would be right`, and exits with 2 if there is any. A line with
`warning:` is about something that works and is probably not what was meant; it does not change the exit
code. Unknown keys are problems. Keys of the contract that this version does not have yet are refused by
name.

Absolute numbers are for the whole process, whatever the number of shards: each shard takes its part, at
least 1. Where the parts no longer mean what the number says, `check` warns.

Durations are texts such as `\"15s\"`, `\"2.5s\"`, `\"100ms\"`, `\"50us\"`, with the units ns, us, ms, s, m, h.

The least that works:

```toml
[[listener]]
bind = \"127.0.0.1:8080\"

[[upstream]]
endpoints = [\"127.0.0.1:9001\"]
```

Longer examples stand in tuning/configs/.
";

/// The page, as it stands in the tree.
#[must_use]
pub fn page() -> String {
    let mut page = OPENING.to_owned();
    ROOT.walk(&mut |section| {
        if section.path.is_empty() {
            later(&mut page, section);
        } else {
            table(&mut page, section);
        }
    });
    page
}

fn table(page: &mut String, section: &Section) {
    let title = match section.form {
        Form::Inline => format!("`{{ ... }}` in `{}`", section.path),
        Form::Single | Form::Repeated => format!("`{}`", section.header()),
    };
    let _ = write!(page, "\n## {title}\n\n{}\n\n", section.doc);
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in section.keys {
        let Key { name, doc, .. } = key;
        let (value, default) = (value(&key.kind), default(key.preset));
        // A bar would end the cell.
        let doc = doc.replace('|', "\\|");
        let _ = writeln!(page, "| `{name}` | {value} | {default} | {doc} |");
    }
    later(page, section);
}

fn later(page: &mut String, section: &Section) {
    let mut names: Vec<String> = section
        .later
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    for key in section.keys {
        let words = match key.kind {
            Kind::Choice { later, .. } | Kind::DurationOr { later, .. } => later,
            _ => &[],
        };
        names.extend(
            words
                .iter()
                .map(|word| format!("`{} = \"{word}\"`", key.name)),
        );
    }
    if !names.is_empty() {
        let _ = write!(
            page,
            "\nNot available in this version: {}.\n",
            names.join(", ")
        );
    }
}

pub(super) fn default(preset: Preset) -> String {
    match preset {
        Preset::Required { .. } => "required".to_owned(),
        Preset::Absent => "none".to_owned(),
        Preset::Toml(text) => format!("`{text}`"),
    }
}

pub(super) fn value(kind: &Kind) -> String {
    match *kind {
        Kind::Flag => "true, false".to_owned(),
        Kind::Count { least, most } if most > u64::from(u32::MAX) => {
            format!("whole number, at least {least}")
        }
        Kind::Count { least, most } => format!("{least} to {most}"),
        Kind::Fraction(Zero::Allowed) => "0 to 1".to_owned(),
        Kind::Fraction(Zero::Refused) => "above 0, up to 1".to_owned(),
        Kind::Duration(Zero::Allowed) => "duration".to_owned(),
        Kind::Duration(Zero::Refused) => "duration above 0".to_owned(),
        Kind::DurationOr { word, .. } => format!("`\"{word}\"`, duration above 0"),
        Kind::Choice { words, .. } => {
            let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            words.join(", ")
        }
        Kind::Bind | Kind::Address => "IP:port".to_owned(),
        Kind::BindOrEmpty => "IP:port, `\"\"`".to_owned(),
        Kind::LogTarget => "`\"off\"`, `\"stderr\"`, path".to_owned(),
        Kind::SocketPath => "path of at most 107 bytes, `\"\"`".to_owned(),
        Kind::Token => "16 to 256 visible ASCII characters, `\"\"`".to_owned(),
        Kind::Name => "1 to 64 of A-Z a-z 0-9 `-` `_` `.`".to_owned(),
        Kind::UpstreamName => "name of an upstream".to_owned(),
        Kind::PathPrefix => "path that starts with `/`".to_owned(),
        Kind::Host => "host name or address, `\"\"`".to_owned(),
        Kind::Shards => "count, `\"all\"`, core list".to_owned(),
        Kind::Endpoints(_) => format!("list of 1 to {MOST_ENDPOINTS}"),
    }
}
