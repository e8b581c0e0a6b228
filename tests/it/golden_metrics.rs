//! Metrics against the golden records of the original system.

use std::collections::HashMap;

use nightmill::metric::agent_consistency::agent_consistency;
use nightmill::metric::agent_reliability::agent_reliability;
use nightmill::metric::coherence::Coherence;
use nightmill::metric::loop_detection::{self, DEFAULT_WINDOW, LoopDetection, Output};
use nightmill::metric::{
    DEFAULT_THRESHOLD, SessionSignals, SignalWeights, Signals, distance, norm_squared, round4,
};
use nightmill::model::Model;
use nightmill::text::{TextMode, WordSet, jaccard_of_texts, words};
use serde_json::Value;

use crate::support::{assert_json_close, golden, reference_models, vector};

/// The text of a golden value, through its JSON source so that nothing is lost on the way.
fn text(value: &Value) -> String {
    TextMode::Compat
        .text_of(value.to_string().as_bytes())
        .unwrap()
}

#[test]
fn to_text_matches_every_record_exactly() {
    for record in golden("pandaprobe/to_text.jsonl", 128) {
        let got = TextMode::Compat
            .text_of(record["value_json"].as_str().unwrap().as_bytes())
            .unwrap();
        assert_eq!(got, record["text"].as_str().unwrap(), "{}", record["id"]);
        assert_eq!(
            got.is_empty(),
            record["is_empty"].as_bool().unwrap(),
            "{}",
            record["id"]
        );
    }
}

#[test]
fn jaccard_matches_every_record_exactly() {
    for record in golden("pandaprobe/jaccard.jsonl", 126) {
        let (a, b) = (record["a"].as_str().unwrap(), record["b"].as_str().unwrap());
        for (text, expected) in [(a, &record["tokens_a"]), (b, &record["tokens_b"])] {
            let set: std::collections::BTreeSet<String> = words(text).into_iter().collect();
            let mut expected: Vec<String> = serde_json::from_value(expected.clone()).unwrap();
            expected.sort();
            assert_eq!(
                set.into_iter().collect::<Vec<_>>(),
                expected,
                "{}",
                record["id"]
            );
        }
        let jaccard = jaccard_of_texts(a, b);
        // The JSON reader may be off by one unit in the last place.
        assert!(
            (jaccard - record["jaccard"].as_f64().unwrap()).abs() < 1e-15,
            "{}",
            record["id"]
        );
        assert_eq!(
            round4(jaccard),
            record["jaccard_rounded"].as_f64().unwrap(),
            "{}",
            record["id"]
        );
    }
}

#[test]
fn coherence_matches_every_record() {
    for (model, tolerance) in reference_models() {
        for record in golden("pandaprobe/coherence.jsonl", 133) {
            let (input, output) = (text(&record["input"]), text(&record["output"]));
            let gap = (!input.is_empty() && !output.is_empty()).then(|| {
                let (a, b) = (vector(&model, &input), vector(&model, &output));
                distance(&a, &b, (norm_squared(&a), norm_squared(&b))).unwrap()
            });
            let threshold = record["threshold"].as_f64().unwrap_or(DEFAULT_THRESHOLD);
            let got = Coherence::new(gap, threshold).unwrap();
            let expected = &record["expected"];
            let what = record["id"].to_string();
            assert!(
                (got.score() - expected["score"].as_f64().unwrap()).abs() <= tolerance,
                "{what}: {}",
                got.score()
            );
            let mut metadata = String::new();
            got.push_metadata(&mut metadata);
            assert_json_close(
                &serde_json::from_str(&metadata).unwrap(),
                &expected["metadata"],
                tolerance,
                &[],
                &what,
            );
        }
    }
}

struct Embedded {
    vector: Vec<f32>,
    words: WordSet,
}

impl Embedded {
    fn new(model: &Model, text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self {
            vector: vector(model, text),
            words: WordSet::of(text),
        })
    }

    fn output(&self) -> Output<'_> {
        Output {
            vector: &self.vector,
            norm_squared: norm_squared(&self.vector),
            words: self.words.hashes(),
        }
    }
}

#[test]
fn loop_detection_matches_every_record() {
    for (model, tolerance) in reference_models() {
        for record in golden("pandaprobe/loop_detection.jsonl", 121) {
            let earlier = record["previous_outputs"].as_array().unwrap();
            let window = &earlier[earlier.len().saturating_sub(DEFAULT_WINDOW)..];
            let window: Vec<_> = window
                .iter()
                .map(|v| Embedded::new(&model, &text(v)))
                .collect();
            let window: Vec<_> = window
                .iter()
                .map(|e| e.as_ref().map(Embedded::output))
                .collect();
            let current = Embedded::new(&model, &text(&record["output"]));
            let threshold = loop_detection::threshold(record["threshold"].as_f64());
            let got = LoopDetection::new(
                current.as_ref().map(Embedded::output),
                &window,
                earlier.len(),
                threshold,
            )
            .unwrap();
            let expected = &record["expected"];
            let what = record["id"].to_string();
            assert!(
                (got.score() - expected["score"].as_f64().unwrap()).abs() <= tolerance,
                "{what}: {}",
                got.score()
            );
            let mut metadata = String::new();
            got.push_metadata(&mut metadata, |_| None);
            assert_json_close(
                &serde_json::from_str(&metadata).unwrap(),
                &expected["metadata"],
                tolerance,
                &[],
                &what,
            );
        }
    }
}

/// A golden session record, ready for an aggregator.
fn with_session(
    record: &Value,
    score: impl FnOnce(SessionSignals<'_>, &SignalWeights) -> (f64, String, String),
) {
    let traces: Vec<&str> = record["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_str().unwrap())
        .collect();
    let maps: Option<HashMap<String, HashMap<String, f64>>> =
        serde_json::from_value(record["signals"].clone()).unwrap();
    let signals: Vec<Signals> = traces
        .iter()
        .map(|id| {
            let get = |name: &str| maps.as_ref()?.get(*id)?.get(name).copied();
            Signals {
                confidence: get("confidence"),
                loop_detection: get("loop_detection"),
                tool_correctness: get("tool_correctness"),
                coherence: get("coherence"),
                ..Signals::default()
            }
        })
        .collect();
    let overrides: Option<serde_json::Map<String, Value>> =
        serde_json::from_value(record["signal_weights"].clone()).unwrap();
    let overrides: Vec<(String, f64)> = overrides
        .unwrap_or_default()
        .into_iter()
        .map(|(k, v)| (k, v.as_f64().unwrap()))
        .collect();
    let weights = SignalWeights::with(&overrides).unwrap();
    let any_source = maps.is_some_and(|maps| !maps.is_empty());
    let session = SessionSignals {
        trace_ids: &traces,
        signals: &signals,
        any_source,
    };
    let (got, metadata, reason) = score(session, &weights);
    let expected = &record["expected"];
    assert_eq!(got, expected["score"].as_f64().unwrap(), "{}", record["id"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    assert_json_close(
        &metadata,
        &expected["metadata"],
        0.0,
        &[],
        &record["id"].to_string(),
    );
    let numbers = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_digit())
            .filter(|n| !n.is_empty())
            .map(str::to_owned)
            .collect()
    };
    if expected["metadata"].get("note").is_none() && reason.contains("Elevated") {
        assert_eq!(
            numbers(&reason),
            numbers(expected["reason"].as_str().unwrap()),
            "{}",
            record["id"]
        );
    }
}

#[test]
fn agent_reliability_matches_every_record_exactly() {
    for record in golden("pandaprobe/agent_reliability.jsonl", 92) {
        with_session(&record, |session, weights| {
            let got = agent_reliability(session, weights);
            (got.score, got.metadata, got.reason)
        });
    }
}

#[test]
fn agent_consistency_matches_every_record_exactly() {
    for record in golden("pandaprobe/agent_consistency.jsonl", 92) {
        with_session(&record, |session, weights| {
            let got = agent_consistency(session, weights);
            (got.score, got.metadata, got.reason)
        });
    }
}
