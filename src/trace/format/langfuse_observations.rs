//! Observations of Langfuse: rows of its blob export (`observations_v2/` and the older `observations/`; Parquet, JSON
//! Lines or CSV) and records of its API.
//!
//! The older rows know neither session nor user: the rows of `traces/`, read together with them, do. Tokens: Langfuse
//! takes cached, audio and reasoning tokens out of `input` and `output`; they are added again unless `total` says that
//! they are in them.

use serde_json::{Map, Value};

use super::cell::Cell;
use super::langfuse_row::{Row, has, own_metadata};
use super::langfuse_usage::{cost, named_calls, tokens};
use super::model_output;
use super::said::Speaker;
use super::values::{object, text, texts};
use super::{ArrayIs, Format, Parts, Place, Sample, SpanFacts, TraceFacts, kind};

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
        ("tags, environment, release", "tags, environment, release"),
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
    let (prompt_tokens, completion_tokens, odd_counts) = tokens(row);
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
        started_at: row.time("start_time")?,
        ended_at: row.time("end_time")?,
        status: failed.then(|| "ERROR".to_owned()),
        error,
        model: row
            .text("provided_model_name")
            .or_else(|| row.text("model")),
        prompt_tokens,
        completion_tokens,
        cost_usd: cost(row),
        odd_counts,
        ..SpanFacts::default()
    };
    if kind == kind::TOOL {
        fill_tool(&mut span, input.as_ref(), output.as_ref(), &attributes);
    } else {
        span.input = input.as_ref().map(|cell| cell.payload(Speaker::User));
        span.output = output.as_ref().map(|cell| cell.payload(Speaker::Agent));
    }
    if kind == kind::LLM {
        let (input, output) = (
            input.as_ref().map(Cell::value),
            output.as_ref().map(Cell::value),
        );
        span.finish_reason = output
            .and_then(model_output::finish_reason)
            .or_else(|| finish_reason_of(&attributes));
        span.calls = match named_calls(row) {
            calls if calls.is_empty() => model_output::calls(input, output),
            mut calls => {
                let told = model_output::calls(input, None);
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
        "SPAN" => {
            let ended = output.is_some() || row.text("level").as_deref() == Some("ERROR");
            kind_of_span(attributes, output, ended)
        }
        _ => kind::OTHER,
    }
}

/// What a span really is, where instrumentation told it and Langfuse didn't take it over.
fn kind_of_span(
    attributes: &Map<String, Value>,
    output: Option<&Cell>,
    ended: bool,
) -> &'static str {
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
        // Some instrumentation writes a span for a tool's start and another for its end: the one with a result or an error is the call.
        "tool" | "execute_tool" | "ai.toolcall" if ended => kind::TOOL,
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
    let filled = |cell: &&Cell| {
        cell.value()
            .as_object()
            .is_none_or(|members| !members.is_empty())
    };
    span.input = input.filter(filled).map(Cell::document).or_else(|| {
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
    span.output = output.filter(filled).map(Cell::document).or_else(|| {
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

#[cfg(test)]
mod tests;
