//! Cascade, comparison, baselines and gates of regression suites against the golden records of the original system.

use chrono::{DateTime, Utc};
use nightmill::metric::checked::Checked;
use nightmill::suite::regression::{
    BaselineStrategy, CaseFigures, CaseRecord, Comparison, Compat, EvaluatedCase, MetricSummary,
    Named, NfrGates, QualityGates, RecordStore, RegressionConfig, RegressionGate, RegressionRecord,
    RegressionStatus, RunHead, RunRecord, RunStatus, Severity, Side, SideCase, Trigger, cascade,
    check_gates, compare, exit_code, overall_score, regression_of_scores, regression_score,
};
use serde_json::{Map, Value, json};

use crate::support::golden;

/// Absolute up to 1, relative 1e-12 above.
fn close(got: f64, expected: f64) -> bool {
    let tolerance = 1e-9f64.max(expected.abs() * 1e-12);
    (got - expected).abs() <= tolerance
}

fn assert_same(got: &Value, expected: &Value, what: &str) {
    match (got, expected) {
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (g.as_f64().unwrap(), e.as_f64().unwrap());
            assert!(close(g, e), "{what}: {g} instead of {e}");
        }
        (Value::Object(g), Value::Object(e)) => {
            for (key, expected) in e {
                let got = g.get(key).unwrap_or_else(|| panic!("{what}: no {key}"));
                assert_same(got, expected, &format!("{what}.{key}"));
            }
            for key in g.keys() {
                assert!(e.contains_key(key), "{what}: {key} is too many");
            }
        }
        (Value::Array(g), Value::Array(e)) => {
            assert_eq!(g.len(), e.len(), "{what}: {got} instead of {expected}");
            for (at, (got, expected)) in g.iter().zip(e).enumerate() {
                assert_same(got, expected, &format!("{what}[{at}]"));
            }
        }
        _ => assert_eq!(got, expected, "{what}"),
    }
}

/// The rows of a file, all of tiers that are known.
fn rows(file: &str, at_least: usize) -> Vec<Value> {
    let rows = golden(&format!("regtrace/{file}"), at_least);
    for row in &rows {
        let tier = row["tier"].as_str().unwrap();
        assert!(["core", "edge", "quirk"].contains(&tier), "{tier}");
    }
    rows
}

/// What a row expects by the rules: those of the document, or of the tool where it differs.
fn expected(row: &Value, compat: Compat) -> Value {
    let mut expected = row["expect"].clone();
    if let (Compat::Tool, Some(differs)) = (compat, row["differs_from_code"].as_object()) {
        for (key, value) in differs {
            expected[key] = value.clone();
        }
    }
    expected
}

/// Checks what a row gives under both sets of rules.
fn check(row: &Value, got: impl Fn(Compat) -> Value) {
    for compat in [Compat::Document, Compat::Tool] {
        let what = format!("{} ({})", row["id"], compat.name());
        assert_same(&got(compat), &expected(row, compat), &what);
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn numbers(value: &Value) -> Named<f64> {
    let members = value.as_object().unwrap().iter();
    members.map(|(name, of)| (name, number(of))).collect()
}

fn object<T: Into<Value>>(pairs: impl Iterator<Item = (String, T)>) -> Value {
    Value::Object(pairs.map(|(key, value)| (key, value.into())).collect())
}

fn of_named(named: &Named<f64>) -> Value {
    object(named.iter().map(|(name, of)| (name.to_owned(), *of)))
}

fn result(score: f64, confidence: f64, threshold: f64, passed: bool) -> Checked {
    Checked {
        score,
        threshold,
        passed,
        confidence,
        explanation: String::new(),
        judged: false,
        token_cost: Some(0.0),
        details: Vec::new(),
    }
}

fn evaluated(case: &Value) -> EvaluatedCase {
    let metrics = case["metrics"].as_array().unwrap().iter();
    let results = metrics.map(|of| {
        let passed = of["passed"].as_bool().unwrap();
        let figures = ["score", "confidence", "threshold"].map(|key| number(&of[key]));
        let [score, confidence, threshold] = figures;
        (
            text(&of["name"]),
            result(score, confidence, threshold, passed),
        )
    });
    EvaluatedCase {
        id: text(&case["id"]),
        input: String::new(),
        actual_output: String::new(),
        weight: number(&case["weight"]),
        results: results.collect(),
    }
}

#[test]
fn golden_regtrace_cascade() {
    for row in rows("cascade.jsonl", 41) {
        match row["kind"].as_str().unwrap() {
            "suite" => check(&row, |compat| suite_figures(&row, compat)),
            "overall" => {
                let sets = row["sets"].as_array().unwrap().iter();
                let pairs = sets.map(|of| (number(&of["weight"]), number(&of["suite_score"])));
                let got = json!({ "overall_score": overall_score(pairs) });
                assert_same(&got, &row["expect"], &row["id"].to_string());
            }
            kind => panic!("{}: unknown kind {kind}", row["id"]),
        }
    }
}

fn suite_figures(row: &Value, compat: Compat) -> Value {
    let cases = row["cases"].as_array().unwrap();
    let cases: Vec<EvaluatedCase> = cases.iter().map(evaluated).collect();
    let weight_of = |metric: &str| row["metric_weights"][metric].as_f64().unwrap_or(1.0);
    let figures = cascade(&cases, weight_of, compat);
    let by_case = |value: fn(&CaseFigures) -> Value| {
        let pairs = cases.iter().zip(&figures.cases);
        object(pairs.map(|(case, of)| (case.id.clone(), value(of))))
    };
    let summary = figures.metric_summary.iter().map(|(name, of)| {
        let json = json!({ "score": of.score, "pass_rate": of.pass_rate });
        (name.to_owned(), json)
    });
    json!({
        "case_scores": by_case(|of| of.score.into()),
        "suite_score": figures.suite_score,
        "overall_passed": by_case(|of| of.passed.into()),
        "severity": by_case(|of| of.severity.name().into()),
        "metric_summary": object(summary),
    })
}

#[test]
fn golden_regtrace_regression() {
    for row in rows("regression.jsonl", 82) {
        match row["kind"].as_str().unwrap() {
            "classify" => check(&row, |compat| classified(&row, compat)),
            "metric" => check(&row, |compat| metric_of_case(&row, compat)),
            "baseline" => check(&row, |compat| baseline(&row, compat)),
            // Only the document has these rules.
            "compare" => {
                let got = compared(&row);
                assert_same(&got, &row["expect"], &row["id"].to_string());
            }
            kind => panic!("{}: unknown kind {kind}", row["id"]),
        }
    }
}

fn bounds(row: &Value) -> RegressionConfig {
    let tolerances = row.get("metric_tolerances").filter(|of| !of.is_null());
    let exclude = row["exclude_new_test_cases"].as_bool();
    RegressionConfig {
        tolerance: number(&row["tolerance"]),
        critical_threshold: number(&row["critical_threshold"]),
        metric_tolerances: tolerances.map(numbers).unwrap_or_default(),
        // Rows without cases are about recorded figures.
        exclude_new_test_cases: exclude.unwrap_or(false),
        ..RegressionConfig::default()
    }
}

fn classified(row: &Value, compat: Compat) -> Value {
    let side = |of: &Value, metric_scores: Named<f64>| Side {
        version: text(&of["golden_set_version"]),
        suite_score: number(&of["suite_score"]),
        metric_scores,
        cases: Vec::new(),
    };
    let baseline = (!row["baseline"].is_null()).then(|| {
        let summary = row["baseline"]["metric_summary"].as_object().unwrap();
        let scores = summary
            .iter()
            .map(|(name, of)| (name, number(&of["score"])));
        side(&row["baseline"], scores.collect())
    });
    let current = side(&row["current"], numbers(&row["current"]["metric_scores"]));
    let got = compare(baseline.as_ref(), &current, &bounds(row), compat);
    json!({
        "status": got.status.name(),
        "suite_delta": got.suite_delta,
        "metric_deltas": of_named(&got.metric_deltas),
        "version_change_detected": got.version_change_detected,
        "metric_tolerances_applied": of_named(&got.metric_tolerances_applied),
    })
}

fn metric_of_case(row: &Value, compat: Compat) -> Value {
    let [then, now] = ["baseline_score", "current_score"].map(|key| row[key].as_f64());
    let status = regression_of_scores(then, now, &bounds(row), compat);
    let score = regression_score(status);
    json!({ "score": score, "passed": score == 1.0, "status": status.name() })
}

/// Through records in a folder, as they are found in earnest.
fn baseline(row: &Value, compat: Compat) -> Value {
    let folder = tempfile::tempdir().unwrap();
    for run in row["runs"].as_array().unwrap() {
        let id = text(&run["run_id"]);
        let record = json!({
            "run_id": id,
            "timestamp": run["timestamp"],
            "status": run["status"],
            "branch": run["branch"],
            "golden_set_name": run["golden_set_name"],
            "suite_score": 0.5,
            "test_case_results": [],
        });
        let mut record = record.to_string();
        if run["corrupt"] == true {
            record.truncate(record.len() / 2);
        }
        std::fs::write(folder.path().join(format!("{id}.json")), record).unwrap();
    }
    let pinned = row["pinned_run_id"].as_str();
    let strategy = match (row["strategy"].as_str().unwrap(), pinned) {
        ("pinned", Some(id)) => BaselineStrategy::Pinned(id.to_owned()),
        ("pinned" | "last_passing", _) => BaselineStrategy::LastPassing,
        (strategy, _) => panic!("{}: unknown strategy {strategy}", row["id"]),
    };
    let config = RegressionConfig {
        strategy,
        branch_aware: row["branch_aware"].as_bool().unwrap(),
        fallback_baseline: text(&row["fallback_baseline"]),
        ..RegressionConfig::default()
    };
    let (suite, branch) = (text(&row["golden_set_name"]), row["branch"].as_str());
    let now = DateTime::<Utc>::UNIX_EPOCH;
    let store = RecordStore::at(folder.path());
    let found = store.baseline(&suite, branch, &config, compat, now);
    let found = found.unwrap().record;
    json!({ "run_id": found.map(|record| record.head.run_id) })
}

fn side(of: &Value) -> Side {
    let cases = of["cases"].as_array().unwrap().iter();
    let cases: Vec<SideCase> = cases
        .map(|case| SideCase {
            id: text(&case["id"]),
            score: number(&case["score"]),
            weight: number(&case["weight"]),
            metrics: numbers(&case["metrics"]),
        })
        .collect();
    let mut sums: Named<(f64, f64)> = Named::default();
    for (name, score) in cases.iter().flat_map(|case| case.metrics.iter()) {
        let (sum, count) = sums.get(name).copied().unwrap_or_default();
        sums.insert(name, (sum + score, count + 1.0));
    }
    let means = sums.iter().map(|(name, (sum, count))| (name, sum / count));
    Side {
        version: text(&of["golden_set_version"]),
        suite_score: number(&of["suite_score"]),
        metric_scores: means.collect(),
        cases,
    }
}

fn compared(row: &Value) -> Value {
    let baseline = (!row["baseline"].is_null()).then(|| side(&row["baseline"]));
    let current = side(&row["current"]);
    let got = compare(baseline.as_ref(), &current, &bounds(row), Compat::Document);
    let deltas = got.case_deltas.iter().map(|of| {
        let (id, status) = (&of.id, of.status.name());
        json!({ "id": id, "status": status, "delta": of.delta })
    });
    json!({
        "status": got.status.name(),
        "suite_delta": got.suite_delta,
        "metric_deltas": of_named(&got.metric_deltas),
        "version_change_detected": got.version_change_detected,
        "test_cases_excluded": got.test_cases_excluded,
        "case_deltas": deltas.collect::<Vec<_>>(),
    })
}

#[test]
fn golden_regtrace_gates() {
    for row in rows("gates.jsonl", 40) {
        let record = gated_record(&row["record"]);
        let quality = quality_gates(&row["quality_gates"]);
        let nfr = row["nfr_gates"].as_object().map(nfr_gates);
        let got = check_gates(&record, &quality, nfr.as_ref());
        let gates = got.gates.iter();
        let gates = object(gates.map(|(name, gate)| (name.to_owned(), gate.passed)));
        let got = json!({
            "passed": got.passed,
            "gates": gates,
            "failed_metrics": got.failed_metrics,
            "low_confidence_ratio": got.low_confidence_ratio,
            "failed_cases": got.failed_cases,
            "exit_code": exit_code(got.passed, true),
        });
        assert_same(&got, &row["expect"], &row["id"].to_string());
        assert_eq!(exit_code(got["passed"] == true, false), 0);
    }
}

fn gated_record(record: &Value) -> RunRecord {
    let summary = record["metric_summary"].as_object().unwrap().iter();
    let summary = summary.map(|(name, of)| {
        let [score, pass_rate] = ["score", "pass_rate"].map(|key| number(&of[key]));
        (name, MetricSummary { score, pass_rate })
    });
    let mut statuses = RegressionStatus::ALL.into_iter();
    let status = statuses.find(|of| record["regression_status"] == of.name());
    let cases = record["cases"].as_array().unwrap().iter().map(gated_case);
    RunRecord {
        head: RunHead {
            run_id: String::new(),
            timestamp: DateTime::UNIX_EPOCH,
            status: RunStatus::Errored,
            trigger: Trigger::Cli,
            duration_ms: record["duration_ms"].as_u64().unwrap(),
            tool_version: String::new(),
            judge: None,
            config_hash: String::new(),
            golden_set_file_hash: String::new(),
            golden_set_name: String::new(),
            golden_set_version: String::new(),
            branch: None,
            suite_score: number(&record["suite_score"]),
            metric_summary: summary.collect(),
        },
        cases: cases.collect(),
        regression: RegressionRecord {
            baseline_run_id: None,
            baseline_golden_set_version: None,
            comparison: Comparison {
                status: status.unwrap(),
                suite_delta: 0.0,
                metric_deltas: Named::default(),
                test_cases_excluded: Vec::new(),
                version_change_detected: false,
                metric_tolerances_applied: Named::default(),
                case_deltas: Vec::new(),
            },
        },
        gates: None,
    }
}

fn gated_case(case: &Value) -> CaseRecord {
    let costs = case["token_costs"].as_array().unwrap();
    let confidences = case["confidences"].as_array().unwrap();
    // A metric each; whichever list is longer says how many.
    let results = (0..costs.len().max(confidences.len())).map(|at| {
        let confidence = confidences.get(at).map_or(1.0, number);
        let token_cost = costs.get(at).map_or(Some(0.0), Value::as_f64);
        let result = Checked {
            token_cost,
            ..result(0.5, confidence, 0.7, false)
        };
        (format!("metric {at}"), result)
    });
    let mut severities = Severity::ALL.into_iter();
    let severity = severities.find(|of| case["severity"] == of.name());
    CaseRecord {
        figures: CaseFigures {
            score: 0.5,
            passed: case["overall_passed"].as_bool().unwrap(),
            severity: severity.unwrap(),
        },
        regression_delta: None,
        case: EvaluatedCase {
            id: String::new(),
            input: String::new(),
            actual_output: String::new(),
            weight: 1.0,
            results: results.collect(),
        },
    }
}

fn quality_gates(gates: &Value) -> QualityGates {
    let default = QualityGates::default();
    let or = |key: &str, default: f64| gates[key].as_f64().unwrap_or(default);
    let failed = gates["max_failed_test_cases"].as_u64();
    QualityGates {
        suite_score_minimum: or("suite_score_minimum", default.suite_score_minimum),
        metric_score_minimums: gates.get("metric_score_minimums").map(numbers),
        max_failed_test_cases: failed.unwrap_or(default.max_failed_test_cases),
        max_low_confidence_ratio: or("max_low_confidence_ratio", default.max_low_confidence_ratio),
        regression_gate: match &gates["regression_gate"] {
            Value::Null | Value::Bool(true) => RegressionGate::On,
            Value::Bool(false) => RegressionGate::Off,
            other => {
                assert_eq!(other, "critical");
                RegressionGate::OnlyCritical
            }
        },
    }
}

fn nfr_gates(gates: &Map<String, Value>) -> NfrGates {
    let number = |key: &str| gates.get(key).and_then(Value::as_f64);
    NfrGates {
        max_latency_ms: gates.get("max_latency_ms").and_then(Value::as_u64),
        max_cost_usd: number("max_cost_usd"),
        min_coverage: number("min_coverage"),
    }
}
