//! BERT, top to bottom in the order of the forward pass (Devlin et al. 2018, arXiv:1810.04805).

use std::sync::Mutex;

use super::kernels::{apply_gelu, apply_gelu_tanh, layer_norm, softmax_rows};
use super::level::Level;
use super::linear::{Linear, Panels, Rows};
use crate::encoder::{EncodeError, Encoder, Packed, Pooling, pool};

/// The non-linearity between the two feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU with the error function.
    Gelu,
    /// GELU with the hyperbolic tangent.
    GeluTanh,
    /// max(0, x).
    Relu,
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
    /// The non-linearity.
    pub activation: Activation,
}

/// A norm's learned gain and bias.
pub type Norm = (Vec<f32>, Vec<f32>);

/// One encoder layer, packed.
#[derive(Debug)]
pub struct Layer {
    /// Query, key and value in one: outputs 3 * hidden.
    pub query_key_value: Linear,
    /// After attention.
    pub attention_output: Linear,
    /// Norm after attention.
    pub attention_norm: Norm,
    /// First feed-forward layer.
    pub intermediate: Linear,
    /// Second feed-forward layer.
    pub output: Linear,
    /// Norm after the feed-forward layers.
    pub output_norm: Norm,
}

/// All weights of a BERT sentence encoder.
#[derive(Debug)]
pub struct BertWeights {
    /// (vocabulary, hidden)
    pub words: Vec<f32>,
    /// (positions, hidden), the embedding of token type 0 already added.
    pub positions: Vec<f32>,
    /// Norm after the embeddings.
    pub embedding_norm: Norm,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// A layer after pooling and whether its output goes through tanh.
    pub dense: Vec<(Linear, bool)>,
}

/// The packed BERT encoder on CPU.
#[derive(Debug)]
pub struct CpuBert {
    level: Level,
    shape: BertShape,
    weights: BertWeights,
    pooling: Pooling,
    /// Tokens at the front of every text that pooling leaves out (a prompt).
    pool_from: usize,
    normalise: bool,
    workspaces: Mutex<Vec<Workspace>>,
}

/// Buffers of one forward pass, kept for the next one.
#[derive(Debug, Default)]
struct Workspace {
    hidden: Vec<f32>,
    wide: Vec<f32>,
    context: Vec<f32>,
    scores: Vec<f32>,
    panels: Panels,
    packed: Vec<f32>,
}

impl CpuBert {
    /// An encoder of these weights at this level.
    pub fn new(
        level: Level,
        shape: BertShape,
        weights: BertWeights,
        pooling: Pooling,
        pool_from: usize,
        normalise: bool,
    ) -> Self {
        Self {
            level,
            shape,
            weights,
            pooling,
            pool_from,
            normalise,
            workspaces: Mutex::default(),
        }
    }

    fn check(&self, batch: &Packed) -> Result<(), EncodeError> {
        let vocabulary = self.shape.vocabulary;
        if let Some(&id) = batch.ids().iter().find(|&&id| id as usize >= vocabulary) {
            return Err(EncodeError::TokenOutOfVocabulary { id, vocabulary });
        }
        let positions = self.shape.positions;
        match batch.spans().map(|span| span.len()).max() {
            Some(tokens) if tokens > positions => Err(EncodeError::TooLong { tokens, positions }),
            _ => Ok(()),
        }
    }

    fn embed_tokens(&self, batch: &Packed, hidden: &mut Vec<f32>) {
        let size = self.shape.hidden;
        hidden.clear();
        hidden.reserve(batch.tokens() * size);
        for span in batch.spans() {
            for (position, &id) in batch.ids()[span].iter().enumerate() {
                let word = &self.weights.words[id as usize * size..][..size];
                let position = &self.weights.positions[position * size..][..size];
                hidden.extend(word.iter().zip(position).map(|(w, p)| w + p));
            }
        }
        let (gain, bias) = &self.weights.embedding_norm;
        layer_norm(self.level, hidden, None, gain, bias, self.shape.epsilon);
    }

    /// Attention of each text over itself: `wide` holds query, key and value side by side.
    fn attend(&self, batch: &Packed, space: &mut Workspace) {
        let size = self.shape.hidden;
        let head_size = size / self.shape.heads;
        let scale = 1.0 / (head_size as f32).sqrt();
        let stride = 3 * size;
        for span in batch.spans() {
            let tokens = span.len();
            let rows = &space.wide[span.start * stride..span.end * stride];
            let context = &mut space.context[span.start * size..span.end * size];
            // The product writes whole kernel widths where it can; rows are as long as the text.
            space.scores.resize(tokens * tokens, 0.0);
            for head in 0..self.shape.heads {
                let (query, key, value) = (
                    head * head_size,
                    size + head * head_size,
                    2 * size + head * head_size,
                );
                space
                    .panels
                    .pack(self.level, head_size, tokens, |p, token| {
                        rows[token * stride + key + p]
                    });
                space.panels.multiply(
                    self.level,
                    Rows {
                        data: &rows[query..],
                        stride,
                        count: tokens,
                    },
                    &mut space.scores,
                    tokens,
                    &mut space.packed,
                );
                softmax_rows(self.level, &mut space.scores, tokens, tokens, scale);
                space
                    .panels
                    .pack(self.level, tokens, head_size, |token, p| {
                        rows[token * stride + value + p]
                    });
                let out = &mut context[head * head_size..];
                space.panels.multiply(
                    self.level,
                    Rows {
                        data: &space.scores,
                        stride: tokens,
                        count: tokens,
                    },
                    out,
                    size,
                    &mut space.packed,
                );
            }
        }
    }

    fn layer(&self, layer: &Layer, batch: &Packed, space: &mut Workspace) {
        let (tokens, size) = (batch.tokens(), self.shape.hidden);
        let epsilon = self.shape.epsilon;

        resize(&mut space.wide, tokens * 3 * size);
        layer.query_key_value.apply(
            self.level,
            &space.hidden,
            &mut space.wide,
            &mut space.packed,
        );
        resize(&mut space.context, tokens * size);
        self.attend(batch, space);

        let attended = &mut space.wide[..tokens * size];
        layer
            .attention_output
            .apply(self.level, &space.context, attended, &mut space.packed);
        let (gain, bias) = &layer.attention_norm;
        layer_norm(
            self.level,
            attended,
            Some(&space.hidden),
            gain,
            bias,
            epsilon,
        );
        space.hidden.copy_from_slice(attended);

        resize(&mut space.wide, tokens * layer.intermediate.outputs());
        layer.intermediate.apply(
            self.level,
            &space.hidden,
            &mut space.wide,
            &mut space.packed,
        );
        match self.shape.activation {
            Activation::Gelu => apply_gelu(self.level, &mut space.wide),
            Activation::GeluTanh => apply_gelu_tanh(self.level, &mut space.wide),
            Activation::Relu => space.wide.iter_mut().for_each(|x| *x = x.max(0.0)),
        }
        layer.output.apply(
            self.level,
            &space.wide,
            &mut space.context,
            &mut space.packed,
        );
        let (gain, bias) = &layer.output_norm;
        layer_norm(
            self.level,
            &mut space.context,
            Some(&space.hidden),
            gain,
            bias,
            epsilon,
        );
        std::mem::swap(&mut space.hidden, &mut space.context);
    }

    fn pool_texts(&self, batch: &Packed, hidden: &[f32], out: &mut Vec<f32>) {
        let size = self.shape.hidden;
        for span in batch.spans() {
            // A text that is all prompt is pooled whole: a mean over nothing is no vector.
            let first = if span.len() > self.pool_from {
                span.start + self.pool_from
            } else {
                span.start
            };
            let mut vector = vec![0.0; size];
            pool(
                self.pooling,
                &hidden[first * size..span.end * size],
                size,
                &mut vector,
            );
            for (linear, tanh) in &self.weights.dense {
                let mut next = vec![0.0; linear.outputs()];
                linear.apply(self.level, &vector, &mut next, &mut Vec::new());
                if *tanh {
                    next.iter_mut().for_each(|x| *x = x.tanh());
                }
                vector = next;
            }
            if self.normalise {
                let length = vector
                    .iter()
                    .map(|x| f64::from(*x).powi(2))
                    .sum::<f64>()
                    .sqrt()
                    .max(1e-12);
                vector
                    .iter_mut()
                    .for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
            out.extend_from_slice(&vector);
        }
    }
}

fn resize(buffer: &mut Vec<f32>, size: usize) {
    // Every element is written before it is read; keep what is there instead of clearing it.
    buffer.resize(size, 0.0);
}

impl Encoder for CpuBert {
    fn dim(&self) -> usize {
        self.weights
            .dense
            .last()
            .map_or(self.shape.hidden, |(linear, _)| linear.outputs())
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<(), EncodeError> {
        self.check(batch)?;
        let kept = self.workspaces.lock().ok().and_then(|mut kept| kept.pop());
        let mut space = kept.unwrap_or_default();
        self.embed_tokens(batch, &mut space.hidden);
        for layer in &self.weights.layers {
            self.layer(layer, batch, &mut space);
        }
        self.pool_texts(batch, &space.hidden, out);
        if let Ok(mut kept) = self.workspaces.lock() {
            kept.push(space);
        }
        Ok(())
    }

    fn precision(&self) -> &'static str {
        "f32"
    }

    fn device(&self) -> String {
        format!("cpu ({})", self.level.name())
    }
}
