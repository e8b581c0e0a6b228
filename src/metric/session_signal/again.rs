//! `asked_again` and `said_again`: the same question, and the same answer, in other words.
//!
//! Looked at are the inputs, or the outputs, of a session that have an embedding, after the first. One counts if the cosine
//! of its embedding with one of the 8 before it is at least 0.9; the signal is the share of those that count. So they see
//! what `misalignment` and `stagnation`, which look at words, can't.
//!
//! Null where the run embeds no inputs (without `coherence`). The languages are those of the model, and so is what a cosine
//! of 0.9 means: values of two models are not the same. They can't see that a different number or name changes the matter
//! (models of sentences hardly do), so that forms filled in one after the other count as repetitions.

use super::{SessionSignal, share};

pub(super) const ASKED_AGAIN: SessionSignal =
    share("asked_again", 0.0, "of inputs ask again in other words");
pub(super) const SAID_AGAIN: SessionSignal =
    share("said_again", 0.0, "of outputs say again what was said");

/// How many texts before one are looked at.
pub const LOOKED_BACK: usize = 8;
/// The cosine from which on two texts say the same.
pub const SAME: f64 = 0.9;

/// How near the texts of a trace come in meaning to earlier ones of the session; none where there is nothing to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Again {
    /// Of the input, a cosine in [0, 1].
    pub asked: Option<f64>,
    /// Of the output.
    pub said: Option<f64>,
}

/// How many texts were compared, and how many say the same as one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    compared: u32,
    same: u32,
}

impl Repeats {
    /// Counts a text.
    pub fn push(&mut self, nearest: Option<f64>) {
        if let Some(nearest) = nearest {
            self.compared += 1;
            self.same += u32::from(nearest >= SAME);
        }
    }

    /// The share of those that say the same; none without any.
    pub fn share(self) -> Option<f64> {
        (self.compared > 0).then(|| f64::from(self.same) / f64::from(self.compared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_texts_are_counted_among_those_compared() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.share(), None);
        for near in [None, Some(0.95), Some(0.3), Some(0.9), Some(0.89)] {
            repeats.push(near);
        }
        assert_eq!(repeats.share(), Some(0.5));
    }
}
