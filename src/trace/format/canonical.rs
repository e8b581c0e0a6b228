//! Assembled traces as batches of the canonical schema, spans and all.
//!
//! What `input`, `output` and `expected` hold is said in the metadata of these columns, under [`TEXT`]: `said` for the words
//! alone, or `document` for the exported documents, each cell one JSON document.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Builder, ListBuilder, RecordBatch, StringBuilder, StructBuilder,
    TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use super::Payload;
use super::assemble::{Assembled, words};
use crate::text::TextMode;

/// The key of a text column's metadata that says what it holds.
pub(in crate::trace) const TEXT: &str = "nightmill.text";
/// The words alone.
pub(in crate::trace) const SAID: &str = "said";
/// JSON documents.
pub(in crate::trace) const DOCUMENT: &str = "document";

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

const SPAN_TEXTS: [&str; 9] = [
    "span_id",
    "parent_span_id",
    "kind",
    "name",
    "status",
    "input",
    "output",
    "error",
    "model",
];

fn span_fields() -> Fields {
    let text = |name: &&str| Field::new(*name, DataType::Utf8, true);
    let mut fields: Vec<Field> = SPAN_TEXTS.iter().map(text).collect();
    fields.push(Field::new("finish_reason", DataType::Utf8, true));
    for name in ["started_at", "ended_at"] {
        fields.push(Field::new(name, time(), true));
    }
    for name in ["prompt_tokens", "completion_tokens"] {
        fields.push(Field::new(name, DataType::UInt64, true));
    }
    fields.push(Field::new("cost_usd", DataType::Float64, true));
    fields.into()
}

/// The schema of imported traces.
pub(crate) fn schema(mode: TextMode) -> SchemaRef {
    let held = match mode {
        TextMode::Content => SAID,
        TextMode::Compat => DOCUMENT,
    };
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let payload =
        |name: &str| text(name).with_metadata(HashMap::from([(TEXT.to_owned(), held.to_owned())]));
    Arc::new(Schema::new(vec![
        Field::new("trace_id", DataType::Utf8, false),
        text("session_id"),
        text("project_id"),
        Field::new("started_at", time(), false),
        Field::new("ended_at", time(), true),
        text("name"),
        text("status"),
        text("error"),
        text("environment"),
        text("release"),
        text("user_id"),
        text("model"),
        Field::new("prompt_tokens", DataType::UInt64, true),
        Field::new("completion_tokens", DataType::UInt64, true),
        Field::new("cost_usd", DataType::Float64, true),
        payload("input"),
        payload("output"),
        payload("expected"),
        Field::new(
            "spans",
            DataType::List(Arc::new(Field::new(
                "item",
                DataType::Struct(span_fields()),
                true,
            ))),
            true,
        ),
        Field::new(
            "tags",
            DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            true,
        ),
        text("metadata"),
    ]))
}

/// A payload's cell.
fn cell(payload: Option<&Payload>, mode: TextMode) -> Option<std::borrow::Cow<'_, str>> {
    let payload = payload?;
    Some(match mode {
        TextMode::Content => words(payload).into(),
        TextMode::Compat if payload.json => payload.raw.as_str().into(),
        TextMode::Compat => serde_json::Value::from(payload.raw.as_str())
            .to_string()
            .into(),
    })
}

/// Microseconds of nanoseconds, downwards.
fn micros(nanos: Option<i64>) -> Option<i64> {
    nanos.map(|nanos| nanos.div_euclid(1000))
}

/// A batch of traces.
///
/// # Errors
/// If Arrow refuses the columns, which would be a defect.
pub(crate) fn batch(traces: &[Assembled], mode: TextMode) -> Result<RecordBatch, ArrowError> {
    let schema = schema(mode);
    let texts = |of: &dyn Fn(&Assembled) -> Option<String>| -> ArrayRef {
        let mut column = StringBuilder::new();
        traces
            .iter()
            .for_each(|trace| column.append_option(of(trace)));
        Arc::new(column.finish())
    };
    let payloads = |of: &dyn Fn(&Assembled) -> Option<&Payload>| -> ArrayRef {
        let mut column = StringBuilder::new();
        traces
            .iter()
            .for_each(|trace| column.append_option(cell(of(trace), mode)));
        Arc::new(column.finish())
    };
    let times = |of: &dyn Fn(&Assembled) -> Option<i64>| -> ArrayRef {
        let mut column = TimestampMicrosecondBuilder::new().with_timezone("UTC");
        traces
            .iter()
            .for_each(|trace| column.append_option(of(trace)));
        Arc::new(column.finish())
    };
    let counts = |of: &dyn Fn(&Assembled) -> Option<u64>| -> ArrayRef {
        let mut column = UInt64Builder::new();
        traces
            .iter()
            .for_each(|trace| column.append_option(of(trace)));
        Arc::new(column.finish())
    };
    let mut costs = Float64Builder::new();
    traces
        .iter()
        .for_each(|trace| costs.append_option(trace.facts.cost_usd));
    let mut tags = ListBuilder::new(StringBuilder::new());
    for trace in traces {
        trace
            .facts
            .tags
            .iter()
            .for_each(|tag| tags.values().append_value(tag));
        tags.append(!trace.facts.tags.is_empty());
    }
    let metadata = |trace: &Assembled| {
        let members = &trace.facts.metadata;
        (!members.is_empty()).then(|| serde_json::Value::Object(members.clone()).to_string())
    };
    RecordBatch::try_new(
        schema,
        vec![
            texts(&|t| Some(t.facts.trace_id.clone())),
            texts(&|t| t.facts.session_id.clone()),
            texts(&|t| t.facts.project_id.clone()),
            times(&|t| Some(micros(t.facts.started_at).unwrap_or_else(|| turn(t)))),
            times(&|t| micros(t.facts.ended_at)),
            texts(&|t| t.facts.name.clone()),
            texts(&|t| t.facts.status.clone()),
            texts(&|t| t.facts.error.clone()),
            texts(&|t| t.facts.environment.clone()),
            texts(&|t| t.facts.release.clone()),
            texts(&|t| t.facts.user_id.clone()),
            texts(&|t| t.facts.model.clone()),
            counts(&|t| t.facts.prompt_tokens),
            counts(&|t| t.facts.completion_tokens),
            Arc::new(costs.finish()),
            payloads(&|t| t.facts.input.as_ref()),
            payloads(&|t| t.facts.output.as_ref()),
            payloads(&|t| t.facts.expected.as_ref()),
            spans(traces)?,
            Arc::new(tags.finish()),
            texts(&metadata),
        ],
    )
}

/// The time of a trace without any: its turn in the session, counted in microseconds from 1970.
fn turn(trace: &Assembled) -> i64 {
    let turn = trace
        .facts
        .metadata
        .get("turn")
        .and_then(serde_json::Value::as_i64);
    turn.unwrap_or(0)
}

fn spans(traces: &[Assembled]) -> Result<ArrayRef, ArrowError> {
    let fields = span_fields();
    let mut list = ListBuilder::new(StructBuilder::from_fields(fields.clone(), 0));
    for trace in traces {
        for span in &trace.spans {
            let raw = |payload: &Option<Payload>| payload.as_ref().map(|p| p.raw.clone());
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let row = list.values();
            let texts = [
                Some(span.span_id.clone()),
                span.parent_span_id.clone(),
                text(&span.kind),
                text(&span.name),
                span.status.clone(),
                raw(&span.input),
                raw(&span.output),
                span.error.clone(),
                span.model.clone(),
                span.finish_reason.clone(),
            ];
            let mut at = 0;
            for text in texts {
                field::<StringBuilder>(row, at)?.append_option(text);
                at += 1;
            }
            for time in [span.started_at, span.ended_at] {
                field::<TimestampMicrosecondBuilder>(row, at)?.append_option(micros(time));
                at += 1;
            }
            for count in [span.prompt_tokens, span.completion_tokens] {
                field::<UInt64Builder>(row, at)?.append_option(count);
                at += 1;
            }
            field::<Float64Builder>(row, at)?.append_option(span.cost_usd);
            row.append(true);
        }
        list.append(!trace.spans.is_empty());
    }
    Ok(Arc::new(list.finish()))
}

fn field<B: arrow::array::ArrayBuilder>(
    row: &mut StructBuilder,
    at: usize,
) -> Result<&mut B, ArrowError> {
    row.field_builder::<B>(at)
        .ok_or_else(|| ArrowError::SchemaError(format!("span field {at} has another type")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::format::{SpanFacts, TraceFacts};
    use arrow::array::AsArray;

    #[test]
    fn a_trace_becomes_a_row() {
        let trace = Assembled {
            facts: TraceFacts {
                trace_id: "t".into(),
                started_at: Some(1_999),
                input: Some(Payload {
                    raw: r#"{"q":"hi"}"#.into(),
                    json: true,
                    said: Some("hi".into()),
                }),
                output: Some(Payload::text("a \"b\"")),
                tags: vec!["x".into()],
                ..TraceFacts::default()
            },
            spans: vec![SpanFacts {
                span_id: "s".into(),
                kind: "TOOL".into(),
                ..SpanFacts::default()
            }],
        };
        let of = |mode| {
            let batch = batch(std::slice::from_ref(&trace), mode).unwrap();
            let text = |name: &str| {
                batch
                    .column_by_name(name)
                    .unwrap()
                    .as_string::<i32>()
                    .value(0)
                    .to_owned()
            };
            (
                text("input"),
                text("output"),
                batch
                    .column_by_name("spans")
                    .unwrap()
                    .as_list::<i32>()
                    .value(0)
                    .len(),
            )
        };
        assert_eq!(of(TextMode::Content), ("hi".into(), "a \"b\"".into(), 1));
        assert_eq!(
            of(TextMode::Compat),
            (r#"{"q":"hi"}"#.into(), r#""a \"b\"""#.into(), 1)
        );
    }
}
