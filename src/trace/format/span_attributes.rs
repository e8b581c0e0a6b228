//! The attributes of one span and nothing else: what tests of instrumentations and debug output hold. Each is a trace of
//! one span, named after its place.

use serde_json::Value;

use super::otel_span::{RawSpan, Resource};
use super::values::text;
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "span-attributes",
    title: "Attributes of single spans (OpenInference, OpenTelemetry GenAI)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "the file's name and the row"),
        ("session_id", "session.id, gen_ai.conversation.id"),
        (
            "input",
            "llm.input_messages, gen_ai.input.messages, input.value, input",
        ),
        (
            "output",
            "llm.output_messages, gen_ai.output.messages, output.value, output",
        ),
        (
            "model",
            "llm.model_name, gen_ai.response.model, gen_ai.request.model",
        ),
        (
            "prompt_tokens",
            "llm.token_count.prompt, gen_ai.usage.input_tokens",
        ),
        (
            "completion_tokens",
            "llm.token_count.completion, gen_ai.usage.output_tokens",
        ),
        ("spans", "the document itself"),
    ],
};

/// Attributes that only spans of agents have.
const TELLING: [&str; 4] = [
    "openinference.span.kind",
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "ai.operationId",
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let members = sample.document.as_object()?;
    let elsewhere = [
        "trace_id",
        "traceId",
        "traceID",
        "context",
        "spanContext",
        "attributes",
    ];
    if !sample.columns.is_empty() || elsewhere.iter().any(|name| members.contains_key(*name)) {
        return None;
    }
    let telling = TELLING.iter().find(|name| members.contains_key(**name))?;
    Some(format!("has {telling}, but no ids"))
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(attributes) = document else {
        return Err("attributes are no object".to_owned());
    };
    let names = [
        "gen_ai.tool.name",
        "tool.name",
        "gen_ai.operation.name",
        "ai.operationId",
    ];
    let name = names.iter().find_map(|name| text(attributes.get(*name)));
    let id = format!("{}:{:06}", place.stem, place.row);
    let span = RawSpan {
        trace_id: id.clone(),
        span_id: id,
        name: name
            .or_else(|| text(attributes.get(TELLING[0])))
            .unwrap_or_default(),
        attributes,
        ..RawSpan::default()
    };
    parts.spans.push(span.facts(&Resource::default())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn attributes_are_a_trace_of_one_span() {
        let document = json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f",
            "input": "{\"a\": 1}", "output": "done",
        });
        let sample = Sample {
            file_name: "x.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "x", row: 3 }, &mut parts).unwrap();
        let span = &parts.spans[0];
        assert_eq!(
            (span.of.trace_id.as_str(), span.name.as_str()),
            ("x:000003", "f")
        );
        assert_eq!(span.kind, kind::TOOL);
        assert_eq!(span.output.as_ref().unwrap().raw, "done");
    }
}
