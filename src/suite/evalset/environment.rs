//! Placeholders of metrics files: `$NAME` and `${NAME}` stand for variables of the environment, as Go's `os.Expand` has
//! it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

/// The key of a judge, the one member of a judge's model that nothing but the metrics file holds.
pub(super) const KEY: &str = "apiKey";
/// The members of a judge's model that variables are filled into, but for the key.
const EXPANDED: [&str; 4] = ["providerName", "modelName", "variant", "baseURL"];

/// The value of a variable; none if it is not set.
type Values = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Where the values of variables come from.
#[derive(Clone)]
pub struct Environment(Arc<Values>);

impl Environment {
    /// The environment of this process. Bytes that are no UTF-8 are U+FFFD.
    pub fn of_process() -> Self {
        Self::of(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Values from a function; none is a variable that is not set.
    pub fn of(values: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(values))
    }

    /// `text` with the values of its variables, filled in once from left to right. A variable that is not set is the
    /// empty text, and its name goes to `unset`. `${}` and `${` without an end are dropped; a `$` before anything that
    /// is no name stays.
    pub fn expand(&self, text: &str, unset: &mut BTreeSet<String>) -> String {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let (found, length) = placeholder(after);
            match found {
                Found::Nothing => expanded.push('$'),
                Found::Broken => {}
                Found::Variable(name) => match (self.0)(name) {
                    Some(value) => expanded.push_str(&value),
                    None => {
                        unset.insert(name.to_owned());
                    }
                },
            }
            rest = after.get(length..).unwrap_or_default();
        }
        expanded.push_str(rest);
        expanded
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::of_process()
    }
}

/// Values of variables are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// What a text behind a `$` begins with.
enum Found<'a> {
    /// No placeholder.
    Nothing,
    /// Braces that hold no name.
    Broken,
    Variable(&'a str),
}

/// The placeholder that begins the text behind a `$`, and its bytes there.
fn placeholder(text: &str) -> (Found<'_>, usize) {
    let special = |c: char| "*#$@!?-".contains(c) || c.is_ascii_digit();
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.find('}') {
            None => (Found::Broken, 1),
            Some(0) => (Found::Broken, 2),
            Some(end) => (
                Found::Variable(braced.get(..end).unwrap_or_default()),
                end + 2,
            ),
        };
    }
    let no_name = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let end = match text.starts_with(special) {
        true => 1,
        false => text.find(no_name).unwrap_or(text.len()),
    };
    match text.get(..end) {
        Some(name) if !name.is_empty() => (Found::Variable(name), end),
        _ => (Found::Nothing, 0),
    }
}

/// Texts of a judge's model as the metrics file has them, where those in use are others: with placeholders, and the
/// key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Unexpanded {
    texts: Vec<Placeholder>,
    key: Option<String>,
}

/// A member with placeholders.
#[derive(Clone, PartialEq, Eq)]
struct Placeholder {
    member: &'static str,
    text: String,
    value: String,
}

impl Unexpanded {
    /// Fills the variables into a judge's model and takes its key out. Returns the key with its variables filled in.
    pub(super) fn expand(
        model: &mut Map<String, Value>,
        environment: &Environment,
        unset: &mut BTreeSet<String>,
    ) -> (Self, String) {
        let mut texts = Vec::new();
        for member in EXPANDED {
            let Some(Value::String(stored)) = model.get_mut(member) else {
                continue;
            };
            let value = environment.expand(stored, unset);
            if value != *stored {
                let text = std::mem::replace(stored, value.clone());
                texts.push(Placeholder {
                    member,
                    text,
                    value,
                });
            }
        }
        let key = match model.shift_remove(KEY) {
            Some(Value::String(key)) => Some(key),
            _ => None,
        };
        let expanded = key.as_ref().map(|key| environment.expand(key, unset));
        (Self { texts, key }, expanded.unwrap_or_default())
    }

    /// Puts the texts back into a judge's model that is written to the metrics file: placeholders where the member
    /// still has the value that they stand for, and the key's text.
    pub(super) fn restore(&self, model: &mut Map<String, Value>) {
        for placeholder in &self.texts {
            let in_use = model.get(placeholder.member).and_then(Value::as_str);
            if in_use.unwrap_or_default() == placeholder.value {
                let text = placeholder.text.as_str();
                model.insert(placeholder.member.to_owned(), text.into());
            }
        }
        if let Some(key) = &self.key {
            model.insert(KEY.to_owned(), key.as_str().into());
        }
    }

    /// Whether there is nothing to put back.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.key.is_none()
    }
}

/// Says what there is, and no text: the key may be among them.
impl fmt::Debug for Unexpanded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.texts.iter().map(|placeholder| placeholder.member);
        f.debug_set()
            .entries(members.chain(self.key.as_ref().map(|_| KEY)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> (String, Vec<String>) {
        let values = |name: &str| match name {
            "A" => Some("a".to_owned()),
            "B" => Some("${A}".to_owned()),
            "1" => Some("one".to_owned()),
            "é" => Some("accent".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let mut unset = BTreeSet::new();
        let expanded = Environment::of(values).expand(text, &mut unset);
        (expanded, unset.into_iter().collect())
    }

    #[test]
    fn placeholders_are_those_of_go() {
        let cases = [
            ("$A-${A}.x", "a-a.x"),
            ("$A$A", "aa"),
            ("$B", "${A}"),
            ("$12", "one2"),
            ("${1}2", "one2"),
            ("x${}y", "xy"),
            ("x${A", "xA"),
            ("x${", "x"),
            ("cost $", "cost $"),
            ("$ $. $é", "$ $. $é"),
            ("${é}", "accent"),
            ("$Aé", "aé"),
            ("${EMPTY}!", "!"),
            ("%A% \\$A", "%A% \\a"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text), (expected.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn variables_that_are_not_set_are_empty_and_named() {
        assert_eq!(expand("a$$b"), ("ab".into(), vec!["$".into()]));
        assert_eq!(expand("$*$#$@$!$?$-").0, "");
        assert_eq!(expand("${*}").1, ["*"]);
        assert_eq!(expand("${A:-x}y"), ("y".into(), vec!["A:-x".into()]));
        assert_eq!(
            expand("${ A }$_"),
            (String::new(), vec![" A ".into(), "_".into()])
        );
        assert_eq!(expand("${${A}}"), ("}".into(), vec!["${A".into()]));
    }
}
