//! The files in tuning/configs are usable, odd in nothing, and fit the schema.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::{parse, schema};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tuning/configs");
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    files
}

#[test]
fn examples_are_accepted_without_a_warning_on_one_or_two_shards() {
    let files = examples();
    for name in [
        "api-front.toml",
        "gateway.toml",
        "minimal.toml",
        "sidecar.toml",
    ] {
        assert!(
            files.iter().any(|file| file.ends_with(name)),
            "{name} is there"
        );
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let parsed = parse(&text, &file.display().to_string()).unwrap_or_else(|e| panic!("{e}"));
        let shards = parsed.config.engine.shards.number(2);
        assert_eq!(parsed.warnings(shards).to_string(), "");
    }
}

#[test]
fn examples_fit_the_schema() {
    let schema = schema::schema();
    for file in examples() {
        let text = fs::read_to_string(&file).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let value = serde_json::to_value(table).unwrap();
        assert_eq!(misfit(&value, &schema, "$"), None, "{}", file.display());
    }
}

#[test]
fn the_validator_of_this_test_refuses() {
    let schema = schema::schema();
    let file = |upstream: Value| serde_json::json!({ "listener": [{ "bind": "127.0.0.1:1" }], "upstream": [upstream] });
    let endpoints = serde_json::json!(["127.0.0.1:1"]);
    assert_eq!(
        misfit(
            &file(serde_json::json!({ "endpoints": endpoints })),
            &schema,
            "$"
        ),
        None
    );
    for wrong in [
        serde_json::json!({}),
        serde_json::json!({ "endpoints": [] }),
        serde_json::json!({ "endpoints": endpoints, "balance": "p3c" }),
        serde_json::json!({ "endpoints": endpoints, "pool": { "max_idle": -1 } }),
        serde_json::json!({ "endpoints": endpoints, "pool": { "maxidle": 1 } }),
        serde_json::json!({ "endpoints": endpoints, "ewma": { "alpha": 0 } }),
    ] {
        assert!(
            misfit(&file(wrong.clone()), &schema, "$").is_some(),
            "{wrong}"
        );
    }
}

/// Where and why a value does not fit: the keywords that our schema uses, patterns left out.
fn misfit(value: &Value, schema: &Value, at: &str) -> Option<String> {
    for (keyword, wanted) in schema.as_object().unwrap() {
        let fits = match keyword.as_str() {
            "type" => match wanted.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                other => panic!("type {other}"),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "anyOf" => wanted
                .as_array()
                .unwrap()
                .iter()
                .any(|s| misfit(value, s, at).is_none()),
            "minimum" => value.as_f64() >= wanted.as_f64(),
            "exclusiveMinimum" => value.as_f64() > wanted.as_f64(),
            "maximum" => value.as_f64() <= wanted.as_f64(),
            "minItems" => value
                .as_array()
                .is_some_and(|a| a.len() as u64 >= wanted.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_some_and(|a| a.len() as u64 <= wanted.as_u64().unwrap()),
            "required" => wanted
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                let mut misfits = items.map(|(i, v)| misfit(v, wanted, &format!("{at}[{i}]")));
                if let Some(found) = misfits.find_map(|found| found) {
                    return Some(found);
                }
                true
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{name}");
                    match wanted.get(name) {
                        Some(schema) => {
                            if let Some(found) = misfit(value, schema, &at) {
                                return Some(found);
                            }
                        }
                        None => return Some(format!("{at} is unknown")),
                    }
                }
                true
            }
            "$schema" | "title" | "description" | "default" | "pattern" => true,
            "additionalProperties" => wanted == false,
            other => panic!("keyword {other}"),
        };
        if !fits {
            return Some(format!("{at}: {keyword} {wanted}"));
        }
    }
    None
}
