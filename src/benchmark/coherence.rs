//! `coherence`: is an input more like its own output than like the output of another trace?

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::estimate::Estimate;
use super::figures::area;
use super::vectors::Vectors;
use super::{BenchmarkError, for_each_row};

/// Most pairs of traces that are looked at.
const MOST_PAIRS: usize = 2000;

/// An input and its output.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pair {
    /// What the agent was told.
    pub input: String,
    /// What it said.
    pub output: String,
}

/// Questions and their answers.
const FILE: &str = include_str!("../../datasets/bench/search.jsonl");

#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Answer { id: String, text: String },
    Question { query: String, answer: String },
}

static MADE: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let rows: Vec<Row> = super::rows_of(FILE);
    let answer = |wanted: &str| {
        rows.iter().find_map(|row| match row {
            Row::Answer { id, text } if id == wanted => Some(text.clone()),
            _ => None,
        })
    };
    let pairs = rows.iter().filter_map(|row| match row {
        Row::Question { query, answer: id } => Some(Pair {
            input: query.clone(),
            output: answer(id)?,
        }),
        Row::Answer { .. } => None,
    });
    pairs.collect()
});

/// The pairs that are looked at where nobody names traces.
pub fn made_pairs() -> &'static [Pair] {
    &MADE
}

/// The first pairs of trace files, those with an empty side left out.
///
/// # Errors
/// [`BenchmarkError`] for a file or a row that can't be read, or a file that lacks `input` or `output`.
pub fn read_pairs(paths: &[String]) -> Result<Vec<Pair>, BenchmarkError> {
    let mut pairs = Vec::new();
    for_each_row("traces", paths, &["input", "output"], |cells| {
        let text = |name: &str| match cells.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        };
        if let (true, Some(input), Some(output)) =
            (pairs.len() < MOST_PAIRS, text("input"), text("output"))
        {
            pairs.push(Pair { input, output });
        }
        Ok(())
    })?;
    Ok(pairs)
}

pub(super) fn texts(pairs: &[Pair]) -> Vec<&str> {
    pairs
        .iter()
        .flat_map(|pair| [pair.input.as_str(), pair.output.as_str()])
        .collect()
}

/// The figure, and how the cosines of true pairs spread.
pub(super) fn measure(pairs: &[Pair], vectors: &Vectors<'_>) -> (Estimate, [f64; 3]) {
    let away = (pairs.len() / 2).max(1);
    // The output of a trace that is far away, and not the same text.
    let other = |at: usize| {
        let others = (0..pairs.len()).map(|step| &pairs[(at + away + step) % pairs.len()]);
        let mut others = others.filter(|other| other.output != pairs[at].output);
        others.next().unwrap_or(&pairs[at])
    };
    let both: Vec<(f64, f64)> = (0..pairs.len())
        .map(|at| {
            let like = |output: &str| vectors.cosine(&pairs[at].input, output);
            (like(&pairs[at].output), like(&other(at).output))
        })
        .collect();
    let estimate = Estimate::of(both.len(), |drawn| {
        let (own, others): (Vec<f64>, Vec<f64>) = drawn.iter().map(|at| both[*at]).unzip();
        area(&own, &others)
    });
    let mut own: Vec<f64> = both.iter().map(|(own, _)| *own).collect();
    own.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * own.len().saturating_sub(1) as f64).round() as usize;
        own.get(place).copied().unwrap_or(f64::NAN)
    };
    (estimate, [0.05, 0.5, 0.95].map(at))
}
