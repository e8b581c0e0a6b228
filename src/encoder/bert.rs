//! What a BERT sentence encoder consists of (Devlin et al. 2018, arXiv:1810.04805), whatever computes it.

use super::Pooling;

/// What follows a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// GELU with the error function.
    Gelu,
    /// GELU with the hyperbolic tangent.
    GeluTanh,
    /// max(0, x).
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

/// Sizes of a BERT.
#[derive(Clone, Copy, Debug)]
pub struct BertShape {
    /// Components of a token vector.
    pub hidden: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Learned positions: the most tokens a text can have.
    pub positions: usize,
    /// Added to the variance in every norm.
    pub epsilon: f32,
    /// Between the two feed-forward layers.
    pub activation: Activation,
}

/// From a text's token vectors to its own.
#[derive(Clone, Copy, Debug)]
pub struct TextHead {
    /// How token vectors become one.
    pub pooling: Pooling,
    /// Tokens at the front of every text that pooling leaves out (a prompt). A text that is all prompt is pooled
    /// whole: a mean over nothing is no vector.
    pub pool_from: usize,
    /// Whether vectors are brought to length 1.
    pub normalise: bool,
}

impl TextHead {
    /// The first of a text's tokens that is pooled.
    pub fn first_pooled(&self, tokens: usize) -> usize {
        if tokens > self.pool_from {
            self.pool_from
        } else {
            0
        }
    }
}

/// A norm's learned gain and bias.
pub type Norm = (Vec<f32>, Vec<f32>);

/// One encoder layer; `L` is a linear layer in the form that its encoder wants.
#[derive(Debug)]
pub struct Layer<L> {
    /// Query, key and value in one: outputs 3 * hidden.
    pub query_key_value: L,
    /// After attention.
    pub attention_output: L,
    /// Norm after attention.
    pub attention_norm: Norm,
    /// First feed-forward layer.
    pub intermediate: L,
    /// Second feed-forward layer.
    pub output: L,
    /// Norm after the feed-forward layers.
    pub output_norm: Norm,
}

/// All weights of a BERT sentence encoder.
#[derive(Debug)]
pub struct BertWeights<L> {
    /// (vocabulary, hidden)
    pub words: Vec<f32>,
    /// (positions, hidden), the embedding of token type 0 already added.
    pub positions: Vec<f32>,
    /// Norm after the embeddings.
    pub embedding_norm: Norm,
    /// The layers, first to last.
    pub layers: Vec<Layer<L>>,
    /// Layers after pooling.
    pub dense: Vec<(L, Activation)>,
}
