//! `stagnation`: the share of outputs that say again what an earlier output of the session said.
//!
//! Looked at are the outputs that have words, after the first. One counts if its words overlap by four fifths (Jaccard)
//! with one of the 16 outputs before it. Long texts are compared by a fair sample of 64 words each.
//!
//! Languages: any that writes spaces between words. It can't see the same in other words (loop detection and `stuck` see
//! more), and an agent that must read out the same form again and again stagnates by this measure.

use super::{SessionSignal, share};
use crate::text::WordSketch;

pub(super) const SIGNAL: SessionSignal =
    share("stagnation", 1.0, "of outputs repeat an earlier one");

/// How many outputs before one are looked at.
pub const LOOKED_BACK: usize = 16;
/// The overlap of words from which on an output says the same.
pub const SAME: f64 = 0.8;

/// Whether an output says what an earlier one said.
pub(super) fn says_again(words: &WordSketch, earlier: &WordSketch) -> bool {
    words.jaccard(earlier) >= SAME
}
