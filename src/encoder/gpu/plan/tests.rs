//! The plan, carried out step by step in plain f32 or with every buffer rounded to f16 as a GPU has it, against the packed
//! encoder: for all that families differ in.

use std::collections::HashMap;

use half::f16;

use super::*;
use crate::block::Turns;
use crate::cpu::{CpuTransformer, Level, Linear};
use crate::gpu::{Filled, Slot};
use crate::{Encoder, Mask, NormKind, Packed, Pooling, Precision, TextHead, Turn, pool};

/// A linear layer as it comes: (outputs, inputs), and a bias.
type Raw = (Vec<f32>, Vec<f32>);

/// Numbers that look random, around 0.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f32 {
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
struct Family {
    shape: TransformerShape,
    positions: bool,
    offsets: bool,
    turns: bool,
    head_norms: bool,
    masks: [Mask; 2],
    first_norm: bool,
    dense: bool,
    head: TextHead,
}

const HEAD: TextHead = TextHead {
    pooling: Pooling::Mean,
    pool_from: 0,
    keep: None,
    normalise: true,
};

fn bert() -> Family {
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

fn families() -> Vec<(&'static str, Family)> {
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
    fn weights(&self) -> TransformerWeights<Raw> {
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
    fn encoder(&self) -> CpuTransformer {
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

/// Carries out a plan over a slot, as kernels and products do it.
struct Interpreter<'a> {
    family: &'a Family,
    weights: &'a TransformerWeights<Raw>,
    plan: &'a Plan,
    /// Whether numbers in buffers are f16.
    rounded: bool,
    slot: Slot,
    memory: Vec<u32>,
    filled: Filled,
    buffers: HashMap<Buffer, Vec<f32>>,
    vectors: Vec<f32>,
}

fn activated(x: f32, activation: Activation) -> f32 {
    let wide = f64::from(x);
    match activation {
        Activation::None => x,
        Activation::Gelu => (wide / 2.0 * (1.0 + libm_erf(wide / 2f64.sqrt()))) as f32,
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            (wide / 2.0 * (1.0 + inner.tanh())) as f32
        }
        Activation::Relu => x.max(0.0),
        Activation::Silu => (wide / (1.0 + (-wide).exp())) as f32,
        Activation::Tanh => x.tanh(),
    }
}

/// The error function by its series (Abramowitz and Stegun 7.1.6), which is exact enough within 6.
fn libm_erf(x: f64) -> f64 {
    let x = x.clamp(-6.0, 6.0);
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

impl Interpreter<'_> {
    fn count(&self, buffer: Buffer) -> usize {
        match buffer {
            Buffer::Pooled | Buffer::Dense(_) => self.filled.texts,
            _ => self.filled.tokens,
        }
    }

    fn put(&mut self, buffer: Buffer, mut rows: Vec<f32>) {
        assert_eq!(
            rows.len(),
            self.count(buffer) * self.plan.width(buffer),
            "{buffer:?}"
        );
        if self.rounded {
            rows.iter_mut()
                .for_each(|x| *x = f16::from_f32(*x).to_f32());
        }
        self.buffers.insert(buffer, rows);
    }

    fn weight(&self, weight: &[f32]) -> Vec<f32> {
        match self.rounded {
            true => weight.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
            false => weight.to_vec(),
        }
    }

    fn normed(&self, mut rows: Vec<f32>, (gain, bias): &Norm, root: bool) -> Vec<f32> {
        for row in rows.chunks_exact_mut(gain.len()) {
            let count = row.len() as f64;
            let wide = || row.iter().map(|x| f64::from(*x));
            let mean = if root {
                0.0
            } else {
                wide().sum::<f64>() / count
            };
            let squares = wide().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let scale = 1.0 / (squares + f64::from(self.family.shape.epsilon)).sqrt();
            for (at, x) in row.iter_mut().enumerate() {
                let add = bias.get(at).copied().unwrap_or(0.0);
                *x = ((f64::from(*x) - mean) * scale) as f32 * gain[at] + add;
            }
        }
        rows
    }

    fn spans(&self) -> Vec<std::ops::Range<usize>> {
        let starts = &self.memory[self.slot.starts()][..=self.filled.texts];
        let pairs = starts.windows(2);
        pairs
            .map(|pair| pair[0] as usize..pair[1] as usize)
            .collect()
    }

    fn linear(&self, of: ProductOf) -> &Raw {
        let layers = &self.weights.layers;
        match of {
            ProductOf::QueryKeyValue(at) => &layers[at].query_key_value,
            ProductOf::AttentionOutput(at) => &layers[at].attention_output,
            ProductOf::Intermediate(at) => &layers[at].intermediate,
            ProductOf::Output(at) => &layers[at].output,
            ProductOf::Dense(at) => &self.weights.dense[at].0,
        }
    }

    fn run(&mut self) {
        let root = self.family.shape.norm == NormKind::RootMeanSquare;
        for step in &self.plan.steps {
            match *step {
                Step::Embed => self.embed(root),
                Step::Norm { of, from, to } => {
                    let norm = match of {
                        NormOf::Attention(at) => self.weights.layers[at].attention_norm.as_ref(),
                        NormOf::Output(at) => Some(&self.weights.layers[at].output_norm),
                        NormOf::Last => self.weights.last_norm.as_ref(),
                    };
                    let rows = self.normed(self.buffers[&from].clone(), norm.unwrap(), root);
                    self.put(to, rows);
                }
                Step::Product {
                    of,
                    from,
                    to,
                    added,
                    activation,
                } => {
                    let (weight, bias) = self.linear(of);
                    let (weight, inputs) = (self.weight(weight), self.plan.width(from));
                    let mut rows = match added {
                        true => self.buffers[&to].clone(),
                        false => vec![0.0; self.count(to) * bias.len()],
                    };
                    let from = self.buffers[&from].chunks_exact(inputs);
                    for (x, y) in from.zip(rows.chunks_exact_mut(bias.len())) {
                        for ((row, y), bias) in weight.chunks_exact(inputs).zip(y).zip(bias) {
                            let sum: f32 = row.iter().zip(x).map(|(w, x)| w * x).sum();
                            *y = activated(*y + sum + bias, activation);
                        }
                    }
                    self.put(to, rows);
                }
                Step::Turn(at) => self.turn(at),
                Step::Attend(at) => self.attend(at),
                Step::Activate {
                    activation,
                    from,
                    to,
                } => {
                    let (wide, width) = (self.plan.width(from), self.plan.width(to));
                    let rows = self.buffers[&from].chunks_exact(wide).flat_map(|row| {
                        (0..width).map(move |at| {
                            let by = if wide > width { row[width + at] } else { 1.0 };
                            activated(row[at], activation) * by
                        })
                    });
                    let rows = rows.collect();
                    self.put(to, rows);
                }
                Step::Pool => self.pool(),
                Step::Finish => {
                    let width = self.plan.width(Buffer::Dense(self.weights.dense.len() - 1));
                    let rows = self.buffers[&Buffer::Dense(self.weights.dense.len() - 1)].clone();
                    rows.chunks_exact(width).for_each(|row| self.finish(row));
                }
            }
        }
    }

    fn embed(&mut self, root: bool) {
        let hidden = self.family.shape.hidden;
        let words = self.weight(&self.weights.words);
        let mut rows = Vec::new();
        for token in 0..self.filled.tokens {
            let id = self.memory[self.slot.ids()][token] as usize;
            let place = self.memory[self.slot.places()][token] as usize;
            let word = &words[id * hidden..][..hidden];
            rows.extend(word.iter().enumerate().map(|(at, word)| {
                let positions = self.weights.positions.as_ref();
                word + positions.map_or(0.0, |rows| rows[place * hidden + at])
            }));
        }
        if let Some(norm) = &self.weights.embedding_norm {
            rows = self.normed(rows, norm, root);
        }
        self.put(Buffer::Hidden, rows);
    }

    fn turn(&mut self, at: usize) {
        let (layer, shape) = (&self.weights.layers[at], self.family.shape);
        let (size, width) = (shape.head_size, shape.of_queries_keys_values());
        let turns = layer
            .turn
            .map(|turn| Turns::of(turn, size, shape.positions));
        let mut rows = self.buffers[&Buffer::Heads].clone();
        for (token, row) in rows.chunks_exact_mut(width).enumerate() {
            let place = self.memory[self.slot.places()][token] as usize;
            let heads = row
                .chunks_exact_mut(size)
                .take(shape.heads + shape.key_heads);
            for (head, x) in heads.enumerate() {
                if let Some((query, key)) = &layer.head_norms {
                    let gain = if head < shape.heads { query } else { key };
                    let normed = self.normed(x.to_vec(), &(gain.clone(), Vec::new()), true);
                    x.copy_from_slice(&normed);
                }
                let Some(turns) = &turns else { continue };
                for pair in 0..turns.half {
                    let angle = place * turns.half + pair;
                    let (cosine, sine) = (turns.cosines[angle], turns.sines[angle]);
                    let (low, high) = (x[pair], x[pair + turns.half]);
                    x[pair] = low * cosine - high * sine;
                    x[pair + turns.half] = high * cosine + low * sine;
                }
            }
        }
        self.put(Buffer::Heads, rows);
    }

    fn attend(&mut self, at: usize) {
        let (mask, shape) = (self.weights.layers[at].mask, self.family.shape);
        let (size, width) = (shape.head_size, shape.of_queries_keys_values());
        let rows = &self.buffers[&Buffer::Heads];
        let mut context = vec![0.0; self.filled.tokens * shape.of_heads()];
        for span in self.spans() {
            for head in 0..shape.heads {
                let key_head = head / (shape.heads / shape.key_heads);
                let part = |token: usize, head: usize| &rows[token * width + head * size..][..size];
                for query in span.clone() {
                    let seen = mask.seen(query - span.start, span.len());
                    let scores = seen.clone().map(|key| {
                        let keys = part(span.start + key, shape.heads + key_head);
                        let x: f32 = part(query, head).iter().zip(keys).map(|(a, b)| a * b).sum();
                        let offsets = self.weights.offset_bias.as_ref();
                        let offset = offsets.map_or(0.0, |bias| {
                            let of_head = head * (2 * shape.positions - 1) + shape.positions - 1;
                            bias[of_head + key + span.start - query]
                        });
                        x / (size as f32).sqrt() + offset
                    });
                    let scores: Vec<f32> = scores.collect();
                    let largest = scores.iter().fold(f32::MIN, |most, x| most.max(*x));
                    let weights = scores.iter().map(|x| (x - largest).exp());
                    let sum: f32 = weights.clone().sum();
                    let to = &mut context[query * shape.of_heads() + head * size..][..size];
                    for (key, weight) in seen.zip(weights) {
                        let weight = match self.rounded {
                            true => f16::from_f32(weight).to_f32(),
                            false => weight,
                        };
                        let values =
                            part(span.start + key, shape.heads + shape.key_heads + key_head);
                        to.iter_mut()
                            .zip(values)
                            .for_each(|(y, x)| *y += weight * x);
                    }
                    to.iter_mut().for_each(|x| *x /= sum);
                }
            }
        }
        self.put(Buffer::Context, context);
    }

    fn pool(&mut self) {
        let (hidden, head) = (self.family.shape.hidden, self.family.head);
        let mut pooled = Vec::new();
        for span in self.spans() {
            let before = head.first_pooled(span.len());
            let rows =
                &self.buffers[&Buffer::Hidden][(span.start + before) * hidden..span.end * hidden];
            let mut vector = vec![0.0; hidden];
            pool(head.pooling, rows, before, hidden, &mut vector);
            pooled.extend(vector);
        }
        match self.weights.dense.is_empty() {
            true => pooled.chunks_exact(hidden).for_each(|row| self.finish(row)),
            false => self.put(Buffer::Pooled, pooled),
        }
    }

    fn finish(&mut self, row: &[f32]) {
        let head = self.family.head;
        let mut vector = row[..head.keep.unwrap_or(row.len()).min(row.len())].to_vec();
        if head.normalise {
            crate::cpu::normalise(&mut vector);
        }
        self.vectors.extend(vector);
    }
}

/// Vectors of texts by a family's plan.
fn by_plan(family: &Family, texts: &[Vec<u32>], near: bool, rounded: bool) -> Vec<f32> {
    let weights = family.weights();
    let plan = Plan::of(family.shape, &weights, |(_, bias)| bias.len(), near);
    let slot = Slot::of(
        texts
            .iter()
            .map(Vec::len)
            .sum::<usize>()
            .max(8 * texts.len()),
    );
    let mut memory = vec![u32::MAX; slot.numbers()];
    let filled = slot.fill(&mut memory, texts.iter().map(Vec::as_slice));
    assert_eq!(filled.texts, texts.len());
    let mut interpreter = Interpreter {
        family,
        weights: &weights,
        plan: &plan,
        rounded,
        slot,
        memory,
        filled,
        buffers: HashMap::new(),
        vectors: Vec::new(),
    };
    interpreter.run();
    let mut used: Vec<_> = interpreter.buffers.keys().copied().collect();
    let mut known = plan.buffers();
    let name = |buffer: &Buffer| format!("{buffer:?}");
    used.sort_by_key(name);
    known.sort_by_key(name);
    assert_eq!(used, known);
    interpreter.vectors
}

fn texts() -> Vec<Vec<u32>> {
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
fn least_cosine(a: &[f32], b: &[f32], dim: usize) -> f64 {
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
    cosines.fold(1.0, f64::min)
}

#[test]
fn plans_of_all_families_come_to_the_vectors_of_the_packed_encoder() {
    let texts = texts();
    for (name, family) in families() {
        let encoder = family.encoder();
        let mut packed = Packed::default();
        texts.iter().for_each(|text| assert!(packed.push(text)));
        let mut expected = Vec::new();
        encoder.encode(&packed, &mut expected).unwrap();
        let exact = by_plan(&family, &texts, false, false);
        let cosine = least_cosine(&exact, &expected, encoder.dim());
        assert!(cosine >= 0.999_999, "{name}: {cosine}");
        // As a GPU has it: buffers at f16, and GELU as products' own ends know it.
        let rounded = by_plan(&family, &texts, true, true);
        let cosine = least_cosine(&rounded, &expected, encoder.dim());
        assert!(cosine >= 0.9995, "{name} at f16: {cosine}");
    }
}

#[test]
fn a_layer_of_bert_is_seven_launches_and_twenty_kilobytes_a_token() {
    // all-MiniLM-L6-v2.
    let mut family = bert();
    family.shape = TransformerShape::of_bert(384, 12, 90, 512);
    let (hidden, wide) = (384, 1536);
    let mut weights = family.weights();
    weights.layers.iter_mut().for_each(|layer| {
        layer.intermediate.1 = vec![0.0; wide];
    });
    let plan = |near| Plan::of(family.shape, &weights, |(_, bias)| bias.len(), near);
    // Two layers, words and pooling.
    assert_eq!(plan(true).steps.len(), 2 * 7 + 2);
    assert_eq!(plan(false).steps.len(), 2 * 8 + 2);
    let near = plan(true);
    let layer = &near.steps[1..8];
    let bytes: usize = layer.iter().map(|step| near.bytes_a_token(*step)).sum();
    let numbers = (hidden + 3 * hidden) // queries, keys, values
        + (3 * hidden + hidden) // attention
        + (hidden + 2 * hidden) // its output, added
        + 2 * hidden // norm
        + (hidden + wide) + (wide + 2 * hidden) + 2 * hidden;
    assert_eq!(bytes, 2 * numbers);
    assert!((19_000..21_000).contains(&bytes), "{bytes}");
    let operations = |tokens| -> usize {
        let of_step = |step: &Step| near.operations_a_token(*step, tokens);
        layer.iter().map(of_step).sum()
    };
    assert_eq!(operations(0), 2 * (4 * hidden * hidden + 2 * hidden * wide));
    assert_eq!(operations(100) - operations(0), 4 * 100 * hidden);
}
