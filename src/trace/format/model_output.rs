//! What the messages of a model's span tell beside words: calls of tools and their results, why the model stopped, and
//! how many tokens it took. Known are the messages of OpenAI (chat and responses), Anthropic, Gemini, LangChain, the AI
//! SDK of Vercel and OpenTelemetry.

use serde_json::{Map, Value};

use super::cell::Cell;
use super::said;
use super::values::{count, text};
use super::{Call, Payload};

/// Deeper messages are not looked at.
const DEEPEST: usize = 16;
/// Members in which messages, their parts or calls are.
const WITHIN: [&str; 15] = [
    "candidates",
    "messages",
    "input_messages",
    "output_messages",
    "chat_history",
    "new_messages",
    "choices",
    "generations",
    "message",
    "content",
    "parts",
    "contents",
    "output",
    "outputs",
    "input",
];
/// Members that hold nothing but calls.
const CALLS: [&str; 4] = ["tool_calls", "toolCalls", "function_call", "functionCall"];

type Members = Map<String, Value>;

/// The calls that a span's output asks for and those that its input tells of, with their results where told.
pub(super) fn calls(input: Option<&Value>, output: Option<&Value>) -> Vec<Call> {
    let mut found = Vec::new();
    for value in [input, output].into_iter().flatten() {
        walk(value, false, 0, &mut found);
    }
    found
}

fn walk(value: &Value, of_calls: bool, depth: usize, found: &mut Vec<Call>) {
    if depth > DEEPEST {
        return;
    }
    match value {
        Value::Array(items) => {
            for item in items {
                walk(item, of_calls, depth + 1, found);
            }
        }
        Value::Object(members) => {
            if let Some(kwargs @ Value::Object(_)) = members.get("kwargs")
                && members.contains_key("lc")
            {
                return walk(kwargs, of_calls, depth + 1, found);
            }
            if let Some(result) = result(members) {
                return keep(found, result, true);
            }
            if let Some(call) = call(members, of_calls) {
                return keep(found, call, false);
            }
            for name in WITHIN {
                if let Some(inner) = members.get(name) {
                    walk(inner, false, depth + 1, found);
                }
            }
            let mut has_calls = false;
            for name in CALLS {
                if let Some(inner) = members.get(name) {
                    has_calls |= inner.as_array().is_some_and(|calls| !calls.is_empty());
                    walk(inner, true, depth + 1, found);
                }
            }
            // LangChain has the provider's own calls there, the same ones again.
            if !has_calls && let Some(inner) = members.get("additional_kwargs") {
                walk(inner, false, depth + 1, found);
            }
        }
        _ => {}
    }
}

/// Adds a call, or what it tells to the call that it is about.
fn keep(found: &mut Vec<Call>, told: Call, is_result: bool) {
    let known = match &told.id {
        Some(id) => found.iter_mut().find(|call| call.id.as_ref() == Some(id)),
        None if is_result => found
            .iter_mut()
            .find(|call| call.id.is_none() && call.name == told.name && call.result.is_none()),
        None => None,
    };
    match known {
        Some(call) => {
            if call.name.is_empty() {
                call.name = told.name;
            }
            call.arguments = call.arguments.take().or(told.arguments);
            call.result = call.result.take().or(told.result);
            call.error = call.error.take().or(told.error);
        }
        None => found.push(told),
    }
}

fn first_text(members: &Members, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| text(members.get(*name)))
}

fn call(members: &Members, of_calls: bool) -> Option<Call> {
    let id = first_text(members, &["call_id", "toolCallId", "tool_call_id", "id"]);
    if let Some(Value::Object(function)) = members.get("function") {
        let arguments = function.get("arguments").or_else(|| function.get("args"));
        // Without arguments it is the definition of a tool.
        if arguments.is_none() && !of_calls {
            return None;
        }
        return Some(Call {
            id,
            name: first_text(function, &["name"])?,
            arguments: document(arguments),
            ..Call::default()
        });
    }
    let typed = members
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| {
            matches!(
                kind,
                "tool_use" | "tool_call" | "tool-call" | "function_call"
            )
        });
    let arguments = ["arguments", "args", "input"]
        .iter()
        .find_map(|name| members.get(*name));
    let of_sdk = members.contains_key("toolName") && arguments.is_some();
    if !(typed || of_calls || of_sdk) {
        return None;
    }
    Some(Call {
        id,
        name: first_text(members, &["name", "toolName", "tool_name"])?,
        arguments: document(arguments),
        ..Call::default()
    })
}

fn document(value: Option<&Value>) -> Option<Payload> {
    Cell::new(value).map(|cell| cell.document())
}

/// The words of a result's parts, else all of it.
fn result_document(value: Option<&Value>) -> Option<Payload> {
    match value {
        Some(parts @ Value::Array(_)) => match said::content(parts) {
            Some(words) => Some(Payload::text(words)),
            None => document(value),
        },
        _ => document(value),
    }
}

fn result(members: &Members) -> Option<Call> {
    if let Some(message) = tool_message(members) {
        return Some(message);
    }
    for name in ["function_response", "functionResponse"] {
        if let Some(Value::Object(response)) = members.get(name) {
            return Some(Call {
                id: first_text(response, &["id"]),
                name: first_text(response, &["name"])?,
                result: document(response.get("response")),
                ..Call::default()
            });
        }
    }
    let (ids, contents): (&[&str], &[&str]) = match members.get("type")?.as_str()? {
        "tool_result" => (&["tool_use_id"], &["content"]),
        "function_call_output" => (&["call_id"], &["output"]),
        "tool-result" | "tool_call_response" | "tool-call-response" => (
            &["toolCallId", "tool_call_id", "id"],
            &["result", "output", "response", "content"],
        ),
        _ => return None,
    };
    let failed = ["is_error", "isError"]
        .iter()
        .any(|name| members.get(*name).and_then(Value::as_bool) == Some(true));
    let result = result_document(contents.iter().find_map(|name| members.get(*name)));
    Some(Call {
        id: first_text(members, ids),
        name: first_text(members, &["name", "toolName"]).unwrap_or_default(),
        error: failed.then(|| error_text(result.as_ref())),
        result,
        ..Call::default()
    })
}

fn error_text(result: Option<&Payload>) -> String {
    result.map_or_else(|| "the tool failed".to_owned(), |result| result.raw.clone())
}

/// A message in which a tool answers, also one that LangChain serialised.
pub(super) fn tool_message(members: &Members) -> Option<Call> {
    let members = match members.get("kwargs") {
        Some(Value::Object(kwargs)) if members.contains_key("lc") => kwargs,
        _ => members,
    };
    let word = |name: &str| members.get(name).and_then(Value::as_str);
    let of_tool = matches!(word("role"), Some("tool" | "function"))
        || (word("type") == Some("tool") && members.contains_key("content"))
        || (members.contains_key("tool_call_id") && members.contains_key("content"));
    if !of_tool {
        return None;
    }
    let content = members.get("content");
    // Parts that are results themselves tell more.
    let parts = content.and_then(Value::as_array);
    if parts.is_some_and(|parts| {
        parts.iter().any(|part| {
            matches!(
                part.get("type").and_then(Value::as_str),
                Some("tool-result" | "tool_result")
            )
        })
    }) {
        return None;
    }
    let result = result_document(content);
    Some(Call {
        id: first_text(members, &["tool_call_id", "toolCallId", "call_id"]),
        name: first_text(members, &["name"]).unwrap_or_default(),
        error: (word("status") == Some("error")).then(|| error_text(result.as_ref())),
        result,
        ..Call::default()
    })
}

/// Members on the way to what a provider tells of an answer.
const TOLD: [&str; 10] = [
    "choices",
    "candidates",
    "generations",
    "generation_info",
    "message",
    "kwargs",
    "response_metadata",
    "llm_output",
    "output",
    "messages",
];

/// The first answer of a search in the members on the way to what a provider tells; of lists, the last element counts.
fn told<T>(value: &Value, depth: usize, search: &dyn Fn(&Members) -> Option<T>) -> Option<T> {
    if depth > DEEPEST {
        return None;
    }
    match value {
        Value::Array(items) => told(items.last()?, depth + 1, search),
        Value::Object(members) => search(members).or_else(|| {
            TOLD.iter()
                .find_map(|name| told(members.get(*name)?, depth + 1, search))
        }),
        _ => None,
    }
}

/// Why the model stopped, as the provider wrote it.
pub(super) fn finish_reason(output: &Value) -> Option<String> {
    told(output, 0, &|members| {
        let incomplete = || text(members.get("incomplete_details")?.get("reason"));
        first_text(
            members,
            &[
                "finish_reason",
                "stop_reason",
                "finishReason",
                "done_reason",
            ],
        )
        .or_else(incomplete)
    })
}

/// Tokens in and out, where the output tells of them.
pub(super) fn usage(output: &Value) -> (Option<u64>, Option<u64>) {
    let found = told(output, 0, &|members| {
        ["usage_metadata", "usageMetadata", "token_usage", "usage"]
            .iter()
            .find_map(|name| {
                let usage = members.get(*name)?.as_object()?;
                let tokens =
                    |names: [&str; 5]| names.iter().find_map(|name| count(usage.get(*name)));
                let prompt = tokens([
                    "input_tokens",
                    "prompt_tokens",
                    "prompt_token_count",
                    "promptTokens",
                    "promptTokenCount",
                ]);
                let completion = tokens([
                    "output_tokens",
                    "completion_tokens",
                    "candidates_token_count",
                    "completionTokens",
                    "candidatesTokenCount",
                ]);
                (prompt.is_some() || completion.is_some()).then_some((prompt, completion))
            })
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests;
