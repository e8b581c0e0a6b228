//! The forward pass of a transformer, top to bottom.

use std::sync::Mutex;

use super::attention::{Attention, AttentionScratch, Heads, attention_precision};
use super::kernels::{add, gate, layer_norm, root_mean_square_norm, turn};
use super::level::Level;
use super::linear::{Linear, Scratch};
use super::words::first;
use crate::block::Turns;
use crate::{
    Activation, EncodeError, Encoder, Layer, Norm, NormKind, NormPlace, Packed, Precision,
    TextHead, TransformerShape, TransformerWeights, Turn, check, pool,
};

/// Tokens of a batch. Large enough to keep the kernels' panels in cache across many rows, small
/// enough that a batch's activations stay in the last-level cache and that all threads have work.
const TOKENS_PER_BATCH: usize = 256;

/// The packed transformer encoder on CPU.
#[derive(Debug)]
pub struct CpuTransformer {
    level: Level,
    precision: Precision,
    shape: TransformerShape,
    weights: TransformerWeights<Linear>,
    head: TextHead,
    /// Each once.
    turns: Vec<(Turn, Turns)>,
    workspaces: Mutex<Vec<Workspace>>,
}

/// Buffers of one forward pass, kept for the next one.
#[derive(Debug, Default)]
struct Workspace {
    hidden: Vec<f32>,
    /// What goes into attention or into the feed-forward layers, where norms are before them.
    normed: Vec<f32>,
    wide: Vec<f32>,
    gated: Vec<f32>,
    context: Vec<f32>,
    attended: Vec<f32>,
    attention: AttentionScratch,
    scratch: Scratch,
}

impl CpuTransformer {
    /// An encoder of these weights, which were packed at this level and precision.
    pub fn new(
        level: Level,
        precision: Precision,
        shape: TransformerShape,
        mut weights: TransformerWeights<Linear>,
        head: TextHead,
    ) -> Self {
        level.assert_available();
        // Scores are scaled after the bias is added.
        let scale = (shape.head_size as f32).sqrt();
        let biases = weights.offset_bias.iter_mut().flatten();
        biases.for_each(|bias| *bias *= scale);
        let mut turns: Vec<(Turn, Turns)> = Vec::new();
        for turn in weights.layers.iter().filter_map(|layer| layer.turn) {
            if turns.iter().all(|(known, _)| *known != turn) {
                turns.push((turn, Turns::of(turn, shape.head_size, shape.positions)));
            }
        }
        Self {
            level,
            precision,
            shape,
            weights,
            head,
            turns,
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
                match &self.weights.positions {
                    Some(positions) => {
                        let position = &positions[position * size..][..size];
                        hidden.extend(word.iter().zip(position).map(|(w, p)| w + p));
                    }
                    None => hidden.extend_from_slice(word),
                }
            }
        }
        if let Some(norm) = &self.weights.embedding_norm {
            self.norm(hidden, None, norm);
        }
    }

    /// Adds `residual` and brings rows to their norm.
    fn norm(&self, x: &mut [f32], residual: Option<&[f32]>, (gain, bias): &Norm) {
        let (level, epsilon) = (self.level, self.shape.epsilon);
        match self.shape.norm {
            NormKind::Layer => layer_norm(level, x, residual, gain, bias, epsilon),
            NormKind::RootMeanSquare => {
                if let Some(residual) = residual {
                    add(level, x, residual);
                }
                root_mean_square_norm(level, x, gain, epsilon);
            }
        }
    }

    fn layer(&self, layer: &Layer<Linear>, batch: &Packed, space: &mut Workspace) {
        let (tokens, size) = (batch.tokens(), self.shape.hidden);
        let (level, none) = (self.level, Activation::None);
        let Workspace {
            hidden,
            normed,
            wide,
            gated,
            context,
            attended,
            attention,
            scratch,
        } = space;
        let before = self.shape.norm_place == NormPlace::Before;
        let hidden = first(hidden, tokens * size);
        let mut normed = before.then(|| first(normed, tokens * size));

        if let Some(normed) = &mut normed {
            normed.copy_from_slice(hidden);
            if let Some(norm) = &layer.attention_norm {
                self.norm(normed, None, norm);
            }
        }
        let context = first(context, tokens * self.shape.of_heads());
        let rows = first(wide, tokens * self.shape.of_queries_keys_values());
        let input = normed.as_deref().unwrap_or(hidden);
        layer
            .query_key_value
            .apply(level, input, none, rows, scratch);
        self.attend(layer, batch, rows, context, attention);

        let attended = first(attended, tokens * size);
        layer
            .attention_output
            .apply(level, context, none, attended, scratch);
        match (&mut normed, &layer.attention_norm) {
            (Some(normed), _) => {
                add(level, hidden, attended);
                normed.copy_from_slice(hidden);
                self.norm(normed, None, &layer.output_norm);
            }
            (None, Some(norm)) => self.norm(attended, Some(hidden), norm),
            (None, None) => add(level, attended, hidden),
        }

        let wide = first(wide, tokens * layer.intermediate.outputs());
        let activation = self.shape.activation;
        let input = normed.as_deref().unwrap_or(attended);
        let wide = match self.shape.gated {
            false => {
                layer
                    .intermediate
                    .apply(level, input, activation, wide, scratch);
                wide
            }
            true => {
                layer.intermediate.apply(level, input, none, wide, scratch);
                let half = layer.intermediate.outputs() / 2;
                let gated = first(gated, tokens * half);
                gate(level, self.precision, activation, wide, half, gated);
                gated
            }
        };
        if before {
            layer.output.apply(level, wide, none, attended, scratch);
            add(level, hidden, attended);
        } else {
            layer.output.apply(level, wide, none, hidden, scratch);
            self.norm(hidden, Some(attended), &layer.output_norm);
        }
    }

    /// Attention of all texts; `rows` are queries, keys and values.
    fn attend(
        &self,
        layer: &Layer<Linear>,
        batch: &Packed,
        rows: &mut [f32],
        context: &mut [f32],
        scratch: &mut AttentionScratch,
    ) {
        let (width, of_heads) = (self.shape.of_queries_keys_values(), self.shape.of_heads());
        let attention = Attention {
            level: self.level,
            precision: attention_precision(self.level, self.precision),
            heads: Heads::of(&self.shape),
            mask: layer.mask,
            bias: self.weights.offset_bias.as_deref(),
        };
        for span in batch.spans() {
            let rows = &mut rows[span.start * width..span.end * width];
            self.place(layer, rows);
            let context = &mut context[span.start * of_heads..span.end * of_heads];
            attention.attend(rows, context, scratch);
        }
    }

    /// Brings queries and keys of a text to their norms, and turns them by their places.
    fn place(&self, layer: &Layer<Linear>, rows: &mut [f32]) {
        let mut turns = self.turns.iter();
        let turns = turns.find(|(turn, _)| Some(*turn) == layer.turn);
        if layer.head_norms.is_none() && turns.is_none() {
            return;
        }
        let (level, epsilon, size) = (self.level, self.shape.epsilon, self.shape.head_size);
        let (of_queries, of_keys) = (self.shape.of_heads(), self.shape.key_heads * size);
        let width = self.shape.of_queries_keys_values();
        for (position, row) in rows.chunks_exact_mut(width).enumerate() {
            let (queries, keys) = row[..of_queries + of_keys].split_at_mut(of_queries);
            if let Some((query, key)) = &layer.head_norms {
                root_mean_square_norm(level, queries, query, epsilon);
                root_mean_square_norm(level, keys, key, epsilon);
            }
            if let Some((_, turns)) = turns {
                let at = position * turns.half..(position + 1) * turns.half;
                let (cosines, sines) = (&turns.cosines[at.clone()], &turns.sines[at]);
                for head in queries
                    .chunks_exact_mut(size)
                    .chain(keys.chunks_exact_mut(size))
                {
                    turn(level, head, cosines, sines);
                }
            }
        }
    }

    fn pool_texts(&self, batch: &Packed, hidden: &[f32], out: &mut Vec<f32>) {
        let size = self.shape.hidden;
        for span in batch.spans() {
            let before = self.head.first_pooled(span.len());
            let first = span.start + before;
            let mut vector = vec![0.0; size];
            pool(
                self.head.pooling,
                &hidden[first * size..span.end * size],
                before,
                size,
                &mut vector,
            );
            for (linear, activation) in &self.weights.dense {
                let mut next = vec![0.0; linear.outputs()];
                let mut scratch = Scratch::default();
                linear.apply(self.level, &vector, *activation, &mut next, &mut scratch);
                vector = next;
            }
            vector.truncate(self.dim());
            if self.head.normalise {
                normalise(&mut vector);
            }
            out.extend_from_slice(&vector);
        }
    }
}

/// Brings a vector to length 1.
pub(crate) fn normalise(vector: &mut [f32]) {
    let squares = vector.iter().map(|x| f64::from(*x).powi(2));
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    vector
        .iter_mut()
        .for_each(|x| *x = (f64::from(*x) / length) as f32);
}

impl Encoder for CpuTransformer {
    fn dim(&self) -> usize {
        let dense = self.weights.dense.last();
        let whole = dense.map_or(self.shape.hidden, |(linear, _)| linear.outputs());
        self.head.keep.map_or(whole, |keep| keep.min(whole))
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
        check(&self.shape, batch)?;
        let kept = self.workspaces.lock().ok().and_then(|mut kept| kept.pop());
        let mut space = kept.unwrap_or_default();
        self.embed_tokens(batch, &mut space.hidden);
        for layer in &self.weights.layers {
            self.layer(layer, batch, &mut space);
        }
        if let Some(norm) = &self.weights.last_norm {
            let hidden = first(&mut space.hidden, batch.tokens() * self.shape.hidden);
            self.norm(hidden, None, norm);
        }
        self.pool_texts(batch, &space.hidden, out);
        if let Ok(mut kept) = self.workspaces.lock() {
            kept.push(space);
        }
        Ok(0)
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
