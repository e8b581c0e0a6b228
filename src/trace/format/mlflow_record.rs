//! What is known of an MLflow trace as a whole: of version 2 (`request_id`, `request_metadata`, `timestamp_ms`) and 3
//! (`trace_id`, `trace_metadata`, `request_time`), in a row of `search_traces` or in `info` of a trace's JSON.

use serde_json::{Map, Value};

use super::TraceFacts;
use super::cell::Cell;
use super::values::{amount, at, count, number, object, text, time, unwrapped};

/// A value that is JSON in text, of whatever kind; other text as it is.
pub(super) fn decoded(value: Option<&Value>) -> Option<Value> {
    match value? {
        Value::Null => None,
        Value::String(written) => {
            Some(serde_json::from_str(written).unwrap_or_else(|_| Value::String(written.clone())))
        }
        other => Some(other.clone()),
    }
}

/// A duration: `2.5s`, or a count of milliseconds.
fn duration(record: &Map<String, Value>) -> Option<i64> {
    for name in [
        "execution_duration_ms",
        "execution_duration",
        "execution_time_ms",
    ] {
        let Some(value) = record.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        let seconds = value
            .as_str()
            .and_then(|text| text.strip_suffix('s')?.parse().ok());
        let milliseconds = seconds
            .map(|seconds: f64| seconds * 1e3)
            .or_else(|| number(Some(value)))?;
        return (0.0..9e12)
            .contains(&milliseconds)
            .then_some((milliseconds * 1e6) as i64);
    }
    None
}

/// The facts of a record; payloads come from elsewhere.
pub(super) fn facts(record: &Map<String, Value>) -> Result<TraceFacts, String> {
    let trace_id = text(record.get("trace_id"))
        .or_else(|| text(record.get("request_id")))
        .ok_or("has neither trace_id nor request_id: a trace of MLflow needs one")?;
    let kept = object(record.get("trace_metadata"))
        .or_else(|| object(record.get("request_metadata")))
        .unwrap_or_default();
    let tags = object(record.get("tags")).unwrap_or_default();
    let told = |name: &str| text(kept.get(name)).or_else(|| text(tags.get(name)));
    let started_at = match time("request_time", record.get("request_time"))? {
        Some(found) => Some(found),
        None => time("timestamp_ms", record.get("timestamp_ms"))?,
    };
    let ended_at = started_at.and_then(|start| start.checked_add(duration(record)?));
    let status = text(record.get("state")).or_else(|| text(record.get("status")));
    let usage = decoded(kept.get("mlflow.trace.tokenUsage"));
    let usage = |name: &str| count(usage.as_ref()?.get(name));
    let cost = decoded(kept.get("mlflow.trace.cost"));
    let (expected, expectations) = expectations(record.get("assessments"));
    let mut metadata = others(&kept);
    if !expectations.is_empty() && expected.is_none() {
        metadata.insert("expectations".to_owned(), Value::Object(expectations));
    }
    Ok(TraceFacts {
        trace_id,
        session_id: told("mlflow.trace.session"),
        project_id: record
            .get("trace_location")
            .and_then(|location| text(at(location, "mlflow_experiment.experiment_id")))
            .or_else(|| text(record.get("experiment_id"))),
        name: told("mlflow.traceName"),
        started_at,
        ended_at,
        status: status
            .map(|status| status.trim_start_matches("TraceStatus.").to_owned())
            .filter(|status| !status.ends_with("UNSPECIFIED")),
        environment: ["environment", "deployment.environment"]
            .iter()
            .find_map(|name| told(name)),
        release: told("mlflow.modelId").or_else(|| told("mlflow.source.git.commit")),
        user_id: told("mlflow.trace.user"),
        prompt_tokens: usage("input_tokens"),
        completion_tokens: usage("output_tokens"),
        cost_usd: cost
            .as_ref()
            .and_then(|cost| amount(cost.get("total_cost"))),
        expected,
        tags: others(&tags)
            .iter()
            .map(|(name, value)| match text(Some(value)) {
                Some(value) => format!("{name}={value}"),
                None => name.clone(),
            })
            .collect(),
        metadata,
        ..TraceFacts::default()
    })
}

/// What users wrote: everything without MLflow's prefix.
fn others(members: &Map<String, Value>) -> Map<String, Value> {
    members
        .iter()
        .filter(|(name, value)| !name.starts_with("mlflow.") && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Names of expectations that are the reference answer, the more telling first.
const REFERENCE: [&str; 5] = [
    "expected_response",
    "expected_answer",
    "expected_output",
    "ground_truth",
    "expected",
];

/// The reference answer among the expectations, and all of them by name: the one with a telling name, else the only one
/// if it is a text. Corrected and withdrawn ones don't count.
fn expectations(assessments: Option<&Value>) -> (Option<super::Payload>, Map<String, Value>) {
    let mut found = Map::new();
    if let Some(Value::Array(list)) = assessments.cloned().map(unwrapped) {
        for assessment in list.into_iter().map(unwrapped) {
            let valid = assessment.get("valid") != Some(&Value::Bool(false));
            let Some(expectation) = assessment
                .get("expectation")
                .filter(|e| valid && !e.is_null())
            else {
                continue;
            };
            let expectation = unwrapped(expectation.clone());
            let value = match expectation.get("serialized_value") {
                Some(serialized) if !serialized.is_null() => {
                    decoded(serialized.get("value").or(Some(serialized)))
                }
                _ => expectation.get("value").cloned(),
            };
            let name = ["assessment_name", "name"]
                .iter()
                .find_map(|name| text(assessment.get(*name)));
            if let (Some(name), Some(value)) = (name, value) {
                found.insert(name, value);
            }
        }
    }
    let named = REFERENCE.iter().find_map(|name| found.get(*name));
    let only = || {
        found
            .values()
            .next()
            .filter(|value| found.len() == 1 && value.is_string())
    };
    let expected = Cell::new(named.or_else(only)).map(|cell| cell.document());
    (expected, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(record: Value) -> TraceFacts {
        facts(record.as_object().unwrap()).unwrap()
    }

    #[test]
    fn both_versions_are_read() {
        let third = of(json!({
            "trace_id": "tr-1", "request_time": "2026-01-01T00:00:00Z", "state": "OK", "execution_duration_ms": 2500,
            "trace_location": {"mlflow_experiment": {"experiment_id": "7"}},
            "trace_metadata": {"mlflow.trace.session": "s", "mlflow.trace.user": "u", "mlflow.user": "developer",
                "mlflow.trace.tokenUsage": "{\"input_tokens\": 10, \"output_tokens\": 3, \"total_tokens\": 13}",
                "mlflow.trace.cost": "{\"total_cost\": 0.5}", "mlflow.source.git.commit": "", "plan": "gold"},
            "tags": {"mlflow.traceName": "assistant", "source": "web"},
        }));
        assert_eq!(
            (third.session_id.as_deref(), third.user_id.as_deref()),
            (Some("s"), Some("u"))
        );
        assert_eq!(
            (third.project_id.as_deref(), third.name.as_deref()),
            (Some("7"), Some("assistant"))
        );
        assert_eq!(
            third.ended_at.unwrap() - third.started_at.unwrap(),
            2_500_000_000
        );
        assert_eq!(
            (third.prompt_tokens, third.completion_tokens, third.cost_usd),
            (Some(10), Some(3), Some(0.5))
        );
        assert_eq!(
            (third.release, third.tags),
            (None, vec!["source=web".to_owned()])
        );
        assert_eq!(Value::Object(third.metadata), json!({"plan": "gold"}));
        let second = of(json!({
            "request_id": "abc", "timestamp_ms": 1_767_225_600_000_i64, "status": "ERROR", "execution_time_ms": "40",
            "request_metadata": "{\"mlflow.trace.session\": \"s\"}", "tags": "{}", "experiment_id": "3",
        }));
        assert_eq!(second.started_at, Some(1_767_225_600_000_000_000));
        assert_eq!(second.ended_at, Some(1_767_225_600_040_000_000));
        assert_eq!(
            (second.trace_id.as_str(), second.session_id.as_deref()),
            ("abc", Some("s"))
        );
        assert_eq!(
            (second.status.as_deref(), second.project_id.as_deref()),
            (Some("ERROR"), Some("3"))
        );
        let seconds = of(
            json!({"trace_id": "t", "request_time": "2026-01-01T00:00:00Z", "execution_duration": "1.5s"}),
        );
        assert_eq!(
            seconds.ended_at.unwrap() - seconds.started_at.unwrap(),
            1_500_000_000
        );
        assert!(facts(&Map::new()).unwrap_err().contains("trace_id"));
    }

    #[test]
    fn expectations_give_the_reference_answer() {
        let expected = |list: Value| {
            let facts = of(json!({"trace_id": "t", "assessments": list}));
            (
                facts.expected.map(|payload| payload.raw),
                facts.metadata.contains_key("expectations"),
            )
        };
        let one = |name: &str, value: Value| json!({"assessment_name": name, "expectation": {"value": value}});
        assert_eq!(
            expected(json!([
                one("tone", json!("kind")),
                one("expected_response", json!("42"))
            ])),
            (Some("42".into()), false)
        );
        assert_eq!(
            expected(json!([one("capital", json!("Rome"))])),
            (Some("Rome".into()), false)
        );
        assert_eq!(
            expected(json!([one("a", json!("x")), one("b", json!("y"))])),
            (None, true)
        );
        let serialized = json!([{"assessment_name": "expected_facts", "expectation": {"serialized_value":
            {"value": "[\"a\"]", "serialization_format": "JSON_FORMAT"}}}]);
        assert_eq!(expected(serialized), (None, true));
        let withdrawn = json!([{"assessment_name": "expected_response", "valid": false, "expectation": {"value": "old"}}]);
        assert_eq!(expected(withdrawn), (None, false));
        assert_eq!(
            expected(json!([{"assessment_name": "good", "feedback": {"value": true}}])),
            (None, false)
        );
        assert_eq!(expected(json!("[]")), (None, false));
    }
}
