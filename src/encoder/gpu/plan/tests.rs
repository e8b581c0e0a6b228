//! The plan, carried out step by step, against the packed encoder: for all that families differ in.

mod interpreter;

use self::interpreter::by_plan;
use super::*;
use crate::families::{bert, families, least_cosine, texts};
use crate::{Encoder, Packed};

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
