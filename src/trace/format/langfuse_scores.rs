//! Scores of Langfuse are recognised only to say that they are no traces.

use serde_json::Value;

use super::langfuse_row::has;
use super::{ArrayIs, Format, Parts, Place, Sample};

pub(super) static LANGFUSE_SCORES: Format = Format {
    name: "langfuse-scores",
    title: "Langfuse scores (no traces: refused)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let all = ["id", "trace_id", "name", "value", "data_type", "source"];
    let is_span = has(sample, "start_time");
    (all.iter().all(|name| has(sample, name)) && !is_span)
        .then(|| "has trace_id, name, value, data_type and source".to_owned())
}

fn read(_: Value, _: &Place<'_>, _: &mut Parts) -> Result<(), String> {
    Err("is a score of Langfuse, no trace: give the folder `observations_v2` of the same export, or `traces` and \
         `observations` together, and leave `scores` out"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scores_are_refused_with_what_to_do() {
        let score = json!({"id": "1", "timestamp": "2026-03-01 10:00:00.000000", "project_id": "p", "trace_id": "t",
            "observation_id": null, "session_id": null, "name": "helpful", "value": 1, "source": "API", "comment": null,
            "data_type": "NUMERIC", "string_value": null});
        let sample = Sample {
            file_name: "a.jsonl",
            document: &score,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        let error = read(score.clone(), &Place { stem: "a", row: 0 }, &mut parts).unwrap_err();
        assert!(error.contains("observations_v2"), "{error}");
    }
}
