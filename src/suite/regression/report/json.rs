//! A run as one JSON document (as in Regtrace, with all details).

use serde_json::{Map, Value, json};

use crate::suite::regression::record::{CaseRecord, RunRecord, case_delta_json, result_json};
use crate::text::format_instant;

/// The report of a run of one suite.
pub fn json_report(record: &RunRecord) -> Value {
    let head = &record.head;
    let counts = record.severity_counts();
    let passed = record.passed_cases();
    let comparison = &record.regression.comparison;
    let deltas: Vec<Value> = comparison.case_deltas.iter().map(case_delta_json).collect();
    let cases: Vec<Value> = record.cases.iter().map(case_json).collect();
    let judge = head.judge.as_ref();
    json!({
        "suite": {
            "name": head.golden_set_name,
            "version": head.golden_set_version,
            "run_id": head.run_id,
            "timestamp": format_instant(head.timestamp),
            "duration_ms": head.duration_ms,
            "trigger": head.trigger.name(),
        },
        "summary": {
            "status": head.status.name(),
            "suite_score": head.suite_score,
            "metric_summary": head.metric_summary,
            "total_test_cases": record.cases.len(),
            "passed": passed,
            "failed": record.cases.len() - passed,
            "severity_counts": { "pass": counts.pass, "warn": counts.warn, "fail": counts.fail },
        },
        "quality_gates": record.gates.as_ref().map(|gates| gates.to_json()),
        "regression": {
            "status": comparison.status.name(),
            "suite_delta": comparison.suite_delta,
            "baseline_run_id": record.regression.baseline_run_id,
            "metric_deltas": comparison.metric_deltas,
            "case_deltas": deltas,
            "test_cases_excluded": comparison.test_cases_excluded,
            "version_change_detected": comparison.version_change_detected,
        },
        "judge": {
            "provider": judge.map(|of| &of.provider),
            "model": judge.map(|of| &of.model),
        },
        "test_cases": cases,
    })
}

fn case_json(of: &CaseRecord) -> Value {
    let results = of.case.results.iter().map(|(name, result)| {
        let mut json = result_json(result);
        // Here they are always there, so that no reader has to ask.
        json.entry("details").or_insert_with(|| json!([]));
        (name.to_owned(), Value::Object(json))
    });
    let metrics: Map<String, Value> = results.collect();
    json!({
        "id": of.case.id,
        "input": of.case.input,
        "actual_output": of.case.actual_output,
        "passed": of.figures.passed,
        "severity": of.figures.severity.name(),
        "score": of.figures.score,
        "weight": of.case.weight,
        "metrics": metrics,
        "regression_delta": of.regression_delta,
    })
}
