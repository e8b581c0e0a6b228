//! `similarity`: do cosines of pairs of texts stand in the order of their grades?

use std::sync::LazyLock;

use serde::Deserialize;

use super::estimate::Estimate;
use super::figures::spearman;
use super::vectors::Vectors;

/// Pairs with grades from 0 (neither thing nor matter in common) to 5 (the same in other words).
const FILE: &str = include_str!("../../datasets/bench/pairs.jsonl");

#[derive(Deserialize)]
struct Graded {
    first: String,
    second: String,
    score: f64,
}

static PAIRS: LazyLock<Vec<Graded>> = LazyLock::new(|| super::rows_of(FILE));

pub(super) fn texts() -> Vec<&'static str> {
    let pairs = PAIRS.iter();
    pairs
        .flat_map(|pair| [pair.first.as_str(), pair.second.as_str()])
        .collect()
}

pub(super) fn measure(vectors: &Vectors<'_>) -> Estimate {
    let cosines = PAIRS
        .iter()
        .map(|pair| vectors.cosine(&pair.first, &pair.second));
    let cosines: Vec<f64> = cosines.collect();
    Estimate::of(PAIRS.len(), |drawn| {
        let of = |values: &dyn Fn(usize) -> f64| -> Vec<f64> {
            drawn.iter().map(|at| values(*at)).collect()
        };
        spearman(&of(&|at| cosines[at]), &of(&|at| PAIRS[at].score))
    })
}
