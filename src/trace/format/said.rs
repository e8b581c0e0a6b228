//! What people and agents said, out of the payloads that exporters write.
//!
//! The rules, in this order, for an input (who speaks last is the user) and an output (who speaks last is the agent):
//!
//! 1. A text is itself; a text that is a JSON object, array or text in quotes is read as that, and so is a literal of
//!    Python.
//! 2. One message: its content, if it may be of the speaker.
//! 3. Messages: for an input, the content of the user's last message; for an output, of the agent's last message with
//!    content after the last one of the user.
//! 4. An object with one of the names that agents' frameworks use for a question or an answer: that member; messages of
//!    the turn come after the telling names and before the vague ones, the history of the talk after all others.
//! 5. A shape that is known, in which nobody said anything in words (a call of a tool, a thought, an empty answer): the
//!    empty text.
//! 6. Anything else is not known: the caller keeps the document.
//!
//! Contents are a text, or a list of parts whose texts are joined by line breaks; parts of tools, files, images and
//! thoughts say nothing, and of a part whose type is not known only its `text` is taken.

use serde_json::{Map, Value};

use super::values::{nested, quoted};
use super::{Payload, python_literal};

/// Whose words are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// Of inputs.
    User,
    /// Of outputs.
    Agent,
}

/// What was found in a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// Somebody said this.
    Words(String),
    /// The shape is known, and nobody said anything.
    Nothing,
    /// The shape is not known.
    Unknown,
}

impl Found {
    fn of(text: &str) -> Self {
        match text.trim().is_empty() {
            true => Self::Nothing,
            false => Self::Words(text.to_owned()),
        }
    }
}

/// Members that hold a question, the more telling first.
const QUESTIONS: [&str; 7] = [
    "question",
    "query",
    "user_query",
    "user_input",
    "user_message",
    "input",
    "inputs",
];
/// Members that may hold one.
const VAGUE_QUESTIONS: [&str; 7] = [
    "text",
    "content",
    "message",
    "new_message",
    "prompt",
    "task",
    "args",
];
/// Members that hold an answer, the more telling first.
const ANSWERS: [&str; 11] = [
    "answer",
    "final_answer",
    "final_output",
    "response",
    "output",
    "outputs",
    "output_text",
    "generation",
    "completion",
    "generated_text",
    "result",
];
/// Members that may hold one.
const VAGUE_ANSWERS: [&str; 6] = [
    "text",
    "content",
    "message",
    "value",
    "return_values",
    "data",
];
/// Members that hold messages of the turn.
const MESSAGES: [&str; 8] = [
    "messages",
    "input_messages",
    "output_messages",
    "new_messages",
    "contents",
    "choices",
    "candidates",
    "generations",
];
/// Members that hold what was said before it.
const HISTORY: [&str; 2] = ["chat_history", "history"];

/// Deeper documents say nothing.
const DEEPEST: usize = 12;

/// The payload of an exported value: text, or a document with what was said in it. None for null and empty text.
pub(crate) fn payload(value: &Value, speaker: Speaker) -> Option<Payload> {
    match value {
        Value::Null => None,
        Value::String(text) => of_text(text, speaker).map(|(payload, _)| payload),
        document => Some(Payload::document(document, said(document, speaker))),
    }
}

/// The payload of an exported text, and the document in it. None for empty text, and for null written as text.
pub(crate) fn of_text(text: &str, speaker: Speaker) -> Option<(Payload, Option<Value>)> {
    if text.is_empty() || text.trim() == "null" {
        return None;
    }
    let document = nested(text).or_else(|| quoted(text).map(Value::String));
    let json = document.is_some();
    let document = document.or_else(|| python_literal::parse(text));
    let payload = Payload {
        raw: text.to_owned(),
        json,
        said: document
            .as_ref()
            .and_then(|document| said(document, speaker)),
    };
    Some((payload, document))
}

/// What was said last by the speaker; the empty text if the shape is known and nobody said anything in words, and none
/// if it isn't known.
pub(crate) fn said(value: &Value, speaker: Speaker) -> Option<String> {
    match within(value, speaker, 0) {
        Found::Words(text) => Some(text),
        Found::Nothing => Some(String::new()),
        Found::Unknown => None,
    }
}

fn within(value: &Value, speaker: Speaker, depth: usize) -> Found {
    if depth > DEEPEST {
        return Found::Unknown;
    }
    match value {
        Value::String(text) => {
            let document = nested(text)
                .or_else(|| quoted(text).map(Value::String))
                .or_else(|| python_literal::parse(text));
            match document.map(|document| within(&document, speaker, depth + 1)) {
                None | Some(Found::Unknown) => Found::of(text),
                Some(found) => found,
            }
        }
        Value::Array(items) => within_list(items, speaker, depth),
        Value::Object(members) => within_object(value, members, speaker, depth),
        _ => Found::Unknown,
    }
}

fn within_list(items: &[Value], speaker: Speaker, depth: usize) -> Found {
    if let [Value::Array(_)] = items {
        // LangChain's batches: a list of lists of messages or generations.
        return within(&items[0], speaker, depth + 1);
    }
    if items.is_empty() {
        return Found::Nothing;
    }
    let message_or_item = |item: &Value| is_message(item) || is_item(item);
    if items.iter().any(is_message) && items.iter().all(message_or_item) {
        return of_messages(items, speaker);
    }
    if items.iter().all(is_part) {
        return of_parts(items);
    }
    match items {
        [one] => within(one, speaker, depth + 1),
        _ => Found::Unknown,
    }
}

fn within_object(
    value: &Value,
    members: &Map<String, Value>,
    speaker: Speaker,
    depth: usize,
) -> Found {
    if members.is_empty() || is_call(value) {
        return Found::Nothing;
    }
    if is_message(value) {
        let found = match (speaker, role(value).as_deref()) {
            (Speaker::Agent, Some("user" | "system")) | (Speaker::User, Some("system")) => {
                Found::Nothing
            }
            _ => of_message(value),
        };
        // Beside a message that says nothing, there may be more.
        if found != Found::Nothing || std::ptr::eq(unwrapped(value), value) {
            return found;
        }
    }
    let filled = |kwargs: &&Value| kwargs.as_object().is_some_and(|k| !k.is_empty());
    if let Some(kwargs) = members.get("kwargs").filter(filled) {
        // LangChain's serialised objects.
        return within(kwargs, speaker, depth + 1);
    }
    // A name that is known, and says nothing.
    let mut silent = false;
    let mut look = |found: &Value| {
        let found = match found {
            Value::Null => Found::Unknown,
            Value::Number(_) | Value::Bool(_) if members.len() > 1 => Found::Unknown,
            Value::Number(n) => Found::Words(number(n)),
            Value::Bool(b) => Found::Words(b.to_string()),
            other => match within(other, speaker, depth + 1) {
                Found::Unknown => content(other).map_or(Found::Unknown, Found::Words),
                found => found,
            },
        };
        match found {
            Found::Words(text) => Some(text),
            Found::Nothing => {
                silent = true;
                None
            }
            Found::Unknown => None,
        }
    };
    let (telling, vague): (&[&str], &[&str]) = match speaker {
        Speaker::User => (&QUESTIONS, &VAGUE_QUESTIONS),
        Speaker::Agent => (&ANSWERS, &VAGUE_ANSWERS),
    };
    let is_list = |name: &str| MESSAGES.contains(&name);
    let named = telling.iter().chain(&MESSAGES).chain(vague);
    let found = named
        .filter_map(|name| Some((*name, members.get(*name)?)))
        .filter(|(name, found)| !is_list(name) || found.is_array())
        .find_map(|(_, found)| look(found));
    if let Some(text) = found {
        return Found::Words(text);
    }
    let is_null = |name: &&str| members.get(*name) == Some(&Value::Null);
    if silent || telling.iter().any(is_null) {
        return Found::Nothing;
    }
    let mut history = HISTORY.iter().filter_map(|name| members.get(*name));
    if let Some(list) = history.find(|list| list.is_array()) {
        return within(list, speaker, depth + 1);
    }
    let mut there = members.values().filter(|value| !value.is_null());
    match (there.next(), there.next()) {
        (Some(one @ (Value::Object(_) | Value::Array(_) | Value::String(_))), None) => {
            within(one, speaker, depth + 1)
        }
        _ => Found::Unknown,
    }
}

/// A number as text, zero without a sign.
fn number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(0.0) => "0".to_owned(),
        _ => number.to_string(),
    }
}

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
fn is_message(value: &Value) -> bool {
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
fn unwrapped(message: &Value) -> &Value {
    match message.get("message") {
        Some(inner @ Value::Object(_)) if message.get("role").is_none() => inner,
        _ => message,
    }
}

fn of_messages(items: &[Value], speaker: Speaker) -> Found {
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
fn of_message(message: &Value) -> Found {
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
fn is_call(value: &Value) -> bool {
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
fn is_item(value: &Value) -> bool {
    value
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| {
            kind == "reasoning" || kind.ends_with("_call") || kind.ends_with("_call_output")
        })
}

/// Whether a value is a part of a content: an object with a type or a text, or a call of a tool, but without a role.
fn is_part(value: &Value) -> bool {
    value.is_object()
        && ["text", "type", "content", "toolCallId", "tool.name"]
            .iter()
            .any(|name| value.get(*name).is_some())
}

/// What parts say together.
fn of_parts(parts: &[Value]) -> Found {
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
        for unknown in [
            json!({"a": 1, "b": 2}),
            json!([1, 2]),
            json!([{"type": "invoice", "total": 5}]),
            json!({"author": "Melville", "title": "Moby Dick"}),
            json!({"role": "admin", "rights": ["all"]}),
            json!({"role": "assistant", "content": {"temperature": 5}}),
        ] {
            for speaker in [Speaker::User, Speaker::Agent] {
                assert_eq!(said(&unknown, speaker), None, "{unknown}");
            }
        }
    }

    #[test]
    fn who_says_nothing_says_the_empty_text() {
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for silent in [
            json!([{"role": "assistant", "parts": [{"type": "text", "content": ""}], "finish_reason": "stop"}]),
            json!({"role": "assistant", "content": ""}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "assistant", "content": []}),
            json!([{"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}]}]),
            json!([{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]}]),
            json!([{"toolCallId": "c", "toolName": "f", "input": {}}]),
            json!([call]),
            json!({"messages": []}),
            json!({"output": ""}),
            json!({"answer": null, "sources": ["d"]}),
            json!({"message": {"role": "assistant", "content": ""}, "done": true}),
            json!({}),
            json!([]),
            json!({"completion": "", "error": "rate limit"}),
            json!({"choices": [{"message": {"role": "assistant", "content": null}}]}),
        ] {
            assert_eq!(
                said(&silent, Speaker::Agent).as_deref(),
                Some(""),
                "{silent}"
            );
        }
        for silent in [
            json!([{"role": "system", "content": "Be kind."}]),
            json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]),
            json!([{"role": "assistant", "content": "How can I help?"}]),
            json!([{"role": "user", "content": "old"}, {"role": "assistant", "content": "b"},
                {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]),
        ] {
            assert_eq!(
                said(&silent, Speaker::User).as_deref(),
                Some(""),
                "{silent}"
            );
        }
    }

    #[test]
    fn nobody_speaks_for_the_agent() {
        let user = |text: &str| json!({"type": "human", "content": text});
        let agent = |text: &str| json!({"type": "ai", "content": text});
        for (state, words) in [
            (json!([user("Q"), agent("")]), ""),
            (json!([user("Q"), agent("A"), user("Q2")]), ""),
            (json!([user("Q"), agent("A"), user("Q2"), agent("")]), ""),
            (json!([user("Q"), agent("A"), user("Q2"), agent("B")]), "B"),
            (
                json!([user("Q"), agent("Let me look."), {"role": "tool", "content": "RAW"}]),
                "Let me look.",
            ),
            (json!([user("Q"), {"role": "writer", "content": "W"}]), "W"),
        ] {
            let state = json!({"messages": state});
            assert_eq!(
                said(&state, Speaker::Agent).as_deref(),
                Some(words),
                "{state}"
            );
        }
        assert_eq!(said(&user("Q"), Speaker::Agent).as_deref(), Some(""));
    }

    #[test]
    fn what_is_asked_now_comes_before_what_was_said_before() {
        let old =
            json!([{"type": "human", "content": "OLD Q"}, {"type": "ai", "content": "OLD A"}]);
        for document in [
            json!({"question": "NEW", "chat_history": old}),
            json!({"input": "NEW", "chat_history": [["OLD Q", "OLD A"]]}),
            json!({"input": {"question": "NEW", "chat_history": old}}),
            json!({"question": "NEW", "messages": old}),
            json!({"query": "NEW", "history": old}),
            json!({"messages": [{"role": "user", "content": "NEW"}], "chat_history": old}),
            json!({"text": "NEW", "prompt": "TEMPLATE {text}"}),
            json!({"user_input": "NEW", "prompt": "You are kind."}),
            json!({"prompt": "NEW", "system": "Be kind."}),
        ] {
            assert_eq!(
                said(&document, Speaker::User).as_deref(),
                Some("NEW"),
                "{document}"
            );
        }
        for document in [
            json!({"input": "Q", "chat_history": old, "output": "NEW"}),
            json!({"answer": "NEW", "messages": old}),
            json!({"generation": "NEW", "documents": ["d"]}),
            json!({"message": {"role": "assistant", "content": "NEW"}, "response": "200 OK"}),
            json!({"output": "", "result": "NEW"}),
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "NEW"}]}}], "usageMetadata": {}}),
        ] {
            assert_eq!(
                said(&document, Speaker::Agent).as_deref(),
                Some("NEW"),
                "{document}"
            );
        }
    }

    #[test]
    fn files_and_parts_that_nobody_knows_say_nothing() {
        let message = json!([{"role": "user", "parts": [
            {"type": "text", "content": "What is it?"},
            {"type": "blob", "mime_type": "image/png", "content": "9bFlIkpYt5Hf"},
            {"type": "file", "file_id": "F", "content": "FILE"},
            {"type": "custom", "content": "CUSTOM"},
        ]}]);
        assert_eq!(
            said(&message, Speaker::User).as_deref(),
            Some("What is it?")
        );
    }

    #[test]
    fn texts_that_hold_a_value_are_read_as_that() {
        for (text, raw, json, words) in [
            (r#""hi""#, r#""hi""#, true, "hi"),
            (
                r#""{\"answer\":\"b\"}""#,
                r#""{\"answer\":\"b\"}""#,
                true,
                "b",
            ),
            (
                "{'role': 'assistant', 'text': \"it's\"}",
                "{'role': 'assistant', 'text': \"it's\"}",
                false,
                "it's",
            ),
            (
                r#"[{"role":"assistant","content":"\ud83d bad"}]"#,
                r#"[{"role":"assistant","content":"\ud83d bad"}]"#,
                true,
                "\u{fffd} bad",
            ),
        ] {
            let found = payload(&json!(text), Speaker::Agent).unwrap();
            assert_eq!((found.raw.as_str(), found.json), (raw, json));
            assert_eq!(found.said.as_deref(), Some(words), "{text}");
        }
        let plain = payload(&json!("\"Yes\", he said."), Speaker::Agent).unwrap();
        assert_eq!(plain, Payload::text("\"Yes\", he said."));
        assert_eq!(payload(&json!("null"), Speaker::Agent), None);
        let zero = json!({"answer": -0.0});
        assert_eq!(said(&zero, Speaker::Agent).as_deref(), Some("0"));
    }
}
