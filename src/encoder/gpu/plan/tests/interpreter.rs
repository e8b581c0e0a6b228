//! Carries out a plan step by step on the CPU, in plain f32 or with every buffer rounded to f16 as a GPU has it.

use std::collections::HashMap;

use half::f16;

use crate::block::Turns;
use crate::families::{Family, Raw};
use crate::gpu::plan::*;
use crate::gpu::{Filled, Slot};
use crate::{Activation, Norm, NormKind, TransformerWeights, pool};

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
pub(super) fn by_plan(family: &Family, texts: &[Vec<u32>], near: bool, rounded: bool) -> Vec<f32> {
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
