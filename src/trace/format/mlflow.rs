//! Traces of MLflow 2 and 3: rows of `search_traces()` written to Parquet, and traces as JSON or JSON Lines
//! (`Trace.to_json()`: `info` and `data`).
//!
//! A span's attributes are JSON in text. The previews that `info` has of request and response are cut off: they are used
//! only where there is nothing else, and then said to be previews in the metadata.

use serde_json::{Map, Value};

use super::cell::Cell;
use super::mlflow_record::{decoded, facts};
use super::model_output;
use super::said::Speaker;
use super::values::{amount, at, count, object, text, time, unwrapped};
use super::{ArrayIs, Format, Parts, Place, Sample, SpanFacts, TraceFacts, kind};

pub(super) static MLFLOW: Format = Format {
    name: "mlflow",
    title: "MLflow traces (search_traces Parquet, trace JSON and JSON Lines; versions 2 and 3)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "trace_id (version 2: request_id)"),
        (
            "session_id, user_id",
            "trace_metadata: mlflow.trace.session, mlflow.trace.user (version 2: request_metadata)",
        ),
        (
            "project_id",
            "info.trace_location.mlflow_experiment.experiment_id, info.experiment_id",
        ),
        ("name", "tags: mlflow.traceName"),
        (
            "started_at, ended_at",
            "request_time + execution_duration (version 2: timestamp_ms + execution_time_ms)",
        ),
        ("status", "state (version 2: status)"),
        ("release", "mlflow.modelId, else mlflow.source.git.commit"),
        ("tags", "tags without MLflow's own, as name=value"),
        (
            "input, output",
            "mlflow.spanInputs, mlflow.spanOutputs of the root span, else request, response",
        ),
        (
            "expected",
            "assessments: the expectation expected_response, …, or the only one that is a text",
        ),
        (
            "prompt_tokens, completion_tokens",
            "mlflow.trace.tokenUsage, else of spans: mlflow.chat.tokenUsage",
        ),
        (
            "cost_usd",
            "mlflow.trace.cost, else of spans: mlflow.llm.cost",
        ),
        ("spans[].kind", "mlflow.spanType"),
        (
            "spans[].error",
            "status.message where the status is an error, else its exception event",
        ),
        ("tool calls", "spans of type TOOL, else messages"),
    ],
};

/// Columns of `search_traces`.
const KNOWN: [&str; 21] = [
    "trace_id",
    "trace",
    "client_request_id",
    "state",
    "request_time",
    "execution_duration",
    "request",
    "response",
    "trace_metadata",
    "tags",
    "spans",
    "assessments",
    "request_id",
    "timestamp_ms",
    "status",
    "execution_time_ms",
    "request_metadata",
    "experiment_id",
    "info",
    "data",
    "request_preview",
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let document = sample.document;
    if let (Some(info), Some(data)) = (document.get("info"), document.get("data")) {
        let id = ["trace_id", "request_id"]
            .iter()
            .find(|name| info.get(**name).is_some())?;
        data.get("spans")?.as_array()?;
        return Some(format!("has info.{id} and data.spans[]"));
    }
    let has = |name: &str| {
        sample.columns.iter().any(|column| column == name) || document.get(name).is_some()
    };
    let payload = has("spans") || has("trace") || has("request");
    let pairs = [
        ("trace_id", "trace_metadata"),
        ("request_id", "request_metadata"),
    ];
    let (id, metadata) = pairs
        .iter()
        .find(|(id, metadata)| has(id) && has(metadata) && payload)?;
    Some(format!("has {id}, {metadata} and spans, trace or request"))
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(row) = document else {
        return Err("is no object: a trace of MLflow is one".to_owned());
    };
    if let (Some(info), Some(data)) = (object(row.get("info")), object(row.get("data"))) {
        return trace(&info, &data, &spans(&data)?, parts);
    }
    for (name, value) in &row {
        if !value.is_null() && !KNOWN.contains(&name.as_str()) {
            parts.unknown.push(name.clone());
        }
    }
    let found = spans(&row)?;
    // `trace` has the same once more; it is read only where the column `spans` is empty.
    if found.is_empty()
        && let Some(whole) = object(row.get("trace"))
        && let (Some(info), Some(data)) = (object(whole.get("info")), object(whole.get("data")))
    {
        return trace(&info, &data, &spans(&data)?, parts);
    }
    trace(&row, &row, &found, parts)
}

/// Spans, also of JSON in text.
fn spans(data: &Map<String, Value>) -> Result<Vec<Value>, String> {
    match data.get("spans").cloned().map(unwrapped) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(spans)) => Ok(spans.into_iter().map(unwrapped).collect()),
        Some(_) => Err(
            "has `spans` that are no list: write the rows of search_traces with spans as JSON text, \
             for example json.dumps([span.to_dict() for span in trace.data.spans])"
                .to_owned(),
        ),
    }
}

fn trace(
    record: &Map<String, Value>,
    data: &Map<String, Value>,
    exported: &[Value],
    parts: &mut Parts,
) -> Result<(), String> {
    let payloads = ["spans", "trace", "request", "request_preview"];
    if !payloads
        .iter()
        .any(|name| data.contains_key(*name) || record.contains_key(*name))
    {
        return Err(
            "has neither spans nor a request: this is no trace of MLflow; leave --format out to have its format found"
                .to_owned(),
        );
    }
    let mut facts = facts(record)?;
    let mut found = Vec::with_capacity(exported.len());
    for (at, one) in exported.iter().enumerate() {
        found.push(span(one, &facts.trace_id).map_err(|error| format!("spans[{at}] {error}"))?);
    }
    let root = found
        .iter()
        .position(|span| span.parent_span_id.is_none())
        .map(|at| &exported[at]);
    let told = |attribute: &str, member: &str, speaker| {
        let of_root = root.and_then(|span| Cell::new(attribute_of(span, attribute).as_ref()));
        let cell = of_root.or_else(|| Cell::encoded(data.get(member)));
        cell.map(|cell| cell.payload(speaker))
    };
    facts.input = told("mlflow.spanInputs", "request", Speaker::User);
    facts.output = told("mlflow.spanOutputs", "response", Speaker::Agent);
    if found.is_empty() {
        for (payload, name, speaker) in [
            (&mut facts.input, "request_preview", Speaker::User),
            (&mut facts.output, "response_preview", Speaker::Agent),
        ] {
            if payload.is_none()
                && let Some(preview) = Cell::encoded(record.get(name))
            {
                *payload = Some(preview.payload(speaker));
                facts
                    .metadata
                    .insert(format!("mlflow.{name}"), Value::Bool(true));
            }
        }
    }
    parts.trace(facts);
    parts.spans.extend(found);
    Ok(())
}

/// An attribute of a span, out of its JSON.
fn attribute_of(span: &Value, name: &str) -> Option<Value> {
    decoded(
        span.get("attributes")
            .and_then(|attributes| attributes.get(name)),
    )
}

fn span(value: &Value, trace_id: &str) -> Result<SpanFacts, String> {
    // Version 2 has the ids in `context`.
    let id = text(value.get("span_id"))
        .or_else(|| text(at(value, "context.span_id")))
        .ok_or("has no span_id: write spans with Span.to_dict()")?;
    let first = |paths: &[&str]| paths.iter().find_map(|path| at(value, path));
    let kind = match attribute_of(value, "mlflow.spanType")
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "LLM" | "CHAT_MODEL" => kind::LLM,
        "AGENT" => kind::AGENT,
        "TOOL" => kind::TOOL,
        "RETRIEVER" => kind::RETRIEVER,
        "EMBEDDING" => kind::EMBEDDING,
        "RERANKER" => kind::RERANKER,
        "GUARDRAIL" => kind::GUARDRAIL,
        "EVALUATOR" => kind::EVALUATOR,
        "CHAIN" | "WORKFLOW" | "TASK" => kind::CHAIN,
        _ => kind::OTHER,
    };
    let code = text(first(&["status_code", "status.code"])).unwrap_or_default();
    let failed = code.ends_with("ERROR");
    let error = failed.then(|| {
        let told = text(first(&["status_message", "status.message"]));
        told.or_else(|| exception(value))
            .unwrap_or_else(|| "the status is ERROR, without a message".to_owned())
    });
    let inputs = attribute_of(value, "mlflow.spanInputs");
    let outputs = attribute_of(value, "mlflow.spanOutputs");
    let (input, output) = (Cell::new(inputs.as_ref()), Cell::new(outputs.as_ref()));
    let of_tool = kind == kind::TOOL;
    let payload = |cell: &Option<Cell>, speaker| {
        let cell = cell.as_ref()?;
        Some(if of_tool {
            cell.document()
        } else {
            cell.payload(speaker)
        })
    };
    let mut span = SpanFacts {
        of: TraceFacts {
            trace_id: trace_id.to_owned(),
            ..TraceFacts::default()
        },
        span_id: id,
        parent_span_id: text(first(&["parent_span_id", "parent_id"])),
        kind: kind.to_owned(),
        name: text(value.get("name")).unwrap_or_default(),
        input: payload(&input, Speaker::User),
        output: payload(&output, Speaker::Agent),
        started_at: time(
            "start_time",
            first(&["start_time_unix_nano", "start_time_ns", "start_time"]),
        )?,
        ended_at: time(
            "end_time",
            first(&["end_time_unix_nano", "end_time_ns", "end_time"]),
        )?,
        status: match code.as_str() {
            _ if failed => Some("ERROR".to_owned()),
            "OK" | "STATUS_CODE_OK" => Some("OK".to_owned()),
            _ => None,
        },
        error,
        ..SpanFacts::default()
    };
    if kind == kind::TOOL
        && let Some(message) = outputs
            .as_ref()
            .and_then(Value::as_object)
            .and_then(model_output::tool_message)
    {
        span.output = message.result;
        if span.error.is_none() && message.error.is_some() {
            span.error = message.error;
            span.status = Some("ERROR".to_owned());
        }
    }
    if kind == kind::LLM {
        of_model(&mut span, value, inputs.as_ref(), outputs.as_ref());
    }
    Ok(span)
}

fn of_model(span: &mut SpanFacts, value: &Value, inputs: Option<&Value>, outputs: Option<&Value>) {
    let named = attribute_of(value, "mlflow.llm.model");
    span.model = text(named.as_ref())
        .or_else(|| text(outputs?.get("model")))
        .or_else(|| text(inputs?.get("model")));
    let usage = attribute_of(value, "mlflow.chat.tokenUsage");
    let counted = |name: &str| count(usage.as_ref()?.get(name));
    span.prompt_tokens = counted("input_tokens");
    span.completion_tokens = counted("output_tokens");
    let cost = attribute_of(value, "mlflow.llm.cost");
    span.cost_usd = cost
        .as_ref()
        .and_then(|cost| amount(cost.get("total_cost")));
    span.calls = model_output::calls(inputs, outputs);
    if let Some(outputs) = outputs {
        span.finish_reason = model_output::finish_reason(outputs);
        if usage.is_none() {
            (span.prompt_tokens, span.completion_tokens) = model_output::usage(outputs);
        }
    }
}

/// The message of the exception that a span recorded.
fn exception(span: &Value) -> Option<String> {
    let events = span.get("events")?.as_array()?;
    let of_exception =
        |event: &&Value| event.get("name").and_then(Value::as_str) == Some("exception");
    let attributes = events.iter().rev().find(of_exception)?.get("attributes")?;
    let told = |name: &str| text(at(attributes, name));
    told("exception.message").or_else(|| told("exception.type"))
}

#[cfg(test)]
mod tests;
