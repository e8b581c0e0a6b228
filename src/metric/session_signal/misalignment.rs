//! `misalignment`: the share of a session's later inputs that correct the agent or ask again.
//!
//! Looked at are the inputs after the first of a session that say anything. One counts if it has one of the phrases below
//! as whole words in any case, or if its words overlap by four fifths (Jaccard, at least three words) with one of the 16
//! inputs before it: the same question again.
//!
//! Languages: phrases are English; asking again is seen in any language with spaces between words. It can't see a
//! correction in other words, nor irony, and where inputs are results of tools and no user's turns, it counts those.

use super::{SessionSignal, share};

pub(super) const SIGNAL: SessionSignal = share(
    "misalignment",
    1.0,
    "of later inputs correct the agent or ask again",
);

/// Phrases of a user who corrects the agent.
pub(super) const PHRASES: [&str; 34] = [
    "i meant",
    "i mean",
    "what i meant",
    "not what i",
    "that's not",
    "that is not",
    "thats not",
    "that's wrong",
    "that is wrong",
    "this is wrong",
    "you're wrong",
    "you are wrong",
    "that's incorrect",
    "that is incorrect",
    "not correct",
    "is incorrect",
    "no, i",
    "no i",
    "i said",
    "i told you",
    "i already",
    "as i said",
    "you said",
    "you misunderstood",
    "you didn't",
    "let me rephrase",
    "to clarify",
    "let me clarify",
    "still not",
    "still doesn't",
    "doesn't work",
    "does not work",
    "didn't work",
    "did not work",
];

/// How many inputs before one are looked at.
pub(super) const LOOKED_BACK: usize = 16;
/// The overlap of words from which on a question is asked again.
const SAME: f64 = 0.8;
/// Shorter ones are asked again by chance.
const LEAST_WORDS: usize = 3;

/// Whether two inputs are one question, by their words.
pub(super) fn asks_again(
    words: &crate::text::WordSketch,
    earlier: &crate::text::WordSketch,
) -> bool {
    words.hashes().len() >= LEAST_WORDS && words.jaccard(earlier) >= SAME
}
