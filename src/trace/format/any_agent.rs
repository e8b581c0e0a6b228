//! Traces of Mozilla's any-agent: `spans[]` with numbers for ids, and the `final_output`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::otel_span::{Event, RawSpan, Resource, status};
use super::said::{self, Speaker};
use super::values::{object, text, time};
use super::{ArrayIs, Format, Parts, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "any-agent",
    title: "any-agent, traces",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: Some(read_bytes),
    mapping: &[
        ("trace_id", "spans[].context.trace_id, in hexadecimal"),
        (
            "session_id",
            "spans[].attributes session.id, gen_ai.conversation.id",
        ),
        ("started_at", "spans[].start_time"),
        ("ended_at", "spans[].end_time"),
        ("status", "spans[].status.status_code"),
        ("error", "spans[].status.description"),
        (
            "input",
            "spans[].attributes gen_ai.input.messages of the first model call",
        ),
        (
            "output",
            "final_output, else gen_ai.output of the last model call",
        ),
        ("model", "spans[].attributes gen_ai.request.model"),
        (
            "prompt_tokens",
            "spans[].attributes gen_ai.usage.input_tokens",
        ),
        (
            "completion_tokens",
            "spans[].attributes gen_ai.usage.output_tokens",
        ),
        (
            "cost_usd",
            "spans[].attributes gen_ai.usage.input_cost + gen_ai.usage.output_cost",
        ),
        (
            "spans",
            "spans[]; tools by gen_ai.tool.name, gen_ai.tool.args, gen_ai.output",
        ),
    ],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if !sample.columns.is_empty() {
        return None;
    }
    let span = sample.document.get("spans")?.as_array()?.first()?;
    let numbered = span.get("context")?.get("trace_id")?.is_number();
    numbered.then(|| "has spans[].context.trace_id as a number".to_owned())
}

/// Numbers of 128 bits lose digits in a value: what they are is read from the bytes, and rounded without them.
fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    read_with(&document, None, parts)
}

fn read_bytes(bytes: &[u8], _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let not_json = |error: serde_json::Error| format!("is not JSON: {error}");
    let document = serde_json::from_slice(bytes).map_err(not_json)?;
    // Ids that are no numbers are read from the document.
    let ids = serde_json::from_slice::<Ids>(bytes).ok();
    read_with(&document, ids.as_ref(), parts)
}

#[derive(Deserialize)]
struct Ids {
    spans: Vec<SpanIds>,
}

#[derive(Deserialize)]
struct SpanIds {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    trace_id: u128,
}

fn read_with(document: &Value, ids: Option<&Ids>, parts: &mut Parts) -> Result<(), String> {
    let Some(Value::Array(spans)) = document.get("spans") else {
        return Err("there are no `spans` in it".to_owned());
    };
    let mut found = Vec::new();
    let mut rounded = false;
    for (at, span) in spans.iter().enumerate() {
        let resource = span
            .get("resource")
            .and_then(|resource| resource.get("attributes"));
        let resource = Resource::new(object(resource).unwrap_or_default());
        let mut raw = raw(span)?;
        match ids.and_then(|ids| ids.spans.get(at)) {
            Some(ids) => raw.trace_id = format!("{:032x}", ids.context.trace_id),
            None => {
                let written = span
                    .get("context")
                    .and_then(|context| context.get("trace_id"));
                rounded |= written.is_some_and(Value::is_f64);
            }
        }
        found.push(raw.facts(&resource)?);
    }
    let root = found.iter().find(|span| span.parent_span_id.is_none());
    if let Some(root) = root.or(found.first()) {
        let mut facts = TraceFacts {
            trace_id: root.of.trace_id.clone(),
            output: document
                .get("final_output")
                .and_then(|output| said::payload(output, Speaker::Agent)),
            ..TraceFacts::default()
        };
        if rounded {
            facts
                .metadata
                .insert("trace_id_rounded".to_owned(), Value::Bool(true));
        }
        parts.traces.push(facts);
    }
    parts.spans.append(&mut found);
    Ok(())
}

fn raw(span: &Value) -> Result<RawSpan, String> {
    let id = |of: &str, name: &str, digits: usize| {
        let written = span.get(of).and_then(|context| context.get(name));
        let number = match written {
            Some(Value::Number(number)) => number,
            other => return Ok(text(other).unwrap_or_default()),
        };
        let whole = match number.as_u64() {
            Some(number) => Some(u128::from(number)),
            None => number
                .as_f64()
                .filter(|n| digits == 32 && n.fract() == 0.0 && *n >= 0.0 && *n < 2_f64.powi(128))
                .map(|n| n as u128),
        };
        match whole {
            Some(whole) => Ok(format!("{whole:0digits$x}")),
            None => Err(format!(
                "{of}.{name} is no whole number of {} bits: {number}",
                digits * 4
            )),
        }
    };
    let of_status = |name: &str| span.get("status").and_then(|status| status.get(name));
    let attributes = match span.get("attributes") {
        Some(Value::Object(attributes)) => attributes.clone(),
        _ => Map::new(),
    };
    let events = span.get("events").and_then(Value::as_array);
    Ok(RawSpan {
        trace_id: id("context", "trace_id", 32)?,
        span_id: id("context", "span_id", 16)?,
        parent_span_id: Some(id("parent", "span_id", 16)?).filter(|id| !id.is_empty()),
        name: text(span.get("name")).unwrap_or_default(),
        kind: None,
        started_at: time("start_time", span.get("start_time"))?,
        ended_at: time("end_time", span.get("end_time"))?,
        status: status(of_status("status_code")),
        status_message: text(of_status("description")),
        attributes,
        events: events
            .into_iter()
            .flatten()
            .map(|event| Event {
                name: text(event.get("name")).unwrap_or_default(),
                attributes: object(event.get("attributes")).unwrap_or_default(),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_ids_to_the_last_digit() {
        let text = r#"{"spans": [
                {"name": "execute_tool f", "context": {"trace_id": 273475590164507581703505203264503192396, "span_id": 17348474965005769013},
                 "parent": {"span_id": 255}, "start_time": 1758026586341103000, "end_time": 1758026586853189000,
                 "status": {"status_code": "error", "description": "no"},
                 "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "gen_ai.tool.args": "{}", "gen_ai.output": "null"}},
                {"name": "invoke_agent [a]", "context": {"trace_id": 273475590164507581703505203264503192396, "span_id": 255},
                 "parent": null, "attributes": {"gen_ai.operation.name": "invoke_agent"}}
            ], "final_output": "Done."}"#;
        let document: Value = serde_json::from_str(text).unwrap();
        let sample = Sample {
            file_name: "a.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        let place = Place { stem: "a", row: 0 };
        read_bytes(text.as_bytes(), &place, &mut parts).unwrap();
        let mut rounded = Parts::default();
        read(document, &place, &mut rounded).unwrap();
        assert_eq!(rounded.traces[0].metadata["trace_id_rounded"], true);
        assert_eq!(rounded.spans[0].of.trace_id, rounded.spans[1].of.trace_id);
        assert_eq!(rounded.spans[0].span_id, parts.spans[0].span_id);
        assert!(parts.traces[0].metadata.is_empty());
        let [tool, root] = parts.spans.as_slice() else {
            panic!("{parts:?}")
        };
        assert_eq!(tool.of.trace_id, "cdbd7b99cef221c28dd6d03c27d09b4c");
        assert_eq!(tool.span_id, "f0c22a1083ed1935");
        assert_eq!(tool.parent_span_id.as_ref(), Some(&root.span_id));
        assert_eq!((tool.kind.as_str(), tool.name.as_str()), (kind::TOOL, "f"));
        assert_eq!(tool.error.as_deref(), Some("no"));
        assert_eq!(root.parent_span_id, None);
        assert_eq!(parts.traces[0].trace_id, root.of.trace_id);
        assert_eq!(parts.traces[0].output.as_ref().unwrap().raw, "Done.");
    }

    #[test]
    fn numbers_that_are_no_ids_are_refused() {
        for context in [
            json!({"trace_id": 1.5, "span_id": 1}),
            json!({"trace_id": -1, "span_id": 1}),
            json!({"trace_id": 1, "span_id": 2.5e19}),
        ] {
            let document = json!({"spans": [{"name": "x", "context": context}]});
            let mut parts = Parts::default();
            let error = read(document, &Place { stem: "a", row: 0 }, &mut parts).unwrap_err();
            assert!(error.contains("is no whole number"), "{error}");
        }
    }
}
