//! The comparisons of trpc-agent-go's evaluation: texts, JSON values, tool calls and final responses.
//!
//! A comparison has no errors: a criterion that can't be used is a mismatch too, of a kind of its own, and costs the
//! turn its score but not the case. Nothing here reads files or the network, and no input decides how deep the stack
//! gets or whether a comparison ends.

mod fields;
mod final_response;
mod json;
mod json_text;
mod matching;
mod named;
mod programmatic;
mod re2;
mod rouge;
mod schema;
mod semantic;
mod stem;
mod text;
mod tool_trajectory;
mod xml;

use serde_json::Value;

pub use fields::CriterionFault;
pub use final_response::FinalResponseCriterion;
pub use json::{DEFAULT_TOLERANCE, JsonCriterion, JsonStrategy};
pub(super) use json_text::with_paired_surrogates;
pub use json_text::{first_value, only_value};
pub use named::{NamedComparisons, UnknownName};
pub use programmatic::{InvocationFunction, JsonFunction, Programmatic, TextFunction, Tokenizer};
pub use rouge::{RougeCriterion, RougeMeasure, RougeScore};
pub use schema::JsonSchema;
pub use semantic::{DEFAULT_MIN_COSINE, SemanticCriterion};
pub use text::{LengthCriterion, TextCriterion, TextStrategy};
pub use tool_trajectory::{ToolStrategy, ToolTrajectoryCriterion, TrajectoryShare};
pub use xml::XmlCriterion;

/// Most characters of a text that a reason shows.
const MOST_SHOWN: usize = 120;

/// What a comparison comes to: a match, or why not.
pub type Comparison = Result<(), Mismatch>;

/// Why two things do not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Mismatch {
    /// What kind of reason it is.
    pub kind: MismatchKind,
    /// For a reader: which part, and what was expected and found there, cut to a readable length.
    pub reason: String,
}

/// Kinds of mismatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MismatchKind {
    /// Two turns have different numbers of tool calls.
    Count,
    /// Some expected tool call has no partner.
    Tools,
    /// A turn or its final response is missing.
    Nil,
    /// The criterion can't be used: an unknown strategy, a bad pattern, trees that contradict each other.
    Config,
    /// What is compared differs.
    Differs,
}

impl MismatchKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Tools => "tools",
            Self::Nil => "nil",
            Self::Config => "config",
            Self::Differs => "differs",
        }
    }
}

impl Mismatch {
    fn differs(reason: impl Into<String>) -> Self {
        Self {
            kind: MismatchKind::Differs,
            reason: reason.into(),
        }
    }

    fn config(reason: impl Into<String>) -> Self {
        Self {
            kind: MismatchKind::Config,
            reason: reason.into(),
        }
    }

    /// The same, with the part of the compared thing that it is about.
    fn in_part(mut self, part: &str) -> Self {
        self.reason.insert_str(0, ": ");
        self.reason.insert_str(0, part);
        self
    }
}

/// A text in quotes, cut.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A value in few words. Containers are counted and not written out: their depth is anything.
fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        Value::Array(items) => format!("an array of length {}", items.len()),
        Value::Object(members) => format!("an object with {} keys", members.len()),
        scalar => scalar.to_string(),
    }
}
