//! What a document has, and how it is made of a row's cells.

use serde_json::{Map, Value};

use super::format::NativeTexts;
use super::rows::{FoundRow, RowAt, RowFile};
use super::schema::ColumnMap;
use super::trace_id::canonical_trace_id;
use crate::text::Json;

/// Members of a document, in their order.
const MEMBERS: [&str; 17] = [
    "trace_id",
    "session_id",
    "name",
    "status",
    "started_at",
    "ended_at",
    "user_id",
    "environment",
    "release",
    "tags",
    "model",
    "input",
    "output",
    "error",
    "metadata",
    "spans",
    "project_id",
];
/// What filters look at: small columns only.
const FACTS: [&str; 10] = [
    "trace_id",
    "session_id",
    "project_id",
    "name",
    "status",
    "started_at",
    "user_id",
    "environment",
    "release",
    "tags",
];
/// Members whose text is JSON wherever it can be read as such.
const STRUCTURED: [&str; 3] = ["tags", "metadata", "spans"];

/// Members that are times.
const TIMES: [&str; 2] = ["started_at", "ended_at"];

/// Which members are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Ids, labels and times.
    Facts,
    /// Everything.
    All,
}

impl Members {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Facts => &FACTS,
            Self::All => &MEMBERS,
        }
    }
}

/// A trace's document and where it was found.
#[derive(Clone, Debug)]
pub struct TraceDocument {
    /// The canonical id.
    pub trace_id: String,
    /// Orders documents as they were read.
    pub at: RowAt,
    /// The members that are there and not null.
    pub members: Map<String, Value>,
}

impl Members {
    /// The document of a row; none without a trace id.
    pub(super) fn of_row(
        self,
        row: &FoundRow<'_>,
        at: RowAt,
        file: &RowFile,
        map: &ColumnMap,
    ) -> Option<TraceDocument> {
        let mut document = Map::new();
        for name in self.names() {
            let column = map.column(name);
            let partition = || {
                let mut partition = file.source.partition.iter();
                let value = partition.find(|(key, _)| key == column);
                value.map(|(_, value)| Value::String(value.clone()))
            };
            // A cell that can't become a value reads as missing.
            let value = row.value(column).and_then(Result::ok).map(Value::from);
            let value = value.map(|value| opened(value, column, file.texts()));
            let value = value.filter(|v| !v.is_null()).or_else(partition);
            let Some(value) = value else { continue };
            let structured = STRUCTURED.contains(name) || map.is_json(name);
            let value = match value {
                Value::String(text) if structured => parsed(text),
                Value::Number(count) if TIMES.contains(name) => {
                    let text = map.time_unit().and_then(|unit| unit.text(&count));
                    text.map_or(Value::Number(count), Value::String)
                }
                value => value,
            };
            document.insert((*name).to_owned(), value);
        }
        let trace_id = canonical_trace_id(&id_text(document.get("trace_id")?)?)?;
        document.insert("trace_id".into(), trace_id.clone().into());
        Some(TraceDocument {
            trace_id,
            at,
            members: document,
        })
    }
}

/// A value of a file that nightmill wrote from another format: with the documents that its texts hold.
pub(super) fn opened(value: Value, column: &str, texts: Option<NativeTexts>) -> Value {
    match (column, texts) {
        (_, None) => value,
        ("spans", _) => with_documents(value),
        ("input" | "output" | "expected", Some(NativeTexts::Documents)) => document_of(value),
        _ => value,
    }
}

/// An id among the members of a document: a text that is not empty, or a whole number.
pub fn label(members: &Map<String, Value>, name: &str) -> Option<String> {
    match members.get(name)? {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// JSON text as its value if it is an object or list, else as it is.
pub(super) fn parsed(text: String) -> Value {
    match crate::text::parse(text.as_bytes()) {
        Ok(json @ (Json::Array(_) | Json::Object(_))) => json.into(),
        _ => Value::String(text),
    }
}

/// A text that is a JSON object or list as that; JSON text of a text as the text.
fn document_of(value: Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(document) => document,
            Err(_) => parsed(text),
        },
        value => value,
    }
}

/// Spans whose inputs and outputs are the documents that their texts hold.
fn with_documents(mut spans: Value) -> Value {
    for span in spans.as_array_mut().into_iter().flatten() {
        for member in ["input", "output"] {
            if let Some(value) = span.get_mut(member)
                && let Value::String(text) = value
            {
                *value = parsed(std::mem::take(text));
            }
        }
        // What a span does not have is not shown.
        if let Some(members) = span.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn labels_are_texts_and_whole_numbers() {
        let members: Map<String, Value> =
            object(json!({"a": "x", "b": "", "c": 7, "d": 1.5, "e": null}));
        let labels = ["a", "b", "c", "d", "e", "f"].map(|name| label(&members, name));
        let expected = [Some("x"), None, Some("7"), None, None, None];
        assert_eq!(labels.each_ref().map(Option::as_deref), expected);
    }
}
