//! Golden rows of the conversation judge, all tiers.

use nightmill::conversation::{
    CaseLatency, CaseResult, Catalogue, ComparedCase, CustomMetric, JudgeConfig, JudgeError,
    ReplyFences, RunBars, Selection, Thresholds, Verdict, case_passed, compare, summarise,
};
use serde_json::{Map, Value, json};

use crate::support::golden;

/// Numbers within 1e-9, relative 1e-12 above 1; everything else exactly, but for the members that the expected values of
/// a file leave out.
fn same(found: &Value, expected: &Value, left_out: &[&str]) -> bool {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9_f64.max(1e-12 * b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, left_out))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut more = a.keys().filter(|key| !b.contains_key(*key));
            let same = |found: &Value, expected: &Value| same(found, expected, left_out);
            more.all(|key| left_out.contains(&key.as_str()))
                && b.iter()
                    .all(|(key, expected)| a.get(key).is_some_and(|found| same(found, expected)))
        }
        (a, b) => a == b,
    }
}

/// Compares what was found with `expect` of each row, and reports all rows that differ.
fn check(file: &str, at_least: usize, left_out: &[&str], found: impl Fn(&Value) -> Value) {
    let mut wrong = Vec::new();
    for row in golden(&format!("connexity/{file}"), at_least) {
        let found = found(&row);
        let expected = &row["expect"];
        if !same(&found, expected, left_out) {
            wrong.push(format!(
                "{} ({})\n  found    {found}\n  expected {expected}",
                row["id"], row["note"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} rows of {file} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn config(row: &Value) -> JudgeConfig {
    let config: Option<JudgeConfig> = serde_json::from_value(row["config"].clone()).unwrap();
    config.unwrap_or_default()
}

#[test]
fn weights() {
    check("weights.jsonl", 47, &[], |row| {
        let entries = row["custom_metrics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let mut entry: CustomMetric = serde_json::from_value(entry.clone()).unwrap();
                entry.rubric = Some("5 - all".into());
                entry
            });
        let catalogue = Catalogue::with_custom(entries).unwrap();
        match config(row).resolve(&catalogue) {
            Err(fault) => json!({"ok": false, "error": fault.code()}),
            Ok(Selection { metrics, .. }) => {
                let metrics = metrics.iter().map(|m| {
                    json!({"metric": m.metric.name, "weight": m.weight, "score_type": m.metric.score_type, "tier": m.metric.tier})
                });
                json!({"ok": true, "metrics": metrics.collect::<Vec<_>>()})
            }
        }
    });
}

#[test]
fn overall_scores() {
    check(
        "overall_score.jsonl",
        53,
        &[
            "dropped_metrics",
            "expected_outcome_results",
            "failure_code",
            "judge_error",
            "justification",
            "pass_threshold",
            "raw_reply",
            "turns",
        ],
        |row| {
            let answers = row["metrics"].as_array().unwrap();
            let selected: Vec<Value> = answers
                .iter()
                .map(|a| json!({"metric": a["metric"], "weight": a["weight"]}))
                .collect();
            let default_selection = row["default_selection"].as_bool().unwrap();
            let metrics = if default_selection {
                Value::Null
            } else {
                json!(selected)
            };
            let config =
                json!({"config": {"metrics": metrics, "pass_threshold": row["pass_threshold"]}});
            let config = self::config(&config);
            let selection = config.resolve(&Catalogue::built_in()).unwrap();
            // The answers as a judge would give them.
            let blocks: Map<String, Value> = answers
                .iter()
                .map(|answer| {
                    let mut block = answer.as_object().unwrap().clone();
                    let metric = block.remove("metric").unwrap();
                    block.remove("weight");
                    block.insert("justification".into(), json!("because"));
                    (metric.as_str().unwrap().to_owned(), Value::Object(block))
                })
                .collect();
            let verdict =
                Verdict::from_reply(&Value::Object(blocks).to_string(), &selection, &[], &config);
            serde_json::to_value(verdict).unwrap()
        },
    );
}

/// What the expected values of `parse.jsonl` leave out.
const PARSE: [&str; 5] = [
    "dropped_metrics",
    "highlights",
    "justification",
    "pass_threshold",
    "raw_reply",
];

fn parsed(row: &Value, fences: ReplyFences) -> Value {
    let config = JudgeConfig {
        reply_fences: fences,
        ..config(row)
    };
    let outcomes: Option<Vec<String>> =
        serde_json::from_value(row["expected_outcomes"].clone()).unwrap();
    let raw = row["raw"].as_str().unwrap();
    let verdict = match config.resolve(&Catalogue::built_in()) {
        Ok(selection) => {
            Verdict::from_reply(raw, &selection, &outcomes.unwrap_or_default(), &config)
        }
        Err(_) => Verdict::failed(JudgeError::MetricResolution, config.pass_threshold),
    };
    let passed = case_passed(Some(&verdict));
    let mut found = serde_json::to_value(verdict).unwrap();
    found["case_passed"] = json!(passed);
    found
}

#[test]
fn replies() {
    check("parse.jsonl", 78, &PARSE, |row| {
        parsed(row, ReplyFences::Reject)
    });
}

#[test]
fn removing_fences_changes_fenced_replies_alone() {
    let mut fenced = 0;
    for row in golden("connexity/parse.jsonl", 78) {
        let found = parsed(&row, ReplyFences::Strip);
        if row["raw"].as_str().unwrap().starts_with("```") {
            assert_eq!(
                (&found["judge_error"], &found["overall_score"]),
                (&Value::Null, &json!(90.0)),
                "{}",
                row["id"]
            );
            fenced += 1;
        } else {
            assert!(
                same(&found, &row["expect"], &PARSE),
                "{}: {found}",
                row["id"]
            );
        }
    }
    assert!(fenced > 0, "no reply stands between fences");
}

#[test]
fn aggregates() {
    check(
        "aggregate.jsonl",
        52,
        &["avg_judged_score", "judge_error_count", "pass_threshold"],
        |row| match row["kind"].as_str().unwrap() {
            "run" => {
                let results = row["results"].as_array().unwrap().iter().map(|result| {
                    let mut result = result.clone();
                    result["case_passed"] = result["passed"].take();
                    result["overall_score"] = result["verdict"]["overall_score"].take();
                    serde_json::from_value(result).unwrap()
                });
                let results: Vec<CaseResult> = results.collect();
                let bars = RunBars {
                    metrics_pass_threshold: row["metrics_pass_threshold"].as_f64(),
                    cases_pass_threshold: row["cases_pass_threshold"].as_f64(),
                    ..RunBars::default()
                };
                serde_json::to_value(summarise(&results, &bars)).unwrap()
            }
            "case_latency" => {
                let latencies: Vec<i64> =
                    serde_json::from_value(row["assistant_latencies_ms"].clone()).unwrap();
                let found = CaseLatency::of(&latencies);
                json!({
                    "p50": found.agent_latency_p50_ms, "p95": found.agent_latency_p95_ms, "max": found.agent_latency_max_ms,
                })
            }
            kind => panic!("unknown kind `{kind}`"),
        },
    );
}

#[test]
fn comparisons() {
    check("compare.jsonl", 42, &["latency_p95_delta_ms"], |row| {
        let side = |name: &str| -> Vec<ComparedCase> {
            serde_json::from_value(row[name].clone()).unwrap()
        };
        let thresholds: Thresholds = serde_json::from_value(row["thresholds"].clone()).unwrap();
        serde_json::to_value(compare(&side("baseline"), &side("candidate"), &thresholds)).unwrap()
    });
}
