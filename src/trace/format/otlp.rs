//! OTLP/JSON: what OpenTelemetry's collector writes, one export a line (`resourceSpans[].scopeSpans[].spans[]`).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::otel_span::{Event, RawSpan, Resource, parent, status, wanted};
use super::values::time;
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "otlp",
    title: "OpenTelemetry, OTLP/JSON",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: Some(read_bytes),
    mapping: MAPPING,
};

pub(super) const MAPPING: &[(&str, &str)] = &[
    ("trace_id", "spans[].traceId"),
    (
        "session_id",
        "attributes session.id, gen_ai.conversation.id, …",
    ),
    ("user_id", "attributes user.id, enduser.id, …"),
    (
        "project_id",
        "resource attribute openinference.project.name",
    ),
    (
        "environment",
        "resource attribute deployment.environment.name or deployment.environment",
    ),
    ("release", "resource attribute service.version"),
    ("started_at", "spans[].startTimeUnixNano"),
    ("ended_at", "spans[].endTimeUnixNano"),
    ("status", "spans[].status.code"),
    ("error", "spans[].status.message, else the exception event"),
    (
        "input",
        "gen_ai.input.messages, gen_ai.prompt, llm.input_messages, input.value, events, …",
    ),
    (
        "output",
        "gen_ai.output.messages, gen_ai.completion, llm.output_messages, output.value, events, …",
    ),
    (
        "model",
        "gen_ai.response.model, gen_ai.request.model, llm.model_name",
    ),
    (
        "prompt_tokens",
        "gen_ai.usage.input_tokens, llm.token_count.prompt, …",
    ),
    (
        "completion_tokens",
        "gen_ai.usage.output_tokens, llm.token_count.completion, …",
    ),
    ("cost_usd", "llm.cost.total, gen_ai.usage.cost"),
    ("spans", "spans[]; tools by gen_ai.tool.* or tool.*"),
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if !sample.columns.is_empty() {
        return None;
    }
    for name in ["resourceSpans", "resource_spans"] {
        if sample.document.get(name).is_some_and(Value::is_array) {
            return Some(format!("has {name}[].scopeSpans[].spans[]"));
        }
    }
    // The collector may write all signals to one file.
    let signal = ["resourceLogs", "resourceMetrics"]
        .iter()
        .find(|name| sample.document.get(**name).is_some_and(Value::is_array))?;
    Some(format!("has {signal}[], as the collector's files do"))
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let export = Export::deserialize(document).map_err(|error| error.to_string())?;
    export.read(parts)
}

/// The same as [`read`] without a tree of the whole line.
pub(super) fn read_bytes(line: &[u8], _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let export: Export<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    export.read(parts)
}

/// One export. Members that are null are as good as missing.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Export<'j> {
    #[serde(borrow, alias = "resource_spans", alias = "batches")]
    resource_spans: Option<Vec<ResourceSpans<'j>>>,
    #[serde(alias = "resource_logs")]
    resource_logs: Option<serde::de::IgnoredAny>,
    #[serde(alias = "resource_metrics")]
    resource_metrics: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceSpans<'j> {
    #[serde(borrow)]
    resource: Option<ResourceAttributes<'j>>,
    #[serde(
        borrow,
        alias = "scope_spans",
        alias = "instrumentationLibrarySpans",
        alias = "ilSpans"
    )]
    scope_spans: Option<Vec<ScopeSpans<'j>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes<'j> {
    #[serde(borrow)]
    attributes: Option<Vec<KeyValue<'j>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScopeSpans<'j> {
    #[serde(borrow)]
    spans: Option<Vec<Span<'j>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Span<'j> {
    #[serde(borrow, alias = "trace_id")]
    trace_id: Option<Text<'j>>,
    #[serde(borrow, alias = "span_id")]
    span_id: Option<Text<'j>>,
    #[serde(borrow, alias = "parent_span_id")]
    parent_span_id: Option<Text<'j>>,
    name: Option<String>,
    #[serde(alias = "start_time_unix_nano")]
    start_time_unix_nano: Value,
    #[serde(alias = "end_time_unix_nano")]
    end_time_unix_nano: Value,
    #[serde(borrow)]
    attributes: Option<Vec<KeyValue<'j>>>,
    #[serde(borrow)]
    events: Option<Vec<SpanEvent<'j>>>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Value,
    message: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpanEvent<'j> {
    name: Option<String>,
    #[serde(borrow)]
    attributes: Option<Vec<KeyValue<'j>>>,
}

#[derive(Deserialize)]
struct KeyValue<'j> {
    #[serde(borrow)]
    key: Cow<'j, str>,
    #[serde(borrow, default)]
    value: Option<AnyValue<'j>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnyValue<'j> {
    #[serde(borrow, alias = "string_value")]
    string_value: Option<Text<'j>>,
    #[serde(alias = "int_value")]
    int_value: Option<Value>,
    #[serde(alias = "double_value")]
    double_value: Option<Value>,
    #[serde(alias = "bool_value")]
    bool_value: Option<bool>,
    #[serde(borrow, alias = "array_value")]
    array_value: Option<List<AnyValue<'j>>>,
    #[serde(borrow, alias = "kvlist_value")]
    kvlist_value: Option<List<KeyValue<'j>>>,
    #[serde(borrow, alias = "bytes_value")]
    bytes_value: Option<Text<'j>>,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    values: Vec<T>,
}

/// A text that stays where it is in the line until somebody wants it.
#[derive(Deserialize)]
struct Text<'j>(#[serde(borrow)] Cow<'j, str>);

impl AnyValue<'_> {
    fn value(self) -> Value {
        if let Some(Text(text)) = self.string_value {
            return Value::String(text.into_owned());
        }
        // 64-bit integers are text in protobuf's JSON.
        if let Some(number) = self.int_value.or(self.double_value) {
            return match number.as_str().map(str::parse::<i64>) {
                Some(Ok(integer)) => Value::from(integer),
                _ => number,
            };
        }
        if let Some(truth) = self.bool_value {
            return Value::Bool(truth);
        }
        if let Some(list) = self.array_value {
            return list.values.into_iter().map(AnyValue::value).collect();
        }
        if let Some(list) = self.kvlist_value {
            return Value::Object(map(list.values, |_| true));
        }
        match self.bytes_value {
            Some(Text(text)) => Value::String(text.into_owned()),
            None => Value::Null,
        }
    }
}

fn map(attributes: Vec<KeyValue<'_>>, wanted: fn(&str) -> bool) -> Map<String, Value> {
    attributes
        .into_iter()
        .filter(|attribute| wanted(&attribute.key))
        .map(|attribute| {
            let value = attribute.value.map_or(Value::Null, AnyValue::value);
            (attribute.key.into_owned(), value)
        })
        .collect()
}

impl Span<'_> {
    fn raw(self) -> Result<RawSpan, String> {
        let id = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned());
        let (code, message) = self
            .status
            .map_or((Value::Null, None), |status| (status.code, status.message));
        let events = self.events.into_iter().flatten().filter_map(|event| {
            let name = event.name?;
            let told = name == "exception" || name.starts_with("gen_ai.");
            told.then(|| Event {
                attributes: map(event.attributes.unwrap_or_default(), |_| true),
                name,
            })
        });
        Ok(RawSpan {
            trace_id: id(self.trace_id).unwrap_or_default(),
            span_id: id(self.span_id).unwrap_or_default(),
            parent_span_id: parent(id(self.parent_span_id)),
            name: self.name.unwrap_or_default(),
            kind: None,
            started_at: time("startTimeUnixNano", Some(&self.start_time_unix_nano))?,
            ended_at: time("endTimeUnixNano", Some(&self.end_time_unix_nano))?,
            status: status(Some(&code)),
            status_message: message,
            events: events.collect(),
            attributes: map(self.attributes.unwrap_or_default(), wanted),
        })
    }
}

impl Export<'_> {
    /// All spans; what is wrong with single ones is told, and the others are read.
    pub(super) fn read(self, parts: &mut Parts) -> Result<(), String> {
        let Some(resources) = self.resource_spans else {
            if self.resource_logs.is_none() && self.resource_metrics.is_none() {
                return Err("there is no `resourceSpans` in it".to_owned());
            }
            parts
                .unknown
                .push("resourceLogs, resourceMetrics".to_owned());
            return Ok(());
        };
        for of_resource in resources {
            let attributes = of_resource
                .resource
                .and_then(|resource| resource.attributes);
            let resource = Resource::new(map(attributes.unwrap_or_default(), wanted));
            for of_scope in of_resource.scope_spans.into_iter().flatten() {
                for span in of_scope.spans.into_iter().flatten() {
                    let facts = span.raw().and_then(|span| span.facts(&resource));
                    parts.span_or_problem(facts);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const PLACE: Place<'_> = Place { stem: "s", row: 0 };

    fn attribute(key: &str, text: &str) -> Value {
        json!({"key": key, "value": {"stringValue": text}})
    }

    fn export() -> Value {
        json!({"resourceSpans": [{
            "resource": {"attributes": [
                attribute("service.name", "shop"), attribute("service.version", "1.2"),
                attribute("deployment.environment.name", "prod"),
                attribute("openinference.project.name", "p"),
            ]},
            "scopeSpans": [{"scope": {"name": "x"}, "spans": [
                {
                    "traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "eee19b7ec3c1b174",
                    "parentSpanId": "", "name": "invoke_agent a", "kind": 1,
                    "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": 1544712661000000000_i64,
                    "attributes": [
                        attribute("gen_ai.operation.name", "invoke_agent"),
                        attribute("gen_ai.conversation.id", "c"),
                        attribute("user.id", "u"),
                        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [
                            {"kvlistValue": {"values": [
                                attribute("role", "user"), attribute("content", "Grüße \"q\" \u{1F600}\n"),
                            ]}}
                        ]}}},
                        {"key": "tag.tags", "value": {"arrayValue": {"values": [{"stringValue": "t"}]}}},
                        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
                        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": 3}},
                        {"key": "llm.cost.total", "value": {"doubleValue": 0.1}},
                        {"key": "gen_ai.request.stream", "value": {"boolValue": true}},
                        {"key": "gen_ai.empty"},
                        attribute("http.url", "not read"),
                    ],
                    "events": [{"timeUnixNano": "1", "name": "exception", "attributes": [attribute("exception.message", "broke")]}],
                    "status": {"code": 2},
                },
                {
                    "traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "7uGbfsPBsXM=", "parentSpanId": "7uGbfsPBsXQ=",
                    "name": "execute_tool f",
                    "attributes": [
                        attribute("gen_ai.operation.name", "execute_tool"),
                        {"key": "gen_ai.tool.call.arguments", "value": {"kvlistValue": {"values": [
                            {"key": "a", "value": {"intValue": 1}},
                        ]}}},
                    ],
                    "status": {"code": "STATUS_CODE_OK"}, "events": null,
                },
            ]}],
        }]})
    }

    fn both(document: &Value) -> (Parts, Parts) {
        let (mut of_tree, mut of_bytes) = (Parts::default(), Parts::default());
        read(document.clone(), &PLACE, &mut of_tree).unwrap();
        read_bytes(document.to_string().as_bytes(), &PLACE, &mut of_bytes).unwrap();
        (of_tree, of_bytes)
    }

    #[test]
    fn an_export_is_read() {
        let (parts, of_bytes) = both(&export());
        assert_eq!(parts.spans, of_bytes.spans);
        let [root, tool] = parts.spans.as_slice() else {
            panic!("{parts:?}")
        };
        assert_eq!(root.of.trace_id, "5b8efff798038103d269b633813fc60c");
        assert_eq!(
            (root.kind.as_str(), root.parent_span_id.as_ref()),
            (kind::AGENT, None)
        );
        assert_eq!(root.of.session_id.as_deref(), Some("c"));
        assert_eq!(root.of.user_id.as_deref(), Some("u"));
        assert_eq!(root.of.environment.as_deref(), Some("prod"));
        assert_eq!(root.of.release.as_deref(), Some("1.2"));
        assert_eq!(root.of.project_id.as_deref(), Some("p"));
        assert_eq!(root.of.tags, ["t"]);
        assert_eq!(root.of.metadata["service.name"], "shop");
        assert_eq!(root.started_at, Some(1_544_712_660_000_000_000));
        assert_eq!(root.ended_at, Some(1_544_712_661_000_000_000));
        assert_eq!(root.error.as_deref(), Some("broke"));
        assert_eq!(
            (root.prompt_tokens, root.completion_tokens),
            (Some(12), Some(3))
        );
        assert_eq!(root.cost_usd, Some(0.1));
        let input = root.input.as_ref().unwrap();
        assert_eq!(input.said.as_deref(), Some("Grüße \"q\" \u{1F600}\n"));

        assert_eq!(tool.of.trace_id, root.of.trace_id);
        assert_eq!(tool.parent_span_id.as_deref(), Some("eee19b7ec3c1b174"));
        assert_eq!((tool.kind.as_str(), tool.name.as_str()), (kind::TOOL, "f"));
        assert_eq!(tool.input.as_ref().unwrap().raw, r#"{"a":1}"#);
        assert_eq!(tool.status.as_deref(), Some("OK"));
    }

    #[test]
    fn snake_case_is_read_as_well() {
        let mut text = export().to_string();
        for (camel, snake) in [
            ("resourceSpans", "resource_spans"),
            ("scopeSpans", "scope_spans"),
            ("traceId", "trace_id"),
            ("parentSpanId", "parent_span_id"),
            ("spanId", "span_id"),
            ("startTimeUnixNano", "start_time_unix_nano"),
            ("endTimeUnixNano", "end_time_unix_nano"),
            ("stringValue", "string_value"),
            ("intValue", "int_value"),
            ("doubleValue", "double_value"),
            ("boolValue", "bool_value"),
            ("arrayValue", "array_value"),
            ("kvlistValue", "kvlist_value"),
        ] {
            text = text.replace(camel, snake);
        }
        let mut parts = Parts::default();
        read_bytes(text.as_bytes(), &PLACE, &mut parts).unwrap();
        assert_eq!(parts.spans, both(&export()).0.spans);
    }

    #[test]
    fn what_is_no_export_is_refused_and_other_signals_are_passed_over() {
        let mut parts = Parts::default();
        for wrong in ["{}", "{\"resourceSpans\": 1}", "["] {
            assert!(
                read_bytes(wrong.as_bytes(), &PLACE, &mut parts).is_err(),
                "{wrong}"
            );
        }
        assert!(read(json!({}), &PLACE, &mut parts).is_err());
        read_bytes(b"{\"resourceLogs\":[]}", &PLACE, &mut parts).unwrap();
        assert_eq!((parts.spans.len(), parts.unknown.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn both_ways_read_the_same(
            texts in proptest::collection::vec(any::<String>(), 4),
            integer in any::<i64>(),
            float in -1e12..1e12_f64,
            key in "(gen_ai|llm|input|ai|session)\\.[a-z.]{1,12}",
            said in "[a-z\"\\\\{}\\[\\]\u{e9}\u{1f600}]{0,12}",
        ) {
            let message = json!([{"role": "user", "content": said}, {"role": texts[0], "content": integer}]);
            let document = json!({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [{
                "traceId": format!("t{}", texts[1]), "spanId": format!("s{}", texts[2]), "name": texts[3],
                "startTimeUnixNano": integer, "endTimeUnixNano": integer.to_string(),
                "attributes": [
                    attribute("gen_ai.operation.name", "chat"),
                    attribute("gen_ai.input.messages", &message.to_string()),
                    attribute("gen_ai.completion.0.content", &texts[0]),
                    {"key": "gen_ai.usage.input_tokens", "value": {"intValue": integer}},
                    {"key": "gen_ai.usage.cost", "value": {"doubleValue": float}},
                    {"key": key, "value": {"arrayValue": {"values": [{"stringValue": said}, {"intValue": "7"}]}}},
                ],
                "status": {"code": integer % 3, "message": texts[1]},
            }]}]}]});
            let (of_tree, of_bytes) = both(&document);
            prop_assert_eq!(of_tree.spans, of_bytes.spans);
            prop_assert_eq!(of_tree.refused, of_bytes.refused);
        }
    }

    #[test]
    fn one_span_that_is_wrong_leaves_the_others() {
        for (member, wrong, words) in [
            ("traceId", json!(""), "no trace id"),
            ("traceId", json!(null), "no trace id"),
            ("spanId", json!(""), "no span id"),
            (
                "startTimeUnixNano",
                json!("soon"),
                "`startTimeUnixNano` is no time",
            ),
        ] {
            let mut document = export();
            document["resourceSpans"][0]["scopeSpans"][0]["spans"][1][member] = wrong;
            let mut parts = Parts::default();
            read(document, &PLACE, &mut parts).unwrap();
            assert_eq!(parts.spans.len(), 1, "{member}");
            let [problem] = parts.refused.as_slice() else {
                panic!("{:?}", parts.refused)
            };
            assert!(problem.contains(words), "{problem}");
        }
    }
}
