//! Calls of tools of a few traces, read again for people to look at.

use std::collections::HashMap;

use super::TraceError;
use super::digest::failed;
use super::members::opened;
use super::rows::{Found, RowAt, rows_of_file};
use super::schema::SPANS;
use super::source::TraceSource;
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

impl TraceSource {
    /// Reads the tool calls of a few traces again, in their order in time. Rows whose spans can't be read have none.
    ///
    /// # Errors
    /// [`TraceError`] if a file has gone or changed since.
    pub fn calls_at(
        &self,
        mut places: Vec<RowAt>,
    ) -> Result<HashMap<RowAt, Vec<CalledTool>>, TraceError> {
        places.sort_unstable();
        places.dedup();
        let column = self.options.map.column(SPANS);
        let mut found = HashMap::new();
        for (at, file) in self.files.iter().enumerate() {
            let rows = rows_of_file(&places, at);
            let texts = file.texts();
            let each = &mut |number, row: Found<'_>| {
                let value = row.ok().and_then(|row| row.value(column)?.ok());
                let value = match (value, texts) {
                    (Some(Json::String(text)), _) => parse(text.as_bytes()).ok(),
                    (Some(spans), Some(_)) => {
                        let spans = opened(spans.into(), SPANS, texts).to_string();
                        parse(spans.as_bytes()).ok()
                    }
                    (value, None) => value,
                    (None, _) => None,
                };
                let calls = value.as_ref().map(calls_of).unwrap_or_default();
                if !calls.is_empty() {
                    found.insert(RowAt::new(at, number), calls);
                }
                Ok(true)
            };
            file.read_rows(&[column], &rows, self.options.limits, each)?;
        }
        Ok(found)
    }

    /// Whether inputs are read, and whether outputs are.
    pub fn reads_texts(&self) -> (bool, bool) {
        let columns = &self.options.columns;
        (columns.input, columns.reads_output())
    }
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
