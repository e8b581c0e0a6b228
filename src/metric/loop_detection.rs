//! `loop_detection`: does the agent say again what it said just before? As in PandaProbe.
//!
//! Each output is compared with those of the last traces of its session: cosine of the embeddings
//! times overlap of the words. Both must be high, so that two answers of one form about different
//! things are not taken for a loop.

use super::{
    DEFAULT_THRESHOLD, Metadata, NonFinite, clamp01, distance, push_four_decimals, round4,
};
use crate::text::WordSet;

/// What lists say of it.
pub(super) static INFO: super::MetricInfo = super::MetricInfo {
    name: "loop_detection",
    level: super::Level::Trace,
    method: super::Method::Embedding,
    default_threshold: super::DEFAULT_THRESHOLD,
    inputs: &["output"],
    meaning: "Whether the output repeats one of the last outputs of its session (1 = new, 0 = a repetition).",
    asks: None,
};

/// How many earlier traces are looked at, unless the user says otherwise.
pub const DEFAULT_WINDOW: usize = 3;

/// One comparison with an earlier output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many traces back the compared output is: 1 is the one just before.
    pub back: usize,
    /// Cosine similarity in [0, 1].
    pub cosine: f64,
    /// Word overlap in [0, 1].
    pub jaccard: f64,
}

impl Comparison {
    /// Cosine times word overlap, in [0, 1]: 1 is a repetition.
    pub fn hybrid(&self) -> f64 {
        self.cosine * self.jaccard
    }
}

/// The loop detection of one trace.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopDetection {
    /// The first trace of its session.
    NoContext,
    /// The output is empty.
    EmptyOutput,
    /// All outputs in the window are empty.
    NoPreviousOutputs,
    /// Compared with at least one earlier output.
    Compared {
        /// Oldest first.
        comparisons: Vec<Comparison>,
        /// How many traces of the session came before this one.
        earlier: usize,
        /// The threshold in force.
        threshold: f64,
    },
}

/// An output as loop detection sees it.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its embedding.
    pub vector: &'a [f32],
    /// The embedding's squared length.
    pub norm_squared: f64,
    /// The sorted hashes of its words.
    pub words: &'a [u64],
}

/// The threshold in force: an override of exactly 0 counts as not given (as in PandaProbe).
pub fn threshold(given: Option<f64>) -> f64 {
    match given {
        Some(t) if t != 0.0 => t,
        _ => DEFAULT_THRESHOLD,
    }
}

impl LoopDetection {
    /// Compares `current` with the outputs of the traces just before it, oldest first; `None` stands
    /// for an empty text. `window` holds at most the window's length of traces: empty ones take up a
    /// place and are not replaced by older ones. `earlier` is how many traces came before in all.
    ///
    /// # Errors
    /// [`NonFinite`] if an embedding is not finite.
    pub fn new(
        current: Option<Output<'_>>,
        window: &[Option<Output<'_>>],
        earlier: usize,
        threshold: f64,
    ) -> Result<Self, NonFinite> {
        Self::with(
            current.as_ref(),
            window,
            (earlier, threshold),
            |current, previous| {
                let norms = (current.norm_squared, previous.norm_squared);
                Ok((
                    1.0 - distance(current.vector, previous.vector, norms)?,
                    WordSet::jaccard(current.words, previous.words),
                ))
            },
        )
    }

    /// The same with outputs of any kind, of which `compare` tells cosine and word overlap.
    ///
    /// # Errors
    /// [`NonFinite`] if `compare` says so.
    pub fn with<T>(
        current: Option<&T>,
        window: &[Option<T>],
        (earlier, threshold): (usize, f64),
        mut compare: impl FnMut(&T, &T) -> Result<(f64, f64), NonFinite>,
    ) -> Result<Self, NonFinite> {
        if earlier == 0 {
            return Ok(Self::NoContext);
        }
        let Some(current) = current else {
            return Ok(Self::EmptyOutput);
        };
        let mut comparisons = Vec::with_capacity(window.len());
        for (at, previous) in window.iter().enumerate() {
            let Some(previous) = previous else { continue };
            let (cosine, jaccard) = compare(current, previous)?;
            comparisons.push(Comparison {
                back: window.len() - at,
                cosine,
                jaccard,
            });
        }
        if comparisons.is_empty() {
            return Ok(Self::NoPreviousOutputs);
        }
        Ok(Self::Compared {
            comparisons,
            earlier,
            threshold,
        })
    }

    /// The strongest repetition found, in [0, 1], unrounded.
    pub fn max_hybrid(&self) -> f64 {
        match self {
            Self::Compared { comparisons, .. } => comparisons
                .iter()
                .map(Comparison::hybrid)
                .fold(0.0, f64::max),
            _ => 0.0,
        }
    }

    /// The unrounded score in [0, 1]; 1 is free of repetition.
    pub fn score_raw(&self) -> f64 {
        clamp01(1.0 - self.max_hybrid())
    }

    /// The stored score: 4 decimals, in [0, 1].
    pub fn score(&self) -> f64 {
        round4(self.score_raw())
    }

    /// Whether the **rounded** score reaches the threshold; none where nothing was compared.
    pub fn success(&self) -> Option<bool> {
        match self {
            Self::Compared { threshold, .. } => Some(self.score() >= *threshold),
            _ => None,
        }
    }

    /// The strongest comparison, if it is a repetition at all.
    pub fn strongest(&self) -> Option<&Comparison> {
        match self {
            Self::Compared { comparisons, .. } => comparisons
                .iter()
                .max_by(|a, b| a.hybrid().total_cmp(&b.hybrid())),
            _ => None,
        }
    }

    fn note(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::NoContext => Some((
                "no session context provided",
                "No earlier trace in the session; looping can't be assessed.",
            )),
            Self::EmptyOutput => Some((
                "empty_output",
                "The output is empty; looping can't be assessed.",
            )),
            Self::NoPreviousOutputs => Some((
                "no_previous_outputs",
                "All outputs in the window are empty; nothing to compare.",
            )),
            Self::Compared { .. } => None,
        }
    }

    /// One line for a reader.
    pub fn reason(&self) -> String {
        match self.note() {
            Some((_, reason)) => reason.into(),
            None => {
                let mut reason = String::with_capacity(40);
                reason.push_str("Max hybrid repetition score: ");
                push_four_decimals(&mut reason, self.max_hybrid());
                reason
            }
        }
    }

    /// Appends the metadata object. `trace_id_back(n)` names the trace `n` places before this one.
    pub fn push_metadata<'t>(
        &self,
        out: &mut String,
        trace_id_back: impl Fn(usize) -> Option<&'t str>,
    ) {
        let mut metadata = Metadata::object(out);
        if let Some((note, _)) = self.note() {
            metadata.text("note", note);
        }
        if let Self::Compared {
            comparisons,
            earlier,
            threshold,
        } = self
        {
            let first_index = earlier.saturating_sub(comparisons.len());
            metadata
                .count("window_size", comparisons.len())
                .rounded("max_hybrid", self.max_hybrid())
                .objects(
                    "comparisons",
                    comparisons.iter().enumerate(),
                    |object, (at, c)| {
                        object
                            .count("trace_index", first_index + at)
                            .rounded("cosine_similarity", c.cosine)
                            .rounded("jaccard_similarity", c.jaccard)
                            .rounded("hybrid_score", c.hybrid());
                        if let Some(id) = trace_id_back(c.back) {
                            object.text("trace_id", id);
                        }
                    },
                )
                .number("threshold", *threshold)
                .flag("success", self.success().unwrap_or(false));
        }
        metadata.end();
    }
}
