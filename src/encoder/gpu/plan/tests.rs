//! The plan, carried out step by step, against the packed encoder: for all that families differ in.

mod families;
mod interpreter;

use self::families::{Chance, bert, families};
use self::interpreter::by_plan;
use super::*;
use crate::{Encoder, Packed};

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
