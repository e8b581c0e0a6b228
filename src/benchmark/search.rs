//! `search`: how high does the answer to a question stand among all answers, the most alike first?

use std::sync::LazyLock;

use serde::Deserialize;

use super::estimate::Estimate;
use super::vectors::Vectors;

const FILE: &str = include_str!("../../datasets/bench/search.jsonl");

/// Places that are looked at.
const PLACES: usize = 10;

#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Answer { id: String, text: String },
    Question { query: String, answer: String },
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| super::rows_of(FILE));

pub(super) fn texts() -> Vec<&'static str> {
    let rows = ROWS.iter().map(|row| match row {
        Row::Answer { text, .. } => text.as_str(),
        Row::Question { query, .. } => query.as_str(),
    });
    rows.collect()
}

pub(super) fn measure(vectors: &Vectors<'_>) -> Estimate {
    let answers: Vec<(&str, &str)> = ROWS
        .iter()
        .filter_map(|row| match row {
            Row::Answer { id, text } => Some((id.as_str(), text.as_str())),
            Row::Question { .. } => None,
        })
        .collect();
    let questions = ROWS.iter().filter_map(|row| match row {
        Row::Question { query, answer } => Some((query.as_str(), answer.as_str())),
        Row::Answer { .. } => None,
    });
    let gains: Vec<f64> = questions
        .map(|(query, answer)| {
            let like = |text: &str| vectors.cosine(query, text);
            let right = answers.iter().find(|(id, _)| *id == answer);
            let right = right.map_or(f64::NEG_INFINITY, |(_, text)| like(text));
            // Of equally alike ones the right one comes last: a model that tells none apart gains nothing.
            let before = answers
                .iter()
                .filter(|(id, text)| *id != answer && like(text) >= right);
            gain(before.count())
        })
        .collect();
    Estimate::of(gains.len(), |drawn| {
        drawn.iter().map(|at| gains[*at]).sum::<f64>() / drawn.len().max(1) as f64
    })
}

/// What an answer is worth that so many others stand before.
fn gain(before: usize) -> f64 {
    match before < PLACES {
        true => 1.0 / (before as f64 + 2.0).log2(),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_place_is_worth_less_and_the_eleventh_nothing() {
        assert_eq!((gain(0), gain(2), gain(10)), (1.0, 0.5, 0.0));
    }
}
