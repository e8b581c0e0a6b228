//! Judged metrics against the golden records of the original system, with scripted replies.

use std::collections::VecDeque;

use nightmill::judge::{
    Attempts, HttpJudge, JudgeFailed, Outcome, Policy, ProviderError, ProviderNotConfigured,
    ProviderSettings, resolve,
};
use nightmill::metric::{DEFAULT_THRESHOLD, Judged, Step, judged_metric, stored_value};
use nightmill::question::{Evidence, WhenTooLong};
use serde_json::{Value, json};

use crate::support::{assert_json_close, golden};

const DEFAULT_MODEL: &str = "local/judge";

/// Evaluates a record: its result or the code of its failure, and the calls made.
fn evaluate(record: &Value) -> (Result<Judged, &'static str>, Vec<Value>) {
    let mut calls = Vec::new();
    let model = resolve(record["model"].as_str().unwrap_or(DEFAULT_MODEL));
    // Whatever the environment of the tests holds.
    let without_key = ProviderSettings {
        key: Some(String::new()),
        ..ProviderSettings::default()
    };
    let asked = HttpJudge::new(without_key, std::slice::from_ref(&model));
    // Vertex AI is refused with or without its credentials.
    if let Err(ProviderError::NotConfigured(_) | ProviderError::NotSpoken { .. }) = asked {
        return (Err(ProviderNotConfigured::CODE), calls);
    }
    let metric = judged_metric(record["metric"].as_str().unwrap()).unwrap();
    let evidence = Evidence::new(&record["trace"], usize::MAX, WhenTooLong::Fail).unwrap();
    let threshold = record["threshold"].as_f64().unwrap_or(DEFAULT_THRESHOLD);
    let mut script: VecDeque<&Value> = record["replies"].as_array().unwrap().iter().collect();
    let mut replies = Vec::new();
    let result = loop {
        let question = match metric.next(&evidence, threshold, &replies).unwrap() {
            Step::Done(judged) => break Ok(judged),
            Step::Ask(question) => question,
        };
        let mut attempts = Attempts::new(Policy::Compat, question.shape);
        while let Some(call) = attempts.next_call() {
            assert_eq!(call.repair, None, "{}", record["id"]);
            let (stage, structured) = (question.name, call.structured);
            calls.push(json!({"stage": stage, "structured": structured, "model": model}));
            let reply = script
                .pop_front()
                .unwrap_or_else(|| panic!("{}: one call more", record["id"]));
            attempts.record(match reply["text"].as_str() {
                Some(text) => Outcome::Answer(text.to_owned()),
                None => Outcome::Failed(reply["error"].as_str().unwrap().to_owned()),
            });
        }
        match attempts.into_reply() {
            Ok(reply) => replies.push(reply),
            Err(_) => break Err(JudgeFailed::CODE),
        }
        assert!(replies.len() <= metric.prompts.len(), "{}", record["id"]);
    };
    assert!(script.is_empty(), "{}: replies are left over", record["id"]);
    (result, calls)
}

#[test]
fn judges_match_every_record() {
    let records = golden("pandaprobe/judges.jsonl", 76);
    for record in records {
        let (what, expected) = (record["id"].to_string(), &record["expected"]);
        let (result, calls) = evaluate(&record);
        assert_eq!(Value::Array(calls), expected["calls"], "{what}");
        match result {
            Err(code) => {
                assert_eq!(expected["outcome"], "failed", "{what}");
                assert_eq!(expected["error_code"], code, "{what}");
                assert_eq!(expected["stored_value"], Value::Null, "{what}");
            }
            Ok(judged) => {
                assert_eq!(expected["outcome"], "success", "{what}");
                let result = &expected["result"];
                assert_eq!(judged.score, result["score"].as_f64().unwrap(), "{what}");
                assert_eq!(
                    stored_value(judged.score),
                    expected["stored_value"],
                    "{what}"
                );
                // nightmill says when the judge gave more or fewer verdicts than there are calls.
                let mismatch = record["tag"].as_str().unwrap().contains("verdicts");
                let extra: &[&str] = if mismatch {
                    &["verdict_count_mismatch"]
                } else {
                    &[]
                };
                assert_eq!(
                    judged.metadata.contains_key("verdict_count_mismatch"),
                    mismatch,
                    "{what}"
                );
                let metadata = Value::Object(judged.metadata);
                assert_json_close(&metadata, &result["metadata"], 0.0, extra, &what);
                // Reasons of the judge are kept; those of early exits are our own words.
                if !record["tag"].as_str().unwrap().starts_with("no_plan")
                    && !record["tag"].as_str().unwrap().starts_with("no_tool_calls")
                {
                    assert_eq!(json!(judged.reason), result["reason"], "{what}");
                } else {
                    assert!(judged.reason.is_some(), "{what}");
                }
            }
        }
    }
}
