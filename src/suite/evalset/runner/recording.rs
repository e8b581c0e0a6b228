//! What an agent did in a turn, as the turn that is compared (as in trpc-agent-go).

use std::collections::HashMap;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{RunnerError, RunnerEvent, RunnerProblem, SessionStart};
use crate::suite::evalset::criterion::only_value;
use crate::suite::evalset::model::{Invocation, Message, ToolUse};

/// The turn that events amount to. The last final message is its final response, and without one it has none; messages
/// before are intermediate responses. It is called what the first final message that has a name for it says, or else by
/// a random UUID.
///
/// Arguments that are no text, or a blank one, are `{}`. Other texts, and those of results, are the JSON value that
/// they hold, or, where they are no JSON, the texts themselves. A second result of a call replaces the first; of
/// several calls with one id it goes to the last.
///
/// # Errors
/// [`RunnerProblem::NotAnnounced`] for a result of a call that did not come before it.
pub fn record(
    session: &SessionStart,
    turn: usize,
    user: &Message,
    events: Vec<RunnerEvent>,
) -> Result<Invocation, RunnerError> {
    let mut done = Invocation {
        context_messages: session.context_messages.iter().cloned().map(Some).collect(),
        user_content: Some(user.clone()),
        ..Invocation::default()
    };
    let mut tools: Vec<ToolUse> = Vec::new();
    let mut announced: HashMap<String, usize> = HashMap::new();
    for event in events {
        match event {
            RunnerEvent::ToolCall {
                id,
                name,
                arguments,
            } => {
                announced.insert(id.clone(), tools.len());
                tools.push(ToolUse {
                    id,
                    name,
                    arguments: value_of_arguments(arguments),
                    ..ToolUse::default()
                });
            }
            RunnerEvent::ToolResult { id, content } => {
                let call = announced.get(&id).and_then(|at| tools.get_mut(*at));
                let Some(call) = call else {
                    let problem = RunnerProblem::NotAnnounced { id };
                    return Err(RunnerError::new(session, Some(turn), problem));
                };
                call.result = value_of_text(content);
            }
            RunnerEvent::Message(message) => done.intermediate_responses.push(Some(message)),
            RunnerEvent::Final {
                message,
                invocation_id,
            } => {
                done.final_response = Some(message);
                if done.id.is_empty() {
                    done.id = invocation_id.unwrap_or_default();
                }
            }
        }
    }
    if done.id.is_empty() {
        done.id = Uuid::new_v4().to_string();
    }
    done.tools = tools.into_iter().map(Some).collect();
    Ok(done)
}

fn value_of_arguments(arguments: Value) -> Value {
    match arguments {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        arguments => value_of_text(arguments),
    }
}

/// The JSON value in a text. Texts that are no JSON, and those that are too deep for a reader, stay texts.
fn value_of_text(value: Value) -> Value {
    match value {
        Value::String(text) => only_value(&text).unwrap_or(Value::String(text)),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, arguments: Value) -> RunnerEvent {
        RunnerEvent::ToolCall {
            id: id.into(),
            name: format!("tool of {id}"),
            arguments,
        }
    }

    fn result(id: &str, content: Value) -> RunnerEvent {
        RunnerEvent::ToolResult {
            id: id.into(),
            content,
        }
    }

    fn said(content: &str) -> Message {
        Message {
            role: "assistant".into(),
            content: content.into(),
            ..Message::default()
        }
    }

    fn ended(content: &str, id: Option<&str>) -> RunnerEvent {
        RunnerEvent::Final {
            message: said(content),
            invocation_id: id.map(str::to_owned),
        }
    }

    fn recorded(events: Vec<RunnerEvent>) -> Result<Invocation, String> {
        let session = SessionStart {
            eval_id: "c".into(),
            context_messages: vec![said("before")],
            ..SessionStart::default()
        };
        record(&session, 1, &said("asked"), events).map_err(|e| e.to_string())
    }

    fn tools(events: Vec<RunnerEvent>) -> Vec<(Value, Value)> {
        let turn = recorded(events).unwrap();
        let tools = turn.tools.into_iter().flatten();
        tools.map(|tool| (tool.arguments, tool.result)).collect()
    }

    #[test]
    fn arguments_are_read_where_they_are_json() {
        let deep = "[".repeat(100_000);
        for (arguments, read) in [
            (json!(null), json!({})),
            (json!(""), json!({})),
            (json!(" \n\t\u{a0}"), json!({})),
            (json!(" {\"a\": [1]} "), json!({"a": [1]})),
            (json!("{\"a\": \"\\ud800\"}"), json!({"a": "\u{fffd}"})),
            (json!("null"), json!(null)),
            (json!("\"x\""), json!("x")),
            (json!("1e999"), json!("1e999")),
            (json!("{\"a\": 1} and"), json!("{\"a\": 1} and")),
            (json!("x=1"), json!("x=1")),
            (json!({"a": "{}"}), json!({"a": "{}"})),
            (json!(0), json!(0)),
            (json!(deep), json!(deep)),
        ] {
            assert_eq!(tools(vec![call("a", arguments)]), [(read, Value::Null)]);
        }
    }

    #[test]
    fn results_are_read_where_they_are_json_and_blank_ones_stay_texts() {
        for (content, read) in [
            (json!("{\"time\":\"03:01\"}"), json!({"time": "03:01"})),
            (json!("sunny"), json!("sunny")),
            (json!(""), json!("")),
            (json!(" "), json!(" ")),
            (json!([1, "2"]), json!([1, "2"])),
            (json!(null), json!(null)),
            (json!("\"\\ud800\""), json!("\u{fffd}")),
        ] {
            let events = vec![call("a", Value::Null), result("a", content)];
            assert_eq!(tools(events), [(json!({}), read)]);
        }
    }

    #[test]
    fn results_go_to_the_call_of_their_id() {
        let events = vec![
            call("a", json!("1")),
            call("b", json!("2")),
            result("b", json!("rb")),
            result("a", json!("ra")),
            call("a", json!("3")),
            result("a", json!("first")),
            result("a", json!("second")),
        ];
        assert_eq!(
            tools(events),
            [
                (json!(1), json!("ra")),
                (json!(2), json!("rb")),
                (json!(3), json!("second"))
            ]
        );
    }

    #[test]
    fn a_result_without_its_call_fails_the_turn() {
        for events in [
            vec![result("a", json!("x"))],
            vec![result("a", json!("x")), call("a", Value::Null)],
            vec![call("b", Value::Null), result("", json!("x"))],
        ] {
            let error = recorded(events).unwrap_err();
            assert!(error.starts_with("case `c`, turn 2: "), "{error}");
            assert!(error.contains("did not announce"), "{error}");
        }
    }

    #[test]
    fn the_last_final_message_counts_and_the_first_name_of_the_turn() {
        let events = vec![
            RunnerEvent::Message(said("well")),
            ended("one", None),
            ended("two", Some("")),
            ended("three", Some("t-3")),
            ended("four", Some("t-4")),
        ];
        let turn = recorded(events).unwrap();
        assert_eq!(turn.final_response, Some(said("four")));
        assert_eq!(turn.id, "t-3");
        assert_eq!(turn.intermediate_responses, [Some(said("well"))]);
        assert_eq!(turn.context_messages, [Some(said("before"))]);
        assert_eq!(turn.user_content, Some(said("asked")));
    }

    #[test]
    fn a_turn_without_a_name_gets_a_random_uuid() {
        let first = recorded(Vec::new()).unwrap();
        let second = recorded(Vec::new()).unwrap();
        assert_eq!(first.final_response, None);
        assert_ne!(first.id, second.id);
        assert_eq!(Uuid::parse_str(&first.id).unwrap().get_version_num(), 4);
    }
}
