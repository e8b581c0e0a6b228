//! Calls of tools, as people are shown them.

use super::digest::failed;
use super::format::NativeTexts;
use super::members::opened;
use super::schema::SPANS;
use crate::text::{Json, parse, parse_instant};

/// A call of a tool, as its span tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledTool {
    /// The tool; empty where the span has no name.
    pub name: String,
    /// What it was given, as text or JSON; empty where the span does not say.
    pub arguments: String,
    /// Whether it failed, as the signals count it.
    pub failed: bool,
    /// What it says of the failure, or what the tool answered where it says nothing; none of a call that went well.
    pub error: Option<String>,
}

/// The calls in a cell of spans, in their order in time; none in a cell that can't be read. `texts` says what the cells hold
/// of a file that was made from another format.
pub(super) fn calls_in(cell: Option<Json>, texts: Option<NativeTexts>) -> Vec<CalledTool> {
    let read = |text: &str| parse(text.as_bytes()).ok();
    let spans = match (cell, texts) {
        (Some(Json::String(text)), _) => read(&text),
        (Some(spans), Some(_)) => read(&opened(spans.into(), SPANS, texts).to_string()),
        (spans, _) => spans,
    };
    spans.as_ref().map(calls_of).unwrap_or_default()
}

fn calls_of(spans: &Json) -> Vec<CalledTool> {
    let is_tool = |span: &&Json| {
        let kind = span.get("kind").and_then(Json::text);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("TOOL"))
    };
    let spans = spans.items().unwrap_or_default().iter().filter(is_tool);
    let mut calls: Vec<(Option<_>, CalledTool)> = spans
        .map(|span| {
            let started_at = span.get("started_at").and_then(Json::text);
            let started_at = started_at.and_then(|text| parse_instant(text).ok());
            (started_at, call_of(span))
        })
        .collect();
    if calls.iter().all(|(started_at, _)| started_at.is_some()) {
        calls.sort_by_key(|(started_at, _)| *started_at);
    }
    calls.into_iter().map(|(_, call)| call).collect()
}

fn call_of(span: &Json) -> CalledTool {
    let text = |member: &str| span.get(member).map(words).unwrap_or_default();
    let failed = failed(span);
    let status = span.get("status");
    let of_status = ["message", "description"]
        .into_iter()
        .filter_map(|member| status?.get(member).map(words))
        .chain([text("status_message")]);
    let mut said = [text("error")]
        .into_iter()
        .chain(of_status)
        .chain([text("output")])
        .filter(|said| !said.trim().is_empty());
    CalledTool {
        name: text("name"),
        arguments: text("input"),
        failed,
        error: failed.then(|| said.next()).flatten(),
    }
}

/// A payload as people read it: texts as they are.
fn words(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        other => other.compact(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_in_time_and_say_what_went_wrong() {
        let spans = r#"[
            {"kind": "TOOL", "name": "later", "input": {"a": 1}, "output": "fine", "started_at": "2026-01-01T00:00:02Z"},
            {"kind": "LLM", "name": "model"},
            {"kind": "tool", "name": "first", "input": "x", "error": "no such order", "started_at": "2026-01-01T00:00:01Z"},
            {"kind": "TOOL", "name": "state", "status": {"code": "ERROR", "message": "timed out"}, "started_at": "2026-01-01T00:00:03Z"},
            {"kind": "TOOL", "name": "bare", "status": "error", "output": {"code": 500}, "started_at": "2026-01-01T00:00:04Z"}
        ]"#;
        let calls = calls_of(&parse(spans.as_bytes()).unwrap());
        let told: Vec<_> = calls
            .iter()
            .map(|c| (c.name.as_str(), c.arguments.as_str(), c.error.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("first", "x", Some("no such order")),
                ("later", r#"{"a":1}"#, None),
                ("state", "", Some("timed out")),
                ("bare", "", Some(r#"{"code":500}"#)),
            ]
        );
        assert!(calls_of(&Json::Null).is_empty());
    }
}
