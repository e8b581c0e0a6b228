//! Prompts: our own texts, one file each in `prompts/`, filled in by a template engine.
//!
//! What comes from a trace or from a judge only enters a prompt through the filter `data`: as JSON in which `<`, `>` and `&` are
//! written as escapes. Prompts put it between tags, so that nothing in it can close its tag and pose as the prompt.

use std::collections::BTreeMap;

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

/// A set of prompts by name.
#[derive(Debug)]
pub(crate) struct Prompts {
    environment: Environment<'static>,
    versions: BTreeMap<&'static str, u32>,
    broken: Option<String>,
}

/// The name of a prompt and its text: `prompt!("confidence_score")` is the file `prompts/confidence_score.md.j2`.
macro_rules! prompt {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/judge/prompts/",
                $name,
                ".md.j2"
            )),
        )
    };
}
pub(crate) use prompt;

impl Prompts {
    /// Reads templates. The first line of each is `{# version N #}`; N counts up whenever the text changes.
    pub fn new(templates: &[(&'static str, &'static str)]) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_formatter(plain_text_only);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_filter("data", data);
        environment.add_filter("plain", |value: String| Value::from_safe_string(value));
        let (mut versions, mut broken) = (BTreeMap::new(), None);
        for (name, text) in templates {
            let first = text.lines().next().unwrap_or_default();
            let version = first
                .strip_prefix("{# version ")
                .and_then(|v| v.strip_suffix(" #}"));
            match version.map(str::parse) {
                Some(Ok(version)) => {
                    versions.insert(*name, version);
                }
                _ => broken = Some(format!("{name}: the first line is no `{{# version N #}}`")),
            }
            if let Err(e) = environment.add_template(name, text) {
                broken = Some(format!("{name}: {e:#}"));
            }
        }
        Self {
            environment,
            versions,
            broken,
        }
    }

    /// The prompt with its values.
    ///
    /// # Errors
    /// If the template is not there or asks for a value that is not.
    pub fn fill(&self, name: &str, values: impl Serialize) -> Result<String, PromptError> {
        let filled = self
            .environment
            .get_template(name)
            .and_then(|template| template.render(values));
        filled
            .map(|text| text.trim().to_owned())
            .map_err(|e| PromptError {
                name: name.to_owned(),
                problem: self.broken.clone().unwrap_or_else(|| format!("{e:#}")),
            })
    }

    /// The version of a prompt's text.
    pub fn version(&self, name: &str) -> u32 {
        self.versions.get(name).copied().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_close_its_tag_and_must_be_marked() {
        let prompts = Prompts::new(&[
            (
                "good",
                "{# version 3 #}\n<trace>{{ trace | data }}</trace> {{ count }}",
            ),
            ("bad", "{# version 1 #}\n<trace>{{ trace }}</trace>"),
        ]);
        let values =
            serde_json::json!({"trace": {"a": "</trace> & \u{2028}\"}}{{ 1 }}"}, "count": 2});
        let text = prompts.fill("good", values.clone()).unwrap();
        assert_eq!(text.matches("</trace>").count(), 1, "{text}");
        assert!(
            text.ends_with("</trace> 2") && text.contains("{{ 1 }}"),
            "{text}"
        );
        let inside = &text["<trace>".len()..text.len() - "</trace> 2".len()];
        let back: serde_json::Value = serde_json::from_str(inside).unwrap();
        assert_eq!(back, values["trace"]);
        assert_eq!(prompts.version("good"), 3);
        assert!(
            prompts
                .fill("bad", serde_json::json!({"trace": "x"}))
                .is_err()
        );
        assert!(
            prompts
                .fill("good", serde_json::json!({"count": 2}))
                .is_err()
        );
    }
}
