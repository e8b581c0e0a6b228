//! PandaProbe: one trace with its spans, as its API takes and gives it, or a list of them.

use serde_json::Value;

use super::said::{Speaker, payload};
use super::trajectory::tool_payload;
use super::values::{amount, count, object, text, texts, time, unwrapped};
use super::{ArrayIs, Format, Parts, Place, Sample, SpanFacts, TraceFacts, kind};

pub(super) static FORMAT: Format = Format {
    name: "pandaprobe",
    title: "PandaProbe traces (JSON)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "trace_id"),
        ("session_id", "session_id"),
        ("input", "input: the user's last message, or the question"),
        ("output", "output: the agent's last message, or the answer"),
        ("started_at, ended_at", "started_at, ended_at"),
        ("user_id, tags, environment, release", "the same names"),
        ("spans", "spans[]"),
        ("prompt_tokens, completion_tokens", "spans[].token_usage"),
        ("cost_usd", "spans[].cost.total_cost"),
    ],
};

/// Lines of such traces are nightmill's own rows as well, and tables have columns of these names: those are read as they
/// are.
fn recognise(sample: &Sample<'_>) -> Option<String> {
    let name = sample.file_name.to_ascii_lowercase();
    if !sample.columns.is_empty() || name.contains(".jsonl") || name.contains(".ndjson") {
        return None;
    }
    let trace = sample.document.as_object()?;
    let named = trace.get("trace_id")?.is_string() && trace.get("started_at")?.is_string();
    let spans = trace.get("spans")?.as_array()?;
    let of_probe = match spans.first() {
        Some(span) => ["span_id", "kind", "name", "started_at"]
            .iter()
            .all(|member| span.get(*member).is_some_and(Value::is_string)),
        None => matches!(
            trace.get("status")?.as_str()?,
            "PENDING" | "RUNNING" | "COMPLETED" | "ERROR"
        ),
    };
    (named && of_probe).then(|| {
        "has trace_id, started_at and spans[] with span_id, kind, name and started_at".to_owned()
    })
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let trace_id = text(document.get("trace_id")).ok_or(
        "the trace has no `trace_id`: export the trace again, or map its id with a mapping file",
    )?;
    let spans = match document.get("spans").cloned().map(unwrapped) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(spans)) => spans,
        Some(_) => return Err("`spans` is no list: export the trace again".to_owned()),
    };
    for (index, span) in spans.iter().enumerate() {
        let span = read_span(span, index, &trace_id)?;
        parts.span(span);
    }
    let status = text(document.get("status")).map(|status| match status.as_str() {
        "COMPLETED" => "OK".to_owned(),
        _ => status,
    });
    parts.trace(TraceFacts {
        session_id: text(document.get("session_id")),
        project_id: text(document.get("project_id")),
        name: text(document.get("name")),
        started_at: time("started_at", document.get("started_at"))?,
        ended_at: time("ended_at", document.get("ended_at"))?,
        status,
        error: text(document.get("error")),
        environment: text(document.get("environment")),
        release: text(document.get("release")),
        user_id: text(document.get("user_id")),
        input: document
            .get("input")
            .and_then(|v| payload(v, Speaker::User)),
        output: document
            .get("output")
            .and_then(|v| payload(v, Speaker::Agent)),
        expected: document
            .get("expected")
            .and_then(|v| payload(v, Speaker::Agent)),
        tags: texts(document.get("tags")),
        metadata: object(document.get("metadata")).unwrap_or_default(),
        trace_id,
        ..TraceFacts::default()
    });
    Ok(())
}

fn read_span(span: &Value, index: usize, trace_id: &str) -> Result<SpanFacts, String> {
    let span_id = text(span.get("span_id"))
        .ok_or_else(|| format!("spans[{index}] has no `span_id`: export the trace again"))?;
    let kind = kind_of(&text(span.get("kind")).unwrap_or_default());
    let is_tool = kind == kind::TOOL;
    let (input, output) = (span.get("input"), span.get("output"));
    let usage = span.get("token_usage");
    let cost = span.get("cost");
    let of_cost = |name: &str| amount(cost.and_then(|cost| cost.get(name)));
    let both = || match (of_cost("input_cost"), of_cost("output_cost")) {
        (None, None) => None,
        (input, output) => Some(input.unwrap_or(0.0) + output.unwrap_or(0.0)),
    };
    Ok(SpanFacts {
        of: TraceFacts {
            trace_id: trace_id.to_owned(),
            ..TraceFacts::default()
        },
        span_id,
        parent_span_id: text(span.get("parent_span_id")),
        kind: kind.to_owned(),
        name: text(span.get("name")).unwrap_or_default(),
        input: match is_tool {
            true => tool_payload(input),
            false => input.and_then(|v| payload(v, Speaker::User)),
        },
        output: match is_tool {
            true => tool_payload(output),
            false => output.and_then(|v| payload(v, Speaker::Agent)),
        },
        started_at: time("started_at", span.get("started_at"))?,
        ended_at: time("ended_at", span.get("ended_at"))?,
        status: text(span.get("status")),
        error: text(span.get("error")),
        model: text(span.get("model")),
        prompt_tokens: count(usage.and_then(|usage| usage.get("prompt_tokens"))),
        completion_tokens: count(usage.and_then(|usage| usage.get("completion_tokens"))),
        cost_usd: of_cost("total_cost").or_else(both),
        finish_reason: text(span.get("finish_reason")),
        ..SpanFacts::default()
    })
}

fn kind_of(written: &str) -> &'static str {
    let known = [
        kind::AGENT,
        kind::LLM,
        kind::TOOL,
        kind::RETRIEVER,
        kind::EMBEDDING,
        kind::RERANKER,
        kind::GUARDRAIL,
        kind::EVALUATOR,
        kind::CHAIN,
    ];
    let written = written.to_ascii_uppercase();
    let found = known.into_iter().find(|kind| *kind == written);
    found.unwrap_or(kind::OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample<'s>(file_name: &'s str, document: &'s Value, columns: &'s [String]) -> Sample<'s> {
        Sample {
            file_name,
            document,
            columns,
        }
    }

    #[test]
    fn a_trace_is_read_and_rows_of_nightmill_are_left_alone() {
        let trace = json!({
            "trace_id": "t", "status": "COMPLETED", "session_id": "s", "started_at": "2026-01-01T00:00:00Z",
            "input": {"messages": [{"role": "user", "content": "Where?"}]}, "output": {"answer": "Here.", "sources": []},
            "tags": ["a"], "spans": [
                {"span_id": "1", "parent_span_id": null, "kind": "LLM", "name": "m", "started_at": "2026-01-01T00:00:00Z",
                 "token_usage": {"prompt_tokens": 3, "completion_tokens": 2}, "cost": {"input_cost": 0.25, "output_cost": 0.5}},
                {"span_id": "2", "parent_span_id": "1", "kind": "TOOL", "name": "look", "started_at": "2026-01-01T00:00:01Z",
                 "status": "ERROR", "error": "gone", "input": {"q": 1}, "output": null},
            ],
        });
        assert!(recognise(&sample("a.json", &trace, &[])).is_some());
        assert_eq!(recognise(&sample("a.jsonl.gz", &trace, &[])), None);
        let columns = ["trace_id".to_owned()];
        assert_eq!(recognise(&sample("a.parquet", &trace, &columns)), None);
        let mut parts = Parts::default();
        let place = Place { stem: "a", row: 0 };
        read(trace, &place, &mut parts).unwrap();
        let facts = &parts.traces[0];
        let said = |p: &Option<super::super::Payload>| p.clone().and_then(|p| p.said);
        assert_eq!(said(&facts.input).as_deref(), Some("Where?"));
        assert_eq!(said(&facts.output).as_deref(), Some("Here."));
        assert_eq!(facts.status.as_deref(), Some("OK"));
        assert_eq!(parts.spans[0].cost_usd, Some(0.75));
        assert_eq!(parts.spans[1].error.as_deref(), Some("gone"));
        assert_eq!(parts.spans[1].input.as_ref().unwrap().raw, r#"{"q":1}"#);
    }

    #[test]
    fn what_has_no_id_is_refused() {
        let place = Place { stem: "a", row: 0 };
        let mut parts = Parts::default();
        let error = read(json!({"spans": []}), &place, &mut parts).unwrap_err();
        assert!(error.contains("trace_id"), "{error}");
        let span = json!({"trace_id": "t", "spans": [{"kind": "LLM"}]});
        let error = read(span, &place, &mut parts).unwrap_err();
        assert!(error.contains("spans[0]"), "{error}");
    }
}
