//! Both graphs on the CPU, at f32 and at f16, against the packed encoder: for all that families differ in.

use std::sync::Arc;

use super::*;
use crate::families::{Family, bert, families, least_cosine, texts};
use crate::{Encoder, Layer};

/// A family's model as a graph.
fn graph(
    family: &Family,
    device: &CandleDevice,
    packed: bool,
    change: &dyn Fn(&mut Vec<f32>),
    exact: Option<Exact>,
) -> CandleTransformer {
    let mut weights = family.weights();
    change(&mut weights.words);
    let linear = |(weight, bias): (Vec<f32>, Vec<f32>)| device.linear(weight, bias).unwrap();
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
    let layers = layers.collect();
    let dense = weights.dense.into_iter();
    let weights = TransformerWeights {
        layers,
        dense: dense.map(|(l, a)| (linear(l), a)).collect(),
        words: weights.words,
        positions: weights.positions,
        embedding_norm: weights.embedding_norm,
        offset_bias: weights.offset_bias,
        last_norm: weights.last_norm,
    };
    CandleTransformer::new(
        device.clone(),
        family.shape,
        weights,
        family.head,
        packed,
        exact,
    )
    .unwrap()
}

fn vectors<'t>(encoder: &dyn Encoder, texts: impl IntoIterator<Item = &'t Vec<u32>>) -> Vec<f32> {
    let mut packed = Packed::default();
    texts
        .into_iter()
        .for_each(|text| assert!(packed.push(text)));
    let mut out = Vec::new();
    encoder.encode(&packed, &mut out).unwrap();
    out
}

#[test]
fn both_graphs_come_to_the_vectors_of_the_packed_encoder() {
    let texts = texts();
    for (name, family) in families() {
        let encoder = family.encoder();
        let expected = vectors(&encoder, &texts);
        for packed in [false, true] {
            for (device, least) in [
                (CandleDevice::cpu(), 0.999_999),
                (CandleDevice::cpu_at_f16(), 0.9995),
            ] {
                let graph = graph(&family, &device, packed, &|_| (), None);
                assert_eq!(graph.dim(), encoder.dim());
                let found = vectors(&graph, &texts);
                let cosine = least_cosine(&found, &expected, encoder.dim());
                assert!(
                    cosine >= least,
                    "{name}, packed {packed}, {device:?}: {cosine}"
                );
                if packed {
                    let dim = encoder.dim();
                    let mut turned = vectors(&graph, texts.iter().rev());
                    let rows: Vec<Vec<f32>> =
                        turned.chunks(dim).rev().map(<[f32]>::to_vec).collect();
                    turned = rows.concat();
                    assert!(turned == found, "{name} in another order");
                    let alone = texts.iter().map(|text| vectors(&graph, [text]));
                    assert!(alone.collect::<Vec<_>>().concat() == found, "{name} alone");
                }
            }
        }
    }
}

#[test]
fn vectors_that_are_no_numbers_are_made_again_each_in_its_place() {
    let family = bert();
    let dim = family.shape.hidden;
    let spoilt = |words: &mut Vec<f32>| words[5 * dim] = f32::NAN;
    // At f32 the same model with whole weights stands in for one that can hold them.
    let whole: Exact = Arc::new(move || {
        let encoder: Arc<dyn Encoder> = Arc::new(bert().encoder());
        Ok(encoder)
    });
    let mut texts = texts();
    texts.iter_mut().flatten().for_each(|id| *id = (*id).max(6));
    texts[1][0] = 5;
    texts[6][40] = 5;
    let expected = vectors(&family.encoder(), &texts);
    for packed in [false, true] {
        let device = CandleDevice::cpu();
        let lost = graph(&family, &device, packed, &spoilt, None);
        let found = vectors(&lost, &texts);
        let lost: Vec<usize> = found
            .chunks(dim)
            .enumerate()
            .filter(|(_, vector)| vector.iter().any(|x| x.is_nan()))
            .map(|(at, _)| at)
            .collect();
        assert_eq!(lost, [1, 6], "neighbours are spared");
        let mended = graph(&family, &device, packed, &spoilt, Some(Arc::clone(&whole)));
        let found = vectors(&mended, &texts);
        assert!(least_cosine(&found, &expected, dim) > 0.999_999);
        let (mut all, mut found) = (Packed::default(), Vec::new());
        texts.iter().for_each(|text| assert!(all.push(text)));
        assert_eq!(mended.encode(&all, &mut found).unwrap(), 2);
    }
}

#[test]
fn words_for_too_little_memory_are_known() {
    for message in [
        "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "Failed to create metal resource: Buffer",
    ] {
        assert!(is_out_of_memory(message), "{message}");
    }
    assert!(!is_out_of_memory(
        "an illegal memory access was encountered"
    ));
}
