//! The configuration as JSON Schema (2020-12), for editors and generators.
//!
//! What a schema cannot say (names that must exist, values that must fit each other) `check` says.

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::ROOT;
use super::endpoint::MOST_ENDPOINTS;
use super::section::{Form, Key, Kind, Preset, Section, Zero};
use super::shards::MOST_SHARDS;

/// The schema of a whole file.
#[must_use]
pub fn schema() -> Value {
    let mut schema = object(&ROOT);
    schema.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".into(), "Evenkeel configuration".into());
    schema.remove("description");
    Value::Object(schema)
}

fn object(section: &Section) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in section.keys {
        properties.insert(key.name.into(), property(key));
        if matches!(key.preset, Preset::Required { .. }) {
            required.push(key.name);
        }
    }
    for below in section.sections {
        let table = Value::Object(object(below));
        let property = match below.form {
            Form::Repeated => {
                required.push(below.name());
                json!({ "type": "array", "minItems": 1, "items": table })
            }
            Form::Single | Form::Inline => table,
        };
        properties.insert(below.name().into(), property);
    }
    // Without a route, everything goes to the only upstream.
    required.retain(|&name| name != "route");
    let mut object = Map::new();
    object.insert("type".into(), "object".into());
    object.insert("description".into(), section.doc.into());
    object.insert("additionalProperties".into(), false.into());
    object.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".into(), required.into());
    }
    object
}

fn property(key: &Key) -> Value {
    let mut property = kind(&key.kind);
    property["description"] = key.doc.into();
    if let Preset::Toml(text) = key.preset {
        property["default"] = preset(text);
    }
    property
}

fn kind(kind: &Kind) -> Value {
    const DURATION: &str = r"^\s*(0|[0-9]+(\.[0-9]*)?\s*(ns|us|ms|s|m|h))\s*$";
    const ADDRESS: &str = r"^([0-9]+(\.[0-9]+){3}|\[[0-9A-Fa-f:.%]+\]):[0-9]+$";
    match *kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Count { least, most } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Fraction(Zero::Allowed) => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Fraction(Zero::Refused) => {
            json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 })
        }
        Kind::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
        Kind::DurationOr { word, .. } => {
            json!({ "anyOf": [{ "const": word }, { "type": "string", "pattern": DURATION }] })
        }
        Kind::Choice { words, .. } => json!({ "enum": words }),
        Kind::Bind | Kind::Address => json!({ "type": "string", "pattern": ADDRESS }),
        Kind::BindOrEmpty => {
            json!({ "anyOf": [{ "const": "" }, { "type": "string", "pattern": ADDRESS }] })
        }
        Kind::LogTarget => json!({ "type": "string", "minLength": 1 }),
        Kind::SocketPath => json!({ "type": "string", "maxLength": 107 }),
        Kind::Token => json!({ "type": "string", "pattern": "^([!-~]{16,256})?$" }),
        Kind::Name | Kind::UpstreamName => {
            json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" })
        }
        Kind::PathPrefix => json!({ "type": "string", "pattern": r"^/[!-~]*$" }),
        Kind::Host => json!({ "type": "string" }),
        Kind::Shards => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": MOST_SHARDS },
            { "type": "string", "pattern": r"^(all|\s*[0-9]+\s*([,-]\s*[0-9]+\s*)*)$" },
        ] }),
        Kind::Endpoints(item) => json!({
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_ENDPOINTS,
            "items": { "anyOf": [{ "type": "string", "pattern": ADDRESS }, object(item)] },
        }),
    }
}

/// A default as JSON.
fn preset(text: &str) -> Value {
    let value = DeValue::parse(text).expect("defaults are TOML values");
    match value.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(number) => {
            let number: u64 = number.as_str().parse().expect("defaults are plain numbers");
            number.into()
        }
        DeValue::Float(number) => {
            let number: f64 = number.as_str().parse().expect("defaults are plain numbers");
            number.into()
        }
        other => unreachable!("no default is {}", other.type_str()),
    }
}
