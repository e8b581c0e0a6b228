//! What the content of a message says: a text, or parts, of which some are words and others say nothing.

use serde_json::Value;

use super::Found;

/// Whether a value is a part of a content: an object with a type or a text, or a call of a tool, but without a role.
pub(super) fn is_part(value: &Value) -> bool {
    value.is_object()
        && ["text", "type", "content", "toolCallId", "tool.name"]
            .iter()
            .any(|name| value.get(*name).is_some())
}

/// What parts say together.
pub(super) fn of_parts(parts: &[Value]) -> Found {
    let words: Vec<String> = parts.iter().filter_map(content).collect();
    if !words.is_empty() {
        return Found::of(&words.join("\n"));
    }
    match parts.iter().all(is_silent) {
        true => Found::Nothing,
        false => Found::Unknown,
    }
}

/// Whether a part is of a kind that is known, and in which nobody says anything.
fn is_silent(part: &Value) -> bool {
    let members = match part {
        Value::String(text) => return text.trim().is_empty(),
        Value::Object(members) => members,
        other => return other.is_null(),
    };
    let has = |name: &str| members.contains_key(name);
    match part.get("type").and_then(Value::as_str) {
        Some(kind) => is_silent_kind(kind) || is_text_kind(kind) || has("thought"),
        None => [
            "thought",
            "toolCallId",
            "tool.name",
            "functionCall",
            "function_call",
            "functionResponse",
            "function_response",
            "inlineData",
            "inline_data",
            "fileData",
            "file_data",
            "text",
            "content",
        ]
        .iter()
        .any(|name| has(name)),
    }
}

fn is_silent_kind(kind: &str) -> bool {
    [
        "tool",
        "image",
        "thinking",
        "reasoning",
        "function",
        "blob",
        "file",
        "uri",
        "audio",
        "video",
        "media",
    ]
    .iter()
    .any(|word| kind.contains(word))
}

/// Whether a part of this type is words, whatever member they are in.
fn is_text_kind(kind: &str) -> bool {
    kind.ends_with("text") || matches!(kind, "message" | "refusal" | "markdown")
}

/// The words of a content: a text, a list of parts, or one part.
pub(crate) fn content(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Array(parts) => {
            let words: Vec<String> = parts.iter().filter_map(content).collect();
            (!words.is_empty()).then(|| words.join("\n"))
        }
        Value::Object(part) => {
            let kind = part.get("type").and_then(Value::as_str);
            if kind.is_some_and(is_silent_kind) || part.contains_key("thought") {
                return None;
            }
            let names: &[&str] = match kind {
                Some(kind) if !is_text_kind(kind) => &["text", "message_content.text"],
                _ => &[
                    "text",
                    "content",
                    "message_content.text",
                    "message_content",
                    "value",
                    "parts",
                    "refusal",
                ],
            };
            names.iter().find_map(|name| content(part.get(*name)?))
        }
        _ => None,
    }
}
