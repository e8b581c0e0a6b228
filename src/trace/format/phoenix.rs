//! Spans as Phoenix and OpenInference's tools have them: rows of a table with `context.trace_id` and `attributes.*`
//! columns, or JSON objects with `context` and `attributes`, alone or in lists.

use serde_json::{Map, Value};

use super::otel_span::{Event, RawSpan, Resource, status};
use super::values::{at, object, text, time, unwrapped};
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "phoenix",
    title: "Phoenix / OpenInference, spans",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "context.trace_id"),
        ("session_id", "attributes.session.id"),
        ("user_id", "attributes.user.id"),
        ("tags", "attributes.tag.tags"),
        ("metadata", "attributes.metadata"),
        ("started_at", "start_time"),
        ("ended_at", "end_time"),
        ("status", "status_code"),
        ("error", "status_message, else the exception in events"),
        (
            "input",
            "attributes.input.value of the root; of models attributes.llm.input_messages",
        ),
        (
            "output",
            "attributes.output.value of the root; of models attributes.llm.output_messages",
        ),
        ("model", "attributes.llm.model_name"),
        ("prompt_tokens", "attributes.llm.token_count.prompt"),
        ("completion_tokens", "attributes.llm.token_count.completion"),
        ("cost_usd", "attributes.llm.cost.total"),
        (
            "spans",
            "rows by context.span_id and parent_id; kind from span_kind",
        ),
    ],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if !sample.columns.is_empty() {
        let has = |wanted: &str| sample.columns.iter().any(|column| column == wanted);
        let attributes = sample
            .columns
            .iter()
            .any(|column| column.starts_with("attributes."));
        if has("context.trace_id") && has("context.span_id") && (attributes || has("attributes")) {
            return Some("has columns context.trace_id, context.span_id and attributes".to_owned());
        }
        let nested = has("context") && has("attributes") && is_span(sample.document);
        return nested.then(|| "has columns context and attributes".to_owned());
    }
    if is_span(sample.document) {
        return Some("has context.trace_id, context.span_id and attributes".to_owned());
    }
    for name in ["data", "spans"] {
        if sample.document.get(name).is_some_and(are_spans) {
            return Some(format!("has {name}[] with context.trace_id and attributes"));
        }
    }
    let members = sample.document.as_object()?;
    let lists = !members.is_empty() && members.values().all(are_spans);
    lists.then(|| "is lists of spans with context.trace_id and attributes".to_owned())
}

fn is_span(document: &Value) -> bool {
    let id = |name: &str| at(document, name).is_some_and(Value::is_string);
    let Some(members) = document.as_object() else {
        return false;
    };
    id("context.trace_id")
        && id("context.span_id")
        && (members.contains_key("attributes")
            || members.keys().any(|k| k.starts_with("attributes.")))
}

fn are_spans(list: &Value) -> bool {
    let first = list.as_array().and_then(|spans| spans.first());
    first.is_some_and(is_span)
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(members) = document else {
        return Err("it is no span: not an object".to_owned());
    };
    if at_member(&members, "context.trace_id").is_some() {
        let span = raw(members, &mut parts.unknown)?;
        parts.spans.push(span.0.facts(&span.1)?);
        return Ok(());
    }
    let mut lists = 0;
    for (name, list) in members {
        let Value::Array(spans) = list else {
            continue;
        };
        lists += 1;
        for span in spans {
            let Value::Object(members) = span else {
                return Err(format!("an element of {name:?} is no span"));
            };
            let span = raw(members, &mut parts.unknown);
            parts.span_or_problem(span.and_then(|(span, resource)| span.facts(&resource)));
        }
    }
    if lists == 0 {
        return Err("there is neither context.trace_id nor a list of spans in it".to_owned());
    }
    Ok(())
}

/// A member at a dotted path of an object that isn't a value yet.
fn at_member<'m>(members: &'m Map<String, Value>, path: &str) -> Option<&'m Value> {
    match members.get(path) {
        Some(found) => (!found.is_null()).then_some(found),
        None => {
            let (head, rest) = path.split_once('.')?;
            at(members.get(head)?, rest)
        }
    }
}

/// Members that are read, or known to tell nothing of use.
const KNOWN: [&str; 15] = [
    "name",
    "context",
    "parent_id",
    "parent",
    "start_time",
    "end_time",
    "status",
    "status_code",
    "status_message",
    "span_kind",
    "events",
    "attributes",
    "resource",
    "id",
    "kind",
];

fn raw(
    members: Map<String, Value>,
    unknown: &mut Vec<String>,
) -> Result<(RawSpan, Resource), String> {
    let member = |paths: &[&str]| {
        paths
            .iter()
            .find_map(|path| at_member(&members, path))
            .cloned()
    };
    let trace_id = text(member(&["context.trace_id"]).as_ref());
    let span_id = text(member(&["context.span_id"]).as_ref());
    let parent = text(member(&["parent_id", "parent.span_id"]).as_ref());
    let code = member(&["status_code", "status.status_code"]);
    let message = member(&["status_message", "status.description"]);
    let resource = object(at_member(&members, "resource.attributes")).unwrap_or_default();
    let mut span = RawSpan {
        trace_id: trace_id.unwrap_or_default(),
        span_id: span_id.unwrap_or_default(),
        parent_span_id: parent,
        name: text(members.get("name")).unwrap_or_default(),
        kind: text(members.get("span_kind")),
        started_at: time("start_time", members.get("start_time"))?,
        ended_at: time("end_time", members.get("end_time"))?,
        status: status(code.as_ref()),
        status_message: text(message.as_ref()),
        ..RawSpan::default()
    };
    for (name, value) in members {
        if let Some(attribute) = name.strip_prefix("attributes.") {
            if !value.is_null() {
                span.attributes.insert(attribute.to_owned(), value);
            }
        } else if name == "attributes" {
            match unwrapped(value) {
                Value::Object(attributes) => span.attributes.extend(attributes),
                Value::Null => {}
                _ => return Err("attributes are no object".to_owned()),
            }
        } else if name == "events" {
            span.events = events(value);
        } else if !KNOWN.contains(&name.as_str())
            && !name.starts_with("context.")
            && !name.starts_with("__")
        {
            unknown.push(name);
        }
    }
    Ok((span, Resource::new(resource)))
}

fn events(list: Value) -> Vec<Event> {
    let Value::Array(items) = unwrapped(list) else {
        return Vec::new();
    };
    items
        .iter()
        .map(|event| Event {
            name: text(event.get("name")).unwrap_or_default(),
            attributes: object(event.get("attributes")).unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn parts(document: Value) -> Parts {
        let mut parts = Parts::default();
        read(document, &Place { stem: "p", row: 0 }, &mut parts).unwrap();
        parts
    }

    fn span() -> Value {
        json!({
            "name": "agent", "context": {"trace_id": "t", "span_id": "s"}, "span_kind": "AGENT",
            "parent_id": null, "start_time": "2025-01-01T00:00:00+00:00", "end_time": "2025-01-01 00:00:01.5+00:00",
            "status_code": "ERROR", "status_message": "",
            "attributes": {"session.id": "c", "input.value": "Q", "output.value": "A", "user": {"id": "u"}},
            "events": [{"name": "exception", "attributes": {"exception.message": "broke"}}], "odd": 1,
        })
    }

    #[test]
    fn spans_are_read_alone_in_lists_and_as_rows() {
        let row = json!({
            "name": "agent", "context.trace_id": "t", "context.span_id": "s", "span_kind": "AGENT",
            "parent_id": null, "start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-01T00:00:01.5Z",
            "status_code": "ERROR", "attributes.session.id": "c", "attributes.input.value": "Q",
            "attributes.output.value": "A", "attributes.user.id": "u", "attributes.llm.model_name": null,
            "events": "[{\"name\": \"exception\", \"attributes\": {\"exception.message\": \"broke\"}}]", "odd": 2,
        });
        for document in [
            span(),
            json!({"data": [span()], "next_cursor": null}),
            json!({"spans": [span()]}),
            json!({"one": [span()]}),
            row,
        ] {
            let sample = Sample {
                file_name: "p.json",
                document: &document,
                columns: &[],
            };
            assert!(recognise(&sample).is_some(), "{document}");
            let parts = parts(document);
            let [span] = parts.spans.as_slice() else {
                panic!("{parts:?}")
            };
            assert_eq!(
                (span.of.trace_id.as_str(), span.span_id.as_str()),
                ("t", "s")
            );
            assert_eq!(span.kind, kind::AGENT);
            assert_eq!(span.of.session_id.as_deref(), Some("c"));
            assert_eq!(span.of.user_id.as_deref(), Some("u"));
            assert_eq!(span.input.as_ref().unwrap().raw, "Q");
            assert_eq!(span.error.as_deref(), Some("broke"));
            assert_eq!(
                span.ended_at.unwrap() - span.started_at.unwrap(),
                1_500_000_000
            );
            assert_eq!(parts.unknown, ["odd"]);
        }
    }

    #[test]
    fn spans_of_pythons_sdk_are_read() {
        let parts = parts(json!({
            "name": "chat", "context": {"trace_id": "0x5b8efff798038103d269b633813fc60c", "span_id": "0xeee19b7ec3c1b174", "trace_state": "[]"},
            "kind": "SpanKind.INTERNAL", "parent_id": "0xeee19b7ec3c1b173",
            "status": {"status_code": "ERROR", "description": "no"},
            "attributes": {"gen_ai.operation.name": "chat"}, "events": [],
            "resource": {"attributes": {"service.version": "4"}},
        }));
        let span = &parts.spans[0];
        assert_eq!(span.of.trace_id, "5b8efff798038103d269b633813fc60c");
        assert_eq!(span.parent_span_id.as_deref(), Some("eee19b7ec3c1b173"));
        assert_eq!(
            (span.kind.as_str(), span.error.as_deref()),
            (kind::LLM, Some("no"))
        );
        assert_eq!(span.of.release.as_deref(), Some("4"));
    }

    #[test]
    fn tables_are_recognised_by_their_columns() {
        let recognised = |columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
            let sample = Sample {
                file_name: "p.parquet",
                document: &Value::Null,
                columns: &columns,
            };
            recognise(&sample).is_some()
        };
        assert!(recognised(&[
            "name",
            "context.trace_id",
            "context.span_id",
            "attributes.input.value"
        ]));
        assert!(!recognised(&[
            "name",
            "context.trace_id",
            "attributes.input.value"
        ]));
        assert!(!recognised(&["trace_id", "input", "output"]));
    }
}
