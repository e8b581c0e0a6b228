//! `final_response_avg_score`: the share of turns whose final response is the expected one.

use super::{EvaluateResult, EvaluationError, Evaluator, averaged, compared, lacks};
use crate::suite::evalset::model::{EvalMetric, Invocation};

/// The evaluator.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinalResponse;

impl Evaluator for FinalResponse {
    fn name(&self) -> &str {
        "final_response_avg_score"
    }

    fn description(&self) -> &str {
        "share of turns whose final response is the expected one"
    }

    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError> {
        let Some(criterion) = &metric.rules.final_response else {
            return Err(lacks(metric, "criterion.finalResponse"));
        };
        let turns = actuals.iter().zip(expecteds).map(|(actual, expected)| {
            compared(metric, criterion.compare(Some(actual), Some(expected)))
        });
        let turns = turns.collect();
        Ok(averaged(metric, turns))
    }
}
