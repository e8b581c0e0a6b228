//! From the traces of a session to one transcript, as the judge of conversations reads it.
//!
//! The rule is this program's own, since Connexity starts from turns and a store of traces has none:
//! * Traces stand in the order of `started_at`, then `trace_id`. Turns are numbered from 0 over the whole session.
//! * A trace is a user turn with its input, two turns for each of its TOOL spans, and an assistant turn with its output.
//!   What is null or blank makes no turn.
//! * Where input or output has the shape of a chat (`{"messages": […]}`, a list of messages, or one message; also as JSON
//!   text), only the last message of the user, or of the assistant, counts: what came before it are earlier turns. Without
//!   such a message, and for every other value, the turn has the whole text; a value that is no text, its JSON.
//! * TOOL spans stand in the order of `started_at`, then `span_id`; spans without a start come last. Each is an assistant
//!   turn that calls a tool of the span's name with the span's input, and a tool turn with its output, or with its error
//!   where it has no output.
//! * Ids of tool calls are `call_0`, `call_1`, … in the order of the transcript. Ids of spans would not do: they are unique
//!   within their trace only.
//! * An assistant turn with an output has the trace's duration as its latency, where both ends are known. A trace without
//!   an output but with an error has an assistant turn that says so. The session itself never counts as failed: an agent
//!   that breaks down is judged for it.
//! * The agent's system prompt is the first system message of any input, if there is one.
//! * The test case is the session's id, or `PROJECT/SESSION` where there is a project: both name a session only together.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::conversation::{Case, Role, Turn};
use crate::text::parse_instant;
use crate::trace::{Span, ToolCall};

/// Names of roles as chats spell them.
const USER: &[&str] = &["user", "human"];
const ASSISTANT: &[&str] = &["assistant", "ai", "model"];
const SYSTEM: &[&str] = &["system", "developer"];

/// The transcript of a session. `traces` are the members of its trace documents, in any order.
pub(crate) fn transcript(
    project_id: Option<&str>,
    session_id: &str,
    mut traces: Vec<Map<String, Value>>,
) -> (Case, Vec<Turn>) {
    sort_traces(&mut traces);
    let mut transcript = Transcript::default();
    for trace in &traces {
        transcript.push_trace(trace);
    }
    let case = Case {
        session_id: session_id.to_owned(),
        test_case: project_id.map(|project| format!("{project}/{session_id}")),
        agent_system_prompt: traces.iter().find_map(system_prompt),
        ..Case::default()
    };
    (case, transcript.turns)
}

#[derive(Default)]
struct Transcript {
    turns: Vec<Turn>,
    calls: usize,
}

impl Transcript {
    fn push(&mut self, turn: Turn) {
        let turn_index = i32::try_from(self.turns.len()).unwrap_or(i32::MAX);
        self.turns.push(Turn { turn_index, ..turn });
    }

    fn push_trace(&mut self, trace: &Map<String, Value>) {
        if let Some(said) = said_by_user(trace) {
            self.push(turn(Role::User, Some(said)));
        }
        for span in tool_spans(trace) {
            self.push_tool(span);
        }
        let said = said_by_agent(trace);
        let failed = || {
            let error = text(trace.get("error")?)?;
            Some(format!("[the agent failed: {error}]"))
        };
        if let Some(said) = said.or_else(failed) {
            self.push(Turn {
                latency_ms: latency_ms(trace),
                ..turn(Role::Assistant, Some(said))
            });
        }
    }

    fn push_tool(&mut self, span: Span<'_>) {
        let id = format!("call_{}", self.calls);
        self.calls += 1;
        let call = ToolCall {
            id: Some(id.clone()),
            name: span.name().to_owned(),
            arguments: span.get("input").and_then(text),
        };
        self.push(Turn {
            tool_calls: vec![call],
            ..turn(Role::Assistant, None)
        });
        let answer = span.get("output").and_then(text);
        let answer = answer.or_else(|| span.get("error").and_then(text));
        self.push(Turn {
            tool_call_id: Some(id),
            ..turn(Role::Tool, answer)
        });
    }
}

fn turn(role: Role, content: Option<String>) -> Turn {
    Turn {
        turn_index: 0,
        role,
        content,
        tool_calls: Vec::new(),
        tool_call_id: None,
        latency_ms: None,
        token_count: None,
    }
}

/// Puts the traces of a session into their order.
pub(crate) fn sort_traces(traces: &mut [Map<String, Value>]) {
    traces
        .sort_by_cached_key(|trace| place(moment(trace.get("started_at")), trace.get("trace_id")));
}

/// What the user said to a trace.
pub(crate) fn said_by_user(trace: &Map<String, Value>) -> Option<String> {
    trace.get("input").and_then(|input| said_by(USER, input))
}

/// What the agent said in the end of a trace.
pub(crate) fn said_by_agent(trace: &Map<String, Value>) -> Option<String> {
    let output = trace.get("output");
    output.and_then(|output| said_by(ASSISTANT, output))
}

/// The calls of tools of a trace, in their order.
pub(crate) fn tool_spans(trace: &Map<String, Value>) -> Vec<Span<'_>> {
    let mut tools: Vec<Span<'_>> = Span::all(trace).filter(|span| span.is_tool()).collect();
    tools.sort_by_cached_key(|span| place(span.started_at(), span.get("span_id")));
    tools
}

/// Where a trace or span stands among others: by its start, known ones first, then by its id.
fn place(
    started_at: Option<DateTime<Utc>>,
    id: Option<&Value>,
) -> (bool, Option<DateTime<Utc>>, String) {
    let id = id.and_then(text).unwrap_or_default();
    (started_at.is_none(), started_at, id)
}

fn moment(value: Option<&Value>) -> Option<DateTime<Utc>> {
    parse_instant(value?.as_str()?).ok()
}

fn latency_ms(trace: &Map<String, Value>) -> Option<i64> {
    let start = moment(trace.get("started_at"))?;
    let end = moment(trace.get("ended_at"))?;
    let milliseconds = (end - start).num_milliseconds();
    (end >= start).then_some(milliseconds)
}

/// What somebody said in an input or output.
fn said_by(roles: &[&str], value: &Value) -> Option<String> {
    let opened = opened_chat(value);
    let said = messages(opened.as_ref().unwrap_or(value)).and_then(|messages| {
        let said = |message: &&Value| has_role(message, roles);
        content(messages.iter().rev().find(said)?)
    });
    said.or_else(|| text(value))
}

fn system_prompt(trace: &Map<String, Value>) -> Option<String> {
    let input = trace.get("input")?;
    let opened = opened_chat(input);
    let messages = messages(opened.as_ref().unwrap_or(input))?;
    content(messages.iter().find(|message| has_role(message, SYSTEM))?)
}

/// A text that is the JSON of a chat, as that JSON.
fn opened_chat(value: &Value) -> Option<Value> {
    let text = value.as_str()?;
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let json: Value = serde_json::from_str(text).ok()?;
    messages(&json).is_some().then_some(json)
}

/// The messages of a value that has the shape of a chat.
fn messages(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Object(members) => match members.get("messages") {
            Some(Value::Array(messages)) => Some(messages.as_slice()),
            _ => is_message(value).then_some(std::slice::from_ref(value)),
        },
        Value::Array(items) if !items.is_empty() && items.iter().all(is_message) => {
            Some(items.as_slice())
        }
        _ => None,
    }
}

fn is_message(value: &Value) -> bool {
    value.get("role").is_some_and(Value::is_string)
}

fn has_role(message: &Value, roles: &[&str]) -> bool {
    let role = message.get("role").and_then(Value::as_str);
    role.is_some_and(|role| roles.iter().any(|known| role.eq_ignore_ascii_case(known)))
}

/// The text of a message: its content, or the texts of its parts, one a line.
fn content(message: &Value) -> Option<String> {
    let content = message.get("content")?;
    let Value::Array(parts) = content else {
        return text(content);
    };
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
        .collect();
    let joined = texts.join("\n");
    (!joined.trim().is_empty()).then_some(joined)
}

/// A text as it is, any other value as JSON; none of null and of blank texts.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const START: &str = "2026-01-01T00:00:00Z";

    fn turns_of(traces: Value) -> Vec<Turn> {
        transcript_of(traces).1
    }

    fn transcript_of(traces: Value) -> (Case, Vec<Turn>) {
        let traces: Vec<Map<String, Value>> = serde_json::from_value(traces).unwrap();
        transcript(None, "s", traces)
    }

    /// Role, answered call, text and calls of each turn.
    fn shown(turns: &[Turn]) -> Vec<String> {
        let shown = turns.iter().map(|turn| {
            let mut parts = vec![turn.role.name().to_owned()];
            parts.extend(turn.tool_call_id.clone());
            parts.extend(turn.content.clone());
            parts.extend(turn.tool_calls.iter().map(|call| {
                let arguments = call.arguments.clone().unwrap_or_default();
                format!("{}: {}({arguments})", call.id.clone().unwrap(), call.name)
            }));
            parts.join(" ")
        });
        shown.collect()
    }

    #[test]
    fn traces_and_tools_stand_in_the_order_of_their_starts() {
        let turns = turns_of(json!([
            {"trace_id": "c", "started_at": "2026-01-01T00:00:09Z", "input": "third"},
            {"trace_id": "b", "started_at": "2026-01-01T00:00:02Z", "input": "second", "output": "b", "spans": [
                {"span_id": "z", "kind": "tool", "name": "late", "started_at": "2026-01-01T00:00:05Z", "input": {"q": 1}, "output": [2]},
                {"span_id": "u", "kind": "TOOL", "name": "unknown", "output": "x"},
                {"span_id": "n", "kind": "LLM", "name": "model", "started_at": "2026-01-01T00:00:03Z", "output": "no turn"},
                {"span_id": "y", "kind": "TOOL", "name": "same", "started_at": "2026-01-01T00:00:04Z", "input": "2", "error": "boom"},
                {"span_id": "x", "kind": "TOOL", "name": "first", "started_at": "2026-01-01T01:00:04+01:00", "input": "1"},
            ]},
            {"trace_id": "a", "started_at": "2026-01-01T00:00:02Z", "input": "first", "output": "a"},
        ]));
        assert_eq!(
            shown(&turns),
            [
                "user first",
                "assistant a",
                "user second",
                "assistant call_0: first(1)",
                "tool call_0",
                "assistant call_1: same(2)",
                "tool call_1 boom",
                "assistant call_2: late({\"q\":1})",
                "tool call_2 [2]",
                "assistant call_3: unknown()",
                "tool call_3 x",
                "assistant b",
                "user third",
            ]
        );
        assert!((0..).zip(&turns).all(|(at, turn)| turn.turn_index == at));
    }

    #[test]
    fn of_a_chat_the_last_message_of_each_side_counts() {
        let history = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": "old answer"},
            {"role": "user", "content": [{"type": "text", "text": "new"}, {"type": "image"}, {"text": "lines"}]},
        ]);
        let answer = json!({"messages": [{"role": "assistant", "content": "answer"}, {"role": "tool", "content": "t"}]});
        for input in [
            json!({"messages": history}),
            history.clone(),
            Value::String(json!({"messages": history}).to_string()),
        ] {
            let (case, turns) = transcript_of(
                json!([{"trace_id": "a", "started_at": START, "input": input, "output": answer}]),
            );
            assert_eq!(shown(&turns), ["user new\nlines", "assistant answer"]);
            assert_eq!(case.agent_system_prompt.as_deref(), Some("Be brief."));
        }
        let one = json!([{"trace_id": "a", "started_at": START,
            "input": {"role": "user", "content": "hi"}, "output": {"role": "ai", "content": "ho"}}]);
        assert_eq!(shown(&turns_of(one)), ["user hi", "assistant ho"]);
    }

    #[test]
    fn other_values_are_their_whole_text_and_nothing_makes_no_turn() {
        let (case, turns) = transcript_of(json!([
            {"trace_id": "a", "started_at": START, "input": {"query": "é"},
             "output": {"messages": [{"role": "assistant", "content": null}]}},
            {"trace_id": "b", "started_at": START, "input": "{\"query\": 1}", "output": " "},
            {"trace_id": "c", "started_at": START, "input": null, "error": "timeout"},
            {"trace_id": "d", "started_at": START, "output": "fine", "error": "late"},
        ]));
        assert_eq!(
            shown(&turns),
            [
                "user {\"query\":\"é\"}",
                "assistant {\"messages\":[{\"role\":\"assistant\",\"content\":null}]}",
                "user {\"query\": 1}",
                "assistant [the agent failed: timeout]",
                "assistant fine",
            ]
        );
        assert_eq!((case.agent_system_prompt, case.error), (None, None));
        let broken = json!([{"trace_id": "a", "started_at": START, "spans": "broken"}]);
        assert!(turns_of(broken).is_empty());
    }

    #[test]
    fn latencies_are_those_of_whole_traces_with_both_ends() {
        let latencies = |end: Value| -> Vec<Option<i64>> {
            let trace = json!([{"trace_id": "a", "started_at": START, "ended_at": end, "input": "q", "output": "a"}]);
            turns_of(trace).iter().map(|turn| turn.latency_ms).collect()
        };
        assert_eq!(
            latencies(json!("2026-01-01T00:00:01.2509Z")),
            [None, Some(1250)]
        );
        for unknown in [json!(null), json!("soon"), json!("2025-12-31T23:59:59Z")] {
            assert_eq!(latencies(unknown), [None, None]);
        }
    }

    #[test]
    fn a_project_is_part_of_the_test_case() {
        assert_eq!(transcript(None, "s", Vec::new()).0.test_case(), "s");
        let (case, turns) = transcript(Some("p"), "s", Vec::new());
        assert_eq!((case.test_case(), case.session_id.as_str()), ("p/s", "s"));
        assert!(turns.is_empty());
    }
}
