//! Writing records.

use serde_json::{Map, Value, json};

use super::{CaseRecord, RunRecord};
use crate::metric::checked::{Checked, Detail};
use crate::suite::regression::compare::CaseDelta;
use crate::suite::regression::named::Named;
use crate::text::format_instant;

impl RunRecord {
    /// The record as JSON, numbers with all their digits.
    pub fn to_json(&self) -> Value {
        let head = &self.head;
        let judge = head.judge.as_ref();
        let mut json = json!({
            "run_id": head.run_id,
            "timestamp": format_instant(head.timestamp),
            "status": head.status.name(),
            "trigger": head.trigger.name(),
            "duration_ms": head.duration_ms,
            "nightmill_version": head.tool_version,
            "judge_provider": judge.map(|of| &of.provider),
            "judge_model": judge.map(|of| &of.model),
            "config_hash": head.config_hash,
            "golden_set_name": head.golden_set_name,
            "golden_set_version": head.golden_set_version,
            "golden_set_file_hash": head.golden_set_file_hash,
            "suite_score": head.suite_score,
            "metric_summary": head.metric_summary,
            "test_case_results": self.cases.iter().map(case_json).collect::<Vec<_>>(),
            "regression": self.regression_json(),
        });
        if let Value::Object(members) = &mut json {
            if let Some(branch) = &head.branch {
                members.insert("branch".to_owned(), branch.as_str().into());
            }
            if let Some(gates) = &self.gates {
                members.insert("quality_gates".to_owned(), gates.to_json());
            }
        }
        json
    }

    fn regression_json(&self) -> Value {
        let of = &self.regression;
        let comparison = &of.comparison;
        let deltas: Vec<Value> = comparison.case_deltas.iter().map(case_delta_json).collect();
        json!({
            "baseline_run_id": of.baseline_run_id,
            "baseline_golden_set_version": of.baseline_golden_set_version,
            "current_golden_set_version": self.head.golden_set_version,
            "version_change_detected": comparison.version_change_detected,
            "suite_delta": comparison.suite_delta,
            "regression_status": comparison.status.name(),
            "test_cases_excluded": comparison.test_cases_excluded,
            "metric_deltas": comparison.metric_deltas,
            "metric_tolerances_applied": comparison.metric_tolerances_applied,
            "case_deltas": deltas,
        })
    }
}

/// A case's delta as JSON.
pub(in super::super) fn case_delta_json(of: &CaseDelta) -> Value {
    json!({
        "id": of.id,
        "status": of.status.name(),
        "delta": of.delta,
        "metrics": of.metrics,
    })
}

fn case_json(of: &CaseRecord) -> Value {
    let case = &of.case;
    let mut json = json!({
        "test_case_id": case.id,
        "input": case.input,
        "actual_output": case.actual_output,
        "overall_passed": of.figures.passed,
        "severity": of.figures.severity.name(),
        "score": of.figures.score,
        "weight": case.weight,
        "metric_results": results_json(&case.results),
    });
    if let (Value::Object(members), Some(delta)) = (&mut json, &of.regression_delta) {
        members.insert("regression_delta".to_owned(), json!(delta));
    }
    json
}

fn results_json(results: &Named<Checked>) -> Value {
    let results = results.iter().map(|(name, of)| {
        let mut json = result_json(of);
        json.insert("metric_name".to_owned(), name.into());
        (name.to_owned(), Value::Object(json))
    });
    Value::Object(results.collect())
}

/// The result of a metric as JSON; details only where there are any.
pub(in super::super) fn result_json(of: &Checked) -> Map<String, Value> {
    let mut json = Map::new();
    let mut put = |key: &str, value: Value| json.insert(key.to_owned(), value);
    put("score", of.score.into());
    put("confidence", of.confidence.into());
    put("passed", of.passed.into());
    put("threshold", of.threshold.into());
    put("explanation", of.explanation.as_str().into());
    put("evaluation_type", evaluation_type(of).into());
    put("token_cost", of.token_cost.into());
    if !of.details.is_empty() {
        let details = of.details.iter().map(detail_json);
        put("details", Value::Array(details.collect()));
    }
    json
}

/// How a score came about, in a word.
pub(in super::super) fn evaluation_type(of: &Checked) -> &'static str {
    match of.judged {
        true => "llm_judged",
        false => "deterministic",
    }
}

fn detail_json(of: &Detail) -> Value {
    let mut json = Map::new();
    json.insert("check".to_owned(), of.check.as_str().into());
    json.insert("passed".to_owned(), of.passed.into());
    let texts = [
        ("kind", of.kind),
        ("expected", of.expected.as_deref()),
        ("actual", of.actual.as_deref()),
        ("message", of.message.as_deref()),
    ];
    for (key, text) in texts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            json.insert(key.to_owned(), text.into());
        }
    }
    Value::Object(json)
}
