//! Encoders: token ids in, one vector a text out. An encoder knows no files and no columns.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a failed test is a panic"
    )
)]

mod block;
#[cfg(feature = "candle")]
pub mod candle;
pub mod cpu;
#[cfg(any(test, feature = "candle"))]
mod exact;
#[cfg(test)]
mod families;
pub mod gpu;
mod pooling;
mod table;

pub use block::{
    Activation, Layer, Mask, Norm, NormKind, NormPlace, TextHead, TransformerShape,
    TransformerWeights, Turn,
};
#[cfg(feature = "candle")]
pub use exact::Exact;
pub use pooling::{Pooling, pool};
pub use table::{Table, TableRows};

/// Part of the key of kept vectors. Raise it with every change that may change a bit of a vector of the CPU path.
pub const REVISION: u32 = 2;

/// What the CPU encoder computes its products in. Sums, norms and everything between products are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// Products of 16-bit brain floats, summed in f32.
    Bf16,
    /// Linear layers on bytes (weights with a step a column, activations with a step and a zero a
    /// token), summed in whole numbers; attention as at bf16, or at f32 where there is no bf16.
    Int8,
}

impl Precision {
    /// The name in flags and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}

/// Texts packed end to end as token ids: no padding, one attention span a text.
///
/// Invariant: `starts` begins with 0, is strictly increasing and ends with `ids.len()`.
#[derive(Clone, Debug)]
pub struct Packed {
    ids: Vec<u32>,
    starts: Vec<usize>,
}

impl Default for Packed {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            starts: vec![0],
        }
    }
}

impl Packed {
    /// Adds a text. A text without tokens is not added and false is returned.
    pub fn push(&mut self, ids: &[u32]) -> bool {
        if !ids.is_empty() {
            self.ids.extend_from_slice(ids);
            self.starts.push(self.ids.len());
        }
        !ids.is_empty()
    }

    /// How many texts are packed.
    pub fn texts(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many tokens are packed.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// All token ids, text after text.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The token range of each text.
    pub fn spans(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }
}

/// Why a batch could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A token id is outside the model's vocabulary: tokenizer and weights don't belong together.
    #[error(
        "token id {id} is outside the model's vocabulary of {vocabulary}; tokenizer.json and model.safetensors don't belong together"
    )]
    TokenOutOfVocabulary {
        /// The token id.
        id: u32,
        /// The vocabulary's size.
        vocabulary: usize,
    },
    /// A text has more tokens than the model has positions.
    #[error("a text of {tokens} tokens was given to a model of at most {positions}")]
    TooLong {
        /// Tokens of the text.
        tokens: usize,
        /// Positions of the model.
        positions: usize,
    },
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Whether a batch fits the model.
fn check(shape: &TransformerShape, batch: &Packed) -> Result<(), EncodeError> {
    let (vocabulary, positions) = (shape.vocabulary, shape.positions);
    if let Some(&id) = batch.ids().iter().find(|&&id| id as usize >= vocabulary) {
        return Err(EncodeError::TokenOutOfVocabulary { id, vocabulary });
    }
    match batch.spans().map(|span| span.len()).max() {
        Some(tokens) if tokens > positions => Err(EncodeError::TooLong { tokens, positions }),
        _ => Ok(()),
    }
}

/// Turns packed texts into vectors.
///
/// Contract: the vector of a text depends on its token ids alone: not on the texts packed with it, their order, or the
/// thread; on the CPU to the bit, on other devices as far as their libraries keep to it. `encode` may be called from
/// many threads at once.
pub trait Encoder: Send + Sync {
    /// Components of a vector.
    fn dim(&self) -> usize;

    /// Appends one vector a text to `out`, in packed order. Returns how many of the texts this encoder could not hold at its
    /// precision, and encoded at f32 instead.
    ///
    /// # Errors
    /// [`EncodeError`] if the batch does not fit the model; `out` is then unchanged.
    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError>;

    /// Tokens that a batch should have: enough work to be efficient, not so much that threads wait for the last one.
    fn tokens_per_batch(&self) -> usize;

    /// How many calls of `encode` at the same time make sense.
    fn batches_at_once(&self) -> usize;

    /// Whether threads that do nothing else hand it each batch as soon as it is full: for a device that computes while whoever
    /// calls waits, and to which texts of unlike lengths are as welcome as those of like ones. Others get batches from as
    /// many waiting texts as there can be, of the threads that tokenise too.
    fn has_threads_of_its_own(&self) -> bool {
        false
    }

    /// What it computes in, for files: `f32`, `bf16`, `int8` or `f16`.
    fn precision(&self) -> &'static str;

    /// Where and how it computes, for the manifest: `cpu (avx512)`.
    fn device(&self) -> String;

    /// Part of the key of kept vectors: another revision may give other bits.
    fn revision(&self) -> u32 {
        REVISION
    }
}
