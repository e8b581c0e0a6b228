//! Settings as they were given, by flags, environment and file, one over the other.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Kind, SETTINGS, Setting, SettingsError, problem};
use crate::text::nearest;

const VARIABLE_PREFIX: &str = "NIGHTMILL_";
/// Variables that are no settings of a run.
const OTHER_VARIABLES: &[&str] = &[
    "NIGHTMILL_CPU_LEVEL",
    "NIGHTMILL_CONFIG",
    "NIGHTMILL_BRANCH",
];
const FILE: &str = "nightmill.toml";

/// Settings as they were given: texts, `true`, and lists of texts, by the keys of a settings file. Whether they make sense
/// is for [`super::Job::of`] to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(Map<String, Value>);

impl Given {
    /// What was given for a setting.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Whether a setting was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The settings that were given, by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Gives a setting a value, in place of what it had.
    ///
    /// # Errors
    /// [`SettingsError`] for a value that can't be one of this setting.
    pub fn set(&mut self, setting: &Setting, value: Value) -> Result<(), SettingsError> {
        match normal(setting, value) {
            Ok(Some(value)) => {
                self.0.insert(setting.name.to_owned(), value);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(expected) => problem(format!("`{}`: expected {expected}", setting.name)),
        }
    }

    /// These settings with one more text, or list of texts.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// These settings without some.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|name, _| !names.contains(&name.as_str()));
        self
    }

    /// These settings without those that `keep` refuses.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|name, _| keep(name));
        self
    }

    /// These settings with only those of a setting's pairs whose name `keep` lets pass.
    #[must_use]
    pub fn only_pairs(mut self, name: &str, keep: impl Fn(&str) -> bool) -> Self {
        if let Some(Value::Array(pairs)) = self.0.get_mut(name) {
            pairs.retain(|pair| {
                let pair = pair.as_str().unwrap_or_default();
                keep(pair.split('=').next().unwrap_or_default().trim())
            });
            if pairs.is_empty() {
                self.0.remove(name);
            }
        }
        self
    }

    /// The settings by name.
    pub(super) fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Changes what was given for a setting.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(value) = self.0.get_mut(name) {
            change(value);
        }
    }

    /// These settings, completed from the environment and from a file: `file` if given, else
    /// `NIGHTMILL_CONFIG`, else `nightmill.toml` in the working folder if there is one.
    ///
    /// # Errors
    /// [`SettingsError`] naming the file or variable, the key, and the nearest key that exists.
    pub fn complete(self, file: Option<&Path>) -> Result<Self, SettingsError> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| {
                name.starts_with(VARIABLE_PREFIX) && !OTHER_VARIABLES.contains(&name.as_str())
            })
            .map(|(name, value)| match value.into_string() {
                Ok(value) => Ok((name, value)),
                Err(_) => problem(format!("variable `{name}` is not UTF-8")),
            })
            .collect::<Result<Vec<(String, String)>, SettingsError>>()?;
        let from_environment = Self::of_variables(&environment)?;
        let named = file
            .map(Path::to_owned)
            .or_else(|| std::env::var_os("NIGHTMILL_CONFIG").map(PathBuf::from));
        let from_file = match named {
            Some(path) => Self::of_file(&path)?,
            None if Path::new(FILE).exists() => Self::of_file(Path::new(FILE))?,
            None => Self::default(),
        };
        Ok(self.or(from_environment).or(from_file))
    }

    fn of_file(path: &Path) -> Result<Self, SettingsError> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|e| SettingsError(format!("`{shown}`: {e}")))?;
        Self::of_toml(&text).map_err(|e| SettingsError(format!("`{shown}`: {e}")))
    }

    pub(super) fn of_toml(text: &str) -> Result<Self, SettingsError> {
        let table: toml::Table = text
            .parse()
            .map_err(|e: toml::de::Error| SettingsError(without_source(text, &e)))?;
        let mut given = Self::default();
        for (key, value) in table {
            let Some(setting) = Setting::named(&key) else {
                return problem(format!(
                    "unknown key `{key}`{}; keys are {}",
                    nearest(&key, names()),
                    names().collect::<Vec<_>>().join(", ")
                ));
            };
            given.set(setting, serde_json::to_value(value).unwrap_or_default())?;
        }
        Ok(given)
    }

    fn of_variables(variables: &[(String, String)]) -> Result<Self, SettingsError> {
        let mut given = Self::default();
        for (name, value) in variables {
            let key = name.trim_start_matches(VARIABLE_PREFIX).to_lowercase();
            let Some(setting) = Setting::named(&key) else {
                return problem(format!(
                    "unknown variable `{name}`{}",
                    nearest(&key, names())
                ));
            };
            let value = match (setting.kind, value.as_str()) {
                (Kind::Switch, "1" | "true") => Value::Bool(true),
                (Kind::Switch, "" | "0" | "false") => Value::Bool(false),
                (Kind::Switch, other) => {
                    return problem(format!(
                        "variable `{name}` is `{other}`, expected true or false"
                    ));
                }
                (_, "") => continue,
                (_, text) => text.into(),
            };
            given.set(setting, value)?;
        }
        Ok(given)
    }

    /// Settings that are kept as texts, as a monitor does.
    ///
    /// # Errors
    /// [`SettingsError`] naming a key that is no setting, or a switch that is neither true nor false.
    pub fn of_texts<'t>(
        texts: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, SettingsError> {
        let mut given = Self::default();
        for (key, text) in texts {
            let Some(setting) = Setting::named(key) else {
                return problem(format!(
                    "setting `{key}` of the monitor: no such setting{}; settings are the flags of `nightmill score`",
                    nearest(key, names())
                ));
            };
            let value = match (setting.kind, text) {
                (Kind::Switch, "true") => Value::Bool(true),
                (Kind::Switch, "false") => Value::Bool(false),
                (Kind::Switch, other) => {
                    return problem(format!(
                        "setting `{key}` of the monitor is `{other}`, expected true or false"
                    ));
                }
                (_, text) => text.into(),
            };
            given.set(setting, value)?;
        }
        Ok(given)
    }

    /// These settings where given, else the others. A folder for vectors and `no_cache` shut each other out.
    pub(super) fn or(self, mut other: Self) -> Self {
        for (one, opposite) in [("cache", "no_cache"), ("no_cache", "cache")] {
            if self.has(one) {
                other.0.remove(opposite);
            }
        }
        other.0.extend(self.0);
        other
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name)
}

/// A value as [`Given`] keeps it; none for a switch that is off.
fn normal(setting: &Setting, value: Value) -> Result<Option<Value>, &'static str> {
    let split = |text: &str| -> Vec<Value> {
        let items = text.split(',').map(|item| item.trim().into());
        items.collect()
    };
    let many = |items: Vec<Value>| -> Result<Value, &'static str> {
        let items = items.into_iter().map(|item| scalar(&item).map(Value::from));
        let items: Option<Vec<Value>> = items.collect();
        items.map(Value::Array).ok_or("a list of texts")
    };
    let value = match (setting.kind, value) {
        (Kind::Switch, Value::Bool(true)) => Value::Bool(true),
        (Kind::Switch, Value::Bool(false)) => return Ok(None),
        (Kind::Switch, _) => return Err("true or false"),
        (Kind::One | Kind::Path, value) => scalar(&value).ok_or("a text or a number")?.into(),
        (Kind::Many | Kind::Pairs, Value::String(text)) => Value::Array(split(&text)),
        (Kind::Many | Kind::Pairs, Value::Array(items)) => many(items)?,
        (Kind::Pairs, Value::Object(table)) => {
            let pairs = table.into_iter();
            let pairs = pairs.map(|(key, value)| Some(format!("{key}={}", scalar(&value)?).into()));
            let pairs: Option<Vec<Value>> = pairs.collect();
            Value::Array(pairs.ok_or("a table of texts and numbers")?)
        }
        (Kind::Many, _) => return Err("a list of texts, or one text with commas"),
        (Kind::Pairs, _) => return Err("a table, or a list of NAME=VALUE"),
    };
    Ok(Some(value))
}

/// A text, a number, true or false, as a text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// What is wrong in a TOML text, and where; not the line itself, which may hold a key.
pub fn without_source(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return message.to_owned();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::Job;

    fn variables(pairs: &[(&str, &str)]) -> Result<Given, SettingsError> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        Given::of_variables(&pairs)
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let file = Given::of_toml(
            "window = 5\nthreads = 4\nmap = { input = \"q\" }\n[weights]\nconfidence = 0.5\n",
        )
        .unwrap();
        let environment = variables(&[
            ("NIGHTMILL_WINDOW", "4"),
            ("NIGHTMILL_METRICS", "coherence, loop_detection"),
        ])
        .unwrap();
        let flags = Given::default().with("window", "3");
        let all = Job::of(flags.or(environment).or(file)).unwrap();
        assert_eq!(all.window.map(|n| n.get()), Some(3));
        assert_eq!(all.threads.map(|n| n.get()), Some(4));
        assert_eq!(
            all.metrics,
            Some(vec!["coherence".into(), "loop_detection".into()])
        );
        assert_eq!(
            (all.map, all.weights),
            (
                Some(vec![("input".to_owned(), "q".to_owned())]),
                Some(vec![("confidence".to_owned(), 0.5)])
            )
        );
    }

    #[test]
    fn a_folder_for_vectors_and_none_shut_each_other_out() {
        let (folder, none) = (
            Given::default().with("cache", "c"),
            Given::default().with("no_cache", true),
        );
        assert_eq!(folder.clone().or(none.clone()), folder);
        assert_eq!(none.clone().or(folder), none);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest() {
        let message = Given::of_toml("windw = 3").unwrap_err().to_string();
        assert!(
            message.contains("`windw`") && message.contains("`window`"),
            "{message}"
        );
        let message = variables(&[("NIGHTMILL_THREAD", "3")])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("NIGHTMILL_THREAD") && message.contains("`threads`"),
            "{message}"
        );
        assert!(Given::of_toml("overwrite = \"yes\"").is_err());
        assert!(Given::of_toml("window = [1]").is_err());
        assert!(variables(&[("NIGHTMILL_JSON", "maybe")]).is_err());
    }

    #[test]
    fn every_way_of_writing_gives_one_value() {
        let list = Given::of_toml("metrics = [\"a\", \"b\"]").unwrap();
        assert_eq!(list, Given::of_toml("metrics = \"a, b\"").unwrap());
        assert_eq!(list.get("metrics"), Some(&json!(["a", "b"])));
        let pairs = Given::of_toml("weights = { confidence = 0.5 }").unwrap();
        assert_eq!(
            pairs,
            Given::of_toml("weights = \"confidence=0.5\"").unwrap()
        );
        let number = Given::of_toml("window = 3").unwrap();
        assert_eq!(number, Given::of_texts([("window", "3")]).unwrap());
        assert_eq!(Given::of_toml("json = false").unwrap(), Given::default());
    }

    #[test]
    fn messages_show_no_keys() {
        let canary = "sk-canary-7f3a";
        for (text, place) in [
            (
                format!("window = 3\njudge_headers = [\"x-key={canary}\"\nq = 1"),
                "line 3, column ",
            ),
            (format!("judge_url = {canary}"), "line 1, column "),
            (
                format!("judge_url = \"http://u:{canary}"),
                "line 1, column ",
            ),
            (
                format!("judge_headers = {{ é = \"{canary}\" x }}"),
                "line 1, column ",
            ),
        ] {
            let message = Given::of_toml(&text).unwrap_err().to_string();
            assert!(message.starts_with(place), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}
