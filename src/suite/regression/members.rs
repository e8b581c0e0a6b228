//! Reading a document by hand: every value with its path, all faults at once, unknown keys as warnings.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::file_fault::{Fault, Faults};
use crate::text::nearest;

/// Most names of a block of metrics or gates.
const MOST_NAMES: usize = 100;
/// Most warnings that are kept of a document.
const MOST_WARNINGS: usize = 100;

/// What reading a document found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    faults: RefCell<Vec<Fault>>,
    warnings: RefCell<Vec<Fault>>,
}

impl Findings {
    pub(super) fn fault(&self, path: impl Into<String>, problem: impl Into<String>) {
        self.faults.borrow_mut().push(Fault {
            path: path.into(),
            problem: problem.into(),
        });
    }

    pub(super) fn warn(&self, path: impl Into<String>, problem: impl Into<String>) {
        self.warnings.borrow_mut().push(Fault {
            path: path.into(),
            problem: problem.into(),
        });
    }

    /// The warnings; or the faults if there is any.
    pub(super) fn finish(self) -> Result<Vec<Fault>, Faults> {
        let faults = self.faults.into_inner();
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let mut warnings = self.warnings.into_inner();
        if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
            warnings.truncate(MOST_WARNINGS);
            warnings.push(Fault {
                path: String::new(),
                problem: format!("there are {more} more warnings"),
            });
        }
        Ok(warnings)
    }
}

/// What a value is, in words.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.chars().count() <= 40 => format!("the text `{text}`"),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a block of keys".to_owned(),
    }
}

/// The path of `key` in the block at `path`.
pub(super) fn below(path: &str, key: &str) -> String {
    match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    }
}

/// The members of a block of keys. A key that is there without a value (null) counts as one that is not there.
pub(super) struct Members<'a> {
    findings: &'a Findings,
    path: String,
    members: Option<&'a Map<String, Value>>,
    asked: RefCell<Vec<&'a str>>,
}

impl<'a> Members<'a> {
    /// Those of `value`, which must be a block or null.
    pub(super) fn of(findings: &'a Findings, path: impl Into<String>, value: &'a Value) -> Self {
        let path = path.into();
        let members = match value {
            Value::Object(members) => Some(members),
            Value::Null => None,
            other => {
                let kind = kind_of(other);
                findings.fault(path.clone(), format!("is {kind}; write a block of keys"));
                None
            }
        };
        Self {
            findings,
            path,
            members,
            asked: RefCell::default(),
        }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        below(&self.path, key)
    }

    pub(super) fn fault(&self, key: &str, problem: impl Into<String>) {
        self.findings.fault(self.path_of(key), problem);
    }

    pub(super) fn warn(&self, key: &str, problem: impl Into<String>) {
        self.findings.warn(self.path_of(key), problem);
    }

    /// The value of `key`; none where it is missing or null.
    pub(super) fn value(&self, key: &'a str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(key);
        let value = self.members?.get(key)?;
        (!value.is_null()).then_some(value)
    }

    /// Whether the key is there, be it with null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.is_some_and(|of| of.contains_key(key))
    }

    /// Names that the block may have besides those that are asked for.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.members
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
    }

    /// The names of a block whose names are metrics or the like: an error where there are more than anybody has.
    pub(super) fn few_names(&self) -> Vec<&'a str> {
        let names: Vec<&str> = self.names().take(MOST_NAMES + 1).collect();
        if names.len() > MOST_NAMES {
            let problem = format!("has more than {MOST_NAMES} names");
            self.findings.fault(self.path.clone(), problem);
            return Vec::new();
        }
        names
    }

    pub(super) fn block(&self, key: &'a str) -> Self {
        let value = self.value(key).unwrap_or(&Value::Null);
        Self::of(self.findings, self.path_of(key), value)
    }

    /// The block of `key`, if it is there with a value.
    pub(super) fn optional_block(&self, key: &'a str) -> Option<Self> {
        let value = self.value(key)?;
        Some(Self::of(self.findings, self.path_of(key), value))
    }

    pub(super) fn text(&self, key: &'a str) -> Option<&'a str> {
        let value = self.value(key)?;
        if value.is_string() {
            return value.as_str();
        }
        let hint = match value {
            Value::Number(_) | Value::Bool(_) => "put it in quotes",
            _ => "write a text",
        };
        self.fault(key, format!("is {}; {hint}", kind_of(value)));
        None
    }

    /// A text that must be there and have at least one character.
    pub(super) fn required_text(&self, key: &'a str) -> String {
        match self.value(key) {
            None => {
                self.fault(key, "is missing; write a text");
                String::new()
            }
            Some(_) => match self.text(key) {
                Some("") => {
                    self.fault(key, "is empty; write a text");
                    String::new()
                }
                text => text.unwrap_or_default().to_owned(),
            },
        }
    }

    pub(super) fn flag(&self, key: &'a str) -> Option<bool> {
        let value = self.value(key)?;
        if value.as_bool().is_none() {
            self.fault(
                key,
                format!("is {}; write `true` or `false`", kind_of(value)),
            );
        }
        value.as_bool()
    }

    /// A finite number in this range.
    pub(super) fn number(&self, key: &'a str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.value(key)?;
        let number = number_in(value, &range);
        if number.is_none() {
            let wanted = range_text(&range);
            self.fault(
                key,
                format!("is {}; write a number{wanted}", kind_of(value)),
            );
        }
        number
    }

    /// A whole number in this range.
    pub(super) fn whole(&self, key: &'a str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        // `3.0` is whole too.
        let number = value.as_u64().or_else(|| {
            let whole = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0)?;
            format!("{whole:.0}").parse().ok()
        });
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let wanted = match *range.end() {
                u64::MAX => format!("of at least {}", range.start()),
                end => format!("from {} to {end}", range.start()),
            };
            let kind = kind_of(value);
            self.fault(key, format!("is {kind}; write a whole number {wanted}"));
        }
        number
    }

    /// One of the named values.
    pub(super) fn choice<T: Copy>(&self, key: &'a str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.value(key)?;
        let text = value.as_str();
        let found = choices.iter().find(|(name, _)| Some(*name) == text);
        if found.is_none() {
            let names: Vec<String> = choices.iter().map(|(n, _)| format!("`{n}`")).collect();
            let near = nearest(text.unwrap_or_default(), choices.iter().map(|(n, _)| *n));
            self.fault(
                key,
                format!("is {}{near}; write {}", kind_of(value), names.join(", ")),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// The items of a list, each with its path; nothing where it is missing.
    pub(super) fn list(&self, key: &'a str) -> Vec<(String, &'a Value)> {
        match self.value(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                let path = self.path_of(key);
                let items = items.iter().enumerate();
                items
                    .map(|(at, item)| (format!("{path}[{at}]"), item))
                    .collect()
            }
            Some(other) => {
                self.fault(key, format!("is {}; write a list", kind_of(other)));
                Vec::new()
            }
        }
    }

    pub(super) fn texts(&self, key: &'a str) -> Vec<String> {
        let mut texts = Vec::new();
        for (path, item) in self.list(key) {
            match item {
                Value::String(text) => texts.push(text.clone()),
                other => {
                    let kind = kind_of(other);
                    self.findings
                        .fault(path, format!("is {kind}; write a text, in quotes"));
                }
            }
        }
        texts
    }

    /// Warns of every key that nobody asked for.
    pub(super) fn finish(self) {
        let asked = self.asked.borrow();
        for name in self.names().filter(|name| !asked.contains(name)) {
            let near = nearest(name, asked.iter().copied());
            self.warn(
                name,
                format!("is no key that is known{near}; it is ignored"),
            );
        }
    }
}

/// The number of `value` if it is finite and in the range.
pub(super) fn number_in(value: &Value, range: &RangeInclusive<f64>) -> Option<f64> {
    let number = value.as_f64()?;
    (number.is_finite() && range.contains(&number)).then_some(number)
}

fn range_text(range: &RangeInclusive<f64>) -> String {
    // The greatest numbers stand for no bound at all.
    match (*range.start() > f64::MIN, *range.end() < f64::MAX) {
        (true, true) => format!(" from {} to {}", range.start(), range.end()),
        (true, false) => format!(" of at least {}", range.start()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_name_path_and_remedy_and_unknown_keys_are_warnings() {
        let findings = Findings::default();
        let value =
            json!({"a": {"share": 2, "count": 1.5, "on": "yes", "mode": "strikt", "lable": 1}});
        let top = Members::of(&findings, "", &value);
        let block = top.block("a");
        assert_eq!(block.number("share", 0.0..=1.0), None);
        assert_eq!(block.whole("count", 1..=20), None);
        assert_eq!(block.flag("on"), None);
        assert_eq!(block.choice("mode", &[("strict", 1), ("lenient", 2)]), None);
        assert_eq!(block.text("label"), None);
        block.finish();
        top.finish();
        let warnings = findings.warnings.borrow().clone();
        let faults = findings.finish().unwrap_err().0;
        let told: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            told,
            [
                "a.share: is the number 2; write a number from 0 to 1",
                "a.count: is the number 1.5; write a whole number from 1 to 20",
                "a.on: is the text `yes`; write `true` or `false`",
                "a.mode: is the text `strikt` (did you mean `strict`?); write `strict`, `lenient`",
            ]
        );
        assert_eq!(
            warnings[0].to_string(),
            "a.lable: is no key that is known (did you mean `label`?); it is ignored"
        );
    }

    #[test]
    fn many_warnings_are_counted_and_many_names_refused() {
        let names = (0..1000).map(|at| (format!("k{at}"), json!(1)));
        let value = Value::Object(names.collect());
        let findings = Findings::default();
        Members::of(&findings, "", &value).finish();
        let warnings = findings.finish().unwrap();
        assert_eq!(warnings.len(), 101);
        assert_eq!(warnings[100].problem, "there are 900 more warnings");
        let findings = Findings::default();
        assert!(Members::of(&findings, "", &value).few_names().is_empty());
        assert!(findings.finish().is_err());
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        let findings = Findings::default();
        let value = json!({"a": 3.0, "b": -1});
        let top = Members::of(&findings, "", &value);
        assert_eq!(top.whole("a", 0..=u64::MAX), Some(3));
        assert_eq!(top.whole("b", 0..=u64::MAX), None);
    }
}
