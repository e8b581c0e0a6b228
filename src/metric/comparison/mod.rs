//! What the metrics that compare an output with an expected one are made of: texts as they read them, words, phrases
//! and JSON. As in Regtrace, texts are seen with the eyes of ECMAScript: its white space, its text lengths, its
//! numbers.

mod json_fields;
mod json_tree;
mod lexicon;
mod number_text;
mod phrases;
mod reply;
mod space;
mod substrings;
mod vocabulary;
mod words;
mod workspace;

pub(in crate::metric) use json_fields::Fields;
pub(in crate::metric) use json_tree::{JsonTree, JsonValue};
pub(in crate::metric) use lexicon::{Hit, Lexicon};
pub(in crate::metric) use phrases::{Phrases, is_edge};
pub(in crate::metric) use reply::{read_reply, reply_share};
pub(in crate::metric) use space::{is_space, strip_fences, trim, units};
pub(in crate::metric) use vocabulary::Vocabulary;
pub(in crate::metric) use words::{Word, Words, letters_for_search};
pub use workspace::Workspace;

/// The threshold of a comparing metric for which none was given.
pub const DEFAULT_THRESHOLD: f64 = 0.7;

/// Which system's rules hold where Regtrace's Metrics Reference and the tool that it ships differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compat {
    /// The Metrics Reference.
    #[default]
    Document,
    /// The tool, version 0.10.1, for teams that bring stored baselines along.
    Tool,
}

impl Compat {
    /// The name in configuration: `document` or `tool`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Tool => "tool",
        }
    }
}

/// What a part of a metric counts for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Whether it is looked at.
    pub enabled: bool,
    /// What it weighs, 0 or more.
    pub weight: f64,
}

impl Part {
    /// The weight if the part counts at all. The tool knows no weights: all parts that are enabled weigh the same.
    pub(in crate::metric) fn counted(self, compat: Compat) -> Option<f64> {
        let weight = match compat {
            Compat::Document => self.weight,
            Compat::Tool => 1.0,
        };
        (self.enabled && weight > 0.0).then_some(weight)
    }
}

impl Default for Part {
    /// Enabled, with the weight 1.
    fn default() -> Self {
        Self {
            enabled: true,
            weight: 1.0,
        }
    }
}
