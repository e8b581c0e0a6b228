//! `similarity`: do cosines of pairs of texts stand in the order of their grades?

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::estimate::Estimate;
use super::figures::spearman;
use super::vectors::Vectors;
use super::{BenchmarkError, for_each_row};

/// Pairs with grades from 0 (neither thing nor matter in common) to 5 (the same in other words).
const FILE: &str = include_str!("../../datasets/bench/pairs.jsonl");

/// Two texts, and how alike people, or we, find them: the more the higher, on any scale.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Graded {
    /// One text.
    pub first: String,
    /// The other.
    pub second: String,
    /// Their grade.
    pub score: f64,
}

static MADE: LazyLock<Vec<Graded>> = LazyLock::new(|| super::rows_of(FILE));

/// The pairs that are looked at where nobody names others.
pub fn made_grades() -> &'static [Graded] {
    &MADE
}

/// Graded pairs out of files with the columns `sentence1`, `sentence2` and `score`, as STS data has them.
///
/// # Errors
/// [`BenchmarkError`] for a file or a row that can't be read, or a file that lacks one of them.
pub fn read_grades(paths: &[String]) -> Result<Vec<Graded>, BenchmarkError> {
    const NAMES: [&str; 3] = ["sentence1", "sentence2", "score"];
    let mut pairs = Vec::new();
    for_each_row("pairs", paths, &NAMES, |cells| {
        let text = |name: &str| match cells.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(format!("`{name}` is no text")),
        };
        let score = cells.get(NAMES[2]).and_then(Value::as_f64);
        pairs.push(Graded {
            first: text(NAMES[0])?,
            second: text(NAMES[1])?,
            score: score.ok_or_else(|| format!("`{}` is no number", NAMES[2]))?,
        });
        Ok(())
    })?;
    Ok(pairs)
}

pub(super) fn texts(pairs: &[Graded]) -> Vec<&str> {
    let pairs = pairs.iter();
    pairs
        .flat_map(|pair| [pair.first.as_str(), pair.second.as_str()])
        .collect()
}

pub(super) fn measure(pairs: &[Graded], vectors: &Vectors<'_>) -> Estimate {
    let cosines = pairs
        .iter()
        .map(|pair| vectors.cosine(&pair.first, &pair.second));
    let cosines: Vec<f64> = cosines.collect();
    Estimate::of(pairs.len(), |drawn| {
        let of = |values: &dyn Fn(usize) -> f64| -> Vec<f64> {
            drawn.iter().map(|at| values(*at)).collect()
        };
        spearman(&of(&|at| cosines[at]), &of(&|at| pairs[at].score))
    })
}
