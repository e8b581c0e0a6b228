//! Observations of Langfuse: rows of its blob export (`observations_v2/` and the older `observations/`; Parquet, JSON
//! Lines or CSV) and records of its API.
//!
//! The older rows know neither session nor user: the rows of `traces/`, read together with them, do. Tokens: Langfuse
//! takes cached, audio and reasoning tokens out of `input` and `output`; they are added again unless `total` says that
//! they are in them.

use serde_json::{Map, Value};

use super::cell::Cell;
use super::langfuse_row::{Row, has, own_metadata};
use super::model_output;
use super::said::Speaker;
use super::values::{at, count, number, object, text, texts, unwrapped};
use super::{ArrayIs, Call, Format, Parts, Place, Sample, SpanFacts, TraceFacts, kind};

pub(super) static LANGFUSE_OBSERVATIONS: Format = Format {
    name: "langfuse-observations",
    title: "Langfuse observations (blob export, v2 and legacy; Parquet, JSON Lines, CSV)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "trace_id"),
        (
            "session_id",
            "session_id (v2; of legacy exports: traces.session_id)",
        ),
        ("project_id", "project_id"),
        ("user_id", "user_id (v2)"),
        ("name", "trace_name (v2)"),
        (
            "tags, environment, release",
            "tags, environment, release (else version)",
        ),
        (
            "input, output",
            "input, output of the root observation, else of the first and last generation",
        ),
        (
            "spans[].span_id, parent_span_id",
            "id, parent_observation_id",
        ),
        (
            "spans[].kind",
            "type; of SPAN also metadata.attributes (openinference.span.kind, gen_ai.operation.name)",
        ),
        (
            "spans[].name",
            "name; of tools metadata.attributes (tool.name, gen_ai.tool.name), else name",
        ),
        ("spans[].started_at, ended_at", "start_time, end_time"),
        ("spans[].error", "status_message where level is ERROR"),
        ("spans[].model", "provided_model_name"),
        (
            "spans[].prompt_tokens, completion_tokens",
            "usage_details.input…, usage_details.output…",
        ),
        ("spans[].cost_usd", "total_cost, else cost_details.total"),
        (
            "tool calls",
            "observations of type TOOL, else tool_calls with tool_call_names, else messages",
        ),
    ],
};

/// Columns of the exports and of the pages' files.
const KNOWN: [&str; 53] = [
    "id",
    "trace_id",
    "start_time",
    "end_time",
    "project_id",
    "parent_observation_id",
    "type",
    "name",
    "level",
    "status_message",
    "version",
    "environment",
    "bookmarked",
    "public",
    "user_id",
    "session_id",
    "is_root_observation",
    "completion_start_time",
    "created_at",
    "updated_at",
    "input",
    "output",
    "metadata",
    "provided_model_name",
    "model_id",
    "model_parameters",
    "usage_details",
    "cost_details",
    "total_cost",
    "usage_pricing_tier_id",
    "usage_pricing_tier_name",
    "prompt_id",
    "prompt_name",
    "prompt_version",
    "latency",
    "time_to_first_token",
    "tags",
    "release",
    "trace_name",
    "tool_definitions",
    "tool_calls",
    "tool_call_names",
    "model",
    "internal_model",
    "internal_model_id",
    "provided_cost_details",
    "input_cost",
    "output_cost",
    "input_usage",
    "output_usage",
    "total_usage",
    "usage",
    "unit",
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let all = [
        "id",
        "trace_id",
        "type",
        "start_time",
        "parent_observation_id",
    ];
    all.iter()
        .all(|name| has(sample, name))
        .then(|| "has trace_id, type, start_time and parent_observation_id".to_owned())
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(members) = document else {
        return Err("is no object: an observation of Langfuse is one".to_owned());
    };
    let row = Row::new(&members);
    let span = observation(&row, None)?;
    row.count_unknown(&KNOWN, parts);
    parts.span(span);
    Ok(())
}

/// The span that an observation is.
pub(super) fn observation(row: &Row<'_>, trace_id: Option<&str>) -> Result<SpanFacts, String> {
    let needed = |name: &str| {
        format!("has no {name}: an observation of Langfuse needs it; export the group `core` too")
    };
    let trace_id = row
        .text("trace_id")
        .or_else(|| trace_id.map(str::to_owned))
        .ok_or_else(|| needed("trace_id"))?;
    let span_id = row.text("id").ok_or_else(|| needed("id"))?;
    let metadata = object(row.get("metadata")).unwrap_or_default();
    let attributes = object(metadata.get("attributes")).unwrap_or_default();
    let parent_span_id = row.text("parent_observation_id");
    let input = Cell::new(row.get("input"));
    let output = Cell::new(row.get("output"));
    let kind = kind_of(row, &attributes, output.as_ref());
    let (prompt_tokens, completion_tokens) = tokens(row);
    let failed = row.text("level").as_deref() == Some("ERROR");
    let error = failed.then(|| {
        let told = row.text("status_message");
        told.unwrap_or_else(|| "level is ERROR, without a message".to_owned())
    });
    let of = TraceFacts {
        trace_id,
        session_id: row.text("session_id"),
        project_id: row.text("project_id"),
        name: row.text("trace_name"),
        environment: row.text("environment"),
        release: row.text("release"),
        user_id: row.text("user_id"),
        tags: texts(row.get("tags")),
        metadata: match parent_span_id {
            None => own_metadata(metadata),
            Some(_) => Map::new(),
        },
        ..TraceFacts::default()
    };
    let mut span = SpanFacts {
        of,
        span_id,
        parent_span_id,
        kind: kind.to_owned(),
        name: row.text("name").unwrap_or_default(),
        started_at: row.time("start_time"),
        ended_at: row.time("end_time"),
        status: failed.then(|| "ERROR".to_owned()),
        error,
        model: row
            .text("provided_model_name")
            .or_else(|| row.text("model")),
        prompt_tokens,
        completion_tokens,
        cost_usd: cost(row),
        ..SpanFacts::default()
    };
    if kind == kind::TOOL {
        fill_tool(&mut span, input.as_ref(), output.as_ref(), &attributes);
    } else {
        span.input = input.as_ref().map(|cell| cell.payload(Speaker::User));
        span.output = output.as_ref().map(|cell| cell.payload(Speaker::Agent));
    }
    if kind == kind::LLM {
        let value = |cell: &Option<Cell>| cell.as_ref().map(|cell| cell.value().clone());
        let (input, output) = (value(&input), value(&output));
        span.finish_reason = output
            .as_ref()
            .and_then(model_output::finish_reason)
            .or_else(|| finish_reason_of(&attributes));
        span.calls = match named_calls(row) {
            calls if calls.is_empty() => model_output::calls(input.as_ref(), output.as_ref()),
            mut calls => {
                let told = model_output::calls(input.as_ref(), None);
                calls.extend(told);
                calls
            }
        };
    }
    Ok(span)
}

fn attribute(attributes: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| text(attributes.get(*name)))
}

fn kind_of(row: &Row<'_>, attributes: &Map<String, Value>, output: Option<&Cell>) -> &'static str {
    let named = row.text("type").unwrap_or_default().to_ascii_uppercase();
    match named.as_str() {
        "GENERATION" => kind::LLM,
        "AGENT" => kind::AGENT,
        "TOOL" => kind::TOOL,
        "CHAIN" => kind::CHAIN,
        "RETRIEVER" => kind::RETRIEVER,
        "EVALUATOR" => kind::EVALUATOR,
        "EMBEDDING" => kind::EMBEDDING,
        "GUARDRAIL" => kind::GUARDRAIL,
        "SPAN" => kind_of_span(attributes, output),
        _ => kind::OTHER,
    }
}

/// What a span really is, where instrumentation told it and Langfuse didn't take it over.
fn kind_of_span(attributes: &Map<String, Value>, output: Option<&Cell>) -> &'static str {
    let told = attribute(
        attributes,
        &[
            "openinference.span.kind",
            "gen_ai.operation.name",
            "traceloop.span.kind",
            "ai.operationId",
        ],
    );
    let answers = output
        .and_then(|cell| cell.value().as_object())
        .is_some_and(|members| model_output::tool_message(members).is_some());
    match told.unwrap_or_default().to_ascii_lowercase().as_str() {
        // Some instrumentation writes a span for a tool's start and another for its end: the one with a result is the call.
        "tool" | "execute_tool" | "ai.toolcall" if output.is_some() => kind::TOOL,
        "agent" | "invoke_agent" | "create_agent" => kind::AGENT,
        "llm" => kind::LLM,
        "retriever" => kind::RETRIEVER,
        "reranker" => kind::RERANKER,
        "embedding" | "embeddings" => kind::EMBEDDING,
        "guardrail" => kind::GUARDRAIL,
        "evaluator" => kind::EVALUATOR,
        _ if answers => kind::TOOL,
        _ => kind::CHAIN,
    }
}

/// A tool's name, arguments and result.
fn fill_tool(
    span: &mut SpanFacts,
    input: Option<&Cell>,
    output: Option<&Cell>,
    attributes: &Map<String, Value>,
) {
    let told = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| Cell::new(attributes.get(*name)))
            .map(|cell| cell.document())
    };
    if let Some(name) = attribute(
        attributes,
        &["tool.name", "gen_ai.tool.name", "ai.toolCall.name"],
    ) {
        span.name = name;
    } else {
        for prefix in ["execute_tool ", "running tool: "] {
            if let Some(name) = span.name.strip_prefix(prefix) {
                span.name = name.to_owned();
            }
        }
    }
    let bare = |cell: &&Cell| {
        cell.value()
            .as_object()
            .is_none_or(|members| !members.is_empty())
    };
    span.input = input.filter(bare).map(Cell::document).or_else(|| {
        told(&[
            "tool.parameters",
            "gen_ai.tool.call.arguments",
            "gcp.vertex.agent.tool_call_args",
        ])
        .or_else(|| input.map(Cell::document))
    });
    let message = output
        .and_then(|cell| cell.value().as_object())
        .and_then(model_output::tool_message);
    if let Some(message) = message {
        span.output = message.result;
        if span.error.is_none() && message.error.is_some() {
            span.error = message.error;
            span.status = Some("ERROR".to_owned());
        }
        return;
    }
    span.output = output.filter(bare).map(Cell::document).or_else(|| {
        told(&["gcp.vertex.agent.tool_response", "gen_ai.tool.call.result"])
            .or_else(|| output.map(Cell::document))
    });
}

fn finish_reason_of(attributes: &Map<String, Value>) -> Option<String> {
    let reasons = texts(attributes.get("gen_ai.response.finish_reasons"));
    let told = reasons.into_iter().last();
    told.or_else(|| attribute(attributes, &["ai.response.finishReason"]))
        // Python's way to write a list of one text.
        .map(|reason| reason.trim_matches(['[', ']', '\'']).to_owned())
}

/// A map of numbers, also as JSON text or as a list of entries.
fn details(value: Option<&Value>) -> Vec<(String, f64)> {
    match value.cloned().map(unwrapped) {
        Some(Value::Object(members)) => members
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), number(Some(value))?)))
            .collect(),
        Some(Value::Array(entries)) => entries
            .iter()
            .filter_map(|entry| Some((text(entry.get("key"))?, number(entry.get("value"))?)))
            .collect(),
        _ => Vec::new(),
    }
}

fn tokens(row: &Row<'_>) -> (Option<u64>, Option<u64>) {
    let details = details(row.get("usage_details"));
    let exactly = |name: &str| {
        details
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, count)| *count)
    };
    let (input, output) = (exactly("input"), exactly("output"));
    let of = |side: &str| {
        let mut counts = details
            .iter()
            .filter(|(name, _)| name.starts_with(side))
            .peekable();
        counts.peek()?;
        Some(counts.map(|(_, count)| count).sum::<f64>())
    };
    let (prompt, completion) = match exactly("total") {
        Some(total) if total == input.unwrap_or(0.0) + output.unwrap_or(0.0) => (input, output),
        _ => (of("input"), of("output")),
    };
    let whole = |count: f64| (count >= 0.0 && count < 9e15).then_some(count as u64);
    (prompt.and_then(whole), completion.and_then(whole))
}

fn cost(row: &Row<'_>) -> Option<f64> {
    let total = number(row.get("total_cost"));
    let details = details(row.get("cost_details"));
    let of_details = || {
        details
            .iter()
            .find(|(name, _)| name == "total")
            .map(|(_, cost)| *cost)
    };
    // 0 without details only says that nothing was priced.
    total.filter(|cost| *cost > 0.0).or_else(of_details)
}

/// Calls of the column `tool_calls`, whose names are in `tool_call_names`.
fn named_calls(row: &Row<'_>) -> Vec<Call> {
    let names = texts(row.get("tool_call_names"));
    let Some(Value::Array(calls)) = row.get("tool_calls").cloned().map(unwrapped) else {
        return Vec::new();
    };
    let mut found: Vec<(u64, Call)> = Vec::with_capacity(calls.len());
    for (at_index, call) in calls.into_iter().map(unwrapped).enumerate() {
        let name = text(call.get("name")).or_else(|| names.get(at_index).cloned());
        let Some(name) = name else { continue };
        let arguments = at(&call, "arguments").or_else(|| at(&call, "function.arguments"));
        let place = count(call.get("index")).unwrap_or(0);
        found.push((
            place,
            Call {
                id: text(call.get("id")),
                name,
                arguments: Cell::new(arguments).map(|cell| cell.document()),
                ..Call::default()
            },
        ));
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, call)| call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_one(document: Value) -> SpanFacts {
        let mut parts = Parts::default();
        let place = Place { stem: "f", row: 0 };
        read(document, &place, &mut parts).unwrap();
        assert_eq!(parts.unknown, Vec::<String>::new());
        parts.spans.remove(0)
    }

    fn sample(document: &Value) -> Option<String> {
        recognise(&Sample {
            file_name: "a.jsonl",
            document,
            columns: &[],
        })
    }

    #[test]
    fn a_generation_of_the_new_export_is_read() {
        let row = json!({
            "id": "o1", "trace_id": "t1", "project_id": "p", "type": "GENERATION", "parent_observation_id": "o0",
            "start_time": "2026-03-01 10:00:00.250000", "end_time": "2026-03-01 10:00:01.000000", "name": "chat",
            "level": "DEFAULT", "environment": "production", "user_id": "u", "session_id": "s", "trace_name": "support",
            "tags": ["a", "b"], "release": "v7", "provided_model_name": "gpt-x", "is_root_observation": false,
            "input": "[{\"role\":\"user\",\"content\":\"Where is it?\"}]",
            "output": "{\"role\":\"assistant\",\"content\":\"Here.\"}",
            "usage_details": {"input": 100, "input_cached_tokens": 20, "output": 7, "output_reasoning": 3, "total": 130},
            "total_cost": 0.25, "cost_details": {"total": 0.25},
            "tool_calls": ["{\"id\":\"c1\",\"arguments\":\"{\\\"q\\\":1}\",\"type\":\"function\",\"index\":0}"],
            "tool_call_names": ["look"],
        });
        assert!(sample(&row).is_some());
        let span = read_one(row);
        assert_eq!(
            (span.kind.as_str(), span.name.as_str()),
            (kind::LLM, "chat")
        );
        assert_eq!(span.of.session_id.as_deref(), Some("s"));
        assert_eq!(span.of.name.as_deref(), Some("support"));
        assert_eq!(span.of.tags, ["a", "b"]);
        assert_eq!(span.of.environment.as_deref(), Some("production"));
        assert_eq!(
            (span.prompt_tokens, span.completion_tokens),
            (Some(120), Some(10))
        );
        assert_eq!(span.cost_usd, Some(0.25));
        assert_eq!(
            span.ended_at.unwrap() - span.started_at.unwrap(),
            750_000_000
        );
        assert_eq!(span.input.unwrap().said.as_deref(), Some("Where is it?"));
        assert_eq!(span.output.unwrap().said.as_deref(), Some("Here."));
        assert_eq!(span.calls.len(), 1);
        assert_eq!(span.calls[0].name, "look");
        assert_eq!(span.calls[0].id.as_deref(), Some("c1"));
        assert_eq!(span.calls[0].arguments.as_ref().unwrap().raw, "{\"q\":1}");
    }

    #[test]
    fn cells_of_csv_are_text() {
        let span = read_one(json!({
            "id": "o1", "trace_id": "t1", "type": "TOOL", "parent_observation_id": "", "start_time": "2026-03-01 10:00:00.000000",
            "end_time": "", "name": "search", "level": "ERROR", "status_message": "timed out", "input": "{\"q\":\"x\"}",
            "output": "", "usage_details": "{}", "total_cost": "0", "tags": "[\"a\"]", "session_id": "", "public": "false",
            "metadata": "{\"plan\":\"gold\",\"scope\":{\"name\":\"sdk\"}}",
        }));
        assert_eq!(span.kind, kind::TOOL);
        assert_eq!(span.parent_span_id, None);
        assert_eq!(span.ended_at, None);
        assert_eq!(span.error.as_deref(), Some("timed out"));
        assert_eq!(span.status.as_deref(), Some("ERROR"));
        assert_eq!(span.input.unwrap().raw, "{\"q\":\"x\"}");
        assert_eq!(span.output, None);
        assert_eq!((span.cost_usd, span.prompt_tokens), (None, None));
        assert_eq!(span.of.session_id, None);
        assert_eq!(span.of.tags, ["a"]);
        assert_eq!(Value::Object(span.of.metadata), json!({"plan": "gold"}));
    }

    #[test]
    fn spans_are_what_their_instrumentation_says() {
        let span = |attributes: Value, output: Value| {
            read_one(
                json!({"id": "o", "trace_id": "t", "type": "SPAN", "parent_observation_id": null,
                "start_time": "2026-03-01T10:00:00Z", "name": "execute_tool x", "input": {}, "output": output,
                "metadata": {"attributes": attributes}}),
            )
        };
        let tool = span(
            json!({"openinference.span.kind": "TOOL", "tool.name": "find", "tool.parameters": "{\"a\":1}"}),
            json!("found"),
        );
        assert_eq!(
            (tool.kind.as_str(), tool.name.as_str()),
            (kind::TOOL, "find")
        );
        assert_eq!(tool.input.unwrap().raw, "{\"a\":1}");
        let begun = span(json!({"openinference.span.kind": "TOOL"}), json!(null));
        assert_eq!(begun.kind, kind::CHAIN);
        let agent = span(
            json!({"gen_ai.operation.name": "invoke_agent"}),
            json!(null),
        );
        assert_eq!(agent.kind, kind::AGENT);
        let message = json!({"type": "tool", "content": "no such table", "status": "error", "tool_call_id": "c"});
        let answered = span(json!({}), message);
        assert_eq!(
            (answered.kind.as_str(), answered.name.as_str()),
            (kind::TOOL, "x")
        );
        assert_eq!(answered.output.unwrap().raw, "no such table");
        assert_eq!(answered.error.as_deref(), Some("no such table"));
        assert_eq!(span(json!({}), json!("done")).kind, kind::CHAIN);
    }

    #[test]
    fn tokens_that_are_in_the_input_are_not_added_again() {
        let row =
            json!({"usage_details": {"input": 100, "input_cached": 20, "output": 5, "total": 105}});
        assert_eq!(
            tokens(&Row::new(row.as_object().unwrap())),
            (Some(100), Some(5))
        );
        let row = json!({"usage_details": "[{\"key\":\"input\",\"value\":3}]"});
        assert_eq!(tokens(&Row::new(row.as_object().unwrap())), (Some(3), None));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut parts = Parts::default();
        let place = Place { stem: "f", row: 0 };
        let error = read(json!({"id": "o"}), &place, &mut parts).unwrap_err();
        assert!(error.contains("trace_id"), "{error}");
        assert!(sample(&json!({"id": 1, "trace_id": 2, "type": "x"})).is_none());
    }
}
