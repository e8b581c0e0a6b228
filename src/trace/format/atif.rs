//! ATIF, the trajectories of Harbor and Terminal-Bench: steps of a user, an agent and the system.
//!
//! A trajectory whose agent uses tools and hears of one user message only is read step by step; else each message of the
//! user begins a trace.

use serde_json::Value;

use super::said::content;
use super::trajectory::{
    Session, Step, Turn, kept, plain, plain_error, said_and_done, tool_payload,
};
use super::values::{self, amount, at, count, nanos, text};
use super::{ArrayIs, Call, Format, Parts, Payload, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "atif",
    title: "ATIF trajectories (JSON)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "session_id and number of the turn or step"),
        ("session_id", "session_id, else the file's name"),
        ("input", "steps[] of the user, or the observation before"),
        ("output", "steps[] of the agent: message and tool_calls"),
        (
            "spans",
            "steps[].tool_calls with observation.results of the same id",
        ),
        ("model", "steps[].model_name, else agent.model_name"),
        (
            "prompt_tokens, completion_tokens, cost_usd",
            "steps[].metrics",
        ),
        ("release", "agent.version"),
        (
            "metadata",
            "schema_version, final_metrics, continued_trajectory_ref",
        ),
    ],
};

fn is_trajectory(value: &Value) -> bool {
    let version = value.get("schema_version").and_then(Value::as_str);
    version.is_some_and(|version| version.starts_with("ATIF-"))
        && value.get("steps").is_some_and(Value::is_array)
}

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if is_trajectory(sample.document) {
        return Some("schema_version is ATIF and has steps[]".to_owned());
    }
    let members = sample.document.as_object()?;
    (!members.is_empty() && members.values().all(is_trajectory))
        .then(|| "each member is an ATIF trajectory".to_owned())
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    if is_trajectory(&document) {
        return trajectory(&document, place, "", parts);
    }
    match &document {
        Value::Object(members) if members.values().all(is_trajectory) => members
            .iter()
            .try_for_each(|(name, member)| trajectory(member, place, name, parts)),
        _ => Err("this is no ATIF trajectory: it needs `schema_version` and `steps`".to_owned()),
    }
}

fn trajectory(
    document: &Value,
    place: &Place<'_>,
    name: &str,
    parts: &mut Parts,
) -> Result<(), String> {
    let steps = document.get("steps").and_then(Value::as_array);
    let steps = steps.map(Vec::as_slice).unwrap_or_default();
    let own_name = || match (name, place.row) {
        ("", 0) => place.stem.to_owned(),
        ("", row) => format!("{}:{row:06}", place.stem),
        (name, row) => format!("{}:{row:06}:{name}", place.stem),
    };
    let id = text(document.get("session_id")).or_else(|| text(document.get("trajectory_id")));
    let mut session = Session {
        id: id.unwrap_or_else(own_name),
        common: TraceFacts {
            name: text(at(document, "agent.name")),
            release: text(at(document, "agent.version")),
            metadata: kept(
                document,
                &[
                    "schema_version",
                    "final_metrics",
                    "continued_trajectory_ref",
                ],
            ),
            ..TraceFacts::default()
        },
        turns: Vec::new(),
    };
    let model = text(at(document, "agent.model_name"));
    let of_user = steps.iter().filter(|step| source(step) == "user").count();
    let uses_tools = steps.iter().any(|step| {
        source(step) == "agent"
            && (step.get("observation").is_some_and(Value::is_object)
                || step.get("tool_calls").is_some_and(Value::is_array))
    });
    let alone = of_user <= 1 && uses_tools;
    // What the agent sees next.
    let mut seen: Vec<String> = Vec::new();
    let mut began: Option<i64> = None;
    for (index, step) in steps.iter().enumerate() {
        let at = values::time("timestamp", step.get("timestamp"))?;
        // Steps that were copied from the trajectory before are told there.
        let copied = step.get("is_copied_context").and_then(Value::as_bool) == Some(true);
        match source(step) {
            "user" => {
                let words = message(step);
                match alone {
                    true => seen.extend(words),
                    false => session.turns.push(Turn {
                        input: plain(words),
                        started_at: at,
                        ended_at: at,
                        ..Turn::default()
                    }),
                }
                began = at;
            }
            "agent" if copied => seen = observations(step),
            "agent" => {
                let (answer, calls_text) = answered(step, model.as_deref());
                let no_turn = session.turns.is_empty();
                if alone || no_turn {
                    session.turns.push(Turn {
                        input: plain(Some(seen.join("\n"))),
                        started_at: began.take().or(at),
                        ..Turn::default()
                    });
                }
                if let Some(turn) = session.turns.last_mut() {
                    let said = plain(answer.said.clone());
                    turn.output = match alone {
                        true => calls_text,
                        false => said.or_else(|| turn.output.take()),
                    };
                    turn.ended_at = at.or(turn.ended_at);
                    turn.steps.push(answer);
                }
                seen = observations(step);
            }
            "system" => seen.extend(observations(step)),
            other => {
                return Err(format!(
                    "steps[{index}] is of `{other}`, which ATIF does not know: it needs `source` user, agent or system"
                ));
            }
        }
    }
    session.write(parts);
    if let Some(inner) = document
        .get("subagent_trajectories")
        .and_then(Value::as_array)
    {
        for (index, child) in inner.iter().enumerate() {
            trajectory(child, place, &format!("subagent{index}"), parts)?;
        }
    }
    Ok(())
}

fn source(step: &Value) -> &str {
    step.get("source").and_then(Value::as_str).unwrap_or("")
}

fn message(step: &Value) -> Option<String> {
    step.get("message").and_then(content)
}

fn results(step: &Value) -> impl Iterator<Item = &Value> {
    let results = at(step, "observation.results").and_then(Value::as_array);
    results.into_iter().flatten()
}

fn observations(step: &Value) -> Vec<String> {
    results(step)
        .filter_map(|result| result.get("content").and_then(content))
        .collect()
}

/// The model's answer with its tools, and what was said and done in it in words.
fn answered(step: &Value, model: Option<&str>) -> (Step, Option<Payload>) {
    let calls = step.get("tool_calls").and_then(Value::as_array);
    let mut calls: Vec<Call> = calls
        .into_iter()
        .flatten()
        .map(|call| Call {
            id: text(call.get("tool_call_id")),
            name: text(call.get("function_name")).unwrap_or_default(),
            arguments: tool_payload(call.get("arguments")),
            ..Call::default()
        })
        .collect();
    let only = calls.len() == 1;
    for result in results(step) {
        let id = text(result.get("source_call_id"));
        // Some agents don't say which call it is; with one call there is no doubt.
        let call = match &id {
            Some(_) => calls.iter_mut().find(|call| call.id == id),
            None => calls.first_mut().filter(|_| only),
        };
        let Some(call) = call else { continue };
        let words = result.get("content").and_then(content);
        call.error = words.as_deref().and_then(plain_error);
        call.result = words.map(Payload::text);
    }
    let said = message(step);
    let thought = said.clone().or_else(|| text(step.get("reasoning_content")));
    let words = said_and_done(thought.as_deref(), &calls);
    let metric = |name: &str| step.get("metrics").and_then(|metrics| metrics.get(name));
    let answer = Step {
        said,
        calls,
        model: text(step.get("model_name")).or_else(|| model.map(str::to_owned)),
        prompt_tokens: count(metric("prompt_tokens")),
        completion_tokens: count(metric("completion_tokens")),
        cost_usd: amount(metric("cost_usd")),
        finish_reason: text(at(step, "metrics.extra.finish_reason")),
        started_at: nanos(step.get("timestamp")),
        ..Step::default()
    };
    (answer, words)
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn read_one(document: Value) -> Parts {
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
    fn an_agent_that_works_alone_is_read_by_steps() {
        let parts = read_one(
            json!({"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "x", "model_name": "m"},
            "steps": [
                {"source": "user", "message": "Both?"},
                {"source": "agent", "message": "I look.", "tool_calls": [
                    {"tool_call_id": "a", "function_name": "f", "arguments": {"n": 1}},
                    {"tool_call_id": "b", "function_name": "g", "arguments": {}}],
                 "observation": {"results": [{"source_call_id": "b", "content": "Error: no"}, {"source_call_id": "a", "content": "one"}]},
                 "metrics": {"prompt_tokens": 5, "completion_tokens": 2, "cost_usd": 0.5}},
                {"source": "agent", "message": "One."},
            ]}),
        );
        assert_eq!(parts.traces.len(), 2);
        assert_eq!(
            parts.traces[0].output.as_ref().unwrap().raw,
            "I look.\nf {\"n\":1}\ng {}"
        );
        assert_eq!(
            parts.traces[1].input.as_ref().unwrap().raw,
            "Error: no\none"
        );
        assert_eq!(parts.traces[1].output.as_ref().unwrap().raw, "One.");
        let tools: Vec<_> = parts
            .spans
            .iter()
            .filter(|s| s.kind == kind::TOOL)
            .collect();
        assert_eq!(tools[0].output.as_ref().unwrap().raw, "one");
        assert_eq!(tools[1].error.as_deref(), Some("Error: no"));
        assert_eq!(parts.spans[1].cost_usd, Some(0.5));
    }

    #[test]
    fn a_user_who_talks_begins_a_trace_each_time() {
        let parts = read_one(
            json!({"schema_version": "ATIF-v1.4", "agent": {"name": "x"}, "steps": [
                {"source": "user", "message": "One?"},
                {"source": "agent", "message": "I look.", "tool_calls": [{"tool_call_id": "a", "function_name": "f", "arguments": {}}]},
                {"source": "agent", "message": "1"},
                {"source": "user", "message": "Two?", "timestamp": "2026-01-01T00:00:00Z"},
                {"source": "agent", "message": "2"},
            ]}),
        );
        let outputs: Vec<_> = parts
            .traces
            .iter()
            .map(|t| t.output.clone().unwrap().raw)
            .collect();
        assert_eq!(outputs, ["1", "2"]);
        assert_eq!(parts.traces[0].session_id.as_deref(), Some("a"));
        assert!(parts.traces[1].started_at.is_some());
    }

    #[test]
    fn an_unknown_speaker_is_refused() {
        let document = json!({"schema_version": "ATIF-v1.4", "steps": [{"source": "robot"}]});
        let error = read(
            document,
            &Place { stem: "a", row: 0 },
            &mut Parts::default(),
        )
        .unwrap_err();
        assert!(error.contains("steps[0] is of `robot`"), "{error}");
    }
}
