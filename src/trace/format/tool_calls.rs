//! Calls of tools that messages tell of, in the shapes of OpenAI, Anthropic, Gemini, OpenTelemetry and Vercel.

use serde_json::Value;

use super::values::{at, nested, text};
use super::{Call, Payload, said};

/// A value as exported, of which nobody's words are looked for.
pub(super) fn plain(value: &Value) -> Option<Payload> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(Payload {
            json: nested(text).is_some(),
            raw: text.clone(),
            said: None,
        }),
        document => Some(Payload::document(document, None)),
    }
}

/// The calls that the messages of a document ask for.
pub(super) fn asked(document: &Value) -> Vec<Call> {
    let mut calls = Vec::new();
    for message in messages(document) {
        asked_in(message, &mut calls);
    }
    calls
}

/// The results of tools at the end of the messages of an input: those that the model has not seen before.
pub(super) fn answered(document: &Value) -> Vec<Call> {
    let messages = messages(document);
    let first = messages
        .iter()
        .rposition(|message| !tells_results(message))
        .map_or(0, |last| last + 1);
    if first == messages.len() {
        return Vec::new();
    }
    let mut asked = Vec::new();
    if let Some(message) = first.checked_sub(1).and_then(|before| messages.get(before)) {
        asked_in(message, &mut asked);
    }
    let mut results = Vec::new();
    for message in &messages[first..] {
        results_in(message, &mut results);
    }
    for result in &mut results {
        let same = |call: &&Call| call.id.is_some() && call.id == result.id;
        let call = asked.iter().find(same).or(match asked.as_slice() {
            [only] if result.id.is_none() => Some(only),
            _ => None,
        });
        if let Some(call) = call {
            if result.name.is_empty() {
                result.name.clone_from(&call.name);
            }
            result.arguments.clone_from(&call.arguments);
        }
    }
    results.retain(|result| !result.name.is_empty());
    results
}

fn messages(document: &Value) -> &[Value] {
    match document {
        Value::Array(items) => match items.as_slice() {
            [Value::Array(inner)] => inner,
            all => all,
        },
        Value::Object(members) => {
            for name in ["messages", "contents", "choices", "candidates"] {
                if let Some(list @ Value::Array(_)) = members.get(name) {
                    return messages(list);
                }
            }
            std::slice::from_ref(document)
        }
        _ => &[],
    }
}

/// A message out of `{"message": {…}}` and Gemini's `{"content": {"parts": …}}`.
fn unwrapped(message: &Value) -> &Value {
    if message.get("role").is_some() {
        return message;
    }
    match (message.get("message"), message.get("content")) {
        (Some(inner @ Value::Object(_)), _) | (_, Some(inner @ Value::Object(_))) => inner,
        _ => message,
    }
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    ["content", "parts"]
        .iter()
        .filter_map(|name| message.get(*name)?.as_array())
        .flatten()
}

fn asked_in(message: &Value, calls: &mut Vec<Call>) {
    let message = unwrapped(message);
    let listed = message.get("tool_calls").and_then(Value::as_array);
    for call in listed.into_iter().flatten() {
        calls.extend(call_of(call));
    }
    for name in ["tool.name", "toolName"] {
        if message.get(name).is_some() {
            calls.extend(call_of(message));
        }
    }
    if let Some(call @ Value::Object(_)) = message.get("function_call") {
        calls.extend(call_of(call));
    }
    for part in parts(message) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        match (
            kind,
            part.get("function_call")
                .or_else(|| part.get("functionCall")),
        ) {
            (_, Some(call)) => calls.extend(call_of(call)),
            ("tool_call" | "tool_use" | "tool-call", None) => calls.extend(call_of(part)),
            _ => {}
        }
    }
}

fn first<'v>(value: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().find_map(|name| at(value, name))
}

/// The members of a value that give the id of a call.
const IDS: [&str; 5] = ["id", "tool_call_id", "tool_use_id", "toolCallId", "call_id"];

fn call_of(call: &Value) -> Option<Call> {
    let name = first(
        call,
        &[
            "function.name",
            "name",
            "toolName",
            "tool_name",
            "tool.name",
        ],
    )?;
    let arguments = [
        "function.arguments",
        "arguments",
        "args",
        "input",
        "tool.args",
        "parameters",
    ];
    Some(Call {
        id: text(first(call, &IDS)),
        name: text(Some(name))?,
        arguments: first(call, &arguments).and_then(plain),
        ..Call::default()
    })
}

fn is_result(part: &Value) -> bool {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    matches!(kind, "tool_call_response" | "tool_result" | "tool-result")
        || part.get("function_response").is_some()
        || part.get("functionResponse").is_some()
}

fn tells_results(message: &Value) -> bool {
    let message = unwrapped(message);
    said::role(message).as_deref() == Some("tool") || parts(message).any(is_result)
}

fn results_in(message: &Value, results: &mut Vec<Call>) {
    let message = unwrapped(message);
    let mut in_parts = false;
    for part in parts(message).filter(|part| is_result(part)) {
        in_parts = true;
        let result = first(part, &["function_response", "functionResponse"]).unwrap_or(part);
        results.push(result_of(result));
    }
    if !in_parts {
        results.push(result_of(message));
    }
}

fn result_of(result: &Value) -> Call {
    let payload = first(result, &["response", "result", "output", "content"]).and_then(plain);
    let failed = ["is_error", "isError"]
        .iter()
        .any(|name| result.get(*name) == Some(&Value::Bool(true)));
    let error = failed.then(|| match result.get("content").and_then(said::content) {
        Some(words) => words,
        None => payload.as_ref().map(|p| p.raw.clone()).unwrap_or_default(),
    });
    Call {
        // A message's own `id` is not the call's.
        id: text(first(
            result,
            &["tool_call_id", "tool_use_id", "toolCallId", "call_id", "id"],
        )),
        name: text(first(result, &["name", "toolName", "tool_name"])).unwrap_or_default(),
        result: payload,
        error,
        ..Call::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_found_in_every_shape() {
        for message in [
            json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}),
            json!([{"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]}]),
            json!([{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}]}]),
            json!({"content": {"role": "model", "parts": [{"function_call": {"id": "c", "name": "f", "args": {"a": 1}}}]}}),
            json!({"choices": [{"message": {"tool_calls": [{"id": "c", "name": "f", "arguments": {"a": 1}}]}}]}),
            json!([{"toolCallId": "c", "toolName": "f", "input": {"a": 1}}]),
        ] {
            let calls = asked(&message);
            let [call] = calls.as_slice() else {
                panic!("{message}: {calls:?}")
            };
            assert_eq!(
                (call.id.as_deref(), call.name.as_str()),
                (Some("c"), "f"),
                "{message}"
            );
            let arguments = call.arguments.as_ref().unwrap();
            assert_eq!(nested(&arguments.raw), Some(json!({"a": 1})), "{message}");
            assert!(arguments.json);
        }
        assert_eq!(asked(&json!([{"role": "user", "content": "hi"}])), []);
        assert_eq!(
            asked(&json!([{"tool.name": "f", "tool.args": {}}]))[0].name,
            "f"
        );
    }

    #[test]
    fn only_results_at_the_end_are_new() {
        let call = |id: &str, name: &str| json!({"role": "assistant", "tool_calls": [{"id": id, "name": name, "arguments": "{}"}]});
        let mut history = vec![
            json!({"role": "user", "content": "hi"}),
            call("1", "old"),
            json!({"role": "tool", "tool_call_id": "1", "content": "gone"}),
            call("2", "new"),
            json!({"role": "tool", "tool_call_id": "2", "content": "here"}),
        ];
        let results = answered(&json!(history));
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].name, "new");
        assert_eq!(results[0].result, Some(Payload::text("here")));
        assert!(results[0].arguments.is_some());
        history.push(json!({"role": "user", "content": "and?"}));
        assert_eq!(answered(&json!(history)), []);
    }

    #[test]
    fn results_in_parts_are_found() {
        for (message, error) in [
            (
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r", "is_error": true}]}),
                Some("r"),
            ),
            (
                json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "r"}]}),
                None,
            ),
        ] {
            let asking = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]});
            let results = answered(&json!([asking, message]));
            assert_eq!(results.len(), 1, "{message}");
            assert_eq!(results[0].name, "f");
            assert_eq!(results[0].result, Some(Payload::text("r")));
            assert_eq!(results[0].error.as_deref(), error);
        }
        let gemini = json!({"contents": [{"role": "user", "parts": [{"function_response": {"name": "f", "response": {"x": 1}}}]}]});
        assert_eq!(
            answered(&gemini)[0].result.as_ref().unwrap().raw,
            r#"{"x":1}"#
        );
    }
}
