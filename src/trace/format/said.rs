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

mod message;
mod part;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(crate) use message::{content_of_message, role};
pub(crate) use part::content;

use message::{is_call, is_item, is_message, of_message, of_messages, unwrapped};
use part::{is_part, of_parts};

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
