//! OpenTelemetry: OTLP over HTTP as JSON. Ended spans are never changed, so that each score is a span of its own, of kind
//! `EVALUATOR`, which names its target by its one span link (a trace) or by `session.id`, as OpenInference says.
//!
//! A run knows no span ids. The link's trace id names the target; its span id is made of that, and is no span there.
//! A score that changed is another span, with the identifier of the first.

use serde_json::{Value, json};

use super::score::{Level, Score, hash_of, hex_id, hex_of};
use super::stored_scores::RunFacts;
use super::wire::{Account, Faults, Variable, Wire};
use super::{ExportError, OtelForm};

const LOCAL: &str = "http://localhost:4318";
const TRACES: &str = "/v1/traces";

pub(super) struct Otel {
    pub form: OtelForm,
}

impl Wire for Otel {
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String> {
        let links = match score.level {
            Level::Session => Vec::new(),
            Level::Trace => {
                let trace = hex_id(&score.target_id).ok_or(
                    "the trace's id is none of OpenTelemetry's (32 hexadecimal digits), so that no span can link it",
                )?;
                let span = &hex_of(&hash_of([Some("target"), Some(trace.as_str())]))[..16];
                vec![json!({"traceId": trace, "spanId": span})]
            }
        };
        let mut attributes = vec![
            text("openinference.span.kind", "EVALUATOR"),
            text("nightmill.run", &run.name),
        ];
        let session = match score.level {
            Level::Session => Some(score.target_id.as_str()),
            Level::Trace => score.session_id.as_deref(),
        };
        attributes.extend(session.map(|session| text("session.id", session)));
        let mut events = Vec::new();
        let time = nanoseconds(run);
        match self.form {
            OtelForm::Annotations => attributes.extend(annotation(score)),
            OtelForm::Events => events.push(json!({
                "timeUnixNano": time,
                "name": "gen_ai.evaluation.result",
                "attributes": evaluation(score),
            })),
        }
        let span = hash_of([
            Some("carrier"),
            Some(score.id.as_str()),
            Some(score.digest.as_str()),
        ]);
        Ok(json!({
            "traceId": hex_of(&hash_of([Some("carriers"), Some(score.id.as_str())])),
            "spanId": &hex_of(&span)[..16],
            "name": format!("{} evaluation", score.metric),
            "kind": 1,
            "startTimeUnixNano": time,
            "endTimeUnixNano": time,
            "attributes": attributes,
            "events": events,
            "links": links,
            "status": {},
        }))
    }

    fn line(&self, body: Value) -> Value {
        self.request(&[&body])
    }

    fn path(&self, _: Level) -> String {
        "v1/traces".into()
    }

    fn most(&self) -> usize {
        200
    }

    fn request(&self, bodies: &[&Value]) -> Value {
        json!({"resourceSpans": [{
            "resource": {"attributes": [text("service.name", "nightmill")]},
            "scopeSpans": [{
                "scope": {"name": "nightmill", "version": env!("CARGO_PKG_VERSION")},
                "spans": bodies,
            }],
        }]})
    }

    fn faults(&self, answer: &Value, _: &[&Value]) -> Faults {
        let partial = &answer["partialSuccess"];
        let rejected = &partial["rejectedSpans"];
        // 64-bit integers of protocol buffers are texts in JSON.
        let text = rejected.as_str().and_then(|text| text.parse().ok());
        Faults {
            at: Vec::new(),
            again: Vec::new(),
            unplaced: rejected.as_u64().or(text).unwrap_or(0),
            message: partial["errorMessage"].as_str().map(str::to_owned),
        }
    }

    fn looks_up_targets(&self) -> bool {
        false
    }

    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError> {
        let given = url.map(str::to_owned);
        let of_traces = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let url = match given.is_none().then_some(of_traces).flatten() {
            Some(url) if !url.trim_end_matches('/').ends_with(TRACES) => {
                return Err(ExportError::Request(
                    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected a URL that ends with /v1/traces; name another with --endpoint".into(),
                ));
            }
            of_traces => given
                .or(of_traces)
                .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"))
                .unwrap_or_else(|| LOCAL.into()),
        };
        let url = url.trim_end_matches('/').trim_end_matches(TRACES);
        let mut headers = headers_of(variable, "OTEL_EXPORTER_OTLP_HEADERS")?;
        for (name, value) in headers_of(variable, "OTEL_EXPORTER_OTLP_TRACES_HEADERS")? {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            headers.push((name, value));
        }
        Ok(Account::of_headers(url, headers))
    }
}

/// Headers in a variable: `name=value,name=value`, percent-encoded.
pub(super) fn headers_of(
    variable: Variable<'_>,
    name: &str,
) -> Result<Vec<(String, String)>, ExportError> {
    let Some(text) = variable(name) else {
        return Ok(Vec::new());
    };
    let decoded = |text: &str| {
        let decoded = percent_encoding::percent_decode_str(text.trim());
        decoded.decode_utf8_lossy().into_owned()
    };
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => Ok((decoded(name), decoded(value))),
            // The text may be a key.
            _ => Err(ExportError::Request(format!(
                "{name}: expected name=value, and commas between them"
            ))),
        })
        .collect()
}

/// The attributes of an annotation of OpenInference.
fn annotation(score: &Score) -> Vec<Value> {
    let key = |name: &str| format!("{}.annotations.0.annotation.{name}", score.level.name());
    let metadata = Value::Object(score.metadata()).to_string();
    let mut attributes = vec![text(&key("name"), &score.metric)];
    attributes.extend(score.scored.number().map(|n| double(&key("score"), n)));
    attributes.extend(score.label().map(|label| text(&key("label"), label)));
    attributes.extend(
        score
            .comment()
            .map(|reason| text(&key("explanation"), reason)),
    );
    attributes.extend([
        text(&key("annotator_kind"), score.annotator.name()),
        text(&key("identifier"), &score.id),
        text(&key("metadata"), &metadata),
    ]);
    attributes
}

/// The attributes of an evaluation of the GenAI conventions; what they have no name for stays under that of OpenInference.
fn evaluation(score: &Score) -> Vec<Value> {
    let mut attributes = vec![text("gen_ai.evaluation.name", &score.metric)];
    let number = score.scored.number();
    attributes.extend(number.map(|n| double("gen_ai.evaluation.score.value", n)));
    let label = score.label();
    attributes.extend(label.map(|label| text("gen_ai.evaluation.score.label", label)));
    let reason = score.comment();
    attributes.extend(reason.map(|reason| text("gen_ai.evaluation.explanation", reason)));
    attributes.extend([
        text("annotation.scope", score.level.name()),
        text("annotation.annotator_kind", score.annotator.name()),
        text("annotation.identifier", &score.id),
    ]);
    attributes
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn double(key: &str, value: f64) -> Value {
    json!({"key": key, "value": {"doubleValue": value}})
}

/// When the run was finished: the same in every export of it.
fn nanoseconds(run: &RunFacts) -> String {
    let micros = run.created_at.timestamp_micros();
    (i128::from(micros) * 1000).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::score::{example, judged_example};
    use super::super::wire::facts;
    use super::*;

    fn attribute<'v>(span: &'v Value, key: &str) -> &'v Value {
        let attributes = span["attributes"].as_array().unwrap();
        let found = attributes.iter().find(|attribute| attribute["key"] == key);
        found.map_or(&Value::Null, |attribute| &attribute["value"])
    }

    const ANNOTATIONS: Otel = Otel {
        form: OtelForm::Annotations,
    };

    #[test]
    fn a_carrier_links_its_trace_once_and_holds_the_annotation() {
        let span = ANNOTATIONS.body(&example(), &facts()).unwrap();
        let links = span["links"].as_array().unwrap();
        assert_eq!(links.len(), 1);
        assert_eq!(links[0]["traceId"], "80f198ee56343ba864fe8b2a57d3eff7");
        assert_eq!(links[0]["spanId"].as_str().unwrap().len(), 16);
        assert_ne!(span["traceId"], links[0]["traceId"]);
        assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
        assert_eq!(span["startTimeUnixNano"], "1767225600000000000");
        let of = |name: &str| attribute(&span, &format!("trace.annotations.0.annotation.{name}"));
        assert_eq!(of("name")["stringValue"], "coherence");
        assert_eq!(of("score")["doubleValue"], 0.75);
        assert_eq!(of("label")["stringValue"], "pass");
        assert_eq!(of("explanation")["stringValue"], "It answers.");
        assert_eq!(of("annotator_kind")["stringValue"], "CODE");
        assert_eq!(of("identifier")["stringValue"], example().id.as_str());
        let metadata = of("metadata")["stringValue"].as_str().unwrap();
        let metadata: Value = serde_json::from_str(metadata).unwrap();
        assert_eq!(metadata["threshold"], 0.5);
        assert_eq!(
            attribute(&span, "openinference.span.kind")["stringValue"],
            "EVALUATOR"
        );
        assert_eq!(span, ANNOTATIONS.body(&example(), &facts()).unwrap());
        let changed = Score {
            digest: "d2".into(),
            ..example()
        };
        let changed = ANNOTATIONS.body(&changed, &facts()).unwrap();
        assert_ne!(changed["spanId"], span["spanId"]);
        assert_eq!(changed["traceId"], span["traceId"]);
        let line = ANNOTATIONS.line(span.clone());
        assert_eq!(
            line["resourceSpans"][0]["scopeSpans"][0]["spans"],
            json!([span])
        );
    }

    #[test]
    fn a_session_is_named_by_its_id_and_an_event_may_carry_the_score() {
        let otel = Otel {
            form: OtelForm::Events,
        };
        let span = otel.body(&judged_example(), &facts()).unwrap();
        assert_eq!(span["links"], json!([]));
        assert_eq!(attribute(&span, "session.id")["stringValue"], "s-1");
        let event = &span["events"][0];
        assert_eq!(event["name"], "gen_ai.evaluation.result");
        assert_eq!(
            attribute(event, "gen_ai.evaluation.score.value")["doubleValue"],
            0.25
        );
        assert_eq!(
            attribute(event, "gen_ai.evaluation.score.label")["stringValue"],
            "fail"
        );
        assert_eq!(
            attribute(event, "annotation.annotator_kind")["stringValue"],
            "LLM"
        );
        assert!(attribute(&span, "session.annotations.0.annotation.name").is_null());
        let annotated = ANNOTATIONS.body(&judged_example(), &facts()).unwrap();
        let name = attribute(&annotated, "session.annotations.0.annotation.name");
        assert_eq!(name["stringValue"], "conversation");
    }

    #[test]
    fn dashes_go_and_other_ids_are_refused() {
        let dashed = Score {
            target_id: "80F198EE-5634-3ba8-64fe-8b2a57d3eff7".into(),
            ..example()
        };
        let span = ANNOTATIONS.body(&dashed, &facts()).unwrap();
        assert_eq!(
            span["links"][0]["traceId"],
            "80f198ee56343ba864fe8b2a57d3eff7"
        );
        let other = Score {
            target_id: "t-1".into(),
            ..example()
        };
        assert!(ANNOTATIONS.body(&other, &facts()).is_err());
    }

    #[test]
    fn rejected_spans_are_counted() {
        let answer = json!({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}});
        let faults = ANNOTATIONS.faults(&answer, &[]);
        assert_eq!(
            (faults.unplaced, faults.message.as_deref()),
            (3, Some("too old"))
        );
        assert_eq!(
            ANNOTATIONS
                .faults(&json!({"partialSuccess": {}}), &[])
                .unplaced,
            0
        );
    }

    #[test]
    fn headers_are_decoded_and_never_shown_in_errors() {
        let variable = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_HEADERS" => Some("api-key=a%20b, x = y".to_owned()),
            "BROKEN" => Some("sk-secret".to_owned()),
            _ => None,
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = headers_of(&variable, "OTEL_EXPORTER_OTLP_HEADERS").unwrap();
        assert_eq!(headers, [pair("api-key", "a b"), pair("x", "y")]);
        let error = headers_of(&variable, "BROKEN").unwrap_err().to_string();
        assert!(
            error.contains("BROKEN") && !error.contains("secret"),
            "{error}"
        );
        let account = ANNOTATIONS
            .account(Some("http://h:4318/v1/traces/"), &variable)
            .unwrap();
        assert_eq!(account.endpoint.url, "http://h:4318");
    }
}
