//! Attention of a text over itself (Vaswani et al. 2017, arXiv:1706.03762), a few rows at a time, so
//! that their scores never leave the first cache.

use super::columns::{COLUMNS, columns_of_runs};
use super::kernels::{add, scale_rows};
use super::level::Level;
use super::softmax::softmax_runs;
use super::tile::{MOST_ROWS, MOST_SUMS, RUN, Tile, height, multiply, width};
use super::words::{PackedRows, Rows, per_word, runs_of, words_of, words_of_pair};
use crate::{Mask, Precision, TransformerShape};

/// Buffers of one text's attention, used again for the next one.
#[derive(Debug, Default)]
pub(super) struct AttentionScratch {
    keys: Vec<u32>,
    values: Vec<u32>,
    queries: PackedRows,
    scores: Vec<f32>,
    weights: PackedRows,
    key_runs: Vec<u32>,
}

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub count: usize,
    /// Heads of keys and values; divides `count`.
    pub keys: usize,
    /// Components of a head.
    pub size: usize,
}

impl Heads {
    pub fn of(shape: &TransformerShape) -> Self {
        Self {
            count: shape.heads,
            keys: shape.key_heads,
            size: shape.head_size,
        }
    }
}

/// How a layer attends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention<'a> {
    pub level: Level,
    /// See [`attention_precision`].
    pub precision: Precision,
    pub heads: Heads,
    pub mask: Mask,
    /// Added to scores: for each head a row, by the place of the key less that of the query; in the middle of a row both
    /// are equal. In steps of scores before they are scaled.
    pub bias: Option<&'a [f32]>,
}

/// What attention computes in. Bytes are too coarse for scores; without dot products of bf16, f32 is as fast.
pub(super) fn attention_precision(level: Level, precision: Precision) -> Precision {
    match precision {
        Precision::F32 => Precision::F32,
        Precision::Int8 if !level.has_dot(Precision::Bf16) => Precision::F32,
        Precision::Bf16 | Precision::Int8 => Precision::Bf16,
    }
}

impl Attention<'_> {
    /// Changes the scores of a query's row over all keys of its text.
    fn reach(&self, head: usize, query: usize, scores: &mut [f32]) {
        let tokens = scores.len();
        if let Some(bias) = self.bias {
            let width = bias.len() / self.heads.count;
            let bias = &bias[head * width + width / 2 - query..][..tokens];
            add(self.level, scores, bias);
        }
        let seen = self.mask.seen(query, tokens);
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end..].fill(f32::NEG_INFINITY);
    }

    /// Attends one text: `rows` has queries, keys and values side by side for each token, `context` gets one row a token,
    /// all heads side by side.
    pub fn attend(&self, rows: &[f32], context: &mut [f32], scratch: &mut AttentionScratch) {
        let Self {
            level,
            precision,
            heads,
            ..
        } = *self;
        let hidden = heads.count * heads.size;
        let of_keys = heads.keys * heads.size;
        let (stride, tokens) = (hidden + 2 * of_keys, context.len() / hidden);
        let plain = self.mask == Mask::All && self.bias.is_none();
        let (width, height) = (width(level), height(level));
        let scale = 1.0 / (heads.size as f32).sqrt();
        let key_words = words_of(precision, heads.size);
        let value_words = words_of(precision, tokens);
        // The scores of a row are as long as whole panels of keys.
        let padded = tokens.next_multiple_of(width);
        scratch.scores.resize(height * padded, 0.0);
        let mut sums = [0.0f32; MOST_ROWS];
        let mut tile = [0.0f32; MOST_SUMS];
        for head in 0..heads.count {
            let at = head * heads.size;
            let shared = heads.count / heads.keys;
            if head.is_multiple_of(shared) {
                let key = hidden + head / shared * heads.size;
                let (keys, values) = (&rows[key..], &rows[key + of_keys..]);
                scratch.pack_keys(level, precision, keys, stride, tokens, heads.size);
                scratch.pack_values(level, precision, values, stride, tokens, heads.size);
            }
            let queries = Rows {
                data: &rows[at..],
                stride,
                count: tokens,
            };
            scratch.queries.pack(level, precision, queries, heads.size);
            let mut row = 0;
            while row < tokens {
                let count = height.min(tokens - row);
                for (panel, keys) in scratch.keys.chunks_exact(width * key_words).enumerate() {
                    let tile = Tile {
                        a: scratch.queries.group(row, count, 0),
                        rows: count,
                        words: key_words,
                        panel: keys,
                        sums: &mut scratch.scores[panel * width..],
                        stride: padded,
                        first: true,
                    };
                    multiply(level, precision, tile);
                }
                let scores = &mut scratch.scores[..count * padded];
                if !plain {
                    for (at, scores) in scores.chunks_exact_mut(padded).enumerate() {
                        self.reach(head, row + at, &mut scores[..tokens]);
                    }
                }
                let sums = &mut sums[..count];
                let weights = scratch.weights.group_of(count, value_words);
                softmax_runs(
                    level, precision, scores, padded, tokens, scale, sums, weights,
                );
                for (panel, values) in scratch.values.chunks_exact(width * value_words).enumerate()
                {
                    let first = panel * width;
                    let used = width.min(heads.size - first);
                    multiply(
                        level,
                        precision,
                        Tile {
                            a: scratch.weights.group(0, count, 0),
                            rows: count,
                            words: value_words,
                            panel: values,
                            sums: &mut tile,
                            stride: width,
                            first: true,
                        },
                    );
                    scale_rows(
                        level,
                        &tile[..count * width],
                        width,
                        used,
                        sums,
                        &mut context[row * hidden + at + first..],
                        hidden,
                    );
                }
                row += count;
            }
        }
    }
}

impl AttentionScratch {
    /// Keys as panels: a column is a token, words run along the head.
    fn pack_keys(
        &mut self,
        level: Level,
        precision: Precision,
        keys: &[f32],
        stride: usize,
        tokens: usize,
        size: usize,
    ) {
        let (width, words) = (width(level), words_of(precision, size));
        // Columns without a token keep what was there: softmax leaves their scores out.
        self.keys.resize(tokens.next_multiple_of(width) * words, 0);
        let at_once = COLUMNS.min(width);
        self.key_runs
            .resize(words.next_multiple_of(RUN) * at_once, 0);
        for (panel, target) in self.keys.chunks_exact_mut(width * words).enumerate() {
            for first in (0..width.min(tokens - panel * width)).step_by(at_once) {
                let token = panel * width + first;
                for column in 0..at_once.min(tokens - token) {
                    let key = &keys[(token + column) * stride..][..size];
                    runs_of(
                        level,
                        precision,
                        key,
                        &mut self.key_runs[column * RUN..],
                        at_once,
                    );
                }
                let runs = self.key_runs.as_chunks::<RUN>().0.chunks_exact(at_once);
                for (runs, rows) in runs.zip(target.chunks_mut(RUN * width)) {
                    columns_of_runs(level, runs, &mut rows[first..], width);
                }
            }
        }
    }

    /// Values as panels: a column is a component of the head, words run along the tokens.
    fn pack_values(
        &mut self,
        level: Level,
        precision: Precision,
        values: &[f32],
        stride: usize,
        tokens: usize,
        size: usize,
    ) {
        let (width, words) = (width(level), words_of(precision, tokens));
        let panels = size.div_ceil(width);
        // Columns beyond the head keep what was there: their sums are left out.
        self.values.resize(panels * width * words, 0);
        let row = |token: usize| &values[token * stride..][..size];
        let per_word = per_word(precision);
        for word in 0..words {
            let token = word * per_word;
            let next = (per_word > 1 && token + 1 < tokens).then(|| row(token + 1));
            for panel in 0..panels {
                let first = panel * width;
                let end = size.min(first + width);
                let used = end - first;
                words_of_pair(
                    level,
                    precision,
                    &row(token)[first..end],
                    next.map(|next| &next[first..end]),
                    &mut self.values[(panel * words + word) * width..][..used],
                );
            }
        }
    }
}
