//! Small models of random weights, for all that families differ in.

use crate::cpu::{CpuTransformer, Level, Linear};
use crate::{
    Activation, Layer, Mask, Norm, NormKind, NormPlace, Pooling, Precision, TextHead,
    TransformerShape, TransformerWeights, Turn,
};

/// A linear layer as it comes: (outputs, inputs), and a bias.
pub(crate) type Raw = (Vec<f32>, Vec<f32>);

/// Numbers that look random, around 0.
pub(crate) struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn many(&mut self, count: usize, most: f32) -> Vec<f32> {
        (0..count).map(|_| self.next() * most).collect()
    }

    fn linear(&mut self, inputs: usize, outputs: usize) -> Raw {
        let most = 1.7 / (inputs as f32).sqrt();
        (self.many(outputs * inputs, most), self.many(outputs, 0.1))
    }

    fn norm(&mut self, size: usize, kind: NormKind) -> Norm {
        let gain = self.many(size, 0.3).into_iter().map(|x| 1.0 + x).collect();
        let bias = match kind {
            NormKind::Layer => self.many(size, 0.1),
            NormKind::RootMeanSquare => Vec::new(),
        };
        (gain, bias)
    }
}

/// What a family has.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub shape: TransformerShape,
    pub positions: bool,
    pub offsets: bool,
    pub turns: bool,
    pub head_norms: bool,
    pub masks: [Mask; 2],
    pub first_norm: bool,
    pub dense: bool,
    pub head: TextHead,
}

const HEAD: TextHead = TextHead {
    pooling: Pooling::Mean,
    pool_from: 0,
    keep: None,
    normalise: true,
};

pub(crate) fn bert() -> Family {
    Family {
        shape: TransformerShape::of_bert(64, 2, 90, 80),
        positions: true,
        offsets: false,
        turns: false,
        head_norms: false,
        masks: [Mask::All; 2],
        first_norm: true,
        dense: false,
        head: HEAD,
    }
}

pub(crate) fn families() -> Vec<(&'static str, Family)> {
    let bert = bert();
    let with = |change: &dyn Fn(&mut Family)| {
        let mut family = bert;
        change(&mut family);
        family
    };
    vec![
        ("BERT", bert),
        (
            "MPNet",
            with(&|of| {
                of.offsets = true;
                of.head.pooling = Pooling::Cls;
            }),
        ),
        (
            "JinaBERT",
            with(&|of| {
                (of.positions, of.offsets) = (false, true);
                (of.shape.gated, of.shape.activation) = (true, Activation::Relu);
            }),
        ),
        (
            "NomicBERT",
            with(&|of| {
                (of.positions, of.turns) = (false, true);
                (of.shape.gated, of.shape.activation) = (true, Activation::Silu);
                of.head.pool_from = 3;
                of.head.keep = Some(24);
            }),
        ),
        (
            "ModernBERT",
            with(&|of| {
                (of.positions, of.turns, of.first_norm) = (false, true, false);
                of.shape.norm_place = NormPlace::Before;
                (of.shape.gated, of.shape.activation) = (true, Activation::Gelu);
                of.masks = [Mask::All, Mask::Near(5)];
                of.head.pooling = Pooling::MeanSqrtLen;
                of.head.normalise = false;
            }),
        ),
        (
            "Qwen3",
            with(&|of| {
                (of.positions, of.turns, of.head_norms) = (false, true, true);
                (of.shape.heads, of.shape.key_heads, of.shape.head_size) = (4, 2, 32);
                of.shape.norm_place = NormPlace::Before;
                of.shape.norm = NormKind::RootMeanSquare;
                (of.shape.gated, of.shape.activation) = (true, Activation::Silu);
                of.masks = [Mask::Causal; 2];
                of.head.pooling = Pooling::LastToken;
            }),
        ),
        (
            "layers after pooling",
            with(&|of| {
                of.dense = true;
                of.head.keep = Some(40);
            }),
        ),
        ("the largest", with(&|of| of.head.pooling = Pooling::Max)),
        (
            "weights by place",
            with(&|of| of.head.pooling = Pooling::WeightedMean),
        ),
    ]
}

impl Family {
    pub fn weights(&self) -> TransformerWeights<Raw> {
        let mut chance = Chance(88_172_645_463_325_252);
        let TransformerShape {
            hidden,
            heads,
            positions,
            vocabulary,
            norm,
            ..
        } = self.shape;
        let before = self.shape.norm_place == NormPlace::Before;
        let wide = hidden * 3 * (1 + usize::from(self.shape.gated));
        let layers = (0..2).map(|at| Layer {
            query_key_value: chance.linear(hidden, self.shape.of_queries_keys_values()),
            head_norms: self.head_norms.then(|| {
                let mut gain = || {
                    chance
                        .norm(self.shape.head_size, NormKind::RootMeanSquare)
                        .0
                };
                (gain(), gain())
            }),
            turn: self.turns.then_some(Turn {
                base: [10_000.0, 160_000.0][at],
                pace: 1.0,
            }),
            mask: self.masks[at],
            attention_output: chance.linear(self.shape.of_heads(), hidden),
            attention_norm: (at > 0 || self.first_norm).then(|| chance.norm(hidden, norm)),
            intermediate: chance.linear(hidden, wide),
            output: chance.linear(hidden * 3, hidden),
            output_norm: chance.norm(hidden, norm),
        });
        let layers: Vec<_> = layers.collect();
        TransformerWeights {
            words: chance.many(vocabulary * hidden, 1.0),
            positions: self.positions.then(|| chance.many(positions * hidden, 0.5)),
            embedding_norm: (!before || !self.first_norm).then(|| chance.norm(hidden, norm)),
            offset_bias: (self.offsets).then(|| chance.many(heads * (2 * positions - 1), 1.0)),
            layers,
            last_norm: before.then(|| chance.norm(hidden, norm)),
            dense: match self.dense {
                true => vec![
                    (chance.linear(hidden, 48), Activation::Tanh),
                    (chance.linear(48, 56), Activation::None),
                ],
                false => Vec::new(),
            },
        }
    }

    /// The packed encoder of it.
    pub fn encoder(&self) -> CpuTransformer {
        let weights = self.weights();
        let level = Level::choose().unwrap();
        let linear = |(weight, bias): Raw| Linear::new(level, Precision::F32, &weight, bias);
        let layers = weights.layers.into_iter().map(|layer| Layer {
            query_key_value: linear(layer.query_key_value),
            attention_output: linear(layer.attention_output),
            intermediate: linear(layer.intermediate),
            output: linear(layer.output),
            head_norms: layer.head_norms,
            turn: layer.turn,
            mask: layer.mask,
            attention_norm: layer.attention_norm,
            output_norm: layer.output_norm,
        });
        let weights = TransformerWeights {
            layers: layers.collect(),
            dense: weights
                .dense
                .into_iter()
                .map(|(l, a)| (linear(l), a))
                .collect(),
            words: weights.words,
            positions: weights.positions,
            embedding_norm: weights.embedding_norm,
            offset_bias: weights.offset_bias,
            last_norm: weights.last_norm,
        };
        CpuTransformer::new(level, Precision::F32, self.shape, weights, self.head)
    }
}

/// Texts of lengths around the sizes of tiles.
pub(crate) fn texts() -> Vec<Vec<u32>> {
    let mut chance = Chance(7_777_777_777);
    let lengths = [1, 2, 5, 16, 17, 33, 80, 3];
    let text = |tokens: usize| {
        (0..tokens)
            .map(|_| (chance.next().abs() * 89.0) as u32)
            .collect()
    };
    lengths.map(text).to_vec()
}

/// The least cosine of vectors of equal texts.
pub(crate) fn least_cosine(a: &[f32], b: &[f32], dim: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.chunks_exact(dim).zip(b.chunks_exact(dim));
    let cosines = pairs.map(|(a, b)| {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter()
                .zip(b)
                .map(|(x, y)| f64::from(*x) * f64::from(*y))
                .sum()
        };
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    });
    cosines.fold(1.0, |least, cosine| {
        assert!(cosine.is_finite());
        f64::min(least, cosine)
    })
}
