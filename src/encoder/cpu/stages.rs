//! Where a forward pass spends its time, stage by stage: each is run alone, on numbers of the size that a model has. A
//! bench prints it beside the whole.

use std::time::Instant;

use super::attention::{Attention, AttentionScratch, Heads, attention_precision};
use super::kernels::layer_norm;
use super::level::Level;
use super::linear::{Linear, Scratch};
use crate::{Activation, Mask, Pooling, Precision, TransformerShape, pool};

/// Seconds for each token in one layer, or for pooling in the whole model.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// What is done.
    pub name: &'static str,
    /// Seconds a token, on one thread.
    pub seconds: f64,
    /// Whether every layer does it.
    pub every_layer: bool,
}

/// Times the stages of a BERT of this shape (`wide` components between the feed-forward layers) on a batch of `texts` texts
/// of `length` tokens, each for about `seconds`, on one thread.
pub fn stages(
    level: Level,
    precision: Precision,
    shape: TransformerShape,
    wide: usize,
    (texts, length): (usize, usize),
    seconds: f64,
) -> Vec<Stage> {
    level.assert_available();
    let (size, tokens) = (shape.hidden, texts * length);
    let mut state = 1u64;
    let mut numbers = |count: usize| -> Vec<f32> {
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(next).collect()
    };
    let mut linear = |inputs: usize, outputs: usize| {
        let weight = numbers(inputs * outputs);
        Linear::new(level, precision, &weight, vec![0.1; outputs])
    };
    let sizes = [(size, 3 * size), (size, size), (size, wide), (wide, size)];
    let layers = sizes.map(|(inputs, outputs)| linear(inputs, outputs));
    let input = numbers(tokens * wide.max(3 * size));
    let mut out = vec![0.0; input.len()];
    let mut scratch = Scratch::default();
    let mut apply = |layer: usize, activation: Activation| {
        let (inputs, outputs) = sizes[layer];
        let x = &input[..tokens * inputs];
        let y = &mut out[..tokens * outputs];
        timed(seconds, || {
            layers[layer].apply(level, x, activation, y, &mut scratch)
        })
    };
    let plain: Vec<f64> = (0..4).map(|layer| apply(layer, Activation::None)).collect();
    let activated = apply(2, shape.activation);

    let attention = Attention {
        level,
        precision: attention_precision(level, precision),
        heads: Heads::of(&shape),
        mask: Mask::All,
        bias: None,
    };
    let mut space = AttentionScratch::default();
    let attending = timed(seconds, || {
        let rows = input[..tokens * 3 * size].chunks_exact(length * 3 * size);
        let contexts = out[..tokens * size].chunks_exact_mut(length * size);
        for (rows, context) in rows.zip(contexts) {
            attention.attend(rows, context, &mut space);
        }
    });
    let (gain, bias) = (vec![1.0; size], vec![0.0; size]);
    let (x, residual) = (&mut out[..tokens * size], &input[..tokens * size]);
    let norming = timed(seconds, || {
        layer_norm(level, x, Some(residual), &gain, &bias, shape.epsilon);
    });
    let mut vector = vec![0.0; size];
    let pooling = timed(seconds, || {
        for text in residual.chunks_exact(length * size) {
            pool(Pooling::Mean, text, 0, size, &mut vector);
            std::hint::black_box(&vector);
        }
    });
    let stage = |name, whole: f64, every_layer| Stage {
        name,
        seconds: whole / tokens as f64,
        every_layer,
    };
    vec![
        stage("linear layers", plain.iter().sum(), true),
        stage("attention", attending, true),
        stage("norms", 2.0 * norming, true),
        stage("activation", (activated - plain[2]).max(0.0), true),
        stage("pooling", pooling, false),
    ]
}

/// Seconds of one call, the mean over about `seconds`.
fn timed(seconds: f64, mut work: impl FnMut()) -> f64 {
    // The first call makes room.
    work();
    let started = Instant::now();
    let mut calls = 0;
    while started.elapsed().as_secs_f64() < seconds {
        work();
        calls += 1;
    }
    started.elapsed().as_secs_f64() / f64::from(calls.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_takes_time() {
        let shape = TransformerShape::of_bert(32, 2, 10, 16);
        for level in Level::available() {
            let stages = stages(level, Precision::F32, shape, 64, (2, 8), 0.001);
            let names: Vec<&str> = stages.iter().map(|s| s.name).collect();
            assert_eq!(
                names,
                [
                    "linear layers",
                    "attention",
                    "norms",
                    "activation",
                    "pooling"
                ]
            );
            for stage in stages.iter().filter(|s| s.name != "activation") {
                assert!(stage.seconds > 0.0 && stage.seconds < 1.0, "{stage:?}");
            }
        }
    }
}
