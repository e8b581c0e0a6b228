//! Agents that are a model behind a chat endpoint, with or without tools.
//!
//! A session is one list of messages that grows: the context messages, and then what the user, the model and the tools
//! say.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::chat_message::chat_message;
use super::{Runner, RunnerError, RunnerEvent, RunnerProblem, Session, SessionStart, shown};
use crate::judge::Chat;
use crate::suite::evalset::criterion::only_value;
use crate::suite::evalset::model::Message;
use crate::suite::process::{Deadline, answer_of};

/// What a tool answers where no command answers for it.
const NO_TOOL: &str = "tool not available";

/// How a model is made an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAiSettings {
    /// Further members of each request, such as `tools` and `temperature`.
    pub body: Map<String, Value>,
    /// What `sh -c` runs for each call of a tool: `{"id","name","arguments", …}` in, the result as one JSON value out.
    /// Without it tools are not available.
    pub tool_command: Option<String>,
    /// How often in a turn the model may call tools; several calls in one reply are one time.
    pub max_tool_rounds: u32,
    /// How long a turn may take in all.
    pub timeout: Duration,
}

impl Default for OpenAiSettings {
    /// No further members, no tools, 8 rounds, 300 seconds a turn.
    fn default() -> Self {
        Self {
            body: Map::new(),
            tool_command: None,
            max_tool_rounds: 8,
            timeout: Duration::from_secs(300),
        }
    }
}

/// Asks a chat endpoint. The state of a session is not sent.
#[derive(Debug)]
pub struct OpenAiRunner {
    chat: Chat,
    settings: OpenAiSettings,
    runtime: Handle,
}

impl OpenAiRunner {
    /// A runner on a runtime with I/O and time. Its sessions block, so they must not be used on a thread of that
    /// runtime.
    pub fn new(chat: Chat, settings: OpenAiSettings, runtime: Handle) -> Self {
        Self {
            chat,
            settings,
            runtime,
        }
    }
}

impl Runner for OpenAiRunner {
    fn open(&self, session: &SessionStart) -> Result<Box<dyn Session + '_>, RunnerError> {
        let context = session.context_messages.iter();
        Ok(Box::new(ChatSession {
            runner: self,
            messages: Some(context.map(chat_message).collect()),
            start: session.clone(),
        }))
    }
}

struct ChatSession<'a> {
    runner: &'a OpenAiRunner,
    /// What was said so far; none after an error.
    messages: Option<Vec<Value>>,
    start: SessionStart,
}

impl Session for ChatSession<'_> {
    fn invoke(&mut self, turn: usize, message: &Message) -> Result<Vec<RunnerEvent>, RunnerError> {
        let failed = |problem| RunnerError::new(&self.start, Some(turn), problem);
        let Some(mut messages) = self.messages.take() else {
            return Err(failed(RunnerProblem::Over));
        };
        messages.push(chat_message(message));
        let events = self.turn(turn, &mut messages).map_err(failed)?;
        self.messages = Some(messages);
        Ok(events)
    }
}

/// A tool that the model calls.
struct Call {
    id: String,
    name: String,
    arguments: Value,
}

impl ChatSession<'_> {
    fn turn(
        &self,
        turn: usize,
        messages: &mut Vec<Value>,
    ) -> Result<Vec<RunnerEvent>, RunnerProblem> {
        let settings = &self.runner.settings;
        let deadline = Deadline::after(settings.timeout);
        let mut events = Vec::new();
        for _ in 0..=settings.max_tool_rounds {
            let mut reply = self.reply(messages, &deadline)?;
            let said = Message {
                role: text(&reply, "role").unwrap_or("assistant").to_owned(),
                content: content_of(&reply),
                ..Message::default()
            };
            if reply
                .get("tool_calls")
                .is_some_and(|calls| !calls.is_array() && !calls.is_null())
            {
                return Err(RunnerProblem::NoMessage);
            }
            let calls = calls(&mut reply);
            messages.push(reply);
            if calls.is_empty() {
                events.push(RunnerEvent::Final {
                    message: said,
                    invocation_id: None,
                });
                return Ok(events);
            }
            if !said.content.is_empty() {
                events.push(RunnerEvent::Message(said));
            }
            for call in calls {
                let content = self.result(turn, &call, &deadline)?;
                let shown = match &content {
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                let id = call.id.as_str();
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": shown}));
                events.push(RunnerEvent::ToolCall {
                    id: call.id.clone(),
                    name: call.name,
                    arguments: call.arguments,
                });
                events.push(RunnerEvent::ToolResult {
                    id: call.id,
                    content,
                });
            }
        }
        Err(RunnerProblem::TooManyRounds {
            rounds: settings.max_tool_rounds,
        })
    }

    /// The model's next message.
    fn reply(&self, messages: &[Value], deadline: &Deadline) -> Result<Value, RunnerProblem> {
        let mut body = self.runner.settings.body.clone();
        body.insert("messages".to_owned(), messages.into());
        let asked = self.runner.chat.complete(body);
        let in_time = async { tokio::time::timeout(deadline.left(), asked).await };
        match self.runner.runtime.block_on(in_time) {
            Ok(answer) => {
                let mut answer = answer?;
                // A part of an answer is not what the agent answers.
                let ended = answer.pointer("/choices/0/finish_reason");
                if let Some(why @ ("length" | "content_filter")) = ended.and_then(Value::as_str) {
                    let why = why.to_owned();
                    return Err(RunnerProblem::CutOff { why });
                }
                match answer.pointer_mut("/choices/0/message") {
                    Some(message @ Value::Object(_)) => Ok(message.take()),
                    _ => Err(RunnerProblem::NoMessage),
                }
            }
            Err(_) => Err(RunnerProblem::TimedOut {
                seconds: self.runner.settings.timeout.as_secs_f64(),
            }),
        }
    }

    /// What a tool answers.
    fn result(
        &self,
        turn: usize,
        call: &Call,
        deadline: &Deadline,
    ) -> Result<Value, RunnerProblem> {
        let Some(command) = &self.runner.settings.tool_command else {
            return Ok(NO_TOOL.into());
        };
        let arguments = match &call.arguments {
            Value::String(text) => only_value(text).unwrap_or_else(|_| text.as_str().into()),
            arguments => arguments.clone(),
        };
        let request = json!({
            "id": call.id,
            "name": call.name,
            "arguments": arguments,
            "appName": self.start.app_name,
            "evalSetId": self.start.eval_set_id,
            "evalId": self.start.eval_id,
            "userId": self.start.user_id,
            "sessionId": self.start.session_id,
            "turn": turn,
        });
        let input = format!("{request}\n");
        let output = answer_of(command, input.as_bytes(), deadline.left())?;
        only_value(&output).map_err(|reason| RunnerProblem::ToolOutput {
            tool: call.name.clone(),
            output: shown(output.trim()),
            reason,
        })
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// What a reply says: its text, or the texts of its parts.
fn content_of(reply: &Value) -> String {
    match reply.get("content") {
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| text(part, "text")).collect(),
        Some(Value::String(content)) if !content.is_empty() => content.clone(),
        _ => text(reply, "refusal").unwrap_or_default().to_owned(),
    }
}

/// The calls in a reply. One without an id is given one in the reply too, so that its result can name it.
fn calls(reply: &mut Value) -> Vec<Call> {
    let calls = reply.get_mut("tool_calls").and_then(Value::as_array_mut);
    let calls = calls.into_iter().flatten().filter_map(Value::as_object_mut);
    let calls = calls.map(|call| {
        let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
        let id = match id {
            "" => Uuid::new_v4().to_string(),
            id => id.to_owned(),
        };
        call.insert("id".to_owned(), id.as_str().into());
        let function = call.get("function");
        Call {
            id,
            name: function
                .and_then(|function| text(function, "name"))
                .unwrap_or_default()
                .to_owned(),
            arguments: function
                .and_then(|function| function.get("arguments"))
                .cloned()
                .unwrap_or_default(),
        }
    });
    calls.collect()
}

#[cfg(test)]
mod tests;
