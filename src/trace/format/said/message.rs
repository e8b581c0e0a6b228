//! What messages say: who speaks in them, and the last words of each side.

use serde_json::Value;

use super::part::{content, of_parts};
use super::{Found, Speaker};

/// Members of a message beside its role.
const OF_MESSAGES: [&str; 13] = [
    "content",
    "message.content",
    "parts",
    "contents",
    "text",
    "message.contents",
    "refusal",
    "tool_calls",
    "toolCalls",
    "message.tool_calls",
    "function_call",
    "reasoning_content",
    "kwargs",
];

/// Whether a value is a message: it has a role, and a member of messages beside it.
pub(super) fn is_message(value: &Value) -> bool {
    let Some(members) = unwrapped(value).as_object() else {
        return false;
    };
    let known = || OF_MESSAGES.iter().any(|name| members.contains_key(*name));
    role(value).is_some() && (members.len() == 1 || known())
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
pub(super) fn unwrapped(message: &Value) -> &Value {
    match message.get("message") {
        Some(inner @ Value::Object(_)) if message.get("role").is_none() => inner,
        _ => message,
    }
}

pub(super) fn of_messages(items: &[Value], speaker: Speaker) -> Found {
    match speaker {
        Speaker::User => of_user(items),
        Speaker::Agent => of_agent(items),
    }
}

/// The user's last message: the ones in a row that nobody answered, the last with words. Where no user speaks, another
/// one that is neither the agent nor a tool nor the system.
fn of_user(items: &[Value]) -> Found {
    let mut met = false;
    for message in items.iter().rev().filter(|item| !is_item(item)) {
        match role(message).as_deref() {
            Some("user") => match of_message(message) {
                // Results of tools come as messages of users too.
                Found::Nothing if answers_calls(message) => {}
                Found::Nothing => met = true,
                found => return found,
            },
            Some("tool" | "system") => {}
            _ if met => break,
            _ => {}
        }
    }
    if met {
        return Found::Nothing;
    }
    let others = items.iter().rev().filter(|message| {
        let role = role(message);
        role.is_some_and(|role| !matches!(&*role, "user" | "assistant" | "tool" | "system"))
    });
    first_of(others)
}

/// The agent's last message with content after the user's last one.
fn of_agent(items: &[Value]) -> Found {
    let is_turn = |message: &Value| {
        role(message).as_deref() == Some("user") && !answers_calls(message) && !is_item(message)
    };
    let start = items.iter().rposition(is_turn).map_or(0, |last| last + 1);
    let turn = items[start..].iter().rev().filter(|item| !is_item(item));
    let of_assistant = turn
        .clone()
        .filter(|message| role(message).as_deref() == Some("assistant"));
    match first_of(of_assistant) {
        Found::Nothing => first_of(turn.filter(|message| {
            let role = role(message);
            role.is_some_and(|role| !matches!(&*role, "user" | "assistant" | "tool" | "system"))
        })),
        found => found,
    }
}

fn first_of<'v>(messages: impl Iterator<Item = &'v Value>) -> Found {
    let mut found = messages.map(of_message);
    found
        .find(|found| *found != Found::Nothing)
        .unwrap_or(Found::Nothing)
}

/// Whether a message holds results of tools and nothing else.
fn answers_calls(message: &Value) -> bool {
    let message = unwrapped(message);
    let parts = ["content", "parts"]
        .iter()
        .find_map(|name| message.get(*name)?.as_array());
    let is_result = |part: &Value| {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        matches!(
            kind,
            "tool_result" | "tool-result" | "tool_call_response" | "tool-call-response"
        ) || part.get("function_response").is_some()
            || part.get("functionResponse").is_some()
    };
    parts.is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_result))
}

/// What one message says.
pub(super) fn of_message(message: &Value) -> Found {
    if let Some(words) = content_of_message(message) {
        return Found::of(&words);
    }
    let held = contents(inner(message)).next();
    match held {
        None | Some(Value::Null | Value::String(_)) => Found::Nothing,
        Some(Value::Array(parts)) => of_parts(parts),
        Some(part @ Value::Object(_)) => of_parts(std::slice::from_ref(part)),
        Some(_) => Found::Unknown,
    }
}

/// A message as it is, out of all wrappers.
fn inner(message: &Value) -> &Value {
    let message = unwrapped(message);
    match message.get("kwargs") {
        Some(kwargs @ Value::Object(_)) => kwargs,
        _ => message,
    }
}

/// What may be the content of a message, the usual first.
fn contents(message: &Value) -> impl Iterator<Item = &Value> {
    [
        "content",
        "message.content",
        "parts",
        "contents",
        "text",
        "message.contents",
        "refusal",
    ]
    .iter()
    .filter_map(|name| message.get(*name))
}

/// The words of one message; none if it has none.
pub(crate) fn content_of_message(message: &Value) -> Option<String> {
    contents(inner(message)).find_map(content)
}

/// Whether a value is a call of a tool, or what one gave back.
pub(super) fn is_call(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| {
        matches!(
            kind,
            "tool_use"
                | "tool_call"
                | "tool-call"
                | "function_call"
                | "tool_result"
                | "tool-result"
                | "tool_call_response"
        )
    })
}

/// Whether a value stands among messages without being one: calls, results and thoughts of OpenAI's responses.
pub(super) fn is_item(value: &Value) -> bool {
    value
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| {
            kind == "reasoning" || kind.ends_with("_call") || kind.ends_with("_call_output")
        })
}
