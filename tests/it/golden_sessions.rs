//! Whole session evaluations against the golden records: traces and judged signals in, session
//! scores out, through files and the program's own plan.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{golden, nightmill, read_parquet};

/// The signals that a run is given: judged values in range, and stored scores that are reused.
fn signals(trace: &Value) -> serde_json::Map<String, Value> {
    let mut given = serde_json::Map::new();
    for (name, value) in trace["judge"].as_object().unwrap() {
        if value.as_f64().is_some_and(|v| (0.0..=1.0).contains(&v)) {
            given.insert(name.clone(), value.clone());
        }
    }
    let mut latest: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
    for score in trace["existing_scores"].as_array().unwrap() {
        let value = score["value"].as_str().and_then(|v| v.parse().ok());
        if let (Some("SUCCESS"), Some(value)) = (score["status"].as_str(), value) {
            let (name, at) = (
                score["name"].as_str().unwrap(),
                score["created_at"].as_str().unwrap(),
            );
            let entry = latest.entry(name).or_insert((at, value));
            if at >= entry.0 {
                *entry = (at, value);
            }
        }
    }
    given.extend(
        latest
            .into_iter()
            .map(|(name, (_, value))| (name.to_owned(), json!(value))),
    );
    given
}

#[test]
fn session_scores_match_every_record() {
    // 0.0005 is the promise for the shipped weights; with the original ones, 4 decimals are equal.
    session_scores_match(None, 0.0005);
    if let Some(original) = std::env::var_os("NIGHTMILL_F32_MODEL") {
        let original = original.into_string().unwrap();
        session_scores_match(Some(&original), 1e-9);
    }
}

fn session_scores_match(model: Option<&str>, tolerance: f64) {
    use arrow::array::AsArray;
    let folder = tempfile::tempdir().unwrap();
    for (number, record) in golden("pandaprobe/session_eval.jsonl", 26)
        .iter()
        .enumerate()
    {
        let at = |name: &str| {
            folder
                .path()
                .join(format!("{number}-{name}"))
                .display()
                .to_string()
        };
        let (mut traces, mut given) = (String::new(), String::new());
        for trace in record["traces"].as_array().unwrap() {
            let mut line = trace.clone();
            line["session_id"] = record["session_id"].clone();
            traces.push_str(&format!("{line}\n"));
            let mut signals = signals(trace);
            signals.insert("trace_id".into(), trace["trace_id"].clone());
            for name in [
                "confidence",
                "tool_correctness",
                "coherence",
                "loop_detection",
            ] {
                signals.entry(name).or_insert(Value::Null);
            }
            given.push_str(&format!("{}\n", Value::Object(signals)));
        }
        std::fs::write(at("traces.jsonl"), traces).unwrap();
        std::fs::write(at("signals.jsonl"), given).unwrap();
        let metrics: Vec<&str> = record["metrics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m.as_str().unwrap())
            .collect();
        let mut args = vec![
            "score".into(),
            at("traces.jsonl"),
            "--out".into(),
            at("run"),
            "--signals".into(),
            at("signals.jsonl"),
        ];
        args.extend(["--metrics".into(), metrics.join(","), "--no-report".into()]);
        args.extend(["--precision".into(), "f32".into()]);
        // PandaProbe scores sessions without evidence.
        args.extend(["--on-no-evaluable".into(), "one".into()]);
        args.extend(model.iter().flat_map(|m| ["--model".into(), (*m).into()]));
        if let Some(weights) = record["signal_weights"].as_object() {
            let weights: Vec<String> = weights.iter().map(|(n, w)| format!("{n}={w}")).collect();
            args.extend(["--weights".into(), weights.join(",")]);
        }
        let ran = nightmill(&args);
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", record["id"]);
        let sessions = read_parquet(std::path::Path::new(&at("run")).join("sessions").as_path());
        for expected in record["expected"]["session_scores"].as_array().unwrap() {
            let name = expected["name"].as_str().unwrap();
            let column = sessions
                .column_by_name(name)
                .unwrap()
                .as_primitive::<arrow::datatypes::Float64Type>();
            let value: f64 = expected["value"].as_str().unwrap().parse().unwrap();
            let difference = (column.value(0) - value).abs();
            assert!(
                difference <= tolerance,
                "{} {name} with {model:?}: {} is not {value}",
                record["id"],
                column.value(0)
            );
        }
    }
}
