//! What people and agents said, out of the payloads that exporters write.
//!
//! The rules, in this order, for an input (who speaks last is the user) and an output (who speaks last is the agent):
//!
//! 1. A text is itself; a text that is a JSON object or array is read as that.
//! 2. Messages (an array of objects with a role, or an object that holds one under a known name): the content of the last
//!    message of the user for an input, of the last message of the agent with content for an output. Without such a
//!    message: the last message that has content and is of no tool and no system.
//! 3. One message: its content.
//! 4. An object with exactly one of the names that agents' frameworks use for a question or an answer: that member.
//! 5. Anything else: nothing was said in words; the caller keeps the document.
//!
//! Contents are a text, or a list of parts whose texts are joined by line breaks; parts of tools, images and thoughts say
//! nothing.

use serde_json::Value;

use super::Payload;
use super::values::nested;

/// Whose words are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// Of inputs.
    User,
    /// Of outputs.
    Agent,
}

/// Members that hold messages.
const MESSAGES: [&str; 7] = [
    "messages",
    "input_messages",
    "output_messages",
    "chat_history",
    "new_messages",
    "choices",
    "generations",
];
/// Members that hold a question, the more telling first.
const QUESTIONS: [&str; 14] = [
    "question",
    "query",
    "user_query",
    "user_input",
    "user_message",
    "prompt",
    "input",
    "inputs",
    "text",
    "content",
    "message",
    "new_message",
    "task",
    "args",
];
/// Members that hold an answer, the more telling first.
const ANSWERS: [&str; 16] = [
    "answer",
    "final_answer",
    "final_output",
    "response",
    "output",
    "outputs",
    "output_text",
    "result",
    "text",
    "content",
    "message",
    "completion",
    "generated_text",
    "value",
    "return_values",
    "data",
];

/// Deeper documents say nothing.
const DEEPEST: usize = 12;

/// The payload of an exported value: text, or a document with what was said in it. None for null and empty text.
pub(crate) fn payload(value: &Value, speaker: Speaker) -> Option<Payload> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => match nested(text) {
            Some(document) => Some(Payload {
                raw: text.clone(),
                json: true,
                said: said(&document, speaker),
            }),
            None => Some(Payload::text(text.clone())),
        },
        document => Some(Payload::document(document, said(document, speaker))),
    }
}

/// What was said last by the speaker; none if nobody said anything in words.
pub(crate) fn said(value: &Value, speaker: Speaker) -> Option<String> {
    within(value, speaker, 0).filter(|text| !text.trim().is_empty())
}

fn within(value: &Value, speaker: Speaker, depth: usize) -> Option<String> {
    if depth > DEEPEST {
        return None;
    }
    match value {
        Value::String(text) => match nested(text) {
            Some(document) => within(&document, speaker, depth + 1).or_else(|| Some(text.clone())),
            None => Some(text.clone()),
        },
        Value::Array(items) => {
            if let [Value::Array(_)] = items.as_slice() {
                // LangChain's batches: a list of lists of messages or generations.
                return within(&items[0], speaker, depth + 1);
            }
            let message_or_item = |item: &Value| role(item).is_some() || is_item(item);
            if items.iter().any(|item| role(item).is_some()) && items.iter().all(message_or_item) {
                return of_messages(items, speaker);
            }
            if items.iter().all(is_part) && !items.is_empty() {
                return content(value);
            }
            match items.as_slice() {
                [one] => within(one, speaker, depth + 1),
                _ => None,
            }
        }
        Value::Object(members) => {
            if role(value).is_some() {
                return content_of_message(value);
            }
            let filled = |kwargs: &&Value| kwargs.as_object().is_some_and(|k| !k.is_empty());
            if let Some(kwargs) = members.get("kwargs").filter(filled) {
                // LangChain's serialised objects.
                return within(kwargs, speaker, depth + 1);
            }
            for name in MESSAGES {
                if let Some(list @ Value::Array(items)) = members.get(name)
                    && !items.is_empty()
                    && let Some(text) = within(list, speaker, depth + 1)
                {
                    return Some(text);
                }
            }
            let names: &[&str] = match speaker {
                Speaker::User => &QUESTIONS,
                Speaker::Agent => &ANSWERS,
            };
            for name in names {
                match members.get(*name) {
                    Some(Value::Null) | None => {}
                    Some(Value::Number(_) | Value::Bool(_)) if members.len() > 1 => {}
                    Some(found) => {
                        let inner = match found {
                            Value::Number(n) => Some(n.to_string()),
                            Value::Bool(b) => Some(b.to_string()),
                            other => within(other, speaker, depth + 1).or_else(|| content(other)),
                        };
                        if let Some(text) = inner.filter(|text| !text.trim().is_empty()) {
                            return Some(text);
                        }
                    }
                }
            }
            let only = members.values().filter(|v| !v.is_null());
            match only.collect::<Vec<_>>().as_slice() {
                [one @ (Value::Object(_) | Value::Array(_) | Value::String(_))] => {
                    within(one, speaker, depth + 1)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// A role in lower case: `user`, `assistant`, `system`, `tool` and what frameworks write for them.
pub(crate) fn role(message: &Value) -> Option<String> {
    let message = unwrapped(message);
    let named = ["role", "message.role", "author"]
        .iter()
        .find_map(|name| message.get(*name)?.as_str());
    // LangChain: `type` is the role, or the last name of `id` is (`HumanMessage`).
    let of_type = || {
        let kind = message.get("type")?.as_str()?;
        matches!(
            kind,
            "human" | "ai" | "system" | "tool" | "function" | "AIMessageChunk" | "constructor"
        )
        .then_some(kind)
    };
    let found = named.or_else(of_type)?.to_lowercase();
    if found == "constructor" {
        let id = message
            .get("id")?
            .as_array()?
            .last()?
            .as_str()?
            .to_lowercase();
        let kind = id
            .strip_suffix("messagechunk")
            .or_else(|| id.strip_suffix("message"))?;
        return Some(normal_role(kind).to_owned());
    }
    Some(normal_role(&found).to_owned())
}

fn normal_role(role: &str) -> &str {
    match role {
        "human" => "user",
        "ai" | "model" | "aimessagechunk" | "agent" | "bot" => "assistant",
        "developer" => "system",
        "function" | "tool-call" | "tool-response" | "tool_response" => "tool",
        other => other,
    }
}

/// A message as it is, out of wrappers that some exporters put around it (`{"message": {…}}`, choices, generations).
fn unwrapped(message: &Value) -> &Value {
    match message.get("message") {
        Some(inner @ Value::Object(_)) if message.get("role").is_none() => inner,
        _ => message,
    }
}

fn of_messages(items: &[Value], speaker: Speaker) -> Option<String> {
    let wanted = match speaker {
        Speaker::User => "user",
        Speaker::Agent => "assistant",
    };
    let worded =
        |message: &&Value| content_of_message(message).is_some_and(|text| !text.trim().is_empty());
    let mut of_speaker = items
        .iter()
        .rev()
        .filter(|m| role(m).as_deref() == Some(wanted));
    let found = of_speaker.find(worded).or_else(|| {
        let mut others = items
            .iter()
            .rev()
            .filter(|m| !matches!(role(m).as_deref(), None | Some("tool" | "system")));
        others.find(worded)
    });
    content_of_message(found?)
}

/// The words of one message; none if it has none.
pub(crate) fn content_of_message(message: &Value) -> Option<String> {
    let message = unwrapped(message);
    let message = match message.get("kwargs") {
        Some(kwargs @ Value::Object(_)) => kwargs,
        _ => message,
    };
    [
        "content",
        "message.content",
        "parts",
        "contents",
        "text",
        "message.contents",
    ]
    .iter()
    .find_map(|name| content(message.get(*name)?))
}

/// Whether a value stands among messages without being one: calls, results and thoughts of OpenAI's responses.
fn is_item(value: &Value) -> bool {
    value
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| {
            kind == "reasoning" || kind.ends_with("_call") || kind.ends_with("_call_output")
        })
}

/// Whether a value is a part of a content: an object with a type or a text, but without a role.
fn is_part(value: &Value) -> bool {
    value.is_object()
        && (value.get("text").is_some()
            || value.get("type").is_some()
            || value.get("content").is_some())
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
            let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
            let silent = kind.contains("tool")
                || kind.contains("image")
                || kind.contains("thinking")
                || kind.contains("reasoning")
                || kind.contains("function")
                || part.contains_key("thought");
            if silent {
                return None;
            }
            [
                "text",
                "content",
                "message_content.text",
                "message_content",
                "value",
                "parts",
            ]
            .iter()
            .find_map(|name| content(part.get(*name)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_word_of_each_side_is_found() {
        let chat = json!([
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "1"},
            {"role": "user", "content": [{"type": "text", "text": "Two"}, {"type": "image_url", "image_url": "x"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
            {"role": "tool", "content": "2.0"},
            {"role": "assistant", "content": "Three"},
        ]);
        for document in [
            chat.clone(),
            json!({"messages": chat.clone()}),
            json!({"messages": [chat.clone()]}),
            json!(chat.to_string()),
        ] {
            assert_eq!(said(&document, Speaker::User).as_deref(), Some("Two"));
            assert_eq!(said(&document, Speaker::Agent).as_deref(), Some("Three"));
        }
    }

    #[test]
    fn frameworks_are_understood() {
        for (document, words) in [
            (
                json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "a"}}),
                "a",
            ),
            (
                json!([{"type": "human", "content": "a"}, {"type": "ai", "content": ""}]),
                "a",
            ),
            (
                json!([{"role": "user", "parts": [{"type": "text", "content": "a"}]}]),
                "a",
            ),
            (json!({"role": "user", "parts": [{"text": "a"}]}), "a"),
            (json!({"query": "a", "limit": 3}), "a"),
            (json!({"args": ["a"], "kwargs": {}}), "a"),
            (
                json!([{"role": "user", "content": "a"}, {"type": "function_call", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "output": "x"}]),
                "a",
            ),
            (json!({"inputs": {"question": "a"}}), "a"),
        ] {
            assert_eq!(
                said(&document, Speaker::User).as_deref(),
                Some(words),
                "{document}"
            );
        }
        for (document, words) in [
            (
                json!({"choices": [{"message": {"role": "assistant", "content": "b"}}]}),
                "b",
            ),
            (
                json!({"generations": [[{"text": "b", "type": "ChatGeneration"}]]}),
                "b",
            ),
            (
                json!([{"role": "assistant", "parts": [{"type": "reasoning", "content": "x"}, {"type": "text", "content": "b"}]}]),
                "b",
            ),
            (json!({"answer": "b", "sources": []}), "b"),
        ] {
            assert_eq!(
                said(&document, Speaker::Agent).as_deref(),
                Some(words),
                "{document}"
            );
        }
        assert_eq!(said(&json!({"a": 1, "b": 2}), Speaker::Agent), None);
        assert_eq!(said(&json!([1, 2]), Speaker::User), None);
    }
}
