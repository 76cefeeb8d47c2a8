//! The schema, the reference page and the reader know the same keys, defaults and ranges.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::super::section::{Form, Key, Kind, Preset, Section};
use super::super::{ROOT, evidence, parse, reference, schema};
use super::{MINIMAL, config, refusal};

/// Dotted paths of every key in a schema object.
fn schema_keys(object: &Value, path: &str, keys: &mut BTreeSet<String>) {
    assert_eq!(
        object["additionalProperties"], false,
        "{path}: unknown keys are refused"
    );
    for (name, property) in object["properties"].as_object().unwrap() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if property["type"] == "object" {
            schema_keys(property, &path, keys);
        } else if property["items"]["type"] == "object" {
            schema_keys(&property["items"], &path, keys);
        } else {
            if let Some(items) = property["items"]["anyOf"].as_array() {
                let table = items.iter().find(|item| item["type"] == "object").unwrap();
                schema_keys(table, &path, keys);
            }
            keys.insert(path);
        }
    }
}

fn sections() -> Vec<&'static Section> {
    let mut sections = Vec::new();
    ROOT.walk(&mut |section| sections.push(section));
    sections
}

/// The minimal file with this line in a section, and the line's number.
fn with_line(section: &Section, line: &str) -> (String, usize) {
    if section.form == Form::Inline {
        let text = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[upstream]]\nendpoints = [{\n";
        return (format!("{text}{line}\n}}]\n"), 5);
    }
    // Keys that the minimal file gives are replaced by the line.
    let name = line.split(' ').next().unwrap();
    let kept: Vec<&str> = MINIMAL
        .lines()
        .filter(|kept| !kept.starts_with(name))
        .collect();
    let text = match section.path {
        "" => return (format!("{line}\n{MINIMAL}"), 1),
        "listener" => format!(
            "{}\n[[upstream]]\nendpoints = [\"127.0.0.1:9001\"]\n",
            kept[..2.min(kept.len())].join("\n")
        ),
        _ => format!("{}\n", kept.join("\n")),
    };
    match section.path {
        "listener" => {
            let text = text.replacen("[[listener]]\n", &format!("[[listener]]\n{line}\n"), 1);
            (text, 2)
        }
        "upstream" => (format!("{text}{line}\n"), text.lines().count() + 1),
        _ => (
            format!("{text}{}\n{line}\n", section.header()),
            text.lines().count() + 2,
        ),
    }
}

#[test]
fn schema_and_sections_have_the_same_keys() {
    let mut in_schema = BTreeSet::new();
    schema_keys(&schema::schema(), "", &mut in_schema);
    let in_sections: BTreeSet<String> = sections()
        .iter()
        .flat_map(|section| section.keys.iter().map(|key| section.path_of(key.name)))
        .collect();
    assert_eq!(in_schema, in_sections);
    assert!(in_sections.len() > 50);
}

#[test]
fn the_reader_looks_at_every_key_and_at_no_other() {
    for section in sections() {
        for Key { name, .. } in section.keys {
            // No key takes a date.
            let (text, line) = with_line(section, &format!("{name} = 1979-05-27"));
            let path = section.path_of(name);
            let lines = refusal(&text);
            let start = format!("f:{line}:{}: {path}: ", name.len() + 4);
            let found = lines.iter().find(|line| line.starts_with(&start));
            let found = found.unwrap_or_else(|| panic!("{start}\n{lines:#?}\n{text}"));
            assert!(found.contains("expected"), "{found}");
        }
        let (text, line) = with_line(section, "qqqqqqqq = 1");
        let lines = refusal(&text);
        let start = format!("f:{line}:1: {}: unknown key", section.path_of("qqqqqqqq"));
        assert!(
            lines.iter().any(|line| line.starts_with(&start)),
            "{start}\n{lines:#?}"
        );
    }
}

#[test]
fn what_comes_later_is_in_no_schema_and_refused_everywhere() {
    for section in sections() {
        for name in section.later {
            assert!(
                section.keys.iter().all(|key| key.name != *name),
                "{name} is both"
            );
            let (text, line) = with_line(section, &format!("{name} = 1"));
            let path = section.path_of(name);
            let expected =
                format!("f:{line}:1: {path}: is not available in this version, remove it");
            let lines = refusal(&text);
            assert!(lines.contains(&expected), "{expected}\n{lines:#?}");
        }
    }
}

/// A TOML file made of the schema's defaults alone, and values for what has none.
fn written_out(object: &Value, path: &str, file: &mut String) {
    let mut tables = Vec::new();
    for (name, property) in object["properties"].as_object().unwrap() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match (&property["default"], path.as_str()) {
            (Value::Null, "listener.bind") => file.push_str("bind = \"127.0.0.1:8080\"\n"),
            (Value::Null, "upstream.endpoints") => {
                let weight = &property["items"]["anyOf"][1]["properties"]["weight"]["default"];
                let address = "address = \"127.0.0.1:9001\"";
                file.push_str(&format!(
                    "endpoints = [{{ {address}, weight = {weight} }}]\n"
                ));
            }
            (Value::Null, _) if property["type"] == "object" => tables.push((path, property, 1)),
            (Value::Null, _) if property["items"]["type"] == "object" => {
                tables.push((path, &property["items"], 2));
            }
            (Value::Null, "state.inflight" | "state.latency") => {}
            (Value::Null, "upstream.ewma.alpha" | "route.upstream") => {}
            (Value::Null, _) => panic!("{path} has no default"),
            // JSON and TOML write these values alike.
            (default, _) => file.push_str(&format!("{name} = {default}\n")),
        }
    }
    for (path, table, brackets) in tables {
        let (open, close) = ("[".repeat(brackets), "]".repeat(brackets));
        file.push_str(&format!("{open}{path}{close}\n"));
        written_out(table, &path, file);
    }
}

#[test]
fn the_schemas_defaults_are_the_parsers() {
    let mut file = String::new();
    written_out(&schema::schema(), "", &mut file);
    assert!(file.contains("decay = \"2.5s\""), "{file}");
    assert_eq!(config(&file), config(MINIMAL), "{file}");
}

#[test]
fn both_ends_of_every_range_are_accepted() {
    for section in sections() {
        for key in section.keys {
            let Kind::Count { least, most } = key.kind else {
                continue;
            };
            let address = if section.form == Form::Inline {
                "address = \"1.1.1.1:1\", "
            } else {
                ""
            };
            for number in [least, most] {
                let (text, _) = with_line(section, &format!("{address}{} = {number}", key.name));
                assert!(
                    parse(&text, "f").is_ok(),
                    "{}\n{text}",
                    parse(&text, "f").unwrap_err()
                );
            }
        }
    }
}

#[test]
fn required_keys_of_schema_and_reader_agree() {
    for section in sections() {
        let required: Vec<&str> = section
            .keys
            .iter()
            .filter(|key| matches!(key.preset, Preset::Required { .. }))
            .map(|key| key.name)
            .collect();
        let expected: &[&str] = match section.path {
            "listener" => &["bind"],
            "upstream" => &["endpoints"],
            "upstream.endpoints" => &["address"],
            _ => &[],
        };
        assert_eq!(required, expected, "{}", section.path);
    }
    let schema = schema::schema();
    assert_eq!(
        schema["required"],
        serde_json::json!(["listener", "upstream"])
    );
}

/// Holds a generated page to the one in the tree; `UPDATE_DOCS=1` rewrites it.
fn assert_in_tree(file: &str, page: &str, test: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let in_tree = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        in_tree == page,
        "{file} is stale: run `UPDATE_DOCS=1 cargo test -p evenkeel {test}`"
    );
}

#[test]
fn the_reference_page_in_the_tree_is_up_to_date() {
    assert_in_tree(
        "docs/CONFIGURATION.md",
        &reference::page(),
        "reference_page",
    );
}

#[test]
fn the_defaults_page_in_the_tree_is_up_to_date() {
    assert_in_tree("tuning/defaults.md", &evidence::page(), "defaults_page");
}

#[test]
fn reasons_are_for_defaults_that_exist_and_pages_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let with_default: BTreeSet<String> = sections()
        .iter()
        .flat_map(|section| {
            let keys = section.keys.iter();
            keys.filter(|key| matches!(key.preset, Preset::Toml(_)))
                .map(|key| section.path_of(key.name))
        })
        .collect();
    let mut pages = 0;
    for (name, why) in evidence::WHY {
        assert!(with_default.contains(*name), "{name}");
        for page in why.split(' ').filter(|word| word.ends_with(".md")) {
            assert!(root.join(page).is_file(), "{name}: {page}");
            pages += 1;
        }
    }
    assert!(pages > 0);
}
