//! What metrics of spans need to know of a trace: counts, times and hashes.
//!
//! Spans are the largest cells there are. They are reduced where they are read, so that what is sorted and copied with a
//! row is a cell of numbers, and no text of a span goes any further.

mod bytes;
mod of_spans;

pub(super) use of_spans::failed;

use crate::text::{WordSketch, text_hash};

/// The last calls of a trace that are kept to be compared; all of them are counted.
pub const CALLS_KEPT: usize = 64;

/// What the spans of a trace come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanDigest {
    /// How many spans there are.
    pub spans: u32,
    /// Tool calls that failed.
    pub failed_calls: u32,
    /// A hash of each tool call's name and arguments, in the order of calls.
    pub calls: Vec<u64>,
    /// A hash of the last call's name.
    pub last_name: Option<u32>,
    /// The last of the calls, to be compared with others.
    pub kept: Vec<CallDigest>,
    /// Answers of models whose end is known.
    pub answers: u32,
    /// Those of them that were cut off.
    pub truncated: u32,
    /// Tokens of all model calls; none where no span says.
    pub tokens: Option<u64>,
    /// Seconds from the first start to the last end; none where no span has both.
    pub latency: Option<f64>,
}

/// A tool call to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDigest {
    /// A hash of name and arguments.
    pub call: u64,
    /// The words of name and arguments.
    pub words: WordSketch,
    /// A hash of the result; none where that is empty.
    pub result: Option<u64>,
    /// The words of the result.
    pub result_words: WordSketch,
}

/// What the output of a trace comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputDigest {
    /// A hash of the text; none where it says nothing.
    pub text: Option<u64>,
    /// Its words.
    pub words: WordSketch,
}

/// Outputs that say nothing, beside white space: what is left of a value that is not there.
const NOTHING: [&str; 5] = ["", "{}", "[]", "\"\"", "null"];

impl OutputDigest {
    /// That of a text.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        match NOTHING.contains(&text) {
            true => Self::default(),
            false => Self {
                text: Some(text_hash(text)),
                words: WordSketch::of(text),
            },
        }
    }

    /// Whether the output says nothing.
    pub fn is_empty(&self) -> bool {
        self.text.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_say_nothing_are_empty() {
        for text in ["", " \n", "{}", " [] ", "null", "\"\""] {
            assert!(OutputDigest::of(text).is_empty(), "{text:?}");
        }
        for text in ["0", "no", "{ }.", "\u{65e5}", "?"] {
            assert!(!OutputDigest::of(text).is_empty(), "{text:?}");
        }
        assert_eq!(OutputDigest::of(" a b "), OutputDigest::of("a b"));
    }
}
