//! What placeholders stand for: texts of the turn, steps of its execution trace, and the rubrics of the metric.

use serde_json::{Value, json};

use super::path;
use crate::suite::evalset::criterion::only_value;
use crate::suite::evalset::judged::{AskedTurn, content};
use crate::suite::evalset::model::{Invocation, Rubric, TemplateSource};

/// The value of a source, as text.
///
/// # Errors
/// A text for users: nothing is known of such a source, or it holds nothing.
pub(super) fn value(turn: &AskedTurn<'_>, source: &TemplateSource) -> Result<String, String> {
    let whole = whole(turn, source)?;
    if source.path.trim().is_empty() {
        return Ok(whole);
    }
    let json = only_value(&whole)
        .map_err(|e| format!("its `path` needs a value that is JSON, and this one is none: {e}"))?;
    Ok(match path::at(&json, source.path.trim())? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

fn whole(turn: &AskedTurn<'_>, source: &TemplateSource) -> Result<String, String> {
    let actual = turn.actual;
    match (source.scope.as_str(), source.field.as_str()) {
        ("actual", "userContent") => Ok(content(actual.user_content.as_ref()).to_owned()),
        ("actual", "finalResponse") => Ok(content(actual.final_response.as_ref()).to_owned()),
        ("actual", "traceStepInput") => snapshot(actual, source, "input"),
        ("actual", "traceStepOutput") => snapshot(actual, source, "output"),
        ("actual", "traceStepTools") => records(actual, source, "tools"),
        ("actual", "traceStepSkills") => records(actual, source, "skills"),
        ("expected", "finalResponse") => match &turn.expected.final_response {
            Some(message) => Ok(message.content.clone()),
            None => Err("the turn has no expected final response".to_owned()),
        },
        ("metric", "rubrics") => Ok(rubrics(turn.rubrics).to_string()),
        (scope, field) => Err(format!(
            "there is no source `{scope}.{field}`; known are actual.userContent, actual.finalResponse, \
             actual.traceStepInput, .traceStepOutput, .traceStepTools and .traceStepSkills, expected.finalResponse, \
             metric.rubrics"
        )),
    }
}

/// The text of a step's input or output.
fn snapshot(turn: &Invocation, source: &TemplateSource, side: &str) -> Result<String, String> {
    let step = step(turn, source)?;
    let text = member(step, side).and_then(|side| member(side, "text")?.as_str());
    let text = text.filter(|text| !text.trim().is_empty());
    let node = source.node.trim();
    text.map(str::to_owned)
        .ok_or_else(|| format!("the step `{node}` of the execution trace has no {side}"))
}

/// What a step recorded of tools or skills, as a JSON list.
fn records(turn: &Invocation, source: &TemplateSource, what: &str) -> Result<String, String> {
    let records = member(step(turn, source)?, what);
    let node = source.node.trim();
    match records.filter(|records| !records.is_null()) {
        None => Ok("[]".to_owned()),
        Some(records @ Value::Array(_)) => Ok(records.to_string()),
        Some(_) => Err(format!("`{what}` of the step `{node}` is no list")),
    }
}

/// The last step of the turn's execution trace at the node that the source selects.
fn step<'t>(turn: &'t Invocation, source: &TemplateSource) -> Result<&'t Value, String> {
    let node = source.node.trim();
    if node.is_empty() {
        return Err("it needs `selector.nodeID`, the step of the execution trace".to_owned());
    }
    let trace = turn
        .rest
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("executionTrace"));
    let trace = trace
        .map(|(_, trace)| trace)
        .filter(|trace| !trace.is_null());
    let trace = trace.ok_or(
        "the turn carries no execution trace (`executionTrace`); record one, or bind another source",
    )?;
    let steps = member(trace, "steps").and_then(Value::as_array);
    let mut steps = steps.into_iter().flatten().rev();
    let found = steps.find(|step| member(step, "nodeId").and_then(Value::as_str) == Some(node));
    found.ok_or_else(|| format!("the execution trace has no step at the node `{node}`"))
}

/// A member of an object, whatever the case of its letters: versions differ in it.
fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let mut members = value.as_object()?.iter();
    members
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// The rubrics as metrics files have them, those of the case among them.
fn rubrics(rubrics: &[Rubric]) -> Value {
    let rubrics = rubrics.iter().map(|rubric| {
        let content = rubric.text.as_ref().map(|text| json!({"text": text}));
        let said = |text: &str| (!text.is_empty()).then(|| text.into());
        let members = [
            ("id", said(&rubric.id)),
            ("content", content),
            ("description", said(&rubric.description)),
            ("type", said(&rubric.kind)),
        ];
        let members = members.into_iter();
        let written = members.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(written.collect())
    });
    rubrics.collect()
}
