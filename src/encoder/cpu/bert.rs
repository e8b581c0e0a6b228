//! BERT, top to bottom in the order of the forward pass.

use std::sync::Mutex;

use super::attention::{AttentionScratch, Heads, attend, attention_precision};
use super::kernels::layer_norm;
use super::level::Level;
use super::linear::{Linear, Scratch};
use super::words::first;
use crate::{
    Activation, BertShape, BertWeights, EncodeError, Encoder, Layer, Packed, Precision, TextHead,
    check, pool,
};

/// Tokens of a batch. Large enough to keep the kernels' panels in cache across many rows, small
/// enough that a batch's activations stay in the last-level cache and that all threads have work.
const TOKENS_PER_BATCH: usize = 256;

/// The packed BERT encoder on CPU.
#[derive(Debug)]
pub struct CpuBert {
    level: Level,
    precision: Precision,
    shape: BertShape,
    weights: BertWeights<Linear>,
    head: TextHead,
    workspaces: Mutex<Vec<Workspace>>,
}

/// Buffers of one forward pass, kept for the next one.
#[derive(Debug, Default)]
struct Workspace {
    hidden: Vec<f32>,
    wide: Vec<f32>,
    context: Vec<f32>,
    attended: Vec<f32>,
    attention: AttentionScratch,
    scratch: Scratch,
}

impl CpuBert {
    /// An encoder of these weights, which were packed at this level and precision.
    pub fn new(
        level: Level,
        precision: Precision,
        shape: BertShape,
        weights: BertWeights<Linear>,
        head: TextHead,
    ) -> Self {
        level.assert_available();
        Self {
            level,
            precision,
            shape,
            weights,
            head,
            workspaces: Mutex::default(),
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

    fn layer(&self, layer: &Layer<Linear>, batch: &Packed, space: &mut Workspace) {
        let (tokens, size) = (batch.tokens(), self.shape.hidden);
        let epsilon = self.shape.epsilon;
        let (level, none) = (self.level, Activation::None);
        let Workspace {
            hidden,
            wide,
            context,
            attended,
            attention,
            scratch,
        } = space;

        let hidden = first(hidden, tokens * size);
        let context = first(context, tokens * size);
        let rows = first(wide, tokens * 3 * size);
        layer
            .query_key_value
            .apply(level, hidden, none, rows, scratch);
        let heads = Heads {
            count: self.shape.heads,
            size: size / self.shape.heads,
        };
        let precision = attention_precision(level, self.precision);
        for span in batch.spans() {
            let rows = &rows[span.start * 3 * size..span.end * 3 * size];
            let context = &mut context[span.start * size..span.end * size];
            attend(level, precision, heads, rows, context, attention);
        }

        let attended = first(attended, tokens * size);
        layer
            .attention_output
            .apply(level, context, none, attended, scratch);
        let (gain, bias) = &layer.attention_norm;
        layer_norm(level, attended, Some(hidden), gain, bias, epsilon);

        let wide = first(wide, tokens * layer.intermediate.outputs());
        let activation = self.shape.activation;
        layer
            .intermediate
            .apply(level, attended, activation, wide, scratch);
        layer.output.apply(level, wide, none, hidden, scratch);
        let (gain, bias) = &layer.output_norm;
        layer_norm(level, hidden, Some(attended), gain, bias, epsilon);
    }

    fn pool_texts(&self, batch: &Packed, hidden: &[f32], out: &mut Vec<f32>) {
        let size = self.shape.hidden;
        for span in batch.spans() {
            let first = span.start + self.head.first_pooled(span.len());
            let mut vector = vec![0.0; size];
            pool(
                self.head.pooling,
                &hidden[first * size..span.end * size],
                size,
                &mut vector,
            );
            for (linear, activation) in &self.weights.dense {
                let mut next = vec![0.0; linear.outputs()];
                let mut scratch = Scratch::default();
                linear.apply(self.level, &vector, *activation, &mut next, &mut scratch);
                vector = next;
            }
            if self.head.normalise {
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

impl Encoder for CpuBert {
    fn dim(&self) -> usize {
        self.weights
            .dense
            .last()
            .map_or(self.shape.hidden, |(linear, _)| linear.outputs())
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<(), EncodeError> {
        check(&self.shape, batch)?;
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

    fn tokens_per_batch(&self) -> usize {
        TOKENS_PER_BATCH
    }

    fn batches_at_once(&self) -> usize {
        usize::MAX
    }

    fn precision(&self) -> &'static str {
        self.precision.name()
    }

    fn device(&self) -> String {
        // Every instruction that decides a bit of a vector.
        let mut device = format!("cpu ({}", self.level.name());
        if self.precision == Precision::Int8 && self.level.has_dot(Precision::Int8) {
            device.push_str("-vnni");
        }
        if self.precision != Precision::F32 && self.level.has_dot(Precision::Bf16) {
            device.push_str("-bf16");
        }
        device.push(')');
        device
    }
}
