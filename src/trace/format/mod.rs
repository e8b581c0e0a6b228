//! The formats in which people have their traces: one file a format, each a pure function from a document to facts about
//! traces and spans. What a document is depends on the file: a row of Parquet or CSV (an object by column name), a line of
//! JSON Lines, or a whole JSON file.

mod atif;
mod evalset;
mod google_adk;
mod mini_swe_agent;
mod openhands;
mod pandaprobe;
mod parts;
pub(crate) mod said;
mod swe_agent;
mod tau_bench;
mod trajectory;
#[cfg(test)]
mod trajectory_samples;
pub(crate) mod values;

pub use parts::{Call, Parts, Payload, SpanFacts, TraceFacts, kind};

use serde_json::Value;

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
    pub read_bytes: Option<fn(&[u8], &Place<'_>, &mut Parts) -> Result<(), String>>,
    /// Canonical column and where it comes from, for `--explain`.
    pub mapping: &'static [(&'static str, &'static str)],
}

/// All formats.
pub static FORMATS: &[&Format] = &[
    &pandaprobe::FORMAT,
    &evalset::FORMAT,
    &tau_bench::FORMAT,
    &swe_agent::FORMAT,
    &mini_swe_agent::FORMAT,
    &openhands::FORMAT,
    &atif::FORMAT,
    &google_adk::FORMAT,
];
