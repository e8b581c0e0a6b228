//! Settings: flags over environment over `nightmill.toml`.
//!
//! All three fill the same [`Settings`]; a key that exists nowhere is refused with the nearest name
//! that does.

mod judge;
mod recorded;
mod request_record;
mod template;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Deserializer, Serialize};

pub use judge::JudgeSettings;
pub use request_record::{RecordedFile, RequestRecord, TablesRecord};
pub use template::template;

/// Every setting, as given: nothing is checked yet. The names are flags (`--memory-limit`), keys of
/// `nightmill.toml` (`memory_limit`) and, in capitals, variables (`NIGHTMILL_MEMORY_LIMIT`).
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Settings {
    /// Which files to read where a folder holds several kinds: auto, parquet or jsonl
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Columns under other names: input=question,output=answer; also those that judges and filters look at, as user_id=customer
    #[arg(long, value_name = "COLUMN=NAME,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub map: Option<Vec<String>>,
    /// Text columns whose cells are JSON documents (input, output)
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    pub json_columns: Option<Vec<String>>,
    /// Text columns (input, output) whose cells are plain text even where they look like JSON
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    pub text_columns: Option<Vec<String>>,
    /// What numbers in columns of times count since 1970: s, ms, us or ns; without it numbers are no times
    #[arg(long, value_name = "UNIT")]
    pub time_unit: Option<String>,
    /// What is embedded of a JSON cell: compat (the whole document) or content (the messages' texts)
    #[arg(long, value_name = "MODE")]
    pub text_mode: Option<String>,
    /// Metrics to compute, or all [default: all that need no judge]
    #[arg(long, value_name = "METRIC,...", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    pub metrics: Option<Vec<String>>,
    /// Signals computed elsewhere, by trace_id: confidence, tool_correctness, coherence, loop_detection
    #[arg(long, value_name = "FILE")]
    pub signals: Option<String>,
    /// Signal weights of the session metrics: confidence=1.0,tool_correctness=0.5
    #[arg(long, value_name = "SIGNAL=WEIGHT,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub weights: Option<Vec<String>>,
    /// Thresholds: coherence=0.6
    #[arg(long, value_name = "METRIC=THRESHOLD,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub threshold: Option<Vec<String>>,
    /// Earlier traces of the session that loop detection looks at [default: 3]
    #[arg(long, value_name = "TRACES")]
    #[serde(deserialize_with = "text")]
    pub window: Option<String>,
    /// The score of a session without evaluable trace: null, or one as PandaProbe has it [default: null]
    #[arg(long, value_name = "WHAT")]
    pub on_no_evaluable: Option<String>,
    /// A file that can't be read: fail the run, or skip and quarantine it [default: fail]
    #[arg(long, value_name = "WHAT")]
    pub on_bad_file: Option<String>,
    /// Exit with 1 if a metric's mean is lower: agent_reliability=0.7
    #[arg(long, value_name = "METRIC=MEAN,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub fail_under: Option<Vec<String>>,
    /// A model folder in sentence-transformers layout [default: the model inside the program]
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Where to encode: auto, cpu, cuda or metal [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// What to compute in: auto (the fastest that is true enough), f32, bf16, int8, or f16 on a GPU [default: auto]
    #[arg(long, value_name = "PRECISION")]
    pub precision: Option<String>,
    /// Memory to stay within, beside the model: 512M, 2G [default: 2G]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "text")]
    pub memory_limit: Option<String>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub threads: Option<String>,
    /// A folder that keeps vectors from run to run [default: nightmill/embeddings in the user's cache folder]
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache")]
    pub cache: Option<PathBuf>,
    /// Most that the cache may take on disk, over all models [default: 10G]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "text")]
    pub cache_size: Option<String>,
    /// Keep no vectors from run to run
    #[arg(long)]
    pub no_cache: bool,
    /// Replace an existing output
    #[arg(long)]
    pub overwrite: bool,
    /// Refuse everything that would open a connection: metrics that ask a judge
    #[arg(long)]
    pub offline: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Judges.
    #[command(flatten)]
    #[serde(flatten)]
    pub judge: JudgeSettings,
}

/// A setting's name as it is in the file, and whether it is true or false.
struct Key {
    name: String,
    is_switch: bool,
}

/// All settings, by their flags.
fn keys() -> Vec<Key> {
    let command = Settings::augment_args(clap::Command::new(""));
    let key = |flag: &clap::Arg| Key {
        name: flag.get_id().to_string(),
        is_switch: matches!(flag.get_action(), clap::ArgAction::SetTrue),
    };
    command.get_arguments().map(key).collect()
}

const VARIABLE_PREFIX: &str = "NIGHTMILL_";
/// Variables that are no settings of a run.
const OTHER_VARIABLES: &[&str] = &["NIGHTMILL_CPU_LEVEL", "NIGHTMILL_CONFIG"];
const FILE: &str = "nightmill.toml";

/// What is wrong with settings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

fn problem<T>(message: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError(message.into()))
}

/// A list given as a list or as one string with commas.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Many(Vec<String>),
        One(String),
    }
    Ok(Some(match Given::deserialize(deserializer)? {
        Given::Many(items) => items,
        Given::One(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
    }))
}

/// Pairs given as a table, a list of `a=b`, or one string with commas.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Table(toml::Table),
        Many(Vec<String>),
        One(String),
    }
    Ok(Some(match Given::deserialize(deserializer)? {
        Given::Table(table) => table
            .into_iter()
            .map(|(key, value)| match value {
                toml::Value::String(text) => format!("{key}={text}"),
                other => format!("{key}={other}"),
            })
            .collect(),
        Given::Many(items) => items,
        Given::One(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
    }))
}

/// A number or a string, as text: checked in one place, whatever it came from.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => text,
        other => other.to_string(),
    }))
}

impl Settings {
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

    fn of_toml(text: &str) -> Result<Self, SettingsError> {
        let table: toml::Table = text
            .parse()
            .map_err(|e: toml::de::Error| SettingsError(without_source(text, &e)))?;
        let keys = keys();
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        if let Some(unknown) = table.keys().find(|key| !names.contains(&key.as_str())) {
            return problem(format!(
                "unknown key `{unknown}`{}; keys are {}",
                crate::trace::nearest(unknown, names.iter().copied()),
                names.join(", ")
            ));
        }
        table
            .try_into()
            .map_err(|e: toml::de::Error| SettingsError(without_source(text, &e)))
    }

    fn of_variables(variables: &[(String, String)]) -> Result<Self, SettingsError> {
        let mut table = toml::Table::new();
        let keys = keys();
        for (name, value) in variables {
            let key = name.trim_start_matches(VARIABLE_PREFIX).to_lowercase();
            let Some(known) = keys.iter().find(|known| known.name == key) else {
                let names = keys.iter().map(|key| key.name.as_str());
                return problem(format!(
                    "unknown variable `{name}`{}",
                    crate::trace::nearest(&key, names)
                ));
            };
            let value = if known.is_switch {
                match value.as_str() {
                    "1" | "true" => toml::Value::Boolean(true),
                    "" | "0" | "false" => toml::Value::Boolean(false),
                    other => {
                        return problem(format!(
                            "variable `{name}` is `{other}`, expected true or false"
                        ));
                    }
                }
            } else if value.is_empty() {
                continue;
            } else {
                toml::Value::String(value.clone())
            };
            table.insert(key, value);
        }
        table
            .try_into()
            .map_err(|e: toml::de::Error| SettingsError(format!("environment: {e}")))
    }

    /// These settings where given, else the others.
    fn or(self, other: Self) -> Self {
        let no_cache = self.no_cache || (self.cache.is_none() && other.no_cache);
        Self {
            format: self.format.or(other.format),
            map: self.map.or(other.map),
            json_columns: self.json_columns.or(other.json_columns),
            text_columns: self.text_columns.or(other.text_columns),
            time_unit: self.time_unit.or(other.time_unit),
            text_mode: self.text_mode.or(other.text_mode),
            metrics: self.metrics.or(other.metrics),
            signals: self.signals.or(other.signals),
            weights: self.weights.or(other.weights),
            threshold: self.threshold.or(other.threshold),
            window: self.window.or(other.window),
            on_no_evaluable: self.on_no_evaluable.or(other.on_no_evaluable),
            on_bad_file: self.on_bad_file.or(other.on_bad_file),
            fail_under: self.fail_under.or(other.fail_under),
            model: self.model.or(other.model),
            device: self.device.or(other.device),
            precision: self.precision.or(other.precision),
            memory_limit: self.memory_limit.or(other.memory_limit),
            threads: self.threads.or(other.threads),
            cache: self.cache.or(other.cache).filter(|_| !no_cache),
            cache_size: self.cache_size.or(other.cache_size),
            no_cache,
            overwrite: self.overwrite || other.overwrite,
            offline: self.offline || other.offline,
            json: self.json || other.json,
            judge: self.judge.or(other.judge),
        }
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

/// The setting whose values are keys.
const HEADERS: &str = "judge-headers";
/// Settings of a monitor, which may be headers and URLs.
const SET: &str = "set";

/// `a=b` pairs, each name once. Names of headers are the same in small and in capital letters.
///
/// # Errors
/// If an item has no `=`, or a name comes twice. The message shows no value that may be a secret.
pub fn split_pairs(
    setting: &str,
    items: &[String],
) -> Result<Vec<(String, String)>, SettingsError> {
    let mut pairs: Vec<(String, String)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let number = at + 1;
        let (key, value) = match item.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => (key.trim(), value.trim()),
            _ if setting == HEADERS => {
                return problem(format!(
                    "--{HEADERS}: header {number} has no `=`: expected NAME=VALUE; a comma begins the next header, so a value with a \
                     comma goes into a variable, as ${{NAME}}"
                ));
            }
            _ if setting == SET && !item.chars().all(is_of_name) => {
                return problem(format!("--{SET}, number {number}: expected NAME=VALUE"));
            }
            _ => return problem(format!("--{setting} {item}: expected NAME=VALUE")),
        };
        let same = |other: &str| match setting {
            HEADERS => other.eq_ignore_ascii_case(key),
            _ => other == key,
        };
        if pairs.iter().any(|(earlier, _)| same(earlier)) {
            return problem(match setting {
                // What comes before a `=` may be a key whose header has none.
                HEADERS => {
                    format!("--{HEADERS}: header {number} was given before; give each name once")
                }
                _ => format!("--{setting} {key}: given twice"),
            });
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_lowercase() || c == '-' || c == '_'
}

/// `a=number` pairs.
///
/// # Errors
/// If an item is no pair or its value no number.
pub fn number_pairs(setting: &str, items: &[String]) -> Result<Vec<(String, f64)>, SettingsError> {
    split_pairs(setting, items)?
        .into_iter()
        .map(|(key, value)| match value.parse::<f64>() {
            Ok(number) => Ok((key, number)),
            Err(_) => problem(format!(
                "--{setting} {key}={value}: `{value}` is not a number"
            )),
        })
        .collect()
}

/// Bytes from `512M`, `2G`, `1.5GiB` or a plain number.
///
/// # Errors
/// If it is none of these.
pub fn bytes(setting: &str, text: &str) -> Result<usize, SettingsError> {
    let lower = text.trim().to_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: f64 = match &lower[digits.len()..] {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => {
            return problem(format!(
                "--{setting} {text}: expected a size such as 512M or 2G"
            ));
        }
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok((number * factor) as usize),
        _ => problem(format!(
            "--{setting} {text}: expected a size such as 512M or 2G"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        Settings::of_variables(&pairs)
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let file = Settings::of_toml(
            "window = 5\nthreads = 4\nmap = { input = \"q\" }\n[weights]\nconfidence = 0.5\n",
        )
        .unwrap();
        let environment = variables(&[
            ("NIGHTMILL_WINDOW", "4"),
            ("NIGHTMILL_METRICS", "coherence, loop_detection"),
        ])
        .unwrap();
        let flags = Settings {
            window: Some("3".into()),
            ..Settings::default()
        };
        let all = flags.or(environment).or(file);
        assert_eq!(all.window.as_deref(), Some("3"));
        assert_eq!(all.threads.as_deref(), Some("4"));
        assert_eq!(
            all.metrics,
            Some(vec!["coherence".into(), "loop_detection".into()])
        );
        assert_eq!(
            (all.map, all.weights),
            (
                Some(vec!["input=q".into()]),
                Some(vec!["confidence=0.5".into()])
            )
        );
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest() {
        let message = Settings::of_toml("windw = 3").unwrap_err().to_string();
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
        assert!(Settings::of_toml("overwrite = \"yes\"").is_err());
        assert!(variables(&[("NIGHTMILL_JSON", "maybe")]).is_err());
    }

    #[test]
    fn every_flag_is_a_key_of_files() {
        let keys = keys();
        assert!(keys.len() > 50, "{} settings", keys.len());
        for Key { name, is_switch } in keys {
            let value = if is_switch { "true" } else { "\"x=1\"" };
            let settings = Settings::of_toml(&format!("{name} = {value}")).unwrap();
            assert_ne!(settings, Settings::default(), "{name} sets nothing");
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let pairs = |setting, items: [&str; 2]| {
            let items = items.map(str::to_owned);
            split_pairs(setting, &items).map_err(|e| e.to_string())
        };
        assert_eq!(pairs("map", ["a=1", "b=1"]).unwrap().len(), 2);
        for setting in ["map", "price", "judge-only", "judge-headers"] {
            let message = pairs(setting, ["a=1", " a =2"]).unwrap_err();
            assert!(
                message.contains("twice") || message.contains("before"),
                "{message}"
            );
        }
        assert!(pairs("judge-headers", ["X-Title=1", "x-title=2"]).is_err());
        assert!(pairs("map", ["A=1", "a=2"]).is_ok());
    }

    #[test]
    fn messages_show_no_keys() {
        let canary = "sk-canary-7f3a";
        let refused = |setting, item: String| {
            let items = ["a=1".to_owned(), item];
            split_pairs(setting, &items).unwrap_err().to_string()
        };
        for item in [
            format!("Authorization: Bearer {canary}"),
            canary.to_owned(),
            format!("={canary}"),
        ] {
            for setting in ["judge-headers", "set"] {
                let message = refused(setting, item.clone());
                assert!(!message.contains("canary"), "{message}");
                assert!(
                    message.contains("NAME=VALUE") && message.contains('2'),
                    "{message}"
                );
            }
        }
        assert!(refused("set", "window".into()).contains("window"));
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
            let message = Settings::of_toml(&text).unwrap_err().to_string();
            assert!(message.starts_with(place), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("m", "512M").unwrap(), 512 << 20);
        assert_eq!(bytes("m", "1.5GiB").unwrap(), 3 << 29);
        assert_eq!(bytes("m", "4096").unwrap(), 4096);
        for bad in ["", "x", "-1G", "1T2", "NaN", "0"] {
            assert!(bytes("m", bad).is_err(), "{bad}");
        }
    }
}
