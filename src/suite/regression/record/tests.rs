use std::path::Path;

use chrono::TimeZone;

use super::*;
use crate::metric::checked::{Checked, Detail};
use crate::metric::comparison::Compat;
use crate::suite::regression::cascade::cascade;
use crate::suite::regression::compare::compare;
use crate::suite::regression::config::{QualityGates, RegressionConfig};
use crate::suite::regression::gates::check_gates;

pub(in super::super) fn result(score: f64) -> Checked {
    Checked {
        score,
        threshold: 0.7,
        passed: score >= 0.7,
        confidence: 1.0,
        explanation: "words".to_owned(),
        judged: false,
        token_cost: Some(0.0),
        details: Vec::new(),
    }
}

pub(in super::super) fn evaluated(id: &str, score: f64) -> EvaluatedCase {
    EvaluatedCase {
        id: id.to_owned(),
        input: format!("question of {id}"),
        actual_output: format!("answer of {id}"),
        weight: 1.0,
        results: [("format", result(score))].into_iter().collect(),
    }
}

pub(in super::super) fn head(run_id: &str) -> RunHead {
    RunHead {
        run_id: run_id.to_owned(),
        timestamp: Utc.with_ymd_and_hms(2026, 6, 2, 10, 0, 0).unwrap(),
        status: RunStatus::Errored,
        trigger: Trigger::Cli,
        duration_ms: 12,
        tool_version: "0.1.0".to_owned(),
        judge: None,
        config_hash: "c".to_owned(),
        golden_set_file_hash: "f".to_owned(),
        golden_set_name: "qa".to_owned(),
        golden_set_version: "1.0".to_owned(),
        branch: Some("main".to_owned()),
        suite_score: 0.0,
        metric_summary: Named::default(),
    }
}

/// A run of the suite `qa` whose cases have one metric.
pub(in super::super) fn record(run_id: &str, cases: &[(&str, f64)]) -> RunRecord {
    against(None, run_id, cases)
}

pub(in super::super) fn against(
    baseline: Option<&RunRecord>,
    run_id: &str,
    cases: &[(&str, f64)],
) -> RunRecord {
    let cases: Vec<_> = cases
        .iter()
        .map(|(id, score)| evaluated(id, *score))
        .collect();
    let figures = cascade(&cases, |_| 1.0, Compat::Document);
    let side = baseline.map(RunRecord::side);
    let config = RegressionConfig::default();
    let current = figures.side("1.0", &cases);
    let comparison = compare(side.as_ref(), &current, &config, Compat::Document);
    let of = baseline.map(|of| &of.head);
    let mut record = RunRecord::new(head(run_id), cases, figures, of, comparison);
    record.decide(check_gates(&record, &QualityGates::default(), None));
    record
}

fn read(text: &str) -> Result<RunRecord, String> {
    RunRecord::of_json(Path::new("r.json"), text).map_err(|e| e.to_string())
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let first = record(
        "run_20260601_aaaaaa",
        &[("a", 0.1 + 0.2), ("b", 0.9), ("gone", 1.0)],
    );
    let mut second = against(
        Some(&first),
        "run_20260602_bbbbbb",
        &[("a", 1.0 / 3.0), ("b", 0.9), ("fresh", 1.0)],
    );
    second.head.judge = Some(JudgeName {
        provider: "p".to_owned(),
        model: "m".to_owned(),
    });
    let mut judged = result(0.5);
    judged.judged = true;
    judged.token_cost = None;
    judged.details = vec![Detail {
        check: "claim.1".to_owned(),
        kind: Some("wrong"),
        expected: Some("x".to_owned()),
        message: Some("m".to_owned()),
        ..Detail::default()
    }];
    second.cases[0].case.results.insert("factuality", judged);
    let text = second.to_json().to_string();
    assert_eq!(read(&text).unwrap(), second);
    let delta = second.cases[0].regression_delta.as_ref().unwrap();
    assert_eq!(delta.get("format"), Some(&(1.0 / 3.0 - (0.1 + 0.2))));
    assert_eq!(second.cases[2].regression_delta, None);
    assert_eq!(
        second.regression.baseline_run_id.as_deref(),
        Some("run_20260601_aaaaaa")
    );
}

/// As the tool writes them: no score and weight of cases, no deltas of cases, no gates, other keys besides.
#[test]
fn records_of_the_tool_load() {
    let text = r#"{
      "run_id": "run_20260101_a3f9k2", "timestamp": "2026-01-01T10:00:00.123Z", "status": "passed", "trigger": "watch",
      "duration_ms": 1234, "regtrace_version": "0.10.1", "judge_provider": "anthropic", "judge_model": "m",
      "config_hash": "aa", "golden_set_name": "qa", "golden_set_version": "1.0.0", "golden_set_file_hash": "bb",
      "suite_score": 0.85,
      "metric_summary": {"format": {"score": 0.9, "pass_rate": 1}, "tone": {"score": 0.8, "pass_rate": 0.5}},
      "test_case_results": [{
        "test_case_id": "a", "input": "i", "actual_output": "o", "overall_passed": false, "severity": "warn",
        "metric_results": {
          "format": {"metric_name": "format", "score": 0.9, "confidence": 1, "passed": true, "threshold": 0.7,
            "explanation": "", "evaluation_type": "deterministic", "token_cost": 0,
            "details": [{"check": "format.length", "passed": true}]},
          "tone": {"metric_name": "tone", "score": 0.6, "confidence": 0.7, "passed": false, "threshold": 0.7,
            "explanation": "e", "evaluation_type": "llm_judged", "token_cost": 0.013}
        }, "regression_delta": {"tone": -0.1}
      }],
      "regression": {"baseline_run_id": null, "baseline_golden_set_version": null,
        "current_golden_set_version": "1.0.0",
        "version_change_detected": false, "suite_delta": 0, "regression_status": "clean", "test_cases_excluded": [],
        "metric_deltas": {}},
      "config": {"something": "else"}
    }"#;
    let record = read(text).unwrap();
    assert_eq!(record.head.tool_version, "0.10.1");
    assert_eq!(record.head.trigger, Trigger::Watch);
    assert_eq!(record.head.branch, None);
    assert_eq!(record.gates, None);
    let case = &record.cases[0];
    assert_eq!((case.figures.score, case.case.weight), (0.75, 1.0));
    assert_eq!(
        case.case.results.get("tone").unwrap().token_cost,
        Some(0.013)
    );
    assert_eq!(record.side().metric_scores.get("tone"), Some(&0.8));
}

#[test]
fn what_is_no_record_is_refused() {
    assert!(read("{").unwrap_err().contains("JSON"));
    let told =
        read(r#"{"run_id": "run_1", "timestamp": "yesterday", "suite_score": 2}"#).unwrap_err();
    for path in [
        "timestamp",
        "status",
        "golden_set_name",
        "suite_score",
        "test_case_results",
    ] {
        assert!(
            told.contains(&format!("\n  {path}: ")),
            "{path} is not in {told}"
        );
    }
    assert!(read("[]").is_err());
    let deep = "[".repeat(100_000);
    assert!(read(&deep).is_err());
}

#[test]
fn ids_of_runs_have_the_day_and_six_symbols() {
    let at = Utc.with_ymd_and_hms(2026, 1, 31, 23, 59, 59).unwrap();
    let ids: std::collections::HashSet<String> = (0..200).map(|_| new_run_id(at)).collect();
    assert!(ids.len() > 195, "{}", ids.len());
    for id in ids {
        let end = id.strip_prefix("run_20260131_").unwrap();
        assert_eq!(end.len(), 6);
        let is_symbol = |of: char| of.is_ascii_lowercase() || of.is_ascii_digit();
        assert!(end.chars().all(is_symbol), "{id}");
    }
}
