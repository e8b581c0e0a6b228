//! Jaeger's JSON: `data[].spans[]` of its interface and its web page, one trace (`spans[]`, `processes`), or one span.

use serde_json::{Map, Value};

use super::otel_span::{self, Event, RawSpan, Resource, status, wanted};
use super::values::{count, text, time};
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "jaeger",
    title: "Jaeger, trace JSON",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "spans[].traceID"),
        ("session_id", "tags session.id, gen_ai.conversation.id, …"),
        ("user_id", "tags user.id, enduser.id, …"),
        (
            "environment",
            "process tag deployment.environment.name or deployment.environment",
        ),
        ("release", "process tag service.version"),
        ("started_at", "spans[].startTime (microseconds)"),
        ("ended_at", "spans[].startTime + duration (microseconds)"),
        ("status", "tag otel.status_code, else error"),
        (
            "error",
            "tag otel.status_description, else the exception in logs",
        ),
        (
            "input",
            "tags gen_ai.input.messages, gen_ai.prompt.*, gcp.vertex.agent.llm_request, input.value, …",
        ),
        (
            "output",
            "tags gen_ai.output.messages, gen_ai.completion.*, gcp.vertex.agent.llm_response, output.value, …",
        ),
        ("spans", "spans[]; tools by gen_ai.tool.* or tool.*"),
    ],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if !sample.columns.is_empty() {
        return None;
    }
    let document = sample.document;
    let of_jaeger = |span: &Value| {
        ["traceID", "spanID", "operationName"]
            .iter()
            .all(|name| span.get(*name).is_some())
    };
    let of_trace = |trace: &Value| {
        trace
            .get("spans")
            .and_then(Value::as_array)?
            .first()
            .map(of_jaeger)
    };
    let traces = document.get("data").and_then(Value::as_array);
    if traces.and_then(|traces| of_trace(traces.first()?)) == Some(true) {
        return Some("has data[].spans[] with traceID, spanID, operationName".to_owned());
    }
    if of_trace(document) == Some(true) {
        return Some("has spans[] with traceID, spanID, operationName".to_owned());
    }
    of_jaeger(document).then(|| "has traceID, spanID, operationName".to_owned())
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let traces = match document.get("data") {
        Some(Value::Array(traces)) => traces.as_slice(),
        _ => std::slice::from_ref(&document),
    };
    for trace in traces {
        let spans = match trace.get("spans") {
            Some(Value::Array(spans)) => spans.as_slice(),
            _ => std::slice::from_ref(trace),
        };
        let processes = trace.get("processes").and_then(Value::as_object);
        let resources: Vec<(&String, Resource)> = processes
            .into_iter()
            .flatten()
            .map(|(name, process)| (name, resource(Some(process))))
            .collect();
        for span in spans {
            let named = span.get("processID").and_then(Value::as_str);
            let shared = resources
                .iter()
                .find(|(name, _)| Some(name.as_str()) == named);
            parts.span_or_problem(raw(span).and_then(|raw| match shared {
                Some((_, shared)) => raw.facts(shared),
                None => raw.facts(&resource(span.get("process"))),
            }));
        }
    }
    Ok(())
}

fn resource(process: Option<&Value>) -> Resource {
    let mut attributes = tags(process.and_then(|process| process.get("tags")), wanted);
    if let Some(name) = process.and_then(|process| process.get("serviceName")) {
        attributes.insert("service.name".to_owned(), name.clone());
    }
    Resource::new(attributes)
}

/// Tags by key; Elasticsearch's dumps have objects in the place of lists.
fn tags(tags: Option<&Value>, wanted: fn(&str) -> bool) -> Map<String, Value> {
    match tags {
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|tag| {
                let key = tag.get("key")?.as_str()?;
                wanted(key).then(|| {
                    (
                        key.to_owned(),
                        tag.get("value").cloned().unwrap_or_default(),
                    )
                })
            })
            .collect(),
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    }
}

fn raw(span: &Value) -> Result<RawSpan, String> {
    if !span.is_object() {
        return Err("a span is no object".to_owned());
    }
    let member = |name: &str| text(span.get(name));
    let attributes = tags(span.get("tags"), wanted);
    let failed = attributes
        .get("error")
        .is_some_and(|error| matches!(text(Some(error)).as_deref(), Some("true" | "1")));
    let started_at = time("startTime", span.get("startTime"))?;
    let duration = count(span.get("duration")).and_then(|micros| i64::try_from(micros).ok());
    let ended_at = match (started_at, duration) {
        (Some(start), Some(micros)) => start.checked_add(micros.saturating_mul(1000)),
        _ => None,
    };
    Ok(RawSpan {
        trace_id: member("traceID").unwrap_or_default(),
        span_id: member("spanID").unwrap_or_default(),
        parent_span_id: otel_span::parent(parent(span)),
        name: member("operationName").unwrap_or_default(),
        kind: None,
        started_at,
        ended_at,
        status: if failed {
            Some("ERROR")
        } else {
            status(attributes.get("otel.status_code"))
        },
        status_message: text(attributes.get("otel.status_description")),
        events: events(span.get("logs")),
        attributes,
    })
}

/// The span of the same trace that this one is a child of, else the one that it follows.
fn parent(span: &Value) -> Option<String> {
    let references = span.get("references").and_then(Value::as_array);
    let of_kind = |kind: &str| {
        references?
            .iter()
            .find(|reference| {
                reference.get("refType").and_then(Value::as_str) == Some(kind)
                    && reference.get("traceID") == span.get("traceID")
            })
            .and_then(|reference| text(reference.get("spanID")))
    };
    of_kind("CHILD_OF")
        .or_else(|| of_kind("FOLLOWS_FROM"))
        .or_else(|| text(span.get("parentSpanID")))
}

fn events(logs: Option<&Value>) -> Vec<Event> {
    let logs = logs.and_then(Value::as_array);
    logs.into_iter()
        .flatten()
        .map(|log| {
            let attributes = tags(log.get("fields"), |_| true);
            let name = ["event", "name"]
                .iter()
                .find_map(|name| text(attributes.get(*name)));
            Event {
                name: name.unwrap_or_default(),
                attributes,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn span() -> Value {
        json!({
            "traceID": "a1", "spanID": "b2", "operationName": "execute_tool f", "processID": "p1",
            "references": [
                {"refType": "CHILD_OF", "traceID": "other", "spanID": "x"},
                {"refType": "FOLLOWS_FROM", "traceID": "a1", "spanID": "y"},
                {"refType": "CHILD_OF", "traceID": "a1", "spanID": "b1"},
            ],
            "startTime": 1544712660000000_i64, "duration": 1500,
            "tags": [
                {"key": "gen_ai.tool.name", "type": "string", "value": "f"},
                {"key": "error", "type": "bool", "value": true},
                {"key": "gen_ai.conversation.id", "type": "string", "value": "c"},
            ],
            "logs": [{"timestamp": 1, "fields": [
                {"key": "event", "value": "exception"}, {"key": "exception.message", "value": "broke"},
            ]}],
        })
    }

    #[test]
    fn traces_and_spans_are_read() {
        let process = json!({"serviceName": "shop", "tags": [
            {"key": "service.version", "value": "3"}, {"key": "deployment.environment", "value": "prod"},
        ]});
        let trace = json!({"traceID": "a1", "spans": [span()], "processes": {"p1": process}});
        let mut alone = span();
        alone["process"] = process;
        for document in [json!({"data": [trace], "errors": null}), trace, alone] {
            let sample = Sample {
                file_name: "j.json",
                document: &document,
                columns: &[],
            };
            assert!(recognise(&sample).is_some(), "{document}");
            let mut parts = Parts::default();
            read(document, &Place { stem: "j", row: 0 }, &mut parts).unwrap();
            let [span] = parts.spans.as_slice() else {
                panic!("{parts:?}")
            };
            assert_eq!((span.kind.as_str(), span.name.as_str()), (kind::TOOL, "f"));
            assert_eq!(span.parent_span_id.as_deref(), Some("b1"));
            assert_eq!(span.started_at, Some(1_544_712_660_000_000_000));
            assert_eq!(span.ended_at, Some(1_544_712_660_001_500_000));
            assert_eq!(span.status.as_deref(), Some("ERROR"));
            assert_eq!(span.error.as_deref(), Some("broke"));
            assert_eq!(span.of.session_id.as_deref(), Some("c"));
            assert_eq!(span.of.release.as_deref(), Some("3"));
            assert_eq!(span.of.environment.as_deref(), Some("prod"));
        }
    }
}
