//! What is kept of results while they are written: figures of all cases, and the texts of those that did not pass.

use super::evaluation::ScoredMetric;
use super::result::{CaseResult, MetricResult};
use super::shown::case_outcome;
use crate::suite::outcome::{CaseOutcome, Verdict};

/// So many bytes of expected and actual texts are kept whole; of later ones the beginning.
const WHOLE_TEXTS: usize = 64 << 20;
/// The length of such a beginning, in characters.
const BEGINNING: usize = 400;

/// Results without their turns, and what readers are shown of each.
#[derive(Default)]
pub(super) struct Collected {
    /// With the scores of their metrics, for sums.
    pub cases: Vec<CaseResult>,
    /// In the same order.
    pub shown: Vec<CaseOutcome>,
    texts: usize,
}

impl Collected {
    /// Keeps what is needed of these results. Texts of checks that passed are in the result's file alone.
    pub fn add(&mut self, results: &[CaseResult], metrics: &[ScoredMetric]) {
        for result in results {
            let mut shown = case_outcome(result, metrics);
            for check in &mut shown.checks {
                if check.verdict == Verdict::Passed {
                    (check.expected, check.actual) = (None, None);
                }
                for text in [&mut check.expected, &mut check.actual]
                    .into_iter()
                    .flatten()
                {
                    if self.texts > WHOLE_TEXTS {
                        *text = crate::suite::process::cut(text, BEGINNING);
                    }
                    self.texts += text.len();
                }
            }
            self.shown.push(shown);
            let brief = |metric: &MetricResult| MetricResult {
                name: metric.name.clone(),
                score: metric.score,
                status: metric.status,
                threshold: metric.threshold,
                ..MetricResult::default()
            };
            self.cases.push(CaseResult {
                set_id: result.set_id.clone(),
                id: result.id.clone(),
                run_id: result.run_id,
                status: result.status,
                error_message: result.error_message.clone(),
                metrics: result.metrics.iter().map(brief).collect(),
                ..CaseResult::default()
            });
        }
    }
}
