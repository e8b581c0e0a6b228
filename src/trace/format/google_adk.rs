//! Sessions of Google's Agent Development Kit: events of a user and of agents, in snake_case or camelCase.

use serde_json::Value;

use super::trajectory::{Session, Step, Turn, kept, plain, tool_payload};
use super::values::{self, count, text};
use super::{ArrayIs, Call, Format, Parts, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "google-adk",
    title: "Google ADK sessions (JSON)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "id and number of the user's message"),
        ("session_id", "id"),
        ("project_id", "app_name"),
        ("user_id", "user_id"),
        ("input", "events[] of author user: text"),
        (
            "output",
            "events[]: an agent's last text before the user's next",
        ),
        ("started_at", "events[].timestamp"),
        (
            "spans",
            "events[] of agents; content.parts[] function_call and function_response",
        ),
        (
            "prompt_tokens, completion_tokens",
            "events[].usage_metadata",
        ),
    ],
};

fn member<'v>(value: &'v Value, names: [&str; 2]) -> Option<&'v Value> {
    let found = names.iter().find_map(|name| value.get(*name));
    found.filter(|value| !value.is_null())
}

const INVOCATION: [&str; 2] = ["invocation_id", "invocationId"];
const CALL: [&str; 2] = ["function_call", "functionCall"];
const RESPONSE: [&str; 2] = ["function_response", "functionResponse"];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let events = sample.document.get("events")?.as_array()?;
    let is_event = |event: &Value| {
        event.get("author").is_some_and(Value::is_string) && member(event, INVOCATION).is_some()
    };
    let is_session = sample.document.get("id").is_some_and(Value::is_string);
    (is_session && !events.is_empty() && events.iter().all(is_event))
        .then(|| "has id and events[] with author and invocation_id".to_owned())
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let id = text(document.get("id"))
        .ok_or("the session has no `id`: give the session as the kit wrote it")?;
    let events = document
        .get("events")
        .and_then(Value::as_array)
        .ok_or("`events` is no list: give the session as the kit wrote it")?;
    let mut session = Session {
        id,
        common: TraceFacts {
            project_id: text(member(&document, ["app_name", "appName"])),
            user_id: text(member(&document, ["user_id", "userId"])),
            metadata: kept(&document, &["current_agent_name"]),
            ..TraceFacts::default()
        },
        turns: Vec::new(),
    };
    for event in events {
        // The whole of a streamed answer follows its pieces.
        if event.get("partial").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let time = values::time("timestamp", event.get("timestamp"))?;
        let words = words(event);
        if event.get("author").and_then(Value::as_str) == Some("user")
            && responses(event).next().is_none()
        {
            let mut turn = Turn {
                input: plain(words),
                started_at: time,
                ended_at: time,
                ..Turn::default()
            };
            if let Some(invocation) = member(event, INVOCATION) {
                turn.metadata
                    .insert("invocation_id".to_owned(), invocation.clone());
            }
            session.turns.push(turn);
            continue;
        }
        if session.turns.is_empty() {
            session.turns.push(Turn {
                started_at: time,
                ..Turn::default()
            });
        }
        if let Some(turn) = session.turns.last_mut() {
            of_agent(turn, event, words, time);
        }
    }
    session.write(parts);
    Ok(())
}

fn content_parts(event: &Value) -> impl Iterator<Item = &Value> {
    let parts = event
        .get("content")
        .and_then(|content| content.get("parts"));
    parts.and_then(Value::as_array).into_iter().flatten()
}

fn responses(event: &Value) -> impl Iterator<Item = &Value> {
    content_parts(event).filter_map(|part| member(part, RESPONSE))
}

/// Texts of an event, without thoughts.
fn words(event: &Value) -> Option<String> {
    let spoken = content_parts(event)
        .filter(|part| part.get("thought").and_then(Value::as_bool) != Some(true));
    let words: Vec<String> = spoken.filter_map(|part| text(part.get("text"))).collect();
    (!words.is_empty()).then(|| words.join("\n"))
}

fn of_agent(turn: &mut Turn, event: &Value, words: Option<String>, time: Option<i64>) {
    turn.ended_at = time.or(turn.ended_at);
    let mut answered = false;
    for response in responses(event) {
        let result = response.get("response");
        let failed = result.and_then(|result| {
            let status = result.get("status").and_then(Value::as_str);
            let failed = status.is_some_and(|status| status.eq_ignore_ascii_case("error"));
            let told = ["error", "error_message"]
                .iter()
                .find_map(|name| text(result.get(*name)));
            told.filter(|told| told != "false")
                .or_else(|| failed.then(|| result.to_string()))
        });
        answer(turn, response, tool_payload(result), failed);
        answered = true;
    }
    let calls: Vec<Call> = content_parts(event)
        .filter_map(|part| {
            let call = member(part, CALL)?;
            Some(Call {
                id: text(call.get("id")),
                name: text(call.get("name"))?,
                arguments: tool_payload(call.get("args")),
                ..Call::default()
            })
        })
        .collect();
    if words.is_some() {
        turn.output = plain(words.clone());
    }
    let error = text(member(event, ["error_message", "errorMessage"]))
        .or_else(|| text(member(event, ["error_code", "errorCode"])));
    if error.is_some() {
        turn.error.clone_from(&error);
    }
    if answered && words.is_none() && calls.is_empty() && error.is_none() {
        return;
    }
    let usage = member(event, ["usage_metadata", "usageMetadata"]);
    let tokens = |names| count(usage.and_then(|usage| member(usage, names)));
    turn.steps.push(Step {
        name: text(event.get("author")),
        said: words,
        calls,
        model: text(member(event, ["model_version", "modelVersion"])),
        prompt_tokens: tokens(["prompt_token_count", "promptTokenCount"]),
        completion_tokens: tokens(["candidates_token_count", "candidatesTokenCount"]),
        finish_reason: text(member(event, ["finish_reason", "finishReason"])),
        started_at: time,
        error,
        ..Step::default()
    });
}

/// Gives a response to its call: by id, or in older sessions to the first call of that name that waits.
fn answer(
    turn: &mut Turn,
    response: &Value,
    result: Option<super::Payload>,
    failed: Option<String>,
) {
    let (id, name) = (text(response.get("id")), text(response.get("name")));
    let calls = turn.steps.iter_mut().flat_map(|step| step.calls.iter_mut());
    let mut open = calls.filter(|call| call.result.is_none());
    let found = open.find(|call| match &id {
        Some(_) => call.id == id,
        None => name.as_deref() == Some(call.name.as_str()),
    });
    if let Some(call) = found {
        call.result = result;
        call.error = failed;
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_message_of_the_user_begins_a_trace() {
        let document = json!({"id": "s", "appName": "app", "userId": "u", "events": [
            {"author": "user", "invocationId": "i", "timestamp": 1_700_000_000.5, "content": {"role": "user", "parts": [{"text": "Rain?"}]}},
            {"author": "bot", "invocationId": "i", "timestamp": 1_700_000_001.0, "modelVersion": "g", "content": {"role": "model", "parts": [
                {"text": "hm", "thought": true}, {"functionCall": {"id": "c", "name": "weather", "args": {"at": "here"}}}]},
             "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2}},
            {"author": "bot", "invocationId": "i", "timestamp": 1_700_000_002.0, "content": {"role": "user", "parts": [
                {"functionResponse": {"id": "c", "name": "weather", "response": {"status": "error", "error_message": "down"}}}]}},
            {"author": "bot", "invocationId": "i", "timestamp": 1_700_000_003.0, "partial": true, "content": {"parts": [{"text": "No"}]}},
            {"author": "bot", "invocationId": "i", "timestamp": 1_700_000_004.0, "content": {"parts": [{"text": "No idea."}]}},
            {"author": "user", "invocationId": "j", "timestamp": 1_700_000_005.0, "content": {"parts": [{"text": "Pity."}]}},
        ]});
        let sample = Sample {
            file_name: "s.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "x", row: 0 }, &mut parts).unwrap();
        assert_eq!(parts.traces.len(), 2);
        let trace = &parts.traces[0];
        assert_eq!(trace.trace_id, "s:0000");
        assert_eq!(trace.output.as_ref().unwrap().raw, "No idea.");
        assert_eq!(trace.started_at, Some(1_700_000_000_500_000_000));
        assert_eq!(trace.project_id.as_deref(), Some("app"));
        assert_eq!(parts.traces[1].output, None);
        let tool = parts.spans.iter().find(|s| s.kind == kind::TOOL).unwrap();
        assert_eq!(tool.input.as_ref().unwrap().raw, r#"{"at":"here"}"#);
        assert_eq!(tool.error.as_deref(), Some("down"));
        let models: Vec<_> = parts.spans.iter().filter(|s| s.kind == kind::LLM).collect();
        assert_eq!(models.len(), 2);
        assert_eq!(
            (models[0].prompt_tokens, models[0].output.as_ref()),
            (Some(4), None)
        );
    }
}
