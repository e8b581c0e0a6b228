//! From the metrics of cases to scores of cases, suites and the whole (as in Regtrace).

use super::named::Named;
use super::sum::{mean, share, weighted_mean};
use crate::metric::checked::Checked;
use crate::metric::comparison::Compat;

/// A failed metric below this makes its case fail outright.
const FAIL_BELOW: f64 = 0.3;

/// A case with the results of its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedCase {
    /// Unique in its suite.
    pub id: String,
    /// What the model was asked.
    pub input: String,
    /// What was evaluated.
    pub actual_output: String,
    /// From 0.
    pub weight: f64,
    /// By metric, in the order in which the case lists them.
    pub results: Named<Checked>,
}

/// How bad a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// All its metrics passed.
    Pass,
    /// A metric failed, none of them far below its bar.
    Warn,
    /// A metric failed with a score below 0.3.
    Fail,
}

impl Severity {
    /// All of them, from good to bad.
    pub const ALL: [Self; 3] = [Self::Pass, Self::Warn, Self::Fail];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What a case came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseFigures {
    /// The weighted mean of its metrics, 0 to 1.
    pub score: f64,
    /// Whether all its metrics passed.
    pub passed: bool,
    /// How bad it is.
    pub severity: Severity,
}

/// A metric over all cases of a suite that have it.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MetricSummary {
    /// The mean score, 0 to 1, without weights.
    pub score: f64,
    /// The share of cases that passed it, 0 to 1.
    pub pass_rate: f64,
}

/// What a suite came to.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteFigures {
    /// In the order of the cases.
    pub cases: Vec<CaseFigures>,
    /// The weighted mean of the cases, 0 to 1.
    pub suite_score: f64,
    /// By metric, in the order in which cases first have them.
    pub metric_summary: Named<MetricSummary>,
}

/// The weighted mean of a case's metrics; 0 where the weights sum to 0. The tool knows no weights of metrics.
pub fn case_score<'a>(
    scores: impl Iterator<Item = (&'a str, f64)>,
    weight_of: impl Fn(&str) -> f64,
    compat: Compat,
) -> f64 {
    let weigh = |(metric, score)| match compat {
        Compat::Document => (weight_of(metric), score),
        Compat::Tool => (1.0, score),
    };
    weighted_mean(scores.map(weigh), compat)
}

/// Scores, verdicts and severities of a suite. `weight_of` is the weight of a metric.
pub fn cascade(
    cases: &[EvaluatedCase],
    weight_of: impl Fn(&str) -> f64,
    compat: Compat,
) -> SuiteFigures {
    let figures: Vec<CaseFigures> = cases
        .iter()
        .map(|case| {
            let scores = case.results.iter().map(|(name, of)| (name, of.score));
            let passed = case.results.values().all(|of| of.passed);
            let is_bad = |of: &Checked| !of.passed && of.score < FAIL_BELOW;
            CaseFigures {
                score: case_score(scores, &weight_of, compat),
                passed,
                severity: match passed {
                    true => Severity::Pass,
                    false if case.results.values().any(is_bad) => Severity::Fail,
                    false => Severity::Warn,
                },
            }
        })
        .collect();
    let weighted = cases.iter().zip(&figures);
    let score = weighted_mean(weighted.map(|(case, of)| (case.weight, of.score)), compat);
    SuiteFigures {
        suite_score: score.clamp(0.0, 1.0),
        metric_summary: metric_summary(cases, compat),
        cases: figures,
    }
}

fn metric_summary(cases: &[EvaluatedCase], compat: Compat) -> Named<MetricSummary> {
    let mut by_metric: Named<()> = Named::default();
    for name in cases.iter().flat_map(|case| case.results.names()) {
        by_metric.insert(name, ());
    }
    let summary = |name: &str| {
        let results = cases.iter().filter_map(|case| case.results.get(name));
        let scores: Vec<f64> = results.clone().map(|of| of.score).collect();
        let all = scores.len();
        MetricSummary {
            score: mean(scores, compat).unwrap_or(0.0),
            pass_rate: share(results.filter(|of| of.passed).count(), all),
        }
    };
    by_metric
        .names()
        .map(|name| (name, summary(name)))
        .collect()
}

/// The score over all suites from pairs of a suite's weight and score; 0 where the weights sum to 0.
pub fn overall_score(suites: impl Iterator<Item = (f64, f64)>) -> f64 {
    weighted_mean(suites, Compat::Document)
}
