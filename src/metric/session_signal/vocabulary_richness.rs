//! `vocabulary_richness`: distinct words of a session's outputs over all words of them, in (0, 1].
//!
//! "the door, the door" has 2 distinct of 4 words: 0.5. It falls where an agent repeats itself, in whatever words, and it
//! falls by itself as texts grow, so that long sessions are poorer. It is shown and can be learnt from labels; in the
//! order of sessions it counts for nothing beside `output_words`, with which it says much the same.
//!
//! Languages: any that writes spaces between words. Null where no output has a word.

use super::{SessionSignal, Worse, share};

pub(super) const SIGNAL: SessionSignal = SessionSignal {
    worse: Worse::Less,
    ..share(
        "vocabulary_richness",
        0.0,
        "of words in outputs are new ones",
    )
};

/// The richness of a session's outputs; none without words.
pub(super) fn vocabulary_richness(distinct: usize, words: u64) -> Option<f64> {
    (words > 0).then(|| distinct as f64 / words as f64)
}
