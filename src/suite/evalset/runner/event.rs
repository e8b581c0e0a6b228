//! Events of agents as JSON: what commands write line by line, and what scripts hold.

use serde_json::{Map, Value};

use super::RunnerEvent;
use crate::suite::evalset::model::Message;

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// Something was done.
    Event(RunnerEvent),
    /// The agent failed.
    Error(String),
    /// The turn is over.
    End,
}

/// Reads a line's object. Members that no event has are passed over.
///
/// # Errors
/// What is wrong with it, for a reader.
pub(super) fn read(value: Value) -> Result<Said, String> {
    let Value::Object(mut members) = value else {
        return Err("it is no object".to_owned());
    };
    let kind = text(&mut members, "type")?.ok_or("it has no `type`")?;
    let event = match kind.as_str() {
        "tool_call" => RunnerEvent::ToolCall {
            id: text(&mut members, "id")?.unwrap_or_default(),
            name: text(&mut members, "name")?.ok_or("a tool call needs a `name`")?,
            arguments: members.remove("arguments").unwrap_or_default(),
        },
        "tool_result" => RunnerEvent::ToolResult {
            id: text(&mut members, "id")?.unwrap_or_default(),
            content: members.remove("content").unwrap_or_default(),
        },
        "message" => RunnerEvent::Message(message(&mut members)?),
        "final" => RunnerEvent::Final {
            message: message(&mut members)?,
            invocation_id: text(&mut members, "invocationId")?,
        },
        "error" => {
            return Ok(Said::Error(match members.remove("message") {
                Some(Value::String(text)) => text,
                None | Some(Value::Null) => "it does not say which".to_owned(),
                Some(other) => other.to_string(),
            }));
        }
        "end" => return Ok(Said::End),
        _ => return Err(format!("there is no type {kind:?}")),
    };
    Ok(Said::Event(event))
}

fn text(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a string")),
    }
}

fn message(members: &mut Map<String, Value>) -> Result<Message, String> {
    match members.remove("message") {
        Some(message @ Value::Object(_)) => {
            Message::from_json(message).map_err(|fault| format!("its `message`: {fault}"))
        }
        _ => Err("it needs a `message`, an object with `role` and `content`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_is_read() {
        let call =
            read(json!({"type": "tool_call", "id": "a", "name": "t", "arguments": "{}", "x": 1}));
        assert_eq!(
            call,
            Ok(Said::Event(RunnerEvent::ToolCall {
                id: "a".into(),
                name: "t".into(),
                arguments: "{}".into()
            }))
        );
        let result = read(json!({"type": "tool_result", "id": "a", "content": [1]}));
        assert_eq!(
            result,
            Ok(Said::Event(RunnerEvent::ToolResult {
                id: "a".into(),
                content: json!([1])
            }))
        );
        let said = Message {
            role: "assistant".into(),
            content: "hm".into(),
            ..Message::default()
        };
        let message = json!({"role": "assistant", "content": "hm"});
        assert_eq!(
            read(json!({"type": "message", "message": message})),
            Ok(Said::Event(RunnerEvent::Message(said.clone())))
        );
        assert_eq!(
            read(json!({"type": "final", "message": message, "invocationId": null})),
            Ok(Said::Event(RunnerEvent::Final {
                message: said,
                invocation_id: None
            }))
        );
        assert_eq!(read(json!({"type": "end"})), Ok(Said::End));
        assert_eq!(
            read(json!({"type": "error", "message": "x"})),
            Ok(Said::Error("x".into()))
        );
        assert!(matches!(read(json!({"type": "error"})), Ok(Said::Error(_))));
    }

    #[test]
    fn what_is_no_event_is_told() {
        for (bad, reason) in [
            (json!([]), "no object"),
            (json!({"id": "a"}), "no `type`"),
            (json!({"type": 3}), "`type` must be a string"),
            (json!({"type": "Final"}), "no type \"Final\""),
            (json!({"type": "tool_call", "id": "a"}), "a `name`"),
            (
                json!({"type": "tool_call", "name": "t", "id": 1}),
                "`id` must be a string",
            ),
            (json!({"type": "final"}), "needs a `message`"),
            (
                json!({"type": "final", "message": "hello"}),
                "needs a `message`",
            ),
            (
                json!({"type": "final", "message": {"content": 3}}),
                "content: expected a string",
            ),
        ] {
            let told = read(bad).unwrap_err();
            assert!(told.contains(reason), "{told}");
        }
    }
}
