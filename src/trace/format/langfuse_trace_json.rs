//! A whole trace of Langfuse: the file that its page of a trace saves (`{trace, observations}`), and the record of its
//! API (a trace that holds its observations).
//!
//! In the page's file the trace's own input and output are JSON in text once more: a text is in quotes.

use serde_json::Value;

use super::cell::Cell;
use super::langfuse_observations::observation;
use super::langfuse_row::Row;
use super::langfuse_traces::trace;
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static LANGFUSE_TRACE: Format = Format {
    name: "langfuse-trace",
    title: "Langfuse trace JSON (downloaded from its page, or from its API)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "trace.id"),
        (
            "session_id, user_id, project_id",
            "trace.sessionId, userId, projectId",
        ),
        ("name, tags, environment", "trace.name, tags, environment"),
        ("started_at", "trace.timestamp"),
        ("release", "trace.release, else version"),
        (
            "input, output",
            "trace.input, output; else of the root observation, else of its generations",
        ),
        (
            "spans",
            "observations[], as of the export: id, parentObservationId, type, name, input, output, level, …",
        ),
    ],
};

/// The record of the trace, and whether it is the page's file.
fn record(document: &Value) -> Option<(&Value, bool)> {
    let list = document.get("observations")?.as_array()?;
    let observed = |value: &Value| value.get("traceId").is_some() && value.get("type").is_some();
    let named = |value: &Value| value.get("id").is_some() && value.get("timestamp").is_some();
    if let Some(trace) = document.get("trace") {
        return (named(trace) && list.iter().all(observed)).then_some((trace, true));
    }
    (named(document) && !list.is_empty() && list.iter().all(observed)).then_some((document, false))
}

fn recognise(sample: &Sample<'_>) -> Option<String> {
    record(sample.document).map(|(_, of_page)| {
        if of_page {
            "has trace.timestamp and observations[].traceId".to_owned()
        } else {
            "has timestamp and observations[].traceId".to_owned()
        }
    })
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let (Some((record, of_page)), Some(Value::Array(observations))) =
        (record(&document), document.get("observations"))
    else {
        return Err(
            "has no `trace` beside `observations`: save the trace again from Langfuse's page of it"
                .to_owned(),
        );
    };
    let members = record
        .as_object()
        .ok_or("has a `trace` that is no object")?;
    let cell: fn(Option<&Value>) -> Option<Cell> = if of_page { Cell::encoded } else { Cell::new };
    let facts = trace(&Row::new(members), cell)?;
    let trace_id = facts.trace_id.clone();
    parts.trace(facts);
    for (at, one) in observations.iter().enumerate() {
        let Value::Object(members) = one else {
            return Err(format!("observations[{at}] is no object"));
        };
        let mut span = observation(&Row::new(members), Some(&trace_id))
            .map_err(|error| format!("observations[{at}] {error}"))?;
        if span.of.trace_id != trace_id {
            return Err(format!(
                "observations[{at}] is of trace {}, not of {trace_id}: save each trace to a file of its own",
                span.of.trace_id
            ));
        }
        // The record of the trace has it.
        span.of.metadata.clear();
        parts.span(span);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    fn observed(id: &str, parent: Option<&str>, kind: &str) -> Value {
        json!({"id": id, "traceId": "t", "startTime": "2026-03-01T10:00:00Z", "endTime": "2026-03-01T10:00:01Z",
            "projectId": "p", "parentObservationId": parent, "type": kind, "name": id, "level": "DEFAULT",
            "input": null, "output": null, "model": null, "usageDetails": {}, "totalCost": 0})
    }

    fn file() -> Value {
        let mut answer = observed("answer", Some("root"), "GENERATION");
        answer["input"] = json!("[{\"role\":\"user\",\"content\":\"hi\"}]");
        answer["output"] = json!("hello");
        answer["model"] = json!("gpt-x");
        answer["usageDetails"] = json!({"input": 4, "output": 2, "total": 6});
        answer["totalCost"] = json!(0.5);
        json!({
            "trace": {"id": "t", "projectId": "p", "name": "chat", "timestamp": "2026-03-01T10:00:00Z", "tags": [],
                "environment": "default", "release": null, "version": null, "userId": "u", "sessionId": "s",
                "input": "\"hi\"", "output": "\"{\\\"answer\\\":\\\"hello\\\"}\"", "metadata": "{\"a\":1,\"scope\":{}}"},
            "observations": [observed("root", None, "SPAN"), answer],
        })
    }

    fn sample(document: &Value) -> Option<String> {
        recognise(&Sample {
            file_name: "t.json",
            document,
            columns: &[],
        })
    }

    #[test]
    fn a_file_of_the_page_is_read() {
        let mut parts = Parts::default();
        let place = Place { stem: "f", row: 0 };
        assert!(sample(&file()).is_some());
        read(file(), &place, &mut parts).unwrap();
        let facts = &parts.traces[0];
        assert_eq!(facts.session_id.as_deref(), Some("s"));
        assert_eq!(facts.input.as_ref().unwrap().raw, "hi");
        assert_eq!(
            facts.output.as_ref().unwrap().said.as_deref(),
            Some("hello")
        );
        assert_eq!(Value::Object(facts.metadata.clone()), json!({"a": 1}));
        let answer = &parts.spans[1];
        assert_eq!(answer.kind, kind::LLM);
        assert_eq!(answer.parent_span_id.as_deref(), Some("root"));
        assert_eq!(answer.model.as_deref(), Some("gpt-x"));
        assert_eq!(
            (answer.prompt_tokens, answer.completion_tokens),
            (Some(4), Some(2))
        );
        assert_eq!(
            (answer.cost_usd, parts.spans[0].cost_usd),
            (Some(0.5), None)
        );
    }

    #[test]
    fn a_record_of_the_api_is_read_and_foreign_observations_are_refused() {
        let file = file();
        let mut record = file["trace"].clone();
        record["observations"] = file["observations"].clone();
        record["input"] = json!("\"quoted\"");
        assert!(sample(&record).is_some());
        let mut parts = Parts::default();
        let place = Place { stem: "f", row: 0 };
        read(record.clone(), &place, &mut parts).unwrap();
        assert_eq!(parts.traces[0].input.as_ref().unwrap().raw, "\"quoted\"");
        record["observations"][1]["traceId"] = json!("other");
        let error = read(record.clone(), &place, &mut parts).unwrap_err();
        assert!(
            error.contains("observations[1]") && error.contains("other"),
            "{error}"
        );
        record["observations"] = json!(["id"]);
        assert!(sample(&record).is_none());
    }
}
