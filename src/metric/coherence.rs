//! `coherence`: does the output stay with the input? As in PandaProbe.

use super::{Metadata, NonFinite, clamp01, push_four_decimals, round4};

/// What lists say of it.
pub(super) static INFO: super::MetricInfo = super::MetricInfo {
    name: "coherence",
    level: super::Level::Trace,
    method: super::Method::Embedding,
    default_threshold: super::DEFAULT_THRESHOLD,
    inputs: &["input", "output"],
    meaning: "How close in meaning the output is to the input (1 = the same, 0 = unrelated).",
    asks: None,
};

/// The coherence of one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coherence {
    /// Input or output is empty: nothing to compare, score 1.
    Empty,
    /// Both texts were compared.
    Compared {
        /// Cosine distance of the two embeddings, in [0, 1], unrounded.
        gap: f64,
        /// The threshold in force.
        threshold: f64,
    },
}

impl Coherence {
    /// From the cosine distance of input and output embedding; `None` if either text is empty.
    ///
    /// # Errors
    /// [`NonFinite`] if the distance is not a number.
    pub fn new(gap: Option<f64>, threshold: f64) -> Result<Self, NonFinite> {
        match gap {
            None => Ok(Self::Empty),
            Some(gap) if gap.is_finite() => Ok(Self::Compared { gap, threshold }),
            Some(_) => Err(NonFinite),
        }
    }

    /// The unrounded score in [0, 1].
    pub fn score_raw(self) -> f64 {
        match self {
            Self::Empty => 1.0,
            Self::Compared { gap, .. } => clamp01(1.0 - gap),
        }
    }

    /// The stored score: 4 decimals, in [0, 1].
    pub fn score(self) -> f64 {
        round4(self.score_raw())
    }

    /// Whether the unrounded score reaches the threshold; none for an empty side.
    pub fn success(self) -> Option<bool> {
        match self {
            Self::Empty => None,
            Self::Compared { threshold, .. } => Some(self.score_raw() >= threshold),
        }
    }

    /// One line for a reader.
    pub fn reason(self) -> String {
        match self {
            Self::Empty => "Input or output is empty; nothing to compare.".into(),
            Self::Compared { gap, .. } => {
                let mut reason = String::with_capacity(24);
                reason.push_str("Coherence gap: ");
                push_four_decimals(&mut reason, gap);
                reason
            }
        }
    }

    /// Appends the metadata object.
    pub fn push_metadata(self, out: &mut String) {
        let mut metadata = Metadata::object(out);
        match self {
            Self::Empty => {
                metadata
                    .number("coherence_gap", 0.0)
                    .text("note", "empty_input_or_output");
            }
            Self::Compared { gap, threshold } => {
                metadata
                    .rounded("coherence_gap", gap)
                    .number("threshold", threshold)
                    .flag("success", self.success().unwrap_or(false));
            }
        }
        metadata.end();
    }
}
