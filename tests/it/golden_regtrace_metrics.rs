//! Metrics that compare an output with an expected one against the golden records of the original system.

use nightmill::metric::checked::{Checked, Detail};
use nightmill::metric::comparison::{Compat, Part, Workspace};
use nightmill::metric::factuality::{
    self, FactualityMode, FactualityRules, Path, Structure, compare_json, shallow,
};
use nightmill::metric::format::{
    Assertion, Finding, FormatCase, FormatRules, SubCheck, format, sub_check,
};
use nightmill::metric::tone::{self, Dimension, ToneRules};
use serde_json::{Map, Value, json};

use crate::support::golden;

const BOTH: [Compat; 2] = [Compat::Document, Compat::Tool];

/// The rows of a file, all of tiers that are known.
fn rows(file: &str, at_least: usize) -> Vec<Value> {
    let rows = golden(&format!("regtrace/{file}"), at_least);
    for row in &rows {
        let tier = row["tier"].as_str().unwrap();
        assert!(["core", "edge", "quirk"].contains(&tier), "{tier}");
    }
    rows
}

/// Numbers absolutely within 1e-9 up to 1, relatively within 1e-12 above; all else exactly. Keys that only `got` has
/// are free.
#[track_caller]
fn assert_same(got: &Value, expected: &Value, what: &str) {
    match (got, expected) {
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (g.as_f64().unwrap(), e.as_f64().unwrap());
            let tolerance = 1e-9_f64.max(e.abs() * 1e-12);
            assert!((g - e).abs() <= tolerance, "{what}: {g} instead of {e}");
        }
        (Value::Object(g), Value::Object(e)) => {
            for (key, expected) in e {
                let got = g.get(key).unwrap_or_else(|| panic!("{what}: no {key}"));
                assert_same(got, expected, &format!("{what}.{key}"));
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

/// The details of a row that differs are those of the document.
fn details_of_document(row: &Value) -> &'static [&'static str] {
    match row.get("differs_from_code") {
        Some(_) => &["details"],
        None => &[],
    }
}

/// Checks what a row gives by the rules of the document and by those of the tool. `only_document` names the fields that
/// the tool does not have.
#[track_caller]
fn check(row: &Value, only_document: &[&str], got: impl Fn(Compat) -> Value) {
    for compat in BOTH {
        let mut expected = row["expect"].clone();
        if compat == Compat::Tool {
            let expected = expected.as_object_mut().unwrap();
            expected.retain(|key, _| !only_document.contains(&key.as_str()));
            expected.extend(
                row["differs_from_code"]
                    .as_object()
                    .cloned()
                    .unwrap_or_default(),
            );
        }
        let what = format!("{} ({compat:?})", row["id"]);
        let got = got(compat);
        assert_same(&got, &expected, &what);
        let sizes = |value: &Value| value.as_object().map(Map::len);
        for key in ["dimensions", "assertions"] {
            assert!(
                expected.get(key).is_none() || sizes(&got[key]) == sizes(&expected[key]),
                "{what}: {got}"
            );
        }
    }
}

fn text<'r>(row: &'r Value, key: &str) -> &'r str {
    row[key].as_str().unwrap()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap()
}

fn mode(row: &Value) -> FactualityMode {
    match text(row, "mode") {
        "strict" => FactualityMode::Strict,
        "lenient" => FactualityMode::Lenient,
        "json_structural" => FactualityMode::JsonStructural,
        other => panic!("{other}"),
    }
}

/// The parts that these maps switch on and weigh; what they leave out counts as by default.
fn parts<const N: usize>(names: [&str; N], enabled: &Value, weights: &Value) -> [Part; N] {
    for map in [enabled, weights] {
        for name in map.as_object().unwrap().keys() {
            assert!(names.contains(&name.as_str()), "{name}");
        }
    }
    names.map(|name| Part {
        enabled: enabled.get(name).is_none_or(|on| on.as_bool().unwrap()),
        weight: weights
            .get(name)
            .map_or(1.0, |weight| weight.as_f64().unwrap()),
    })
}

fn score_and_passed(checked: &Checked) -> Value {
    json!({"score": checked.score, "passed": checked.passed, "confidence": checked.confidence})
}

fn detail(detail: &Detail) -> Value {
    let mut entry = json!({"check": detail.check, "passed": detail.passed});
    let texts = [
        ("kind", detail.kind.map(str::to_owned)),
        ("expected", detail.expected.clone()),
        ("actual", detail.actual.clone()),
        ("message", detail.message.clone()),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            entry[key] = text.into();
        }
    }
    entry
}

fn details(checked: &Checked) -> Value {
    checked.details.iter().map(detail).collect()
}

#[test]
fn golden_regtrace_factuality_without_a_judge() {
    let mut paths = std::collections::BTreeSet::new();
    for row in rows("factuality_shallow.jsonl", 71) {
        assert_eq!(row["context_documents"], 0);
        check(&row, details_of_document(&row), |compat| {
            let rules = FactualityRules {
                mode: mode(&row),
                rag_faithfulness_only: row["rag_faithfulness_only"].as_bool().unwrap(),
                compat,
                ..FactualityRules::default()
            };
            let (actual, expected) = (text(&row, "actual"), text(&row, "expected"));
            let mut workspace = Workspace::default();
            let threshold = number(&row, "threshold");
            let found = shallow(actual, expected, &[], threshold, &rules, &mut workspace);
            let mut got = score_and_passed(&found.checked);
            got["path"] = found.path.name().into();
            got["details"] = details(&found.checked);
            got
        });
        paths.insert(text(&row["expect"], "path").to_owned());
    }
    assert!(paths.contains("ngram"), "{paths:?}");
}

#[test]
fn golden_regtrace_json_structures() {
    // One for all rows: nothing of one row may be left for the next.
    let workspace = std::cell::RefCell::new(Workspace::default());
    for row in rows("json_structural.jsonl", 85) {
        check(&row, details_of_document(&row), |compat| {
            let rules = FactualityRules {
                mode: mode(&row),
                compat,
                ..FactualityRules::default()
            };
            let (actual, expected) = (text(&row, "actual"), text(&row, "expected"));
            let (threshold, workspace) = (number(&row, "threshold"), &mut workspace.borrow_mut());
            let found = shallow(actual, expected, &[], threshold, &rules, workspace);
            assert_eq!(found.path, Path::Json, "{}", row["id"]);
            let structure = compare_json(actual, expected, usize::MAX, compat, workspace).unwrap();
            assert_eq!(structure.score(), found.checked.score);
            assert_eq!(structure.mismatch_count, structure.mismatches.len());
            let Structure {
                matched,
                expected_leaves,
                extra,
                mismatches,
                ..
            } = structure;
            let mismatches = mismatches.iter();
            let mismatches: Value = mismatches
                .map(|one| json!({"path": one.path, "kind": one.kind}))
                .collect();
            let mut got = score_and_passed(&found.checked);
            got["matched"] = matched.into();
            got["expected_leaves"] = expected_leaves.into();
            got["extra"] = extra.into();
            got["mismatches"] = mismatches;
            got["details"] = details(&found.checked);
            // Entries have what they must, and nothing else.
            if compat == Compat::Document {
                assert_eq!(got["details"], row["expect"]["details"], "{}", row["id"]);
            }
            got
        });
    }
}

fn sub_check_of(row: &Value, compat: Compat, workspace: &mut Workspace) -> Value {
    let name = text(row, "check");
    let which = SubCheck::ALL.into_iter().find(|check| check.name() == name);
    let rules = FormatRules {
        length_tolerance: number(row, "length_tolerance"),
        compat,
        ..FormatRules::default()
    };
    let found = sub_check(
        which.unwrap(),
        text(row, "actual"),
        text(row, "expected"),
        number(row, "threshold"),
        &rules,
        FormatCase::default(),
        workspace,
    );
    let mut got = json!({"score": found.score, "passed": found.passed});
    match found.finding {
        Finding::Fit(fit) => {
            let violations = fit.violations.iter();
            got["violations"] = violations
                .map(|one| json!({"path": one.path, "kind": one.kind}))
                .collect();
        }
        Finding::NoJson { .. } => got["violations"] = json!([]),
        Finding::Assertions(assertions) => {
            let assertions = Assertion::ALL.into_iter().zip(assertions);
            let applicable = assertions.filter_map(|(one, holds)| Some((one.name(), holds?)));
            got["assertions"] = applicable
                .map(|(name, holds)| (name.to_owned(), holds.into()))
                .collect::<Map<_, _>>()
                .into();
        }
        Finding::Regex(outcome) => got["rejected"] = outcome.rejected().into(),
        _ => {}
    }
    got
}

fn format_of(row: &Value, compat: Compat, workspace: &mut Workspace) -> Value {
    let rules = FormatRules {
        sub_checks: parts(
            SubCheck::ALL.map(SubCheck::name),
            &row["sub_checks"],
            &row["sub_check_weights"],
        ),
        length_tolerance: number(row, "length_tolerance"),
        compat,
        ..FormatRules::default()
    };
    let (actual, expected) = (text(row, "actual"), text(row, "expected"));
    let case = FormatCase::default();
    let checked = format(
        actual,
        expected,
        number(row, "threshold"),
        &rules,
        case,
        workspace,
    );
    let mut got = score_and_passed(&checked);
    got["details"] = details(&checked);
    got
}

fn check_format(row: &Value) {
    let workspace = std::cell::RefCell::new(Workspace::default());
    check(row, &["violations", "assertions"], |compat| {
        let workspace = &mut workspace.borrow_mut();
        match text(row, "kind") {
            "sub_check" => sub_check_of(row, compat, workspace),
            "metric" => format_of(row, compat, workspace),
            other => panic!("{other}"),
        }
    });
}

#[test]
fn golden_regtrace_format() {
    rows("format.jsonl", 128).iter().for_each(check_format);
}

#[test]
fn golden_regtrace_regular_expressions() {
    rows("format_regex.jsonl", 40).iter().for_each(check_format);
}

fn tone_rules(row: &Value, compat: Compat) -> ToneRules {
    let names = Dimension::ALL.map(Dimension::name);
    ToneRules {
        dimensions: parts(names, &row["sub_dimensions"], &row["sub_dimension_weights"]),
        compat,
        ..ToneRules::default()
    }
}

#[test]
fn golden_regtrace_tone_by_heuristics() {
    for row in rows("tone_heuristic.jsonl", 69) {
        check(&row, &[], |compat| {
            let rules = tone_rules(&row, compat);
            let (actual, expected) = (text(&row, "actual"), text(&row, "expected"));
            let mut workspace = Workspace::default();
            let threshold = number(&row, "threshold");
            let found = tone::heuristic(actual, expected, threshold, &rules, &mut workspace);
            let values = Dimension::ALL.into_iter().zip(found.dimensions);
            let values =
                values.filter_map(|(one, value)| Some((one.name().to_owned(), value?.into())));
            let mut got = score_and_passed(&found.checked);
            got["dimensions"] = values.collect::<Map<_, _>>().into();
            got
        });
    }
}

fn claims_of(row: &Value) -> Value {
    let claim = |verdict: &Value| json!({"claim": "c", "verdict": verdict, "evidence": "e"});
    let claims: Value = row["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(claim)
        .collect();
    let reply = json!({"claims": claims, "confidence": 0.9, "explanation": "x"});
    let rules = FactualityRules {
        mode: mode(row),
        deep: true,
        ..FactualityRules::default()
    };
    let found = factuality::judged(&reply.to_string(), number(row, "threshold"), &rules, None);
    let Some(found) = found else {
        return json!({"usable": false});
    };
    let mut got = score_and_passed(&found.checked);
    got["usable"] = true.into();
    got["supported"] = found.supported.into();
    got["contradicted"] = found.contradicted.into();
    got["unverifiable"] = found.unverifiable.into();
    got["failure_count"] = found.failure_count().into();
    got
}

fn judged_tone_of(row: &Value) -> Value {
    let rules = tone_rules(row, Compat::Document);
    let called = rules.asks_judge();
    let reply = row["reply"].to_string();
    let Some(found) = tone::judged(&reply, number(row, "threshold"), &rules, None) else {
        return json!({"usable": false, "judge_called": called});
    };
    let mut got = score_and_passed(&found.checked);
    got["usable"] = true.into();
    got["judge_called"] = called.into();
    got
}

#[test]
fn golden_regtrace_judged_metrics() {
    for row in rows("judged.jsonl", 47) {
        let got = match text(&row, "kind") {
            "deep_claims" => claims_of(&row),
            "tone_judge" => judged_tone_of(&row),
            other => panic!("{other}"),
        };
        assert_same(&got, &row["expect"], &row["id"].to_string());
    }
}
