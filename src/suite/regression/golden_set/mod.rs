//! Suites of a regression run: what is expected of each case.

mod case;
mod outputs;
mod rows;
mod write;
mod yaml;

pub use outputs::Outputs;
pub use rows::{golden_sets_of_parquet, golden_sets_of_rows};

use super::file_fault::Fault;
use super::named::Named;
use super::suite_metric::SuiteMetric;

/// A suite.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenSet {
    /// By which runs of it are found again.
    pub name: String,
    /// As in `1.0.0`; empty where the rows have none.
    pub version: String,
    /// What it is about.
    pub description: String,
    /// Whether its cases rest on documents.
    pub interaction: Interaction,
    /// By which it is chosen.
    pub tags: Vec<String>,
    /// Who wrote it.
    pub author: String,
    /// When it was written, as the file says.
    pub created_at: String,
    /// When it was changed, as the file says.
    pub updated_at: String,
    /// In the order of the file.
    pub cases: Vec<TestCase>,
    /// SHA-256 of the file that it is from, in hex.
    pub file_hash: String,
}

/// Whether the cases of a suite rest on documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interaction {
    /// `single_turn`
    #[default]
    SingleTurn,
    /// `rag`: each case has at least one document.
    Rag,
}

/// A case of a suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestCase {
    /// Unique in its suite, stable across versions.
    pub id: String,
    /// What it tests.
    pub description: String,
    /// What the model was asked.
    pub input: String,
    /// What the model was told beforehand.
    pub system_prompt: Option<String>,
    /// The ideal answer.
    pub expected_output: String,
    /// What the model answered; see [`TestCase::output`].
    pub actual_output: Option<String>,
    /// What is evaluated, at least one; none: whatever the configuration enables.
    pub metrics: Option<Vec<SuiteMetric>>,
    /// Bars of its own by metric, 0 to 1.
    pub thresholds: Named<f64>,
    /// By which it is chosen.
    pub tags: Vec<String>,
    /// Its weight in the score of the suite, from 0.
    pub weight: f64,
    /// What the answer may rest on, in order.
    pub documents: Vec<ContextDocument>,
    /// Terms that the output must have; none: they are derived from the expected output.
    pub required_terms: Option<Vec<String>>,
    /// Phrases that the output must not have, besides the built-in ones.
    pub forbidden_terms: Vec<String>,
    /// The pattern to search the output for; none: the expected output.
    pub regex_pattern: Option<String>,
}

/// A document of a case's context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextDocument {
    /// Where it is from.
    pub source: String,
    /// What it says.
    pub content: String,
    /// How well the retriever thought that it fits.
    pub retrieval_score: Option<f64>,
}

/// Suites of a file with what reading it had to say.
#[derive(Clone, Debug)]
pub struct ReadSets {
    /// In the order of the file; a YAML file has one.
    pub sets: Vec<GoldenSet>,
    /// What a reader should know, with paths.
    pub warnings: Vec<Fault>,
}

impl TestCase {
    /// What is evaluated: the output, or the empty text where there is none.
    pub fn output(&self) -> &str {
        self.actual_output.as_deref().unwrap_or_default()
    }

    /// The bar of a metric: the case's own, or the default.
    pub fn threshold(&self, metric: SuiteMetric, default: f64) -> f64 {
        let own = self.thresholds.get(metric.name());
        own.copied().unwrap_or(default)
    }
}

impl GoldenSet {
    /// Whether there are cases and none has an output: scores would say nothing.
    pub fn has_no_output(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(|of| of.actual_output.is_none())
    }

    /// The cases without an output, of which the empty text is evaluated.
    pub fn without_output(&self) -> usize {
        let cases = self.cases.iter();
        cases.filter(|of| of.actual_output.is_none()).count()
    }

    /// Keeps the cases that have one of these tags, or all where the suite itself has one or none is wanted.
    pub fn keep_tagged(&mut self, tags: &[String]) {
        let has = |own: &[String]| own.iter().any(|tag| tags.contains(tag));
        if !tags.is_empty() && !has(&self.tags) {
            self.cases.retain(|case| has(&case.tags));
        }
    }
}

#[cfg(test)]
mod tests;
