//! Renders the events of the journal as a page.

use ata_record::{JOURNAL_VERSION, RunEvent};
use schemars::schema_for;
use serde_json::Value;

use crate::reference::cell;

pub(crate) fn page() -> String {
    let schema = schema_for!(RunEvent).to_value();
    let mut text = format!(
        "`events.jsonl` in a run's folder has one JSON object per line, whose `event` names its kind. This is version \
         {JOURNAL_VERSION}. {}\n\n",
        schema["description"].as_str().unwrap_or_default().replace('\n', " ")
    );
    for kind in schema["oneOf"].as_array().into_iter().flatten() {
        text += &section(kind, &schema);
    }
    text
}

fn section(kind: &Value, schema: &Value) -> String {
    let properties = kind["properties"].as_object().cloned().unwrap_or_default();
    let name = properties.get("event").and_then(|event| event["const"].as_str()).unwrap_or_default();
    let description = kind["description"].as_str().unwrap_or_default();
    let mut text = format!("## {name}\n\n{description}\n\n| field | type | |\n| --- | --- | --- |\n");
    let empty = Vec::new();
    let required = kind["required"].as_array().unwrap_or(&empty);
    let fields = properties.iter().filter(|(name, _)| *name != "event");
    text.extend(fields.map(|(field, of)| {
        let optional = if required.iter().any(|name| name == field) { "" } else { ", may be absent" };
        let description = cell(of["description"].as_str().unwrap_or_default());
        format!("| `{field}` | {}{optional} | {description} |\n", type_of(of, schema))
    }));
    text + "\n"
}

/// Describes a type in words.
fn type_of(of: &Value, schema: &Value) -> String {
    if let Some(reference) = of["$ref"].as_str() {
        let named = schema.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
        let names = named["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str());
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        return if names.is_empty() { "object".into() } else { names.join(", ") };
    }
    if let Some(any) = of["anyOf"].as_array() {
        return any.iter().map(|one| type_of(one, schema)).collect::<Vec<_>>().join(" or ");
    }
    let word = |name: &str| match name {
        "array" => format!("list of {}", type_of(&of["items"], schema)),
        "integer" => "whole number".into(),
        name => name.to_owned(),
    };
    match &of["type"] {
        Value::String(name) => word(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(word).collect::<Vec<_>>().join(" or "),
        _ => String::new(),
    }
}
