//! What a model is worth here: how well it tells texts apart that nightmill has to tell apart, how fast, and with how much
//! memory. Behind `nightmill bench`.
//!
//! Four tests, each with a figure from chance to 1: `similarity` (graded pairs of texts), `coherence` (true pairs of input and
//! output against shuffled ones), `loops` (repeats and paraphrases against outputs that only have one form), `search` (the
//! answer to a question among others). The texts are those of `datasets/bench`, which are made by a script, and pairs of
//! traces where a user names some.

mod coherence;
mod estimate;
mod figures;
mod loops;
mod search;
mod similarity;
mod vectors;

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use coherence::{Pair, made_pairs, read_pairs};
pub use estimate::Estimate;
pub use similarity::{Graded, made_grades, read_grades};

use crate::model::{Model, ModelError};
use crate::trace::{OnBadFile, Quarantine, TableColumns, TableSource, discover};
use vectors::Vectors;

/// The least seconds that the speed of a model is measured over.
const SECONDS: f64 = 0.5;

/// Why a model could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    /// The model can't be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Files that can't be read.
    #[error("{0}")]
    Files(#[from] crate::trace::TraceError),
    /// A row that can't be read.
    #[error("{0}")]
    Row(String),
    /// What a tokenizer or an encoder says.
    #[error("{0}")]
    Encode(String),
}

/// What a model is worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFigures {
    /// The model.
    pub model: String,
    /// SHA-256 over all that decides its vectors.
    pub sha256: String,
    /// What it computes in.
    pub precision: String,
    /// Where it computes.
    pub device: String,
    /// Components of a vector.
    pub dim: usize,
    /// Spearman's correlation of cosines with grades of pairs.
    pub similarity: Estimate,
    /// How often a true pair is more alike than a shuffled one.
    pub coherence: Estimate,
    /// How often a repeat is more alike than what only has the same form.
    pub loops: Estimate,
    /// How high the answer to a question stands among ten (nDCG@10).
    pub search: Estimate,
    /// How often, of a bad and a good session by labels of their own, the bad one has the lower `agent_reliability`; none
    /// without labels. No part of the quality.
    #[serde(default)]
    pub sessions: Option<Estimate>,
    /// The cosines of true pairs: 5 %, half and 95 % of them are below.
    pub cosines: [f64; 3],
    /// Pairs of input and output that coherence was measured on.
    pub pairs: usize,
    /// A sum over the texts and grades that all was measured on: figures of different ones can't be compared.
    #[serde(default)]
    pub data: String,
    /// Tokens encoded in a second, tokenising included.
    pub tokens_per_second: f64,
    /// Most memory that the process held, in bytes; null where the system does not say.
    pub memory: Option<u64>,
}

impl ModelFigures {
    /// The mean of the four tests.
    pub fn quality(&self) -> f64 {
        let tests = [&self.similarity, &self.coherence, &self.loops, &self.search];
        tests.iter().map(|test| test.value).sum::<f64>() / tests.len() as f64
    }
}

/// Measures a model on the threads of the current pool.
///
/// # Errors
/// [`BenchmarkError::Encode`] for what the tokenizer or the encoder says.
pub fn measure(
    model: &Model,
    pairs: &[Pair],
    grades: &[Graded],
) -> Result<ModelFigures, BenchmarkError> {
    let sets = [
        similarity::texts(grades),
        loops::texts(),
        search::texts(),
        coherence::texts(pairs),
    ];
    let texts: Vec<&str> = sets.concat();
    let vectors = Vectors::of(model, &texts).map_err(BenchmarkError::Encode)?;
    let tokens_per_second = speed(model, &texts).map_err(BenchmarkError::Encode)?;
    let (coherence, cosines) = coherence::measure(pairs, &vectors);
    Ok(ModelFigures {
        model: model.name.clone(),
        sha256: model.sha256.clone(),
        precision: model.encoder.precision().to_owned(),
        device: model.encoder.device(),
        dim: model.encoder.dim(),
        similarity: similarity::measure(grades, &vectors),
        coherence,
        loops: loops::measure(&vectors),
        search: search::measure(&vectors),
        sessions: None,
        cosines,
        pairs: pairs.len(),
        data: sum_of(&texts, grades),
        tokens_per_second,
        memory: most_memory(),
    })
}

/// The rows of a file of ours.
fn rows_of<T: serde::de::DeserializeOwned>(file: &str) -> Vec<T> {
    let rows = file.lines().map(serde_json::from_str);
    // It is part of the program, and a test reads it.
    rows.filter_map(Result::ok).collect()
}

/// A sum over texts and grades.
fn sum_of(texts: &[&str], grades: &[Graded]) -> String {
    let mut sum = blake3::Hasher::new();
    for text in texts {
        sum.update(&(text.len() as u64).to_le_bytes());
        sum.update(text.as_bytes());
    }
    for pair in grades {
        sum.update(&pair.score.to_le_bytes());
    }
    sum.finalize().to_hex().as_str()[..32].to_owned()
}

/// Hands each row of these files to `each`, which returns what is wrong with it.
fn for_each_row(
    table: &str,
    paths: &[String],
    names: &[&str],
    mut each: impl FnMut(Map<String, Value>) -> Result<(), String>,
) -> Result<(), BenchmarkError> {
    let columns = TableColumns {
        table,
        names,
        required: names,
        structured: &[],
    };
    let files = discover(paths, None)?;
    let quarantine = Arc::new(Quarantine::default());
    let source = TableSource::open(files, columns, OnBadFile::Fail, quarantine)?;
    let mut wrong = None;
    source.scan(|row| {
        let read = row.cells.map_err(|bad| bad.reason).and_then(&mut each);
        if let Err(problem) = read {
            wrong.get_or_insert(format!("{table}: {}: {problem}", source.describe(row.at)));
        }
    })?;
    wrong.map_or(Ok(()), |problem| Err(BenchmarkError::Row(problem)))
}

/// Tokens a second, texts tokenised and encoded as often as it takes to be measured.
fn speed(model: &Model, texts: &[&str]) -> Result<f64, String> {
    let started = Instant::now();
    let mut tokens = 0;
    while started.elapsed().as_secs_f64() < SECONDS {
        tokens += Vectors::of(model, texts)?.tokens;
    }
    Ok(tokens as f64 / started.elapsed().as_secs_f64())
}

/// The most memory that this process has held.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_texts_is_read() {
        assert_eq!(similarity::texts(made_grades()).len(), 480);
        assert_eq!(loops::texts().len(), 480);
        assert_eq!(search::texts().len(), 160);
        assert_eq!(made_pairs().len(), 64);
    }
}
