//! OpenHands trajectories: a list of events, each an action or an observation of one.
//!
//! Where the user talks more than once, each message of the user begins a trace; else each answer of the model does, with
//! all actions that came of it.

use serde_json::Value;

use super::said::content_of_message;
use super::trajectory::{
    Session, Step, Turn, kept, openai_call, plain, said_and_done, tool_payload,
};
use super::values::{self, amount, at, count, number, text};
use super::{ArrayIs, Call, Format, Parts, Payload, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "openhands",
    title: "OpenHands event lists (JSON)",
    array: ArrayIs::OneDocument,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "session and number of the turn or step"),
        ("session_id", "instance_id, else the file's name"),
        ("input", "a message of the user, or the observation before"),
        ("output", "the agent's message or thought, and its actions"),
        ("started_at", "timestamp"),
        (
            "spans",
            "actions, with observations whose cause they are (tool_call_metadata)",
        ),
        (
            "model, prompt_tokens, completion_tokens",
            "tool_call_metadata.model_response",
        ),
        ("cost_usd", "growth of llm_metrics.accumulated_cost"),
    ],
};

/// Actions and observations about the runtime, which no model asked for.
const OF_RUNTIME: [&str; 7] = [
    "system",
    "change_agent_state",
    "agent_state_changed",
    "recall",
    "null",
    "condensation",
    "condensation_request",
];

fn events(document: &Value) -> Option<&Vec<Value>> {
    match document {
        Value::Array(events) => Some(events),
        _ => document.get("history")?.as_array(),
    }
}

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let events = events(sample.document)?;
    let is_event = |event: &Value| {
        event.get("id").is_some()
            && event.get("source").is_some_and(Value::is_string)
            && event.get("timestamp").is_some_and(Value::is_string)
            && (event.get("action").is_some_and(Value::is_string)
                || event.get("observation").is_some_and(Value::is_string))
    };
    (!events.is_empty() && events.iter().all(is_event))
        .then(|| "has events with id, timestamp, source, and action or observation".to_owned())
}

fn source(event: &Value) -> &str {
    event.get("source").and_then(Value::as_str).unwrap_or("")
}

fn word<'v>(event: &'v Value, name: &str) -> Option<&'v str> {
    let word = event.get(name).and_then(Value::as_str)?;
    (!OF_RUNTIME.contains(&word)).then_some(word)
}

fn is_of_user(event: &Value) -> bool {
    source(event) == "user" && word(event, "action") == Some("message")
}

/// What is open while events are read.
#[derive(Default)]
struct Reading {
    session: Session,
    /// Whether the user talks once, or never.
    alone: bool,
    /// What the agent sees next.
    seen: Vec<String>,
    began: Option<i64>,
    /// The answer of the model that the last action came of.
    response: Option<String>,
    /// Dollars until here.
    cost: f64,
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let events = events(&document)
        .ok_or("there is no list of events: give the file as OpenHands wrote it")?;
    let instance = text(document.get("instance_id"));
    let own_name = || match place.row {
        0 => place.stem.to_owned(),
        row => format!("{}:{row:06}", place.stem),
    };
    let mut reading = Reading {
        session: Session {
            id: instance.unwrap_or_else(own_name),
            common: TraceFacts {
                metadata: kept(&document, &["instance_id", "test_result"]),
                ..TraceFacts::default()
            },
            turns: Vec::new(),
        },
        alone: events.iter().filter(|event| is_of_user(event)).count() <= 1,
        ..Reading::default()
    };
    for event in events {
        let at = values::time("timestamp", event.get("timestamp"))?;
        if is_of_user(event) {
            reading.user(event, at);
        } else if let Some(action) = word(event, "action")
            && source(event) == "agent"
        {
            reading.action(event, action, at);
        } else if let Some(observation) = word(event, "observation") {
            reading.observation(event, observation, at);
        }
    }
    if let Some(error) = text(document.get("error"))
        && let Some(last) = reading.session.turns.last_mut()
    {
        last.error = Some(error);
    }
    reading.session.write(parts);
    Ok(())
}

impl Reading {
    fn user(&mut self, event: &Value, at: Option<i64>) {
        let words = text(super::values::at(event, "args.content")).or(text(event.get("message")));
        self.began = at;
        self.response = None;
        match self.alone {
            true => self.seen.extend(words),
            false => self.session.turns.push(Turn {
                input: plain(words),
                started_at: at,
                ended_at: at,
                ..Turn::default()
            }),
        }
    }

    fn action(&mut self, event: &Value, action: &str, time: Option<i64>) {
        let response = at(event, "tool_call_metadata.model_response");
        let id = response.and_then(|response| text(response.get("id")));
        let more_of_it = id.is_some() && id == self.response;
        self.response = id;
        let step_of = |words: Option<String>| answer(event, response, words, time);
        let words = words(event, action, response);
        if !more_of_it {
            if self.alone || self.session.turns.is_empty() {
                self.session.turns.push(Turn {
                    input: plain(Some(std::mem::take(&mut self.seen).join("\n"))),
                    started_at: self.began.take().or(time),
                    ..Turn::default()
                });
            }
            let mut step = step_of(words.clone());
            // The sum of the whole run until here.
            if let Some(sum) = amount(at(event, "llm_metrics.accumulated_cost")) {
                step.cost_usd = Some((sum - self.cost).max(0.0));
                // The next step is counted from the last sum that is one.
                if sum.is_finite() {
                    self.cost = sum;
                }
            }
            if let Some(turn) = self.session.turns.last_mut() {
                turn.steps.push(step);
            }
        }
        let Some(turn) = self.session.turns.last_mut() else {
            return;
        };
        turn.ended_at = time.or(turn.ended_at);
        let Some(step) = turn.steps.last_mut() else {
            return;
        };
        step.calls.extend(call(event, action, response));
        let ends = matches!(action, "message" | "finish");
        turn.output = match (self.alone, ends) {
            // A last word that is no call but for its name.
            (true, true) if step.calls.iter().all(|call| call.name == "finish") => {
                plain(words).or_else(|| said_and_done(None, &step.calls))
            }
            (true, _) => said_and_done(step.said.as_deref(), &step.calls),
            (false, true) => plain(words).or_else(|| turn.output.take()),
            (false, false) => plain(step.said.clone()).or_else(|| turn.output.take()),
        };
    }

    fn observation(&mut self, event: &Value, observation: &str, time: Option<i64>) {
        let words = text(event.get("content")).or_else(|| text(event.get("message")));
        if let Some(turn) = self.session.turns.last_mut() {
            turn.ended_at = time.or(turn.ended_at);
            let tool = text(at(event, "tool_call_metadata.tool_call_id"));
            let cause = text(event.get("cause")).map(|cause| format!("event {cause}"));
            let calls = turn.steps.iter_mut().flat_map(|step| step.calls.iter_mut());
            let mut open = calls.rev().filter(|call| call.result.is_none());
            let found =
                open.find(|call| call.id.is_some() && (call.id == tool || call.id == cause));
            if let Some(call) = found {
                call.error = error_of(event, observation, words.as_deref());
                call.result = words.clone().map(Payload::text);
            }
        }
        self.seen.extend(words);
    }
}

/// What the agent said with an action: its message, its thought, or the text of the model's answer.
fn words(event: &Value, action: &str, response: Option<&Value>) -> Option<String> {
    let own = match action {
        "message" => &["args.content", "message"][..],
        "finish" => &["args.final_thought", "args.thought"],
        _ => &["args.thought"],
    };
    let own = own.iter().find_map(|path| text(at(event, path)));
    own.or_else(|| content_of_message(choice(response?)?.get("message")?))
        .or_else(|| match action {
            "finish" => text(event.get("message")),
            _ => None,
        })
}

fn choice(response: &Value) -> Option<&Value> {
    response.get("choices")?.get(0)
}

fn answer(
    event: &Value,
    response: Option<&Value>,
    words: Option<String>,
    time: Option<i64>,
) -> Step {
    let of = |path: &str| response.and_then(|response| at(response, path));
    Step {
        said: words,
        model: text(of("model")),
        prompt_tokens: count(of("usage.prompt_tokens")),
        completion_tokens: count(of("usage.completion_tokens")),
        finish_reason: response
            .and_then(choice)
            .and_then(|choice| text(choice.get("finish_reason"))),
        started_at: time,
        error: text(event.get("error")),
        ..Step::default()
    }
}

/// The call that an action is; none for messages. Its arguments are the model's own where they are told.
fn call(event: &Value, action: &str, response: Option<&Value>) -> Option<Call> {
    let id = text(at(event, "tool_call_metadata.tool_call_id"));
    let asked = response
        .and_then(choice)
        .and_then(|choice| at(choice, "message.tool_calls")?.as_array());
    let asked = asked.into_iter().flatten().filter_map(openai_call);
    if let Some(call) = asked.into_iter().find(|call| id.is_some() && call.id == id) {
        return Some(call);
    }
    let name = text(at(event, "tool_call_metadata.function_name"));
    if name.is_none() && matches!(action, "message" | "finish") {
        return None;
    }
    let mut arguments = event.get("args").cloned().unwrap_or_default();
    if let Some(members) = arguments.as_object_mut() {
        members.remove("thought");
    }
    Some(Call {
        id: id.or_else(|| text(event.get("id")).map(|id| format!("event {id}"))),
        name: name.unwrap_or_else(|| action.to_owned()),
        arguments: tool_payload(Some(&arguments)),
        ..Call::default()
    })
}

fn error_of(event: &Value, observation: &str, words: Option<&str>) -> Option<String> {
    let code = ["extras.exit_code", "extras.metadata.exit_code"];
    let code = code.iter().find_map(|path| number(at(event, path)));
    if let Some(code) = code.filter(|code| *code != 0.0) {
        return Some(format!("exit code {code}"));
    }
    (observation == "error").then(|| words.unwrap_or("error").to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn event(id: u32, source: &str, rest: Value) -> Value {
        let mut event = json!({"id": id, "timestamp": format!("2026-01-01T00:00:{id:02}"), "source": source, "message": ""});
        let members = event.as_object_mut().unwrap();
        members.extend(rest.as_object().unwrap().clone());
        event
    }

    fn read_list(document: Value) -> Parts {
        let sample = Sample {
            file_name: "a.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "a", row: 0 }, &mut parts).unwrap();
        parts
    }

    #[test]
    fn calls_of_one_answer_are_one_step_and_its_tokens_count_once() {
        let called = |id: &str| {
            json!({"function_name": "sh", "tool_call_id": id, "model_response": {
            "id": "r", "model": "m", "usage": {"prompt_tokens": 7, "completion_tokens": 3},
            "choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": "Two.", "tool_calls": [
                {"id": "x", "function": {"name": "sh", "arguments": "{\"c\":1}"}},
                {"id": "y", "function": {"name": "sh", "arguments": "{\"c\":2}"}}]}}]}})
        };
        let parts = read_list(json!([
            event(
                0,
                "user",
                json!({"action": "message", "args": {"content": "Do it"}})
            ),
            event(
                1,
                "agent",
                json!({"action": "run", "args": {"command": "1"}, "tool_call_metadata": called("x"),
                "llm_metrics": {"accumulated_cost": 0.5}})
            ),
            event(
                2,
                "agent",
                json!({"observation": "run", "cause": 1, "content": "one", "tool_call_metadata": called("x")})
            ),
            event(
                3,
                "agent",
                json!({"action": "run", "args": {"command": "2"}, "tool_call_metadata": called("y")})
            ),
            event(
                4,
                "agent",
                json!({"observation": "run", "cause": 3, "content": "two", "tool_call_metadata": called("y"),
                "extras": {"metadata": {"exit_code": 1}}})
            ),
            event(
                5,
                "agent",
                json!({"action": "finish", "args": {"final_thought": "Done."}, "llm_metrics": {"accumulated_cost": 0.75}})
            ),
        ]));
        assert_eq!(parts.traces.len(), 2);
        assert_eq!(
            parts.traces[0].output.as_ref().unwrap().raw,
            "Two.\nsh {\"c\":1}\nsh {\"c\":2}"
        );
        assert_eq!(parts.traces[1].input.as_ref().unwrap().raw, "one\ntwo");
        assert_eq!(parts.traces[1].output.as_ref().unwrap().raw, "Done.");
        let models: Vec<_> = parts.spans.iter().filter(|s| s.kind == kind::LLM).collect();
        assert_eq!(models.len(), 2);
        assert_eq!(
            (models[0].prompt_tokens, models[0].cost_usd),
            (Some(7), Some(0.5))
        );
        assert_eq!(models[1].cost_usd, Some(0.25));
        let tools: Vec<_> = parts
            .spans
            .iter()
            .filter(|s| s.kind == kind::TOOL)
            .collect();
        assert_eq!(tools[0].output.as_ref().unwrap().raw, "one");
        assert_eq!(tools[1].error.as_deref(), Some("exit code 1"));
    }

    #[test]
    fn a_user_who_talks_begins_a_trace_each_time() {
        let parts = read_list(json!([
            event(
                0,
                "user",
                json!({"action": "message", "args": {"content": "One?"}})
            ),
            event(
                1,
                "agent",
                json!({"action": "run", "args": {"command": "ls", "thought": "I look."}})
            ),
            event(
                2,
                "agent",
                json!({"observation": "run", "cause": 1, "content": "a"})
            ),
            event(
                3,
                "agent",
                json!({"action": "message", "args": {"content": "1"}})
            ),
            event(
                4,
                "environment",
                json!({"observation": "agent_state_changed", "content": "x"})
            ),
            event(
                5,
                "user",
                json!({"action": "message", "args": {"content": "Two?"}})
            ),
            event(
                6,
                "agent",
                json!({"action": "message", "args": {"content": "2"}})
            ),
        ]));
        let said: Vec<_> = parts
            .traces
            .iter()
            .map(|t| (t.input.clone().unwrap().raw, t.output.clone().unwrap().raw))
            .collect();
        assert_eq!(
            said,
            [
                ("One?".to_owned(), "1".to_owned()),
                ("Two?".to_owned(), "2".to_owned())
            ]
        );
        let tool = parts.spans.iter().find(|s| s.kind == kind::TOOL).unwrap();
        assert_eq!(tool.name, "run");
        assert_eq!(tool.output.as_ref().unwrap().raw, "a");
    }
}
