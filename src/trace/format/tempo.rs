//! Traces as Grafana Tempo's interface and its exports give them: OTLP with `batches` in the place of `resourceSpans`.

use serde::Deserialize;
use serde_json::Value;

use super::otlp::{Export, MAPPING};
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static FORMAT: Format = Format {
    name: "tempo",
    title: "Grafana Tempo, trace JSON",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: MAPPING,
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    if !sample.columns.is_empty() {
        return None;
    }
    let document = sample.document;
    if document.get("batches").is_some_and(of_spans) {
        return Some("has batches[] of spans with their resource".to_owned());
    }
    let trace = document.get("trace")?;
    let name = ["resourceSpans", "batches"]
        .into_iter()
        .find(|name| trace.get(*name).is_some_and(of_spans))?;
    Some(format!("has trace.{name}[] of spans with their resource"))
}

fn of_spans(batches: &Value) -> bool {
    let Some(batches) = batches.as_array() else {
        return false;
    };
    batches.iter().all(|batch| {
        ["scopeSpans", "instrumentationLibrarySpans", "ilSpans"]
            .iter()
            .any(|name| batch.get(*name).is_some())
    })
}

fn read(mut document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    // The second version of the interface puts it into `trace`.
    if let Some(trace) = document.get_mut("trace").filter(|trace| trace.is_object()) {
        document = trace.take();
    }
    let export = Export::deserialize(document).map_err(|error| error.to_string())?;
    export.read(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn batches_are_read_in_both_versions() {
        let batches = json!([{
            "resource": {"attributes": [{"key": "service.version", "value": {"stringValue": "2"}}]},
            "instrumentationLibrarySpans": [{"spans": [{
                "traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "7uGbfsPBsXM=", "name": "x",
                "startTimeUnixNano": 1544712660000000000_i64, "status": {"code": 0, "message": ""},
            }]}],
        }]);
        for document in [
            json!({"batches": batches}),
            json!({"trace": {"batches": batches}}),
            json!({"trace": {"resourceSpans": batches}, "metrics": {}}),
        ] {
            let sample = Sample {
                file_name: "t.json",
                document: &document,
                columns: &[],
            };
            assert!(recognise(&sample).is_some());
            let mut parts = Parts::default();
            read(document, &Place { stem: "t", row: 0 }, &mut parts).unwrap();
            let [span] = parts.spans.as_slice() else {
                panic!("{parts:?}")
            };
            assert_eq!(span.of.trace_id, "5b8efff798038103d269b633813fc60c");
            assert_eq!(span.span_id, "eee19b7ec3c1b173");
            assert_eq!(
                (span.status.as_deref(), span.error.as_deref()),
                (None, None)
            );
            assert_eq!(span.of.release.as_deref(), Some("2"));
        }
    }
}
