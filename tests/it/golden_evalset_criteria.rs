//! The comparisons of trpc-agent-go's evaluation against golden records.

use nightmill::suite::evalset::criterion::{
    Comparison, FinalResponseCriterion, JsonCriterion, MismatchKind, TextCriterion,
    ToolTrajectoryCriterion,
};
use nightmill::suite::evalset::model::{Invocation, Message, ToolUse};
use serde_json::Value;

use crate::support::golden;

/// Checks the verdict of a record. Of tier `either` two verdicts are right.
#[track_caller]
fn check(record: &Value, comparison: &Comparison) {
    let id = &record["id"];
    let got = comparison.is_ok();
    let is_right = match record["tier"].as_str().unwrap() {
        "core" | "edge" | "quirk" => record["match"] == got,
        "either" => record["match"] == got || record["match_later"] == got,
        other => panic!("{id}: the tier {other} is not known"),
    };
    assert!(is_right, "{id}: {comparison:?}");
    if let Err(mismatch) = comparison {
        assert!(!mismatch.reason.is_empty(), "{id}");
    }
}

/// Whether a mismatch is one of the criterion itself.
#[track_caller]
fn check_kind(record: &Value, comparison: &Comparison) {
    let is_config = matches!(comparison, Err(m) if m.kind == MismatchKind::Config);
    let expected = record["config_error"].as_bool().unwrap_or(false);
    assert_eq!(is_config, expected, "{}: {comparison:?}", record["id"]);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn invocation(value: &Value) -> Option<Invocation> {
    let value = value.as_object()?;
    let response = value.get("finalResponse").filter(|v| !v.is_null());
    let tools = value.get("tools").and_then(Value::as_array);
    Some(Invocation {
        final_response: response.map(|message| Message {
            role: text(&message["role"]),
            content: text(&message["content"]),
            ..Message::default()
        }),
        tools: tools.into_iter().flatten().map(tool).collect(),
        ..Invocation::default()
    })
}

fn tool(value: &Value) -> Option<ToolUse> {
    (!value.is_null()).then(|| ToolUse {
        id: text(&value["id"]),
        name: text(&value["name"]),
        arguments: value["arguments"].clone(),
        result: value["result"].clone(),
        ..ToolUse::default()
    })
}

#[test]
fn golden_evalset_texts_match_as_in_every_record() {
    for record in golden("evalset/text_criterion.jsonl", 46) {
        let criterion = TextCriterion::read(&record["criterion"], "text").unwrap();
        let (actual, expected) = (&record["actual"], &record["expected"]);
        let comparison = criterion.compare(actual.as_str().unwrap(), expected.as_str().unwrap());
        check(&record, &comparison);
        check_kind(&record, &comparison);
    }
}

#[test]
fn golden_evalset_values_match_as_in_every_record() {
    for record in golden("evalset/json_criterion.jsonl", 64) {
        let criterion = JsonCriterion::read(&record["criterion"], "json").unwrap();
        let comparison = criterion.compare(&record["actual"], &record["expected"]);
        check(&record, &comparison);
        check_kind(&record, &comparison);
    }
}

#[test]
fn golden_evalset_tool_calls_match_as_in_every_record() {
    for record in golden("evalset/tool_trajectory.jsonl", 45) {
        let criterion = ToolTrajectoryCriterion::read(&record["criterion"], "toolTrajectory");
        let (actual, expected) = (
            invocation(&record["actual"]),
            invocation(&record["expected"]),
        );
        let comparison = criterion
            .unwrap()
            .compare(actual.as_ref(), expected.as_ref());
        check(&record, &comparison);
        if let (Err(mismatch), Some(kind)) = (&comparison, record["mismatch"].as_str()) {
            assert_eq!(mismatch.kind.name(), kind, "{}: {mismatch}", record["id"]);
        }
    }
}

#[test]
fn golden_evalset_final_responses_match_as_in_every_record() {
    for record in golden("evalset/final_response.jsonl", 43) {
        let criterion = FinalResponseCriterion::read(&record["criterion"], "finalResponse");
        let (actual, expected) = (
            invocation(&record["actual"]),
            invocation(&record["expected"]),
        );
        let comparison = criterion
            .unwrap()
            .compare(actual.as_ref(), expected.as_ref());
        check(&record, &comparison);
    }
}
