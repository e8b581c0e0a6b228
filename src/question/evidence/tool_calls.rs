//! Tool calls in the payloads of spans, as the interfaces of model providers write them.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::payload::is_kept;
use crate::trace::Span;

/// Members that hold tool calls, by the interfaces of the model providers.
const CALL_MEMBERS: [&str; 6] = [
    "tool_calls",
    "toolCalls",
    "function_call",
    "functionCall",
    "tool_use",
    "toolUse",
];
/// Values of `type` that make an object a tool call.
const CALL_TYPES: [&str; 7] = [
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "function_call",
    "tool_call",
    "custom_tool_call",
    "mcp_call",
];

/// Stands for a tool call that is already further up.
const SAME_CALL: &str = "[… the same tool call as in an earlier place …]";

/// Whether a span is a tool call itself.
pub(super) fn is_tool(span: &Value) -> bool {
    Span::of(span).is_some_and(Span::is_tool)
}

/// Whether an object is a tool call.
pub(super) fn is_call(entries: &Map<String, Value>) -> bool {
    entries
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|name| CALL_TYPES.contains(&name))
}

/// Whether a member holds tool calls. Settings such as `"function_call": "auto"` and markers are no calls.
pub(super) fn is_call_member(key: &str, value: &Value) -> bool {
    CALL_MEMBERS.contains(&key)
        && match value {
            Value::Object(_) | Value::Array(_) => true,
            Value::String(text) => text.contains('{'),
            _ => false,
        }
}

/// Whether there is a tool call anywhere in a value.
pub(super) fn holds_call(value: &Value) -> bool {
    match value {
        Value::Object(entries) => {
            is_call(entries)
                || entries
                    .iter()
                    .any(|(key, value)| is_call_member(key, value) || holds_call(value))
        }
        Value::Array(items) => items.iter().any(holds_call),
        _ => false,
    }
}

/// A span in which texts that are JSON with tool calls are that JSON, so that cutting sees the calls.
pub(super) fn opened(span: &Value) -> Value {
    let Value::Object(fields) = span else {
        return open(span);
    };
    let fields = fields.iter().map(|(key, value)| {
        (
            key.clone(),
            if is_kept(span, key) {
                value.clone()
            } else {
                open(value)
            },
        )
    });
    Value::Object(fields.collect())
}

fn open(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let may_hold = text.trim_start().starts_with(['{', '['])
                && CALL_MEMBERS
                    .iter()
                    .chain(&CALL_TYPES)
                    .any(|word| text.contains(word));
            let inside = may_hold.then(|| serde_json::from_str(text).ok()).flatten();
            inside.filter(holds_call).unwrap_or_else(|| value.clone())
        }
        Value::Array(items) => items.iter().map(open).collect(),
        Value::Object(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), open(value)))
                .collect(),
        ),
        scalar => scalar.clone(),
    }
}

/// Puts a marker for every tool call in a span's input that is already further up. Outputs keep theirs: an agent that makes the
/// same call twice did so.
pub(super) fn mark_repeated_calls(spans: &mut [Value]) {
    let mut seen = HashSet::new();
    for span in spans {
        if is_tool(span) {
            continue;
        }
        let Value::Object(fields) = span else {
            continue;
        };
        for (key, value) in fields {
            note_calls(value, key == "input", &mut seen);
        }
    }
}

fn note_calls(value: &mut Value, in_input: bool, seen: &mut HashSet<String>) {
    match value {
        Value::Object(entries) if is_call(entries) => note_call(value, in_input, seen),
        Value::Object(entries) => {
            for (key, value) in entries {
                if is_call_member(key, value) {
                    note_call(value, in_input, seen);
                } else {
                    note_calls(value, in_input, seen);
                }
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| note_calls(item, in_input, seen)),
        _ => {}
    }
}

fn note_call(call: &mut Value, in_input: bool, seen: &mut HashSet<String>) {
    let text = call.to_string();
    if in_input && text.len() > SAME_CALL.len() && seen.contains(&text) {
        *call = SAME_CALL.into();
    } else {
        seen.insert(text);
    }
}
