//! Runs of LangSmith: rows of its bulk export (Parquet), runs of its API or SDK as JSON Lines, and the posts and patches
//! of runs that its SDK writes to files.
//!
//! `session_id` of a run is its project. The conversation is in the run's metadata, as `session_id`, `thread_id` or
//! `conversation_id`. A patch tells the end of a run that a post began: both have its id, and are put together.

use serde_json::{Map, Value};

use super::cell::Cell;
use super::model_output;
use super::said::Speaker;
use super::values::{amount, at, count, object, text, texts, time};
use super::{ArrayIs, Format, Parts, Place, Sample, SpanFacts, TraceFacts, kind};

pub(super) static LANGSMITH: Format = Format {
    name: "langsmith",
    title: "LangSmith runs (bulk export Parquet, JSON Lines of runs, of posts and patches)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "trace_id, else the first id of dotted_order"),
        (
            "session_id",
            "extra.metadata.session_id, thread_id or conversation_id",
        ),
        (
            "project_id",
            "session_id (LangSmith's project), else session_name or extra.metadata.LANGSMITH_PROJECT",
        ),
        (
            "user_id, environment",
            "extra.metadata.user_id, environment",
        ),
        ("release", "extra.metadata.revision_id"),
        ("tags", "tags of the root run"),
        (
            "input, output, error",
            "inputs, outputs, error of the root run",
        ),
        (
            "spans[].span_id, parent_span_id",
            "id, parent_run_id (else of dotted_order)",
        ),
        ("spans[].kind, name", "run_type, name"),
        ("spans[].started_at, ended_at", "start_time, end_time"),
        (
            "spans[].model",
            "extra.metadata.ls_model_name, else extra.invocation_params.model",
        ),
        (
            "spans[].prompt_tokens, completion_tokens",
            "prompt_tokens, completion_tokens, else outputs' usage",
        ),
        (
            "spans[].cost_usd",
            "total_cost, else prompt_cost + completion_cost",
        ),
        ("tool calls", "runs of type tool, else messages"),
    ],
};

/// Members that are read, and those that say nothing of use.
const KNOWN: [&str; 61] = [
    "operation",
    "id",
    "run_id",
    "name",
    "inputs",
    "run_type",
    "start_time",
    "end_time",
    "extra",
    "error",
    "outputs",
    "events",
    "tags",
    "trace_id",
    "dotted_order",
    "status",
    "child_run_ids",
    "direct_child_run_ids",
    "parent_run_ids",
    "feedback_stats",
    "reference_example_id",
    "total_tokens",
    "prompt_tokens",
    "completion_tokens",
    "total_cost",
    "prompt_cost",
    "completion_cost",
    "first_token_time",
    "session_id",
    "session_name",
    "in_dataset",
    "parent_run_id",
    "execution_order",
    "serialized",
    "manifest_id",
    "manifest_s3_id",
    "inputs_s3_urls",
    "outputs_s3_urls",
    "s3_urls",
    "price_model_id",
    "app_path",
    "last_queued_at",
    "share_token",
    "child_runs",
    "attachments",
    "tenant_id",
    "is_root",
    "export_id",
    "year",
    "month",
    "day",
    "runs",
    "latency",
    "url",
    "inputs_preview",
    "outputs_preview",
    "prompt_token_details",
    "completion_token_details",
    "prompt_cost_details",
    "completion_cost_details",
    "thread_id",
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let has = |name: &str| {
        sample.columns.iter().any(|column| column == name) || sample.document.get(name).is_some()
    };
    let placed = has("trace_id") && (has("dotted_order") || has("parent_run_id"));
    if !(placed && (has("id") || has("run_id"))) {
        return None;
    }
    let operation = sample.document.get("operation").and_then(Value::as_str);
    if matches!(operation, Some("post" | "patch")) && has("dotted_order") {
        return Some("has operation, trace_id and dotted_order".to_owned());
    }
    (has("run_type") && has("inputs"))
        .then(|| "has run_type, inputs, trace_id and dotted_order or parent_run_id".to_owned())
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(members) = document else {
        return Err("is no object: a run of LangSmith is one".to_owned());
    };
    run(&members, 0, parts)
}

/// Runs that hold deeper runs are damaged.
const DEEPEST: usize = 64;

fn run(members: &Map<String, Value>, depth: usize, parts: &mut Parts) -> Result<(), String> {
    for (name, value) in members {
        if !value.is_null() && !KNOWN.contains(&name.as_str()) {
            parts.unknown.push(name.clone());
        }
    }
    parts.span(span(members)?);
    if let Some(Value::Array(children)) = members.get("child_runs")
        && depth < DEEPEST
    {
        for child in children.iter().filter_map(Value::as_object) {
            run(child, depth + 1, parts)?;
        }
    }
    Ok(())
}

/// The ids of a dotted order, from the root to the run itself: `<time>Z<id>.<time>Z<id>`.
fn ids(dotted_order: &str) -> Vec<&str> {
    dotted_order
        .split('.')
        .filter_map(|part| part.split_once('Z').map(|(_, id)| id))
        .filter(|id| !id.is_empty())
        .collect()
}

fn span(members: &Map<String, Value>) -> Result<SpanFacts, String> {
    let word = |name: &str| text(members.get(name));
    let order = word("dotted_order").unwrap_or_default();
    let ids = ids(&order);
    let span_id = word("id")
        .or_else(|| word("run_id"))
        .ok_or("has no id: a run of LangSmith needs it; export the field `id` too")?;
    let parent_span_id = word("parent_run_id").or_else(|| match ids.as_slice() {
        [.., parent, _] => Some((*parent).to_owned()),
        _ => None,
    });
    let trace_id = word("trace_id")
        .or_else(|| ids.first().map(|id| (*id).to_owned()))
        .ok_or("has neither trace_id nor dotted_order: export one of these fields too")?;
    let extra = object(members.get("extra")).unwrap_or_default();
    let metadata = object(extra.get("metadata")).unwrap_or_default();
    let is_root = parent_span_id.is_none();
    let inputs = Cell::new(members.get("inputs"));
    let outputs = Cell::new(members.get("outputs"));
    let patch = members.get("operation").and_then(Value::as_str) == Some("patch");
    // A patch doesn't repeat what kind of run it is about; its post tells.
    let kind = match word("run_type").as_deref() {
        Some("llm" | "chat_model") => kind::LLM,
        Some("tool") => kind::TOOL,
        Some("chain") => kind::CHAIN,
        Some("retriever") => kind::RETRIEVER,
        Some("embedding") => kind::EMBEDDING,
        _ => kind::OTHER,
    };
    let error = word("error");
    let status = match (&error, word("status").as_deref()) {
        (Some(_), _) | (None, Some("error")) => Some("ERROR".to_owned()),
        (None, Some("success")) => Some("OK".to_owned()),
        _ => None,
    };
    let of = trace_facts(members, trace_id, &metadata, is_root);
    let mut span = SpanFacts {
        of,
        span_id,
        parent_span_id,
        kind: kind.to_owned(),
        name: word("name").unwrap_or_default(),
        started_at: time("start_time", members.get("start_time"))?,
        ended_at: time("end_time", members.get("end_time"))?,
        error: error.or_else(|| {
            status.as_ref().filter(|status| *status == "ERROR")?;
            Some("status is error, without a message".to_owned())
        }),
        status,
        prompt_tokens: count(members.get("prompt_tokens")),
        completion_tokens: count(members.get("completion_tokens")),
        cost_usd: cost(members),
        ..SpanFacts::default()
    };
    // What a patch is about shows in what it tells: a message of a tool, or a model's generations.
    let answer = outputs.as_ref().and_then(|cell| tool_answer(cell.value()));
    if kind == kind::TOOL || (patch && answer.is_some()) {
        span.input = inputs.as_ref().and_then(|cell| only(cell, "input"));
        match answer {
            Some(message) => {
                span.output = message.result;
                if span.error.is_none() && message.error.is_some() {
                    span.error = message.error;
                    span.status = Some("ERROR".to_owned());
                }
            }
            None => span.output = outputs.as_ref().and_then(|cell| only(cell, "output")),
        }
        return Ok(span);
    }
    span.input = inputs.as_ref().map(|cell| cell.payload(Speaker::User));
    span.output = outputs.as_ref().map(|cell| cell.payload(Speaker::Agent));
    let generated = |cell: &Cell| cell.value().get("generations").is_some();
    if kind == kind::LLM || (patch && outputs.as_ref().is_some_and(generated)) {
        of_model(
            &mut span,
            inputs.as_ref(),
            outputs.as_ref(),
            &extra,
            &metadata,
        );
    }
    Ok(span)
}

fn trace_facts(
    members: &Map<String, Value>,
    trace_id: String,
    metadata: &Map<String, Value>,
    is_root: bool,
) -> TraceFacts {
    let told = |names: &[&str]| names.iter().find_map(|name| text(metadata.get(*name)));
    let mut own = Map::new();
    if is_root {
        own.clone_from(metadata);
        own.retain(|name, value| {
            !value.is_null() && !name.starts_with("LANGSMITH_") && !name.starts_with("ls_")
        });
    }
    TraceFacts {
        trace_id,
        session_id: told(&["session_id", "thread_id", "conversation_id"]),
        project_id: text(members.get("session_id"))
            .or_else(|| text(members.get("session_name")))
            .or_else(|| told(&["LANGSMITH_PROJECT"])),
        environment: told(&["environment", "env"]),
        release: told(&["revision_id"]),
        user_id: told(&["user_id"]),
        // Runs below the root carry the framework's own tags.
        tags: if is_root {
            texts(members.get("tags"))
        } else {
            Vec::new()
        },
        metadata: own,
        ..TraceFacts::default()
    }
}

fn cost(members: &Map<String, Value>) -> Option<f64> {
    let part = |name: &str| amount(members.get(name));
    part("total_cost").or_else(|| match (part("prompt_cost"), part("completion_cost")) {
        (None, None) => None,
        (prompt, completion) => Some(prompt.unwrap_or(0.0) + completion.unwrap_or(0.0)),
    })
}

/// The value of an object's only member, if it has this name; else all of it.
fn only(cell: &Cell, name: &str) -> Option<super::Payload> {
    match cell.value() {
        Value::Object(members) if members.len() == 1 && members.contains_key(name) => {
            Cell::new(members.get(name)).map(|inner| inner.document())
        }
        _ => Some(cell.document()),
    }
}

/// The message in which a tool answers, as it is or as the only output.
fn tool_answer(outputs: &Value) -> Option<super::Call> {
    let members = outputs.as_object()?;
    if members.len() == 1
        && let Some(Value::Object(inner)) = members.get("output")
    {
        return model_output::tool_message(inner);
    }
    model_output::tool_message(members)
}

fn of_model(
    span: &mut SpanFacts,
    inputs: Option<&Cell>,
    outputs: Option<&Cell>,
    extra: &Map<String, Value>,
    metadata: &Map<String, Value>,
) {
    let parameters = object(extra.get("invocation_params")).unwrap_or_default();
    let named = || {
        ["model", "model_name", "model_id"]
            .iter()
            .find_map(|name| text(parameters.get(*name)))
    };
    span.model = text(metadata.get("ls_model_name")).or_else(named);
    span.calls = model_output::calls(inputs.map(Cell::value), outputs.map(Cell::value));
    let Some(outputs) = outputs.map(Cell::value) else {
        return;
    };
    if span.model.is_none() {
        span.model = text(at(outputs, "llm_output.model_name"));
    }
    span.finish_reason = model_output::finish_reason(outputs);
    if span.prompt_tokens.is_none() && span.completion_tokens.is_none() {
        (span.prompt_tokens, span.completion_tokens) = model_output::usage(outputs);
    }
}

#[cfg(test)]
mod tests;
