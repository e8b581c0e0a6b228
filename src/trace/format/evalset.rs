//! Evaluation sets of trpc-agent-go and of Google's ADK: each case is a session, each invocation a trace.
//!
//! A case holds what was done, what should be done, or both (`actualConversation` beside `conversation`). Only with both,
//! traces have an expected text; else the one conversation is what is read.

use std::collections::HashMap;

use serde_json::Value;

use super::said::content_of_message;
use super::trajectory::{Session, Step, Turn, plain, plain_error, tool_payload};
use super::values::{nanos, object, text};
use super::{ArrayIs, Call, Format, Parts, Payload, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "evalset",
    title: "Evaluation sets of trpc-agent-go and Google ADK (JSON)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "evalSetId, evalId and number of the invocation"),
        ("session_id", "evalSetId and evalCases[].evalId"),
        ("project_id", "evalCases[].sessionInput.appName"),
        ("user_id", "evalCases[].sessionInput.userId"),
        ("input", "conversation[].userContent"),
        ("output", "conversation[].finalResponse"),
        (
            "expected",
            "conversation[].finalResponse where there is an actualConversation[] too",
        ),
        ("spans", "conversation[].tools, else intermediateData"),
    ],
};

fn member<'v>(value: &'v Value, names: [&str; 2]) -> Option<&'v Value> {
    let found = names.iter().find_map(|name| value.get(*name));
    found.filter(|value| !value.is_null())
}

const SET_ID: [&str; 2] = ["evalSetId", "eval_set_id"];
const CASES: [&str; 2] = ["evalCases", "eval_cases"];
const ACTUAL: [&str; 2] = ["actualConversation", "actual_conversation"];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let set = sample.document;
    let cases = member(set, CASES)?.as_array()?;
    let is_case = |case: &Value| {
        case.is_null()
            || member(case, ["evalId", "eval_id"]).is_some()
                && (case.get("conversation").is_some() || member(case, ACTUAL).is_some())
    };
    (member(set, SET_ID).is_some() && cases.iter().all(is_case))
        .then(|| "has evalSetId and evalCases[] with evalId and conversation[]".to_owned())
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let set = text(member(&document, SET_ID)).unwrap_or_else(|| place.stem.to_owned());
    let cases = member(&document, CASES)
        .and_then(Value::as_array)
        .ok_or("`evalCases` is no list: this is no evaluation set")?;
    let mut met: HashMap<String, usize> = HashMap::new();
    for (index, case) in cases.iter().enumerate().filter(|(_, case)| !case.is_null()) {
        let id = text(member(case, ["evalId", "eval_id"]))
            .ok_or_else(|| format!("evalCases[{index}] has no `evalId`: give each case one"))?;
        let times = met.entry(id.clone()).or_default();
        *times += 1;
        // A second case of the same id is another session.
        let id = match *times {
            1 => id,
            times => format!("{id}#{times}"),
        };
        read_case(case, index, &set, &id, parts)?;
    }
    Ok(())
}

fn read_case(
    case: &Value,
    index: usize,
    set: &str,
    id: &str,
    parts: &mut Parts,
) -> Result<(), String> {
    let turns = |names: [&str; 2]| match member(case, names) {
        None => Ok(Vec::new()),
        Some(Value::Array(turns)) => Ok(turns.iter().filter(|turn| !turn.is_null()).collect()),
        Some(_) => Err(format!("evalCases[{index}].{} is no list", names[0])),
    };
    let (conversation, actual) = (turns(["conversation"; 2])?, turns(ACTUAL)?);
    let both = !actual.is_empty() && !conversation.is_empty();
    if both && actual.len() != conversation.len() {
        return Err(format!(
            "evalCases[{index}] has {} actual and {} expected turns: give as many of both",
            actual.len(),
            conversation.len()
        ));
    }
    let mode = text(member(case, ["evalMode", "eval_mode"])).unwrap_or_default();
    let of = match (actual.is_empty(), mode.as_str()) {
        (true, "trace") | (false, _) => "actual",
        (true, _) => "expected",
    };
    let input = member(case, ["sessionInput", "session_input"]);
    let of_input = |names| text(input.and_then(|input| member(input, names)));
    let mut common = TraceFacts {
        project_id: of_input(["appName", "app_name"]),
        user_id: of_input(["userId", "user_id"]),
        ..TraceFacts::default()
    };
    for (name, value) in [("eval_set_id", set), ("eval_id", id), ("conversation", of)] {
        common.metadata.insert(name.to_owned(), value.into());
    }
    let done = match actual.is_empty() {
        true => &conversation,
        false => &actual,
    };
    let mut turns: Vec<Turn> = done.iter().map(|invocation| turn(invocation)).collect();
    if both {
        for (turn, expected) in turns.iter_mut().zip(&conversation) {
            turn.expected = final_response(expected);
        }
    }
    // Turns are in order as they stand: times that say otherwise, or that only some have, would tear them apart.
    let times: Vec<i64> = turns.iter().filter_map(|turn| turn.started_at).collect();
    if times.len() != turns.len() || !times.is_sorted() {
        turns.iter_mut().for_each(|turn| turn.started_at = None);
    }
    let session = Session {
        id: format!("{set}:{id}"),
        common,
        turns,
    };
    session.write(parts);
    Ok(())
}

/// A message's words. Parts are put together with nothing between, as trpc-agent-go does.
fn message(invocation: &Value, names: [&str; 2]) -> Option<String> {
    let message = member(invocation, names)?;
    let parts = message.get("parts").and_then(Value::as_array);
    match parts {
        Some(parts) => Some(
            parts
                .iter()
                .filter_map(|part| text(part.get("text")))
                .collect(),
        ),
        None => content_of_message(message).or_else(|| {
            content_of_message(&serde_json::json!({"content": message.get("content_parts")}))
        }),
    }
}

fn final_response(invocation: &Value) -> Option<Payload> {
    plain(message(invocation, ["finalResponse", "final_response"]))
}

fn turn(invocation: &Value) -> Turn {
    let said = message(invocation, ["finalResponse", "final_response"]);
    let time = nanos(member(
        invocation,
        ["creationTimestamp", "creation_timestamp"],
    ));
    let mut turn = Turn {
        input: plain(message(invocation, ["userContent", "user_content"])),
        output: plain(said.clone()),
        started_at: time,
        steps: vec![Step {
            said,
            calls: calls(invocation),
            started_at: time,
            ..Step::default()
        }],
        ..Turn::default()
    };
    if let Some(id) = member(invocation, ["invocationId", "invocation_id"]) {
        turn.metadata.insert("invocation_id".to_owned(), id.clone());
    }
    turn
}

/// Calls with their results: `tools`; in older files `intermediateData`, where responses are found by id, else by
/// position.
fn calls(invocation: &Value) -> Vec<Call> {
    let list = |value: &Value, names| {
        let items = member(value, names).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    let tools = list(invocation, ["tools"; 2]);
    if !tools.is_empty() {
        return tools.iter().map(call).collect();
    }
    let data = ["intermediateData", "intermediate_data"];
    let data = Value::Object(object(member(invocation, data)).unwrap_or_default());
    let mut asked = list(&data, ["toolUses", "tool_uses"]);
    if asked.is_empty() {
        asked = list(&data, ["toolCalls", "tool_calls"]);
    }
    let mut calls: Vec<Call> = asked.iter().map(call).collect();
    let mut rest = Vec::new();
    for response in list(&data, ["toolResponses", "tool_responses"]) {
        let id = ["id", "toolId", "tool_id"];
        let id = id.iter().find_map(|name| text(response.get(*name)));
        let result = ["response", "content"];
        let result = result.iter().find_map(|name| response.get(*name)).cloned();
        let by_id = calls
            .iter_mut()
            .find(|call| id.is_some() && call.id == id && call.result.is_none());
        match by_id {
            Some(call) => give(call, result.as_ref()),
            None => rest.push(result),
        }
    }
    let waiting = calls.iter_mut().filter(|call| call.result.is_none());
    for (call, result) in waiting.zip(rest) {
        give(call, result.as_ref());
    }
    calls
}

fn call(tool: &Value) -> Call {
    let function = tool.get("function").unwrap_or(tool);
    let arguments = ["arguments", "args"];
    let arguments = arguments.iter().find_map(|name| function.get(*name));
    let mut call = Call {
        id: text(tool.get("id")),
        name: text(function.get("name")).unwrap_or_default(),
        arguments: tool_payload(arguments),
        ..Call::default()
    };
    give(&mut call, tool.get("result"));
    call
}

fn give(call: &mut Call, result: Option<&Value>) {
    call.result = tool_payload(result);
    let words = call.result.as_ref().map(|result| result.raw.as_str());
    call.error = words.and_then(plain_error);
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn read_set(document: Value) -> Result<Parts, String> {
        let sample = Sample {
            file_name: "s.evalset.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "s", row: 0 }, &mut parts)?;
        Ok(parts)
    }

    fn said(question: &str, answer: &str) -> Value {
        json!({"userContent": {"role": "user", "content": question}, "finalResponse": {"role": "assistant", "content": answer}})
    }

    #[test]
    fn what_was_done_stands_beside_what_should_be() {
        let mut done = said("2+2?", "5");
        done["tools"] = json!([{"id": "c", "name": "add", "arguments": {"a": 2}, "result": 0}]);
        let parts = read_set(json!({"evalSetId": "math", "evalCases": [null,
            {"evalId": "a", "evalMode": "trace", "conversation": [said("2+2?", "4")], "actualConversation": [done],
             "sessionInput": {"appName": "app", "userId": "u"}},
            {"evalId": "a", "conversation": [said("1?", "1"), said("2?", "2")]},
        ]})).unwrap();
        assert_eq!(parts.traces.len(), 3);
        let trace = &parts.traces[0];
        assert_eq!(trace.trace_id, "math:a:0000");
        assert_eq!(trace.output.as_ref().unwrap().raw, "5");
        assert_eq!(trace.expected.as_ref().unwrap().raw, "4");
        assert_eq!(trace.user_id.as_deref(), Some("u"));
        assert_eq!(trace.metadata["conversation"], "actual");
        assert_eq!(parts.traces[2].trace_id, "math:a#2:0001");
        assert_eq!(parts.traces[2].expected, None);
        assert_eq!(parts.traces[2].metadata["conversation"], "expected");
        let tool = parts.spans.iter().find(|s| s.kind == kind::TOOL).unwrap();
        assert_eq!(tool.name, "add");
        assert_eq!(tool.output.as_ref().unwrap().raw, "0");
    }

    #[test]
    fn older_shapes_and_those_of_the_kit_are_read() {
        let parts = read_set(json!({"eval_set_id": "old", "eval_cases": [{"eval_id": "a", "conversation": [{
            "user_content": {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
            "final_response": {"role": "model", "parts": [{"text": "c"}]},
            "intermediate_data": {"tool_uses": [{"id": "1", "name": "f", "args": {"x": 1}}, {"id": "2", "name": "g"}],
                "tool_responses": [{"id": "2", "response": {"y": 2}}, {"response": "Error: no"}]},
        }]}]})).unwrap();
        assert_eq!(parts.traces[0].input.as_ref().unwrap().raw, "ab");
        assert_eq!(parts.traces[0].output.as_ref().unwrap().raw, "c");
        let tools: Vec<_> = parts
            .spans
            .iter()
            .filter(|s| s.kind == kind::TOOL)
            .collect();
        assert_eq!(tools[0].error.as_deref(), Some("Error: no"));
        assert_eq!(tools[1].output.as_ref().unwrap().raw, r#"{"y":2}"#);
    }

    #[test]
    fn turns_that_do_not_pair_are_refused() {
        let error = read_set(json!({"evalSetId": "m", "evalCases": [
            {"evalId": "a", "conversation": [said("1", "1")], "actualConversation": [said("1", "1"), said("2", "2")]}]}));
        assert!(
            error
                .unwrap_err()
                .contains("evalCases[0] has 2 actual and 1 expected")
        );
    }
}
