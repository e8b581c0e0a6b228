//! `loops`: is an output that says the same again, in the same words or in others, more alike than one that only has the
//! same form? Held up to it is what loop detection computes: cosine times overlap of words.

use std::sync::LazyLock;

use serde::Deserialize;

use super::estimate::Estimate;
use super::figures::area;
use super::vectors::Vectors;
use crate::metric::loop_detection::Comparison;
use crate::text::jaccard_of_texts;

const FILE: &str = include_str!("../../datasets/bench/loops.jsonl");

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Repeat,
    Paraphrase,
    Enumeration,
}

#[derive(Deserialize)]
struct Outputs {
    first: String,
    second: String,
    kind: Kind,
}

static OUTPUTS: LazyLock<Vec<Outputs>> = LazyLock::new(|| super::rows_of(FILE));

pub(super) fn texts() -> Vec<&'static str> {
    let pairs = OUTPUTS.iter();
    pairs
        .flat_map(|pair| [pair.first.as_str(), pair.second.as_str()])
        .collect()
}

pub(super) fn measure(vectors: &Vectors<'_>) -> Estimate {
    let hybrid = |pair: &Outputs| {
        let comparison = Comparison {
            back: 1,
            cosine: vectors.cosine(&pair.first, &pair.second).clamp(0.0, 1.0),
            jaccard: jaccard_of_texts(&pair.first, &pair.second),
        };
        comparison.hybrid()
    };
    let hybrids: Vec<f64> = OUTPUTS.iter().map(hybrid).collect();
    Estimate::of(OUTPUTS.len(), |drawn| {
        let of = |again: bool| -> Vec<f64> {
            let of_kind = drawn
                .iter()
                .filter(|at| (OUTPUTS[**at].kind != Kind::Enumeration) == again);
            of_kind.map(|at| hybrids[*at]).collect()
        };
        area(&of(true), &of(false))
    })
}
