//! The rows of a comparison, and the repetitions of a case as one of them (as in Connexity).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::conversation::figures::numbers::mean;
use crate::conversation::question::transcript::is_error;

/// The answer for one metric in one case result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// Pass or fail.
    Binary(bool),
    /// 0 to 5.
    Scored(f64),
}

/// What a comparison needs of one case result. Several rows of one test case are repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComparedCase {
    /// The test case; rows of both runs are matched by it.
    pub test_case: String,
    /// Whether the case passed; null if that is undecided.
    pub passed: Option<bool>,
    /// The overall score, 0 to 100; null without a verdict.
    pub overall_score: Option<f64>,
    /// The answers by metric id; without an overall score they do not count.
    pub metrics: BTreeMap<String, MetricValue>,
    /// The conversation itself failed. A blank text counts as no error.
    pub error: Option<String>,
    /// How long the conversation took, in milliseconds.
    pub total_latency_ms: Option<i64>,
    /// Median latency of the agent's turns, in milliseconds.
    pub agent_latency_p50_ms: Option<i64>,
    /// Cost, in US dollars.
    pub estimated_cost_usd: Option<f64>,
}

/// The cases of a run by name.
pub(in crate::conversation) type Cases<'a> = BTreeMap<&'a str, Reduced<'a>>;

/// All repetitions of a case as one.
pub(in crate::conversation) struct Reduced<'a> {
    pub error: bool,
    pub passed: Option<bool>,
    pub overall_score: Option<f64>,
    pub total_latency_ms: Option<f64>,
    pub metrics: BTreeMap<&'a str, Answer>,
}

#[derive(Clone, Copy)]
pub(in crate::conversation) enum Answer {
    /// The share of passes.
    Binary(f64),
    /// The mean score.
    Scored(f64),
    /// Both scales occur.
    Mixed,
}

impl Answer {
    /// Which scale it has; `None` if both.
    pub(in crate::conversation) fn is_binary(self) -> Option<bool> {
        match self {
            Self::Binary(_) => Some(true),
            Self::Scored(_) => Some(false),
            Self::Mixed => None,
        }
    }

    pub(in crate::conversation) fn number(self) -> Option<f64> {
        match self {
            Self::Binary(value) | Self::Scored(value) => Some(value),
            Self::Mixed => None,
        }
    }

    /// The mean of answers of one scale.
    pub(in crate::conversation) fn mean(answers: &[Self]) -> Option<Self> {
        let first = answers.first()?.is_binary();
        let values: Option<Vec<f64>> = answers.iter().map(|answer| answer.number()).collect();
        let uniform = answers.iter().all(|answer| answer.is_binary() == first);
        let mean = values.filter(|_| uniform).as_deref().and_then(mean);
        Some(match (first, mean) {
            (Some(true), Some(value)) => Self::Binary(value),
            (Some(false), Some(value)) => Self::Scored(value),
            _ => Self::Mixed,
        })
    }
}

impl From<MetricValue> for Answer {
    fn from(value: MetricValue) -> Self {
        match value {
            MetricValue::Binary(passed) => Self::Binary(f64::from(u8::from(passed))),
            MetricValue::Scored(score) => Self::Scored(score),
        }
    }
}

/// The rows of a run, one per case: an error if any has one, passed if all passed, the rest averaged.
pub(in crate::conversation) fn reduce(rows: &[ComparedCase]) -> Cases<'_> {
    let mut groups: BTreeMap<&str, Vec<&ComparedCase>> = BTreeMap::new();
    for row in rows {
        groups.entry(&row.test_case).or_default().push(row);
    }
    groups
        .into_iter()
        .map(|(name, group)| (name, reduce_case(&group)))
        .collect()
}

fn reduce_case<'a>(rows: &[&'a ComparedCase]) -> Reduced<'a> {
    let known = |value: fn(&ComparedCase) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| value(row)).collect();
        mean(&values)
    };
    let any_failed = rows.iter().any(|row| row.passed == Some(false));
    let all_passed = rows.iter().all(|row| row.passed == Some(true));
    let mut answers: BTreeMap<&str, Vec<Answer>> = BTreeMap::new();
    // A row without overall score has no verdict: its answers are none.
    let judged = rows.iter().filter(|row| row.overall_score.is_some());
    for (metric, value) in judged.flat_map(|row| &row.metrics) {
        answers.entry(metric).or_default().push((*value).into());
    }
    let means = answers
        .into_iter()
        .filter_map(|(metric, all)| Some((metric, Answer::mean(&all)?)));
    Reduced {
        error: rows.iter().any(|row| is_error(row.error.as_deref())),
        passed: (any_failed || all_passed).then_some(all_passed),
        overall_score: known(|row| row.overall_score),
        total_latency_ms: known(|row| row.total_latency_ms.map(|ms| ms as f64)),
        metrics: means.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_passes_if_all_repetitions_pass_and_is_undecided_if_one_is() {
        let passed = |all: &[Option<bool>]| {
            let row = |passed: &Option<bool>| ComparedCase {
                passed: *passed,
                ..Default::default()
            };
            let rows: Vec<ComparedCase> = all.iter().map(row).collect();
            reduce(&rows).get("").unwrap().passed
        };
        assert_eq!(passed(&[Some(true), Some(true)]), Some(true));
        assert_eq!(passed(&[Some(true), None]), None);
        assert_eq!(passed(&[None, Some(false), Some(true)]), Some(false));
    }
}
