//! Shortening what spans carry. What is cut keeps its start and its end; tool calls stay whole.

use serde_json::Value;

use crate::trace::Span;

use super::tool_calls::{holds_call, is_call, is_call_member, is_tool};

/// Room for the marker inside a cut payload.
const MARKER_ROOM: usize = 40;

/// Whether a field of a span stays as it is.
pub(super) fn is_kept(span: &Value, field: &str) -> bool {
    Span::IDENTITY.contains(&field) || (field == "input" && is_tool(span))
}

/// The span with every payload longer than `most` characters cut.
pub(super) fn shorten_span(span: &Value, most: usize) -> Value {
    let Value::Object(fields) = span else {
        return shorten(span, most);
    };
    let fields = fields.iter().map(|(key, value)| {
        let value = if is_kept(span, key) {
            value.clone()
        } else {
            shorten(value, most)
        };
        (key.clone(), value)
    });
    Value::Object(fields.collect())
}

/// A payload with everything longer than `most` characters cut, tool calls excepted.
fn shorten(value: &Value, most: usize) -> Value {
    if !holds_call(value) {
        return cut(value, most);
    }
    match value {
        Value::Object(entries) if is_call(entries) => value.clone(),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let value = match is_call_member(key, value) {
                    true => value.clone(),
                    false => shorten(value, most),
                };
                (key.clone(), value)
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => items.iter().map(|item| shorten(item, most)).collect(),
        scalar => scalar.clone(),
    }
}

/// A value whose text is at most `most` characters long.
fn cut(value: &Value, most: usize) -> Value {
    let json;
    let text = match value {
        Value::String(text) => text,
        other => {
            json = other.to_string();
            &json
        }
    };
    let chars = text.chars().count();
    if chars <= most {
        return value.clone();
    }
    let keep = most.saturating_sub(MARKER_ROOM);
    let (tail, left_out) = (keep / 3, chars - keep);
    let start: String = text.chars().take(keep - tail).collect();
    let end: String = text.chars().skip(chars - tail).collect();
    Value::String(format!("{start}[… {left_out} characters left out …]{end}"))
}
