//! A payload as it stands in a cell: a value, or a text that may hold JSON. It is parsed once.

use serde_json::Value;

use super::Payload;
use super::said::{Speaker, of_text, said};
use super::values::nested;

/// An input or output, read once.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The text as exported; none where the exporter wrote a value.
    text: Option<String>,
    /// What it holds.
    value: Value,
}

impl Cell {
    /// None for null, also as text, for empty text and absent values.
    pub fn new(value: Option<&Value>) -> Option<Self> {
        match value? {
            Value::Null => None,
            Value::String(text) if text.is_empty() || text.trim() == "null" => None,
            Value::String(text) => Some(Self {
                value: nested(text).unwrap_or_else(|| Value::String(text.clone())),
                text: Some(text.clone()),
            }),
            other => Some(Self {
                text: None,
                value: other.clone(),
            }),
        }
    }

    /// The same of a text that is a JSON document of any kind, also a quoted text or a number.
    pub fn encoded(value: Option<&Value>) -> Option<Self> {
        match value? {
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                Ok(inner @ Value::String(_)) => Self::new(Some(&inner)),
                Ok(Value::Null) => None,
                _ => Self::new(value),
            },
            other => Self::new(Some(other)),
        }
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// With what was said in it.
    pub fn payload(&self, speaker: Speaker) -> Payload {
        match (&self.text, &self.value) {
            // Text in quotes, and literals of Python.
            (Some(text), Value::String(_)) => match of_text(text, speaker) {
                Some((payload, _)) => payload,
                None => Payload::text(text.clone()),
            },
            (None, Value::String(_)) => self.document(),
            (_, value) => Payload {
                said: said(value, speaker),
                ..self.document()
            },
        }
    }

    /// As it is: arguments and results of tools.
    pub fn document(&self) -> Payload {
        match (&self.text, &self.value) {
            (None, Value::String(text)) => Payload::text(text.clone()),
            (None, value) => Payload::document(value, None),
            (Some(text), value) => Payload {
                raw: text.clone(),
                json: !value.is_string(),
                said: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_stays_as_exported_and_quotes_go_where_they_are_json() {
        let cell = Cell::new(Some(&json!("{\"query\":  \"a\"}"))).unwrap();
        let payload = cell.payload(Speaker::User);
        assert_eq!(payload.raw, "{\"query\":  \"a\"}");
        assert!(payload.json);
        assert_eq!(payload.said.as_deref(), Some("a"));
        assert_eq!(cell.document().said, None);

        let quoted = json!("\"hi\"");
        let said = Cell::new(Some(&quoted)).unwrap().payload(Speaker::User);
        assert_eq!(said.said.as_deref(), Some("hi"));
        assert_eq!(Cell::new(Some(&quoted)).unwrap().document().raw, "\"hi\"");
        assert_eq!(Cell::encoded(Some(&quoted)).unwrap().document().raw, "hi");
        assert!(Cell::encoded(Some(&json!("null"))).is_none());
        assert_eq!(
            Cell::encoded(Some(&json!("5"))).unwrap().document().raw,
            "5"
        );
        assert!(Cell::new(Some(&json!(""))).is_none());
    }
}
