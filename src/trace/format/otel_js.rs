//! Spans as OpenTelemetry's JavaScript SDK holds them (`spanContext`, times as seconds and nanoseconds): what exporters
//! to memory and test fixtures write.

use serde_json::{Map, Value};

use super::otel_span::{Event, RawSpan, Resource, parent, status};
use super::values::{at, object, text, time};
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "otel-js",
    title: "OpenTelemetry's JavaScript SDK, spans (Vercel's AI SDK among others)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "spanContext.traceId"),
        (
            "session_id",
            "attributes session.id, gen_ai.conversation.id, ai.telemetry.metadata.sessionId",
        ),
        (
            "user_id",
            "attributes user.id, ai.telemetry.metadata.userId",
        ),
        ("started_at", "startTime"),
        ("ended_at", "endTime"),
        ("status", "status.code"),
        ("error", "status.message, else the exception event"),
        (
            "input",
            "attributes ai.prompt, ai.prompt.messages, gen_ai.input.messages, …",
        ),
        (
            "output",
            "attributes ai.response.text, ai.response.object, gen_ai.output.messages, …",
        ),
        ("model", "attributes ai.response.model, ai.model.id"),
        (
            "prompt_tokens",
            "attributes ai.usage.inputTokens or promptTokens",
        ),
        (
            "completion_tokens",
            "attributes ai.usage.outputTokens or completionTokens",
        ),
        ("spans", "one document each; tools by ai.toolCall.*"),
    ],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let id = context(sample.document)?.get("traceId")?;
    let span = sample.columns.is_empty()
        && id.is_string()
        && sample
            .document
            .get("attributes")
            .is_some_and(Value::is_object);
    span.then(|| "has spanContext.traceId and attributes".to_owned())
}

fn context(span: &Value) -> Option<&Value> {
    ["spanContext", "_spanContext"]
        .iter()
        .find_map(|name| span.get(*name))
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let of_context = |name: &str| text(context(&document).and_then(|context| context.get(name)));
    let member = |path: &str| text(at(&document, path));
    let resource = ["resource.attributes", "resource._attributes"]
        .iter()
        .find_map(|path| object(at(&document, path)));
    let events = document.get("events").and_then(Value::as_array);
    let events = events.into_iter().flatten().map(|event| Event {
        name: text(event.get("name")).unwrap_or_default(),
        attributes: object(event.get("attributes")).unwrap_or_default(),
    });
    let attributes = match document.get("attributes") {
        Some(Value::Object(attributes)) => attributes.clone(),
        _ => Map::new(),
    };
    let span = RawSpan {
        trace_id: of_context("traceId").unwrap_or_default(),
        span_id: of_context("spanId").unwrap_or_default(),
        parent_span_id: parent(
            member("parentSpanId").or_else(|| member("parentSpanContext.spanId")),
        ),
        name: member("name").unwrap_or_default(),
        kind: None,
        started_at: moment("startTime", document.get("startTime"))?,
        ended_at: moment("endTime", document.get("endTime"))?,
        status: status(at(&document, "status.code")),
        status_message: member("status.message"),
        events: events.collect(),
        attributes,
    };
    parts
        .spans
        .push(span.facts(&Resource::new(resource.unwrap_or_default()))?);
    Ok(())
}

/// `[seconds, nanoseconds]`, or what other exporters write.
fn moment(name: &str, value: Option<&Value>) -> Result<Option<i64>, String> {
    let Some(Value::Array(pair)) = value else {
        return time(name, value);
    };
    let nanos = match pair.as_slice() {
        [seconds, nanos] => seconds
            .as_i64()
            .and_then(|seconds| seconds.checked_mul(1_000_000_000))
            .zip(nanos.as_i64())
            .and_then(|(seconds, nanos)| seconds.checked_add(nanos)),
        _ => None,
    };
    match nanos {
        Some(0) => Ok(None),
        Some(nanos) if nanos > 0 => Ok(Some(nanos)),
        _ => Err(format!(
            "`{name}` is no time: expected a pair of seconds and nanoseconds"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_span_is_read() {
        let document = json!({
            "name": "ai.generateText", "spanContext": {"traceId": "t", "spanId": "s"},
            "parentSpanContext": {"spanId": "p"},
            "attributes": {"ai.operationId": "ai.generateText", "ai.prompt": "{\"prompt\":\"Q\"}", "ai.response.text": "A"},
            "status": {"code": 1}, "startTime": [1770131992, 242000000], "endTime": [1770131994, 21415667], "events": [],
        });
        let sample = Sample {
            file_name: "v.json",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "v", row: 0 }, &mut parts).unwrap();
        let span = &parts.spans[0];
        assert_eq!(span.kind, kind::AGENT);
        assert_eq!(span.parent_span_id.as_deref(), Some("p"));
        assert_eq!(span.started_at, Some(1_770_131_992_242_000_000));
        assert_eq!(span.ended_at, Some(1_770_131_994_021_415_667));
        assert_eq!(span.status.as_deref(), Some("OK"));
        assert_eq!(span.input.as_ref().unwrap().said.as_deref(), Some("Q"));
    }
}
