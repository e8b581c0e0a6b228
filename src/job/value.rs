//! What a setting can be: each kind of value with its reader and its possible names.

use std::path::PathBuf;

use serde_json::Value;

use super::pairs::{split_numbers, split_pairs};
use crate::judge::{Policy, Protocol, Temperature};
use crate::question::WhenTooLong;
use crate::text::TextMode;
use crate::trace::format::{self, Choice};
use crate::trace::{Buckets, EpochUnit, OnBadFile};

/// How a setting is written on a command line and in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false; on the command line a flag without a value.
    Switch,
    /// One text or number.
    One,
    /// A path; a manifest keeps it whole.
    Path,
    /// Several texts, with commas between them.
    Many,
    /// Several NAME=VALUE, with commas between them; in a file also a table.
    Pairs,
}

/// A value that a setting can have.
pub(super) trait SettingValue: Sized {
    const KIND: Kind = Kind::One;
    /// The names that it can have; empty if there is no list of them.
    const CHOICES: &'static [&'static str] = &[];

    /// The value out of what was given, which is a text, `true`, or a list of texts, as [`Self::KIND`] says.
    fn read(setting: &str, given: &Value) -> Result<Self, String>;
}

/// A value that is one text.
trait FromText: Sized {
    const CHOICES: &'static [&'static str] = &[];

    fn from_text(text: &str) -> Result<Self, String>;
}

impl<T: FromText> SettingValue for T {
    const CHOICES: &'static [&'static str] = <T as FromText>::CHOICES;

    fn read(setting: &str, given: &Value) -> Result<Self, String> {
        let text = given.as_str().unwrap_or_default();
        T::from_text(text).map_err(|problem| format!("--{setting} {text}: {problem}"))
    }
}

impl FromText for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl SettingValue for bool {
    const KIND: Kind = Kind::Switch;

    fn read(_: &str, given: &Value) -> Result<Self, String> {
        Ok(given.as_bool().unwrap_or_default())
    }
}

impl SettingValue for PathBuf {
    const KIND: Kind = Kind::Path;

    fn read(_: &str, given: &Value) -> Result<Self, String> {
        Ok(given.as_str().unwrap_or_default().into())
    }
}

fn texts(given: &Value) -> Vec<String> {
    let items = given.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl SettingValue for Vec<String> {
    const KIND: Kind = Kind::Many;

    fn read(_: &str, given: &Value) -> Result<Self, String> {
        Ok(texts(given))
    }
}

/// `NAME=VALUE`, each name once.
pub type Pairs = Vec<(String, String)>;

impl SettingValue for Pairs {
    const KIND: Kind = Kind::Pairs;

    fn read(setting: &str, given: &Value) -> Result<Self, String> {
        split_pairs(setting, &texts(given)).map_err(|e| e.to_string())
    }
}

/// `NAME=NUMBER`, each name once.
pub type Numbers = Vec<(String, f64)>;

impl SettingValue for Numbers {
    const KIND: Kind = Kind::Pairs;

    fn read(setting: &str, given: &Value) -> Result<Self, String> {
        split_numbers(setting, &texts(given)).map_err(|e| e.to_string())
    }
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const LEAST: usize, const MOST: usize>(usize);

impl<const LEAST: usize, const MOST: usize> Count<LEAST, MOST> {
    /// The number.
    pub fn get(self) -> usize {
        self.0
    }
}

impl<const LEAST: usize, const MOST: usize> FromText for Count<LEAST, MOST> {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse::<usize>() {
            Ok(n) if (LEAST..=MOST).contains(&n) => Ok(Self(n)),
            _ => Err(format!("expected a whole number from {LEAST} to {MOST}")),
        }
    }
}

/// A number from 0 to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number<const MOST: u64>(f64);

impl<const MOST: u64> Number<MOST> {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<const MOST: u64> FromText for Number<MOST> {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(number) if (0.0..=MOST as f64).contains(&number) => Ok(Self(number)),
            Ok(_) => Err(format!("expected a number from 0 to {MOST}")),
            Err(_) => Err(format!("`{text}` is not a number")),
        }
    }
}

/// Bytes, from `512M`, `2G`, `1.5GiB` or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(usize);

impl Bytes {
    /// How many.
    pub fn get(self) -> usize {
        self.0
    }
}

impl FromText for Bytes {
    fn from_text(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor: f64 = match &lower[digits.len()..] {
            "" | "b" => 1.0,
            "k" | "kb" | "kib" => 1024.0,
            "m" | "mb" | "mib" => 1024.0 * 1024.0,
            "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => f64::NAN,
        };
        match digits.trim().parse::<f64>().map(|number| number * factor) {
            Ok(bytes) if bytes.is_finite() && bytes > 0.0 => Ok(Self(bytes as usize)),
            _ => Err("expected a size such as 512M or 2G".into()),
        }
    }
}

/// Bytes, from a text as [`Bytes`] has it.
///
/// # Errors
/// What was expected.
pub fn bytes_of(text: &str) -> Result<usize, String> {
    Bytes::from_text(text).map(Bytes::get)
}

/// How many buckets; none of them chosen by the number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCount(pub Option<Buckets>);

impl FromText for BucketCount {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(None));
        }
        match text.parse().ok().and_then(Buckets::new) {
            Some(buckets) => Ok(Self(Some(buckets))),
            None => Err(format!(
                "expected auto, or a whole number from 1 to {}",
                Buckets::MOST
            )),
        }
    }
}

impl FromText for Temperature {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Unsaid),
            _ => Number::<2>::from_text(text).map(|number| Self::Given(number.get())),
        }
    }
}

/// Values by the names that stand for them.
macro_rules! choices {
    ($($(#[$doc:meta])* $type:ty { $($name:literal => $value:expr),+ $(,)? })+) => {
        $(impl FromText for $type {
            const CHOICES: &'static [&'static str] = &[$($name),+];

            fn from_text(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok($value),)+
                    _ => {
                        let names = <Self as FromText>::CHOICES.join(" or ");
                        Err(format!("choose {names}"))
                    }
                }
            }
        })+
    };
}

/// Which format files are in.
#[derive(Clone, Copy, Debug)]
pub struct FileFormat(pub Choice);

impl FromText for FileFormat {
    const CHOICES: &'static [&'static str] = format::CHOICES;

    fn from_text(text: &str) -> Result<Self, String> {
        match Choice::named(text) {
            Some(choice) => Ok(Self(choice)),
            None => Err(format!("choose {}", format::CHOICES.join(" or "))),
        }
    }
}

/// Whether a session without evaluable trace has a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEvidence {
    /// It has none.
    Null,
    /// It has 1 (as in PandaProbe).
    One,
}

/// Where to encode, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName(pub &'static str);

/// How a GPU goes through a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuGraph {
    /// Texts of nearly one length side by side, by candle's operations.
    #[default]
    Padded,
    /// Texts end to end: on CUDA by kernels and products of its own, on Metal by candle's operations.
    Packed,
}

/// What to compute in, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrecisionName(pub &'static str);

/// What a notice of a run is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeFormat {
    /// JSON with a `text` in Slack's own markup.
    Slack,
    /// A text of a few lines.
    Plain,
    /// JSON with every figure by its name.
    Json,
}

/// Of which runs somebody is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotifyWhen {
    /// Of all.
    #[default]
    Always,
    /// Of those that end with another exit code than 0.
    Problem,
}

choices! {
    EpochUnit {
        "s" => Self::Seconds,
        "ms" => Self::Millis,
        "us" => Self::Micros,
        "ns" => Self::Nanos,
    }
    TextMode { "compat" => Self::Compat, "content" => Self::Content }
    OnBadFile { "fail" => Self::Fail, "skip" => Self::Skip }
    NoEvidence { "null" => Self::Null, "one" => Self::One }
    DeviceName {
        "auto" => Self("auto"),
        "cpu" => Self("cpu"),
        "cuda" => Self("cuda"),
        "cuda:0" => Self("cuda:0"),
        "cuda:1" => Self("cuda:1"),
        "cuda:2" => Self("cuda:2"),
        "cuda:3" => Self("cuda:3"),
        "cuda:4" => Self("cuda:4"),
        "cuda:5" => Self("cuda:5"),
        "cuda:6" => Self("cuda:6"),
        "cuda:7" => Self("cuda:7"),
        "cuda:all" => Self("cuda:all"),
        "metal" => Self("metal"),
    }
    GpuGraph { "padded" => Self::Padded, "packed" => Self::Packed }
    PrecisionName {
        "auto" => Self("auto"),
        "f32" => Self("f32"),
        "bf16" => Self("bf16"),
        "int8" => Self("int8"),
        "f16" => Self("f16"),
    }
    Protocol {
        "openai" => Self::OpenAi,
        "anthropic" => Self::Anthropic,
        "gemini" => Self::Gemini,
    }
    Policy { "production" => Self::Production, "compat" => Self::Compat }
    WhenTooLong { "fail" => Self::Fail, "cut" => Self::Cut }
    NoticeFormat { "slack" => Self::Slack, "plain" => Self::Plain, "json" => Self::Json }
    NotifyWhen { "always" => Self::Always, "problem" => Self::Problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let bytes = |text| Bytes::from_text(text).map(Bytes::get);
        assert_eq!(bytes("512M").unwrap(), 512 << 20);
        assert_eq!(bytes("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(bytes("4096").unwrap(), 4096);
        for bad in ["", "x", "-1G", "1T2", "NaN", "0"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_problem_names_setting_value_and_what_is_expected() {
        let count = Count::<1, 9>::read("threads", &"0".into()).unwrap_err();
        assert_eq!(count, "--threads 0: expected a whole number from 1 to 9");
        let choice = OnBadFile::read("on-bad-file", &"stop".into()).unwrap_err();
        assert_eq!(choice, "--on-bad-file stop: choose fail or skip");
        let share = Number::<1>::read("judge-sample", &"2".into()).unwrap_err();
        assert_eq!(share, "--judge-sample 2: expected a number from 0 to 1");
    }
}
