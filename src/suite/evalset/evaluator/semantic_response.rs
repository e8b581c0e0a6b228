//! `final_response_semantic_avg_score`: the share of turns whose final response means what the expected one means. It
//! is nightmill's own.

use std::sync::Arc;

use super::{EvalStatus, EvaluateResult, EvaluationError, Evaluator, InvocationResult, averaged};
use crate::suite::evalset::model::{EvalMetric, Invocation};
use crate::suite::evalset::result::DetailValue;
use crate::suite::evalset::semantic::Cosines;

/// The evaluator. It reads cosines that were found for all turns beforehand, and opens no model.
#[derive(Clone, Debug, Default)]
pub struct SemanticResponse {
    cosines: Arc<Cosines>,
}

impl SemanticResponse {
    /// By these cosines. Texts that are equal or blank need none.
    pub fn by(cosines: Arc<Cosines>) -> Self {
        Self { cosines }
    }

    /// Whether an actual response means what was expected: 1 or 0, with the cosine if both say something.
    fn compare(&self, actual: &str, expected: &str, bar: f64) -> Result<Compared, String> {
        let empty = |text: &str| text.trim().is_empty();
        let (score, reason) = match (empty(actual), empty(expected)) {
            (true, true) => (1.0, "both responses are empty"),
            (true, false) => (0.0, "the response is empty"),
            (false, true) => (0.0, "the response is not empty, as was expected"),
            (false, false) => {
                let cosine = self.cosines.between(actual, expected).ok_or(
                    "its responses have no vectors; run it where a model is opened, as `nightmill suite run` does",
                )?;
                let (score, than) = match cosine >= bar {
                    true => (1.0, "at least"),
                    false => (0.0, "below"),
                };
                return Ok(Compared {
                    score,
                    reason: format!("cosine {cosine:.6}, {than} {bar}"),
                    cosine: Some(cosine),
                });
            }
        };
        Ok(Compared {
            score,
            reason: reason.to_owned(),
            cosine: None,
        })
    }
}

/// What a comparison came to.
struct Compared {
    score: f64,
    reason: String,
    cosine: Option<f64>,
}

impl Evaluator for SemanticResponse {
    fn name(&self) -> &str {
        "final_response_semantic_avg_score"
    }

    fn description(&self) -> &str {
        "share of turns whose final response means what the expected one means, by a local embedding model"
    }

    fn reads_cosines(&self) -> bool {
        true
    }

    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError> {
        let problem = |problem: String| EvaluationError {
            metric: metric.name.clone(),
            problem,
        };
        let bar = metric.rules.semantic.clone().unwrap_or_default().bar();
        let bar = bar.map_err(problem)?;
        let threshold = metric.threshold.unwrap_or_default();
        let turns = actuals.iter().zip(expecteds).map(|(actual, expected)| {
            let Some(expected) = &expected.final_response else {
                return Ok(InvocationResult {
                    status: EvalStatus::NotEvaluated,
                    reason: "the turn has no expected final response".to_owned(),
                    ..InvocationResult::default()
                });
            };
            let actual = actual.final_response.as_ref();
            let actual = actual.map_or("", |message| message.content.as_str());
            let compared = self.compare(actual, &expected.content, bar)?;
            Ok(InvocationResult {
                score: compared.score,
                status: EvalStatus::of(compared.score, threshold),
                reason: compared.reason,
                value: compared.cosine.map(DetailValue::Numeric),
                ..InvocationResult::default()
            })
        });
        let turns = turns.collect::<Result<_, String>>().map_err(problem)?;
        Ok(averaged(metric, turns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::evalset::criterion::SemanticCriterion;
    use crate::suite::evalset::model::{Criterion, Message};

    fn said(text: Option<&str>) -> Invocation {
        Invocation {
            final_response: text.map(|text| Message {
                content: text.to_owned(),
                ..Message::default()
            }),
            ..Invocation::default()
        }
    }

    fn evaluate(
        pairs: &[(Option<&str>, Option<&str>)],
        min_cosine: Option<f64>,
    ) -> Result<EvaluateResult, EvaluationError> {
        let cosines = Cosines::from_iter([("near", "expected", 0.8), ("far", "expected", 0.7999)]);
        let metric = EvalMetric {
            threshold: Some(0.5),
            rules: Criterion {
                semantic: Some(SemanticCriterion { min_cosine }),
                ..Criterion::default()
            },
            ..EvalMetric::default()
        };
        let (actuals, expecteds): (Vec<_>, Vec<_>) =
            pairs.iter().map(|(a, e)| (said(*a), said(*e))).unzip();
        SemanticResponse::by(Arc::new(cosines)).evaluate(&actuals, &expecteds, &metric)
    }

    fn score(actual: Option<&str>, expected: &str) -> f64 {
        let result = evaluate(&[(actual, Some(expected))], None).unwrap();
        assert_eq!(result.per_invocation.len(), 1);
        result.score
    }

    #[test]
    fn a_cosine_from_the_bar_on_is_the_same_meaning() {
        assert_eq!(score(Some("near"), "expected"), 1.0);
        assert_eq!(score(Some("far"), "expected"), 0.0);
        let far = evaluate(&[(Some("far"), Some("expected"))], Some(0.7)).unwrap();
        let turn = &far.per_invocation[0];
        assert_eq!((far.score, turn.status), (1.0, EvalStatus::Passed));
        assert_eq!(turn.reason, "cosine 0.799900, at least 0.7");
        assert_eq!(turn.value, Some(DetailValue::Numeric(0.7999)));
        // Equal texts need no vectors, and have the cosine 1 exactly.
        let same = evaluate(&[(Some("x"), Some("x"))], Some(1.0)).unwrap();
        assert_eq!(same.score, 1.0);
    }

    #[test]
    fn empty_responses_mean_the_same_as_each_other_alone() {
        assert_eq!(score(Some(""), " \n"), 1.0);
        assert_eq!(score(None, ""), 1.0);
        assert_eq!(score(None, "expected"), 0.0);
        assert_eq!(score(Some("near"), ""), 0.0);
    }

    #[test]
    fn a_turn_without_expected_response_counts_for_nothing() {
        let pairs = [
            (Some("near"), None),
            (Some("near"), Some("expected")),
            (Some("far"), Some("expected")),
        ];
        let result = evaluate(&pairs, None).unwrap();
        assert_eq!((result.score, result.status), (0.5, EvalStatus::Passed));
        assert_eq!(result.per_invocation[0].status, EvalStatus::NotEvaluated);
        let none = evaluate(&pairs[..1], None).unwrap();
        assert_eq!((none.score, none.status), (0.0, EvalStatus::NotEvaluated));
    }

    #[test]
    fn without_vectors_or_with_a_bar_that_is_none_the_case_breaks_down() {
        let unknown = evaluate(&[(Some("other"), Some("expected"))], None);
        assert!(unknown.unwrap_err().problem.contains("no vectors"));
        let wrong = evaluate(&[(Some("near"), Some("expected"))], Some(80.0));
        assert!(wrong.unwrap_err().problem.contains("minCosine"));
    }
}
