//! What trajectories have in common: a session of turns, each a trace with a root span, the model's calls and the tools'.
//!
//! A turn is what follows one message of a user where a user talks; where an agent works alone, it is one step: what it
//! saw, and what it said and did.

use serde_json::{Map, Value};

use super::said::{self, Speaker};
use super::values::text;
use super::{Call, Parts, Payload, SpanFacts, TraceFacts, kind};

/// A session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Its id; those of its traces begin with it.
    pub id: String,
    /// What is true of each of its traces.
    pub common: TraceFacts,
    /// Its turns, in order.
    pub turns: Vec<Turn>,
}

/// A turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// What the user said, or what the agent saw.
    pub input: Option<Payload>,
    /// What the agent said in the end.
    pub output: Option<Payload>,
    /// What it should have said.
    pub expected: Option<Payload>,
    /// Answers of the model, in order.
    pub steps: Vec<Step>,
    /// Nanoseconds since 1970.
    pub started_at: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at: Option<i64>,
    /// What went wrong with the whole turn.
    pub error: Option<String>,
    /// What else is known.
    pub metadata: Map<String, Value>,
}

/// One answer of the model and the calls in it.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// Who answered, where a session has several agents.
    pub name: Option<String>,
    /// What it said.
    pub said: Option<String>,
    /// What it called.
    pub calls: Vec<Call>,
    /// The model.
    pub model: Option<String>,
    /// Tokens in.
    pub prompt_tokens: Option<u64>,
    /// Tokens out.
    pub completion_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// Nanoseconds since 1970.
    pub started_at: Option<i64>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Session {
    /// Hands on all turns. Numbers in ids have one width, since where times are missing traces are in order of ids.
    pub(super) fn write(self, parts: &mut Parts) {
        let width = self.turns.len().to_string().len().max(4);
        for (index, turn) in self.turns.into_iter().enumerate() {
            let trace_id = format!("{}:{index:0width$}", self.id);
            let mut metadata = self.common.metadata.clone();
            metadata.insert("turn".to_owned(), index.into());
            metadata.extend(turn.metadata);
            let root = SpanFacts {
                of: of(&trace_id),
                span_id: "0000".to_owned(),
                kind: kind::AGENT.to_owned(),
                name: self
                    .common
                    .name
                    .clone()
                    .unwrap_or_else(|| "turn".to_owned()),
                input: turn.input.clone(),
                output: turn.output.clone(),
                started_at: turn.started_at,
                ended_at: turn.ended_at,
                status: turn.error.as_ref().map(|_| "ERROR".to_owned()),
                error: turn.error.clone(),
                ..SpanFacts::default()
            };
            parts.trace(TraceFacts {
                trace_id: trace_id.clone(),
                session_id: Some(self.id.clone()),
                started_at: turn.started_at,
                ended_at: turn.ended_at,
                status: turn.error.as_ref().map(|_| "ERROR".to_owned()),
                error: turn.error,
                input: turn.input,
                output: turn.output,
                expected: turn.expected,
                metadata,
                ..self.common.clone()
            });
            parts.span(root);
            let mut number = 0;
            for step in turn.steps {
                write_step(step, &trace_id, &mut number, parts);
            }
        }
    }
}

fn of(trace_id: &str) -> TraceFacts {
    TraceFacts {
        trace_id: trace_id.to_owned(),
        ..TraceFacts::default()
    }
}

fn write_step(step: Step, trace_id: &str, number: &mut usize, parts: &mut Parts) {
    let mut next = || {
        *number += 1;
        format!("{number:04}")
    };
    let llm = next();
    let started_at = step.started_at;
    parts.span(SpanFacts {
        of: of(trace_id),
        span_id: llm.clone(),
        parent_span_id: Some("0000".to_owned()),
        kind: kind::LLM.to_owned(),
        name: step.name.unwrap_or_else(|| "answer".to_owned()),
        output: step.said.map(Payload::text),
        started_at,
        status: step.error.as_ref().map(|_| "ERROR".to_owned()),
        error: step.error,
        model: step.model,
        prompt_tokens: step.prompt_tokens,
        completion_tokens: step.completion_tokens,
        cost_usd: step.cost_usd,
        finish_reason: step.finish_reason,
        ..SpanFacts::default()
    });
    for call in step.calls {
        parts.span(SpanFacts {
            of: of(trace_id),
            span_id: next(),
            parent_span_id: Some(llm.clone()),
            kind: kind::TOOL.to_owned(),
            name: call.name,
            input: call.arguments,
            output: call.result,
            started_at,
            status: call.error.as_ref().map(|_| "ERROR".to_owned()),
            error: call.error,
            ..SpanFacts::default()
        });
    }
}

impl Turn {
    /// Gives a result to the last call with this id that has none yet; without id, to the first one that has none. The
    /// error is what the result tells of one. False if nothing waits for it.
    pub(super) fn answer(&mut self, id: Option<&str>, result: Option<Payload>) -> bool {
        let error = result.as_ref().and_then(|result| plain_error(&result.raw));
        let open = |call: &&mut Call| call.result.is_none();
        let mut calls = self.steps.iter_mut().flat_map(|step| step.calls.iter_mut());
        let call = match id {
            Some(id) => calls
                .rev()
                .filter(open)
                .find(|call| call.id.as_deref() == Some(id)),
            None => calls.find(open),
        };
        let Some(call) = call else { return false };
        call.error = call.error.take().or(error);
        call.result = result;
        true
    }
}

/// A result that is a message of an error: tools of chats have no other way to say so.
pub(super) fn plain_error(result: &str) -> Option<String> {
    let result = result.trim();
    (result.starts_with("Error:") || result.starts_with("ERROR:")).then(|| result.to_owned())
}

/// A value of a tool: its arguments or result.
pub(super) fn tool_payload(value: Option<&Value>) -> Option<Payload> {
    said::payload(value?, Speaker::Agent)
}

/// A call as OpenAI writes it: `{"id", "function": {"name", "arguments"}}`.
pub(super) fn openai_call(call: &Value) -> Option<Call> {
    let function = call.get("function")?;
    Some(Call {
        id: text(call.get("id")),
        name: text(function.get("name"))?,
        arguments: tool_payload(function.get("arguments")),
        ..Call::default()
    })
}

/// All calls of a message, as OpenAI writes them.
pub(super) fn openai_calls(message: &Value) -> Vec<Call> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls
        .into_iter()
        .flatten()
        .filter_map(openai_call)
        .collect()
}

/// What an agent said and did in one step, in words: its text, then a line a call.
pub(super) fn said_and_done(words: Option<&str>, calls: &[Call]) -> Option<Payload> {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(words.map(|words| words.trim().to_owned()));
    lines.retain(|line| !line.is_empty());
    lines.extend(calls.iter().map(|call| match &call.arguments {
        Some(arguments) => format!("{} {}", call.name, arguments.raw),
        None => call.name.clone(),
    }));
    (!lines.is_empty()).then(|| Payload::text(lines.join("\n")))
}

/// Plain text that isn't empty.
pub(super) fn plain(words: Option<String>) -> Option<Payload> {
    words.filter(|words| !words.is_empty()).map(Payload::text)
}

/// Members that are there, for metadata.
pub(super) fn kept(document: &Value, names: &[&str]) -> Map<String, Value> {
    let members = names.iter().filter_map(|name| {
        let value = document.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    });
    members.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: &str) -> Call {
        Call {
            id: Some(id.to_owned()),
            name: "look".to_owned(),
            ..Call::default()
        }
    }

    #[test]
    fn results_go_to_the_calls_that_wait_for_them() {
        let mut turn = Turn {
            steps: vec![Step {
                calls: vec![waiting("a"), waiting("b"), waiting("a")],
                ..Step::default()
            }],
            ..Turn::default()
        };
        assert!(turn.answer(Some("a"), Some(Payload::text("last"))));
        assert!(turn.answer(None, Some(Payload::text("Error: none"))));
        assert!(!turn.answer(Some("c"), Some(Payload::text("nobody asked"))));
        let calls = &turn.steps[0].calls;
        assert_eq!(calls[2].result, Some(Payload::text("last")));
        assert_eq!(calls[0].error.as_deref(), Some("Error: none"));
        assert_eq!(calls[1].result, None);
    }

    #[test]
    fn ids_sort_in_the_order_of_turns() {
        let session = Session {
            id: "s".to_owned(),
            turns: (0..10_001).map(|_| Turn::default()).collect(),
            ..Session::default()
        };
        let mut parts = Parts::default();
        session.write(&mut parts);
        assert!(parts.traces.is_sorted_by(|a, b| a.trace_id < b.trace_id));
        assert_eq!(parts.traces[1].trace_id, "s:00001");
        assert_eq!(parts.traces[1].metadata["turn"], 1);
    }
}
