//! What a transformer sentence encoder consists of, in one plain description that every encoder reads.
//!
//! Families (BERT, ModernBERT, Qwen3 …) differ in where norms are, what tells tokens their places, who attends to whom,
//! and what the feed-forward layers are; in nothing else.

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
    /// x times the logistic function of x.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

/// What norms make of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Mean 0 and variance 1 (Ba et al. 2016, arXiv:1607.06450).
    Layer,
    /// Root of the mean square 1 (Zhang and Sennrich 2019, arXiv:1910.07467).
    RootMeanSquare,
}

/// Where a layer's norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// After attention and after the feed-forward layers, over what was added.
    After,
    /// Before both; sums stay as they are, and the last layer has a norm behind it.
    Before,
}

/// Which tokens of its text a token attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// To all.
    All,
    /// To itself and those before it.
    Causal,
    /// To those that are at most so many places away.
    Near(usize),
}

impl Mask {
    /// The tokens that `query` attends to, of a text of `tokens`.
    pub fn seen(self, query: usize, tokens: usize) -> std::ops::Range<usize> {
        match self {
            Self::All => 0..tokens,
            Self::Causal => 0..query + 1,
            Self::Near(most) => query.saturating_sub(most)..tokens.min(query + most + 1),
        }
    }
}

/// Sizes and kinds that all layers of a transformer share.
#[derive(Clone, Copy, Debug)]
pub struct TransformerShape {
    /// Components of a token vector.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and of values, each for as many attention heads; divides `heads`.
    pub key_heads: usize,
    /// Components of a head; even where queries and keys are turned.
    pub head_size: usize,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// The most tokens a text can have.
    pub positions: usize,
    /// The kind of all norms.
    pub norm: NormKind,
    /// Where they are.
    pub norm_place: NormPlace,
    /// Added to the variance, or to the mean square, in every norm.
    pub epsilon: f32,
    /// Between the feed-forward layers.
    pub activation: Activation,
    /// Whether the first feed-forward layer has two halves: the activated first one is multiplied by the second.
    pub gated: bool,
}

impl TransformerShape {
    /// That of BERT (Devlin et al. 2018, arXiv:1810.04805), with its usual kinds.
    pub fn of_bert(hidden: usize, heads: usize, vocabulary: usize, positions: usize) -> Self {
        Self {
            hidden,
            heads,
            key_heads: heads,
            head_size: hidden / heads.max(1),
            vocabulary,
            positions,
            norm: NormKind::Layer,
            norm_place: NormPlace::After,
            epsilon: 1e-12,
            activation: Activation::Gelu,
            gated: false,
        }
    }

    /// Components of all heads side by side.
    pub fn of_heads(&self) -> usize {
        self.heads * self.head_size
    }

    /// Outputs of queries, keys and values in one.
    pub fn of_queries_keys_values(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.head_size
    }
}

/// From a text's token vectors to its own.
#[derive(Clone, Copy, Debug)]
pub struct TextHead {
    /// How token vectors become one.
    pub pooling: Pooling,
    /// Tokens at the front of every text that pooling leaves out (a prompt). A text that is all prompt is pooled
    /// whole: a mean over nothing is no vector.
    pub pool_from: usize,
    /// Components that are kept, the first ones, before vectors are brought to length 1; all if none.
    pub keep: Option<usize>,
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

/// A norm's learned gain, and its bias: empty of root-mean-square norms, zeros where a layer norm has none.
pub type Norm = (Vec<f32>, Vec<f32>);

/// How queries and keys are turned according to their places, both halves of a head by the same angles (Su et al. 2021,
/// arXiv:2104.09864): pair `i` of a head of `size` components by `pace * base^(-2i / size)` from place to place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Above 1.
    pub base: f64,
    /// 1 where turns are not scaled.
    pub pace: f64,
}

/// One encoder layer; `L` is a linear layer in the form that its encoder wants.
#[derive(Debug)]
pub struct Layer<L> {
    /// Queries, keys and values in one.
    pub query_key_value: L,
    /// Gains of root-mean-square norms over each head's queries, and over its keys.
    pub head_norms: Option<(Vec<f32>, Vec<f32>)>,
    /// How queries and keys are turned according to their places.
    pub turn: Option<Turn>,
    /// Who attends to whom.
    pub mask: Mask,
    /// After attention.
    pub attention_output: L,
    /// The norm of attention; the first layer may have none where norms are before it.
    pub attention_norm: Option<Norm>,
    /// First feed-forward layer.
    pub intermediate: L,
    /// Second feed-forward layer.
    pub output: L,
    /// The norm of the feed-forward layers.
    pub output_norm: Norm,
}

/// All weights of a transformer sentence encoder.
#[derive(Debug)]
pub struct TransformerWeights<L> {
    /// (vocabulary, hidden)
    pub words: Vec<f32>,
    /// (positions, hidden), added to words; none where places are told in another way.
    pub positions: Option<Vec<f32>>,
    /// Norm after the embeddings.
    pub embedding_norm: Option<Norm>,
    /// (heads, 2 * positions - 1): added to scores of attention, by the place of the key less that of the query, plus
    /// positions - 1.
    pub offset_bias: Option<Vec<f32>>,
    /// The layers, first to last.
    pub layers: Vec<Layer<L>>,
    /// Norm after the last layer.
    pub last_norm: Option<Norm>,
    /// Layers after pooling.
    pub dense: Vec<(L, Activation)>,
}

/// Cosines and sines by which heads are turned: a row of `half` a position.
#[derive(Debug)]
pub(crate) struct Turns {
    pub half: usize,
    pub cosines: Vec<f32>,
    pub sines: Vec<f32>,
}

impl Turns {
    /// For heads of this size and so many positions.
    pub fn of(turn: Turn, head_size: usize, positions: usize) -> Self {
        let half = head_size / 2;
        let angles = (0..positions).flat_map(|position| {
            (0..half).map(move |at| {
                let speed = turn.pace * turn.base.powf(-2.0 * at as f64 / head_size as f64);
                position as f64 * speed
            })
        });
        let (sines, cosines) = angles
            .map(|angle| (angle.sin() as f32, angle.cos() as f32))
            .unzip();
        Self {
            half,
            cosines,
            sines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_see_what_their_names_say() {
        assert_eq!(Mask::All.seen(2, 5), 0..5);
        assert_eq!(Mask::Causal.seen(2, 5), 0..3);
        assert_eq!(Mask::Near(1).seen(0, 5), 0..2);
        assert_eq!(Mask::Near(1).seen(4, 5), 3..5);
        assert_eq!(Mask::Near(9).seen(2, 5), 0..5);
    }

    #[test]
    fn turns_are_by_position_and_slower_along_the_head() {
        let (base, pace) = (100.0, 1.0);
        let turns = Turns::of(Turn { base, pace }, 4, 3);
        assert_eq!(turns.half, 2);
        assert_eq!(turns.cosines[..2], [1.0, 1.0]);
        assert!((turns.sines[2] - 1f32.sin()).abs() < 1e-7);
        assert!((turns.sines[5] - 0.2f32.sin()).abs() < 1e-7);
    }
}
