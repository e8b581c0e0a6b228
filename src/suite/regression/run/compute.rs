//! Everything of a case that is computed; and what a judge is still to be asked.

use rayon::prelude::*;

use super::rules::CaseRules;
use crate::metric::checked::Checked;
use crate::metric::comparison::Workspace;
use crate::metric::factuality::{self, Shallow};
use crate::metric::format::{self, FormatCase};
use crate::metric::tone;
use crate::suite::regression::golden_set::{GoldenSet, TestCase};
use crate::suite::regression::suite_metric::SuiteMetric;

/// A metric of a case, as far as it can be computed.
#[derive(Debug)]
pub(super) enum Computed {
    /// Nobody needs to be asked.
    Done(Checked),
    /// A judge says more; this is what counts if none does.
    Asks(Unjudged),
}

/// What counts where no judge gives anything that can be used.
#[derive(Debug)]
pub(super) enum Unjudged {
    /// The words or the JSON of the texts.
    Factuality(Box<Shallow>),
    /// Word lists and lengths.
    Tone(Box<Checked>),
}

impl Unjudged {
    /// The metric that asks.
    pub fn metric(&self) -> SuiteMetric {
        match self {
            Self::Factuality(_) => SuiteMetric::Factuality,
            Self::Tone(_) => SuiteMetric::Tone,
        }
    }

    /// The bar of the metric.
    pub fn threshold(&self) -> f64 {
        match self {
            Self::Factuality(shallow) => shallow.checked.threshold,
            Self::Tone(heuristic) => heuristic.threshold,
        }
    }

    /// The result without a judge, of which asking cost so many cents.
    pub fn result(self, cost: Option<f64>) -> Checked {
        match self {
            Self::Factuality(shallow) => shallow.instead_of_judge(cost),
            Self::Tone(heuristic) => Checked {
                token_cost: cost,
                ..*heuristic
            },
        }
    }
}

/// A case on its way to its results.
#[derive(Debug)]
pub(super) struct CaseWork<'s> {
    pub case: &'s TestCase,
    /// In the order in which the case lists its metrics; `regression` follows later.
    pub metrics: Vec<(SuiteMetric, Computed)>,
}

/// The computed metrics of a suite's cases, on all threads of the pool that this is called in.
pub(super) fn compute<'s>(set: &'s GoldenSet, rules: &CaseRules<'_>) -> Vec<CaseWork<'s>> {
    let cases = set.cases.par_iter();
    cases
        .map_init(Workspace::default, |workspace, case| CaseWork {
            case,
            metrics: metrics_of(case, rules, workspace),
        })
        .collect()
}

fn metrics_of(
    case: &TestCase,
    rules: &CaseRules<'_>,
    workspace: &mut Workspace,
) -> Vec<(SuiteMetric, Computed)> {
    let (actual, expected) = (case.output(), case.expected_output.as_str());
    let mut computed = Vec::new();
    for metric in rules.metrics.evaluated(case.metrics.as_deref()) {
        let threshold = case.threshold(metric, rules.metrics.default_threshold);
        let found = match metric {
            SuiteMetric::Regression => continue,
            SuiteMetric::Format => {
                let of_case = FormatCase {
                    required_terms: case.required_terms.as_deref(),
                    forbidden_terms: &case.forbidden_terms,
                    regex_pattern: case.regex_pattern.as_deref(),
                };
                let rules = &rules.format;
                let checked =
                    format::format(actual, expected, threshold, rules, of_case, workspace);
                Computed::Done(checked)
            }
            SuiteMetric::Factuality => factuality_of(case, threshold, rules, workspace),
            SuiteMetric::Tone => {
                let rules = &rules.tone;
                let found = tone::heuristic(actual, expected, threshold, rules, workspace).checked;
                match rules.asks_judge() {
                    true => Computed::Asks(Unjudged::Tone(Box::new(found))),
                    false => Computed::Done(found),
                }
            }
        };
        computed.push((metric, found));
    }
    computed
}

fn factuality_of(
    case: &TestCase,
    threshold: f64,
    rules: &CaseRules<'_>,
    workspace: &mut Workspace,
) -> Computed {
    let (actual, expected) = (case.output(), case.expected_output.as_str());
    let rules = &rules.factuality;
    let documents: Vec<&str> = case
        .documents
        .iter()
        .map(|of| of.content.as_str())
        .collect();
    let asks = factuality::asks_judge(actual, expected, &documents, rules, workspace);
    let found = factuality::shallow(actual, expected, &documents, threshold, rules, workspace);
    match asks {
        true => Computed::Asks(Unjudged::Factuality(Box::new(found))),
        false => Computed::Done(found.checked),
    }
}
