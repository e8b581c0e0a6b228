//! Evaluation folders against the golden records of trpc-agent-go: files, variables, votes and summaries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nightmill::suite::evalset::aggregate::{majority, mean_over_turns, summarise};
use nightmill::suite::evalset::environment::Environment;
use nightmill::suite::evalset::metrics_json::{read_metrics, write_metrics};
use nightmill::suite::evalset::model::EvalSet;
use nightmill::suite::evalset::result::{CaseResult, EvalSetResult, EvalStatus};
use serde_json::{Value, json};

use crate::support::{golden, golden_path};

/// The rows of a file. Every one has a known tier.
fn rows(file: &str, at_least: usize) -> Vec<Value> {
    let rows = golden(&format!("evalset/{file}"), at_least);
    for row in &rows {
        let tier = row["tier"].as_str().unwrap();
        assert!(
            ["core", "edge", "quirk", "either"].contains(&tier),
            "{}",
            row["id"]
        );
    }
    rows
}

fn status(value: &Value) -> EvalStatus {
    EvalStatus::named(value.as_str().unwrap()).unwrap()
}

/// Scores and statuses of a row's list.
fn scored(list: &Value) -> Vec<(f64, EvalStatus)> {
    let items = list.as_array().unwrap().iter();
    items
        .map(|item| (item["score"].as_f64().unwrap(), status(&item["status"])))
        .collect()
}

#[test]
fn golden_evalset_majority_votes_pick_the_same_sample() {
    for row in rows("majority_vote.jsonl", 16) {
        let got = majority(row["threshold"].as_f64().unwrap(), &scored(&row["samples"]));
        assert_eq!(
            got.is_err(),
            row["error"].as_bool().unwrap(),
            "{}",
            row["id"]
        );
        if let Ok(got) = got {
            assert_eq!(Some(got as u64), row["pick"].as_u64(), "{}", row["id"]);
        }
    }
}

/// Whether two JSON values are the same, numbers up to 1e-9.
fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() <= 1e-9
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same =
                |(key, value): (&String, &Value)| b.get(key).is_some_and(|b| close(value, b));
            a.len() == b.len() && a.iter().all(same)
        }
        (a, b) => a == b,
    }
}

#[test]
fn golden_evalset_aggregation_of_turns_and_runs_is_the_same() {
    for row in rows("aggregation.jsonl", 19) {
        let id = &row["id"];
        match row["kind"].as_str().unwrap() {
            "invocations" => {
                let threshold = row["threshold"].as_f64().unwrap();
                let (score, got) = mean_over_turns(threshold, scored(&row["results"]));
                assert!(
                    (score - row["score"].as_f64().unwrap()).abs() <= 1e-9,
                    "{id}: {score}"
                );
                assert_eq!(got, status(&row["status"]), "{id}");
            }
            "runs" => {
                let results = row["case_results"].as_array().unwrap().iter();
                let results = results.map(|result| CaseResult::from_json(result.clone()).unwrap());
                let results: Vec<CaseResult> = results.collect();
                let got = summarise(row["num_runs"].as_i64().unwrap(), &results);
                assert_eq!(got.is_err(), row["error"].as_bool().unwrap(), "{id}");
                let Ok(got) = got else { continue };
                let got = got.to_json();
                let later = row["tier"] == "either" && close(&got, &row["summary_later"]);
                assert!(later || close(&got, &row["summary"]), "{id}: {got:#}");
            }
            other => panic!("{id}: unknown kind {other}"),
        }
    }
}

#[test]
fn golden_evalset_variables_are_expanded_in_the_same_places() {
    for row in rows("env_expand.jsonl", 16) {
        let id = &row["id"];
        let values: BTreeMap<String, String> = serde_json::from_value(row["env"].clone()).unwrap();
        let environment = Environment::of(move |name| values.get(name).cloned());
        let text = json!([{"metricName": "m", "criterion": {"llmJudge": {"judgeModel": row["judgeModel"]}}}]);
        let loaded = read_metrics(&text.to_string(), "row", &environment);
        assert_eq!(loaded.is_err(), row["error"].as_bool().unwrap(), "{id}");
        let Ok(loaded) = loaded else { continue };
        let judge = loaded.value[0].rules.judge.as_ref().unwrap();
        let model = judge.model.as_ref().unwrap();
        let expanded = &row["expanded"];
        let expected = |name: &str| expanded[name].as_str().unwrap_or_default();
        assert_eq!(model.provider, expected("providerName"), "{id}");
        assert_eq!(model.name, expected("modelName"), "{id}");
        assert_eq!(model.variant, expected("variant"), "{id}");
        assert_eq!(model.base_url, expected("baseURL"), "{id}");
        assert_eq!(model.api_key, expected("apiKey"), "{id}");
        let extra = Value::from(model.extra_fields.clone());
        assert_eq!(
            &extra,
            expanded.get("extraFields").unwrap_or(&json!({})),
            "{id}"
        );
    }
}

/// Names of members that occur in a value.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        Value::Object(members) => {
            for (name, value) in members {
                into.insert(name.clone());
                names(value, into);
            }
        }
        _ => {}
    }
}

/// Takes out of `got` the members that `expected` does not have and that trpc-agent-go never writes: it drops what it
/// does not know, and nightmill keeps it.
fn drop_unknown(got: &mut Value, expected: &Value, known: &BTreeSet<String>) {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            got.retain(|name, _| expected.contains_key(name) || known.contains(name));
            for (name, value) in got {
                drop_unknown(value, expected.get(name).unwrap_or(&Value::Null), known);
            }
        }
        (Value::Array(got), Value::Array(expected)) => {
            for (got, expected) in got.iter_mut().zip(expected) {
                drop_unknown(got, expected, known);
            }
        }
        _ => {}
    }
}

fn no_variables() -> Environment {
    Environment::of(|_| None)
}

/// The text that a file of this kind is written as; none if it can't be read.
fn rewritten(kind: &str, text: &str) -> Option<String> {
    Some(match kind {
        "evalset" => EvalSet::from_text(text, "row").ok()?.value.to_text(),
        "metrics" => write_metrics(&read_metrics(text, "row", &no_variables()).ok()?.value),
        "result" => EvalSetResult::from_text(text, "row").ok()?.value.to_text(),
        other => panic!("unknown kind {other}"),
    })
}

#[test]
fn golden_evalset_files_are_written_as_trpc_agent_go_writes_them() {
    let rows = rows("file_roundtrip.jsonl", 22);
    let mut known = BTreeSet::new();
    for row in &rows {
        names(&row["output"], &mut known);
    }
    for row in rows {
        let id = &row["id"];
        let (kind, text) = (row["kind"].as_str().unwrap(), row["text"].as_str().unwrap());
        let error = row["error"].as_bool().unwrap();
        if kind == "epoch" {
            let set = EvalSet::from_text(&format!("{{\"creationTimestamp\": {text}}}"), "row");
            assert_eq!(set.is_err(), error, "{id}");
            let Ok(set) = set else { continue };
            let nanoseconds = set.value.created.map(|time| time.0.to_string());
            assert_eq!(nanoseconds.as_deref(), row["unix_nanos"].as_str(), "{id}");
            let again: Value = serde_json::from_str(&set.value.to_text()).unwrap();
            assert_eq!(
                again["creationTimestamp"].as_f64(),
                row["output"].as_f64(),
                "{id}"
            );
            continue;
        }
        let got = rewritten(kind, text);
        assert_eq!(got.is_none(), error, "{id}");
        let Some(got) = got else { continue };
        assert_eq!(rewritten(kind, &got).as_deref(), Some(got.as_str()), "{id}");
        let mut got: Value = serde_json::from_str(&got).unwrap();
        // trpc-agent-go loses the key when it writes the file; it goes out here, and nothing else does.
        if kind == "metrics" {
            for metric in got.as_array_mut().unwrap() {
                let model = metric.pointer_mut("/criterion/llmJudge/judgeModel");
                let key = model.and_then(|model| model.as_object_mut()?.shift_remove("apiKey"));
                assert!(
                    key.is_none_or(|key| text.contains(&key.to_string())),
                    "{id}"
                );
            }
        }
        drop_unknown(&mut got, &row["output"], &known);
        assert!(close(&got, &row["output"]), "{id}: {got:#}");
    }
}

/// A value without what an absent member stands for.
fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items = items
                .into_iter()
                .map(|item| without_empty(item).unwrap_or_default());
            let items: Vec<Value> = items.collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.filter_map(|(name, value)| Some((name, without_empty(value)?)));
            let members: serde_json::Map<_, _> = members.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        value => Some(value),
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Reads and writes every file below a folder, and returns how many of each kind there were.
fn rewrite_all(folder: &Path) -> BTreeMap<&'static str, usize> {
    let kinds = [
        (".evalset.json", "evalset"),
        (".metrics.json", "metrics"),
        (".evalset_result.json", "result"),
    ];
    let mut counts = BTreeMap::new();
    for path in files_below(folder) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((_, kind)) = kinds.iter().find(|(end, _)| name.ends_with(end)) else {
            assert_eq!(name, "scenario.json", "{}", path.display());
            continue;
        };
        *counts.entry(*kind).or_default() += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let got = rewritten(kind, &text).unwrap_or_else(|| panic!("{}", path.display()));
        let parsed = |text: &str| without_empty(serde_json::from_str(text).unwrap()).unwrap();
        assert!(
            close(&parsed(&got), &parsed(&text)),
            "{}: {got}",
            path.display()
        );
        if *kind != "metrics" {
            assert!(!got.contains("apiKey"), "{}", path.display());
        }
    }
    counts
}

#[test]
fn golden_evalset_folders_are_read_and_written_without_loss() {
    let counts = rewrite_all(&golden_path("evalset/files/authored"));
    for kind in ["evalset", "metrics", "result"] {
        assert!(
            counts.get(kind).is_some_and(|count| *count >= 4),
            "{counts:?}"
        );
    }
    let examples = golden_path("evalset/files/examples");
    if examples.exists() {
        let counts = rewrite_all(&examples);
        for kind in ["evalset", "metrics", "result"] {
            assert!(
                counts.get(kind).is_some_and(|count| *count >= 1),
                "{counts:?}"
            );
        }
    }
}
