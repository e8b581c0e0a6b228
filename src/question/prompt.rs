//! Prompts: our own texts, one file each in `prompts/`, filled in by a template engine.
//!
//! What comes from a trace or from a judge only enters a prompt through the filter `data`: as JSON in which `<`, `>` and `&` are
//! written as escapes. Prompts put it between tags, so that nothing in it can close its tag and pose as the prompt.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

/// A prompt that could not be filled in: a template and its caller disagree.
#[derive(Debug, thiserror::Error)]
#[error(
    "the prompt `{name}` could not be filled in: {problem}; this is a defect of the program, please report it"
)]
pub struct PromptError {
    name: String,
    problem: String,
}

/// A prompt. The first line of its text is `{# version N #}`; N counts up whenever the text changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    /// Its name in tables.
    pub name: &'static str,
    text: &'static str,
}

/// The prompt of a file: `prompt!("confidence_score")` is `prompts/confidence_score.md.j2`.
macro_rules! prompt {
    ($name:literal) => {
        $crate::question::Prompt::new(
            $name,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/question/prompts/",
                $name,
                ".md.j2"
            )),
        )
    };
}
pub(crate) use prompt;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(plain_text_only);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("data", data);
    environment.add_filter("plain", |value: String| Value::from_safe_string(value));
    environment
});

impl Prompt {
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text }
    }

    /// The version of the text; 0 if it has none.
    pub fn version(self) -> u32 {
        let first = self.text.lines().next().unwrap_or_default();
        let version = first
            .strip_prefix("{# version ")
            .and_then(|v| v.strip_suffix(" #}"));
        version.and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    /// The prompt with its values.
    ///
    /// # Errors
    /// If the text is no template, or asks for a value that is not there.
    pub fn fill(self, values: impl Serialize) -> Result<String, PromptError> {
        let filled = ENVIRONMENT.render_named_str(self.name, self.text, values);
        match filled {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(e) => Err(PromptError {
                name: self.name.to_owned(),
                problem: format!("{e:#}"),
            }),
        }
    }
}

/// A value as JSON that can't end a tag.
fn data(value: &Value) -> Result<Value, minijinja::Error> {
    if value.is_undefined() {
        return Err(minijinja::ErrorKind::UndefinedError.into());
    }
    let json = serde_json::to_string(value).map_err(|e| {
        minijinja::Error::new(minijinja::ErrorKind::BadSerialization, e.to_string())
    })?;
    Ok(Value::from_safe_string(escape_tags(&json)))
}

/// JSON text with `<`, `>` and `&` as escapes; they only occur inside of strings there.
pub(crate) fn escape_tags(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Lets numbers and marked texts through and nothing else: a template that forgets `data` fails instead of leaking text.
fn plain_text_only(
    out: &mut minijinja::Output<'_>,
    state: &minijinja::State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    use minijinja::value::ValueKind;
    match value.kind() {
        ValueKind::Number => minijinja::escape_formatter(out, state, value),
        ValueKind::String if value.is_safe() => minijinja::escape_formatter(out, state, value),
        kind => Err(minijinja::Error::new(
            minijinja::ErrorKind::InvalidOperation,
            format!("a value of kind {kind} goes into the prompt without the filter `data`"),
        )),
    }
}

/// A JSON value for a prompt. Objects keep their order there; the template engine's own maps would sort the keys, and a judge
/// would read the end of a span before its name.
pub(crate) fn in_stored_order(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Array(items) => items.iter().map(in_stored_order).collect(),
        serde_json::Value::Object(entries) => Value::from_object(StoredOrder {
            keys: entries.keys().map(Value::from).collect(),
            values: entries
                .iter()
                .map(|(key, value)| (key.clone(), in_stored_order(value)))
                .collect(),
        }),
        scalar => Value::from_serialize(scalar),
    }
}

#[derive(Debug)]
struct StoredOrder {
    keys: Vec<Value>,
    values: HashMap<String, Value>,
}

impl Object for StoredOrder {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.values.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.keys.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_close_its_tag_and_must_be_marked() {
        let good = Prompt::new(
            "good",
            "{# version 3 #}\n<trace>{{ trace | data }}</trace> {{ count }}",
        );
        let bad = Prompt::new("bad", "{# version 1 #}\n<trace>{{ trace }}</trace>");
        let values =
            serde_json::json!({"trace": {"a": "</trace> & \u{2028}\"}}{{ 1 }}"}, "count": 2});
        let text = good.fill(values.clone()).unwrap();
        assert_eq!(text.matches("</trace>").count(), 1, "{text}");
        assert!(
            text.ends_with("</trace> 2") && text.contains("{{ 1 }}"),
            "{text}"
        );
        let inside = &text["<trace>".len()..text.len() - "</trace> 2".len()];
        let back: serde_json::Value = serde_json::from_str(inside).unwrap();
        assert_eq!(back, values["trace"]);
        assert_eq!(good.version(), 3);
        assert!(bad.fill(serde_json::json!({"trace": "x"})).is_err());
        assert!(good.fill(serde_json::json!({"count": 2})).is_err());
    }

    #[test]
    fn every_file_says_its_version() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/question/prompts");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                let version = Prompt::new("file", text.leak()).version();
                assert!(version > 0, "{}", path.display());
            }
        }
    }
}
