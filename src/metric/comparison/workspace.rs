//! Buffers that comparing metrics use again from row to row.

use super::json_tree::JsonTree;
use super::phrases::Phrases;
use super::substrings::Substrings;
use super::vocabulary::{Pairs, Vocabulary};
use super::words::Words;

/// Buffers of the metrics that compare texts. One for each thread makes them fast; scores never depend on it.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The words of the output.
    pub(in crate::metric) actual_words: Words,
    /// The words of the expected text.
    pub(in crate::metric) expected_words: Words,
    /// The words of a context document.
    pub(in crate::metric) document_words: Words,
    /// The letters of the output for looking up words in them.
    pub(in crate::metric) actual_letters: Vec<u8>,
    /// The output as JSON.
    pub(in crate::metric) actual_json: JsonTree,
    /// The expected text as JSON.
    pub(in crate::metric) expected_json: JsonTree,
    /// Distinct words.
    pub(in crate::metric) vocabulary: Vocabulary,
    /// Neighbours among them.
    pub(in crate::metric) pairs: Pairs,
    /// Numbers of the words of the text at hand, in order.
    pub(in crate::metric) sequence: Vec<u32>,
    /// One mark for each word.
    pub(in crate::metric) marks: Vec<bool>,
    /// Where the letters of the output are.
    pub(in crate::metric) substrings: Substrings,
    /// The terms that the case before required, as cases of a suite often have the same.
    pub(in crate::metric) required_phrases: Option<Phrases>,
    /// The terms that it forbade.
    pub(in crate::metric) forbidden_phrases: Option<Phrases>,
}
