//! Spans of a trace document, and calls of tools.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::text::parse_instant;

/// A span of a trace document, with its members as they were given.
#[derive(Clone, Copy, Debug)]
pub struct Span<'d>(&'d Map<String, Value>);

impl<'d> Span<'d> {
    /// Members that say which span it is, what it was and when: they are no payload.
    pub const IDENTITY: [&'static str; 8] = [
        "span_id",
        "trace_id",
        "parent_span_id",
        "name",
        "kind",
        "status",
        "started_at",
        "ended_at",
    ];

    /// A span; none of what is no object.
    pub fn of(value: &'d Value) -> Option<Self> {
        value.as_object().map(Self)
    }

    /// Those of a trace document, as they stand there.
    pub fn all(document: &'d Map<String, Value>) -> impl Iterator<Item = Self> {
        let spans = document.get("spans").and_then(Value::as_array);
        spans.into_iter().flatten().filter_map(Self::of)
    }

    /// A member, null too.
    pub fn get(self, member: &str) -> Option<&'d Value> {
        self.0.get(member)
    }

    /// The name; empty where there is none.
    pub fn name(self) -> &'d str {
        self.text("name").unwrap_or_default()
    }

    /// Whether the span is a call of a tool, in whatever case its kind is spelled.
    pub fn is_tool(self) -> bool {
        let kind = self.text("kind");
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("TOOL"))
    }

    /// When it began; none where that is no point in time.
    pub fn started_at(self) -> Option<DateTime<Utc>> {
        parse_instant(self.text("started_at")?).ok()
    }

    fn text(self, member: &str) -> Option<&'d str> {
        self.get(member)?.as_str()
    }
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the tool's answer refers to.
    #[serde(default)]
    pub id: Option<String>,
    /// The function's name.
    #[serde(default)]
    pub name: String,
    /// JSON text, as found.
    #[serde(default, deserialize_with = "json_text")]
    pub arguments: Option<String>,
}

/// JSON text as it is; any other value as its JSON text.
pub(crate) fn json_text<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(source)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spans_are_read_as_they_are() {
        let document = json!({"spans": [
            {"kind": "tool", "name": "look up", "started_at": "2026-01-01T01:00:00+01:00"}, 3, null,
            {"kind": "LLM", "name": 7, "started_at": "soon", "input": null},
        ]});
        let spans: Vec<Span<'_>> = Span::all(document.as_object().unwrap()).collect();
        let [tool, model] = spans[..] else {
            panic!("{spans:?}")
        };
        assert!(tool.is_tool() && !model.is_tool());
        assert_eq!((tool.name(), model.name()), ("look up", ""));
        let start = tool.started_at().unwrap();
        assert_eq!(start.to_rfc3339(), "2026-01-01T00:00:00+00:00");
        assert_eq!(model.started_at(), None);
        assert_eq!(
            (model.get("input"), model.get("output")),
            (Some(&Value::Null), None)
        );
        assert_eq!(Span::all(&Map::new()).count(), 0);
    }
}
