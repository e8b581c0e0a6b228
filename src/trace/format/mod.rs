//! The formats in which people have their traces: one file a format, each a pure function from a document to facts about
//! traces and spans. What a document is depends on the file: a row of Parquet or CSV (an object by column name), a line of
//! JSON Lines, or a whole JSON file.

mod any_agent;
mod assemble;
mod atif;
mod canonical;
mod cell;
mod convert;
mod documents;
mod evalset;
mod gather;
mod gen_ai;
mod google_adk;
mod jaeger;
mod langfuse_observations;
mod langfuse_row;
mod langfuse_scores;
mod langfuse_trace_json;
mod langfuse_traces;
mod langfuse_usage;
mod langsmith;
mod mapping;
mod mini_swe_agent;
mod mlflow;
mod mlflow_record;
mod model_output;
#[cfg(test)]
mod native_samples;
mod openhands;
mod openinference;
mod otel_js;
mod otel_span;
mod otlp;
mod pandaprobe;
mod parts;
mod phoenix;
mod python_literal;
mod reader;
mod recognise;
pub(crate) mod said;
#[cfg(test)]
mod shared_samples;
mod span_attributes;
#[cfg(test)]
mod span_samples;
mod swe_agent;
mod tau_bench;
mod tempo;
mod tool_calls;
mod trajectory;
#[cfg(test)]
mod trajectory_samples;
pub(crate) mod values;
mod vercel_ai;

pub use convert::{Converted, convert};
pub use mapping::Mapping;
pub use parts::{Call, Parts, Payload, SpanFacts, TraceFacts, kind};
pub use reader::Reader;
pub use recognise::{Choice, ForeignFile, Found, NativeTexts, found, unreadable_file};

pub(super) use recognise::may_be_foreign;

use serde_json::Value;

use super::SourceFormat;

/// The first document of a file, by which its format is recognised.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'s> {
    /// The file's name without its folder.
    pub file_name: &'s str,
    /// The first document; of a table, its first row, with null for columns without value there.
    pub document: &'s Value,
    /// Names of columns; empty unless the file is a table (Parquet or CSV).
    pub columns: &'s [String],
}

/// How a JSON file that holds an array is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayIs {
    /// Each element is a document.
    Documents,
    /// The array as a whole is one document.
    OneDocument,
}

/// Where a document stands: for ids that the format doesn't give.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// The file's name without folder and extension.
    pub stem: &'p str,
    /// Row, line or element, from 0.
    pub row: u64,
}

/// Reads the bytes of one document.
pub type ReadBytes = fn(&[u8], &Place<'_>, &mut Parts) -> Result<(), String>;

/// A format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name for `--format`.
    pub name: &'static str,
    /// For people: whose format it is.
    pub title: &'static str,
    /// What a top-level array is.
    pub array: ArrayIs,
    /// Says why a sample is of this format; none if it isn't. Must be strict: two formats never claim one sample.
    pub recognise: fn(&Sample<'_>) -> Option<String>,
    /// Reads one document. The message of an error says what is wrong, not where: the caller knows file and row.
    pub read: fn(Value, &Place<'_>, &mut Parts) -> Result<(), String>,
    /// The same of the document's bytes, where that is faster.
    pub read_bytes: Option<ReadBytes>,
    /// Canonical column and where it comes from, for `--explain`.
    pub mapping: &'static [(&'static str, &'static str)],
}

/// All formats.
pub static FORMATS: &[&Format] = &[
    &otlp::FORMAT,
    &tempo::FORMAT,
    &jaeger::FORMAT,
    &phoenix::FORMAT,
    &any_agent::FORMAT,
    &otel_js::FORMAT,
    &span_attributes::FORMAT,
    &langfuse_observations::LANGFUSE_OBSERVATIONS,
    &langfuse_traces::LANGFUSE_TRACES,
    &langfuse_trace_json::LANGFUSE_TRACE,
    &langfuse_scores::LANGFUSE_SCORES,
    &langsmith::LANGSMITH,
    &mlflow::MLFLOW,
    &pandaprobe::FORMAT,
    &evalset::FORMAT,
    &tau_bench::FORMAT,
    &swe_agent::FORMAT,
    &mini_swe_agent::FORMAT,
    &openhands::FORMAT,
    &atif::FORMAT,
    &google_adk::FORMAT,
];

/// The format of that name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// The names that `--format` takes: those of [`FORMATS`] after nightmill's own.
pub const CHOICES: &[&str] = &[
    "auto",
    "parquet",
    "jsonl",
    "otlp",
    "tempo",
    "jaeger",
    "phoenix",
    "any-agent",
    "otel-js",
    "span-attributes",
    "langfuse-observations",
    "langfuse-traces",
    "langfuse-trace",
    "langfuse-scores",
    "langsmith",
    "mlflow",
    "pandaprobe",
    "evalset",
    "tau-bench",
    "swe-agent",
    "mini-swe-agent",
    "openhands",
    "atif",
    "google-adk",
];

impl Choice {
    /// The choice of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "parquet" => Some(Self::Native(SourceFormat::Parquet)),
            "jsonl" => Some(Self::Native(SourceFormat::JsonLines)),
            name => find(name).map(Self::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_can_be_named() {
        let own = ["auto", "parquet", "jsonl"].into_iter();
        let all: Vec<&str> = own
            .chain(FORMATS.iter().map(|format| format.name))
            .collect();
        assert_eq!(CHOICES, all);
        assert!(all.iter().all(|name| Choice::named(name).is_some()));
    }
}
