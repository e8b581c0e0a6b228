//! `tool_trajectory_partial_score`: how much of the expected tool calls is there. It is nightmill's own.

use super::{EvalStatus, EvaluateResult, EvaluationError, Evaluator, InvocationResult, averaged};
use crate::suite::evalset::criterion::MismatchKind;
use crate::suite::evalset::model::{EvalMetric, Invocation};

/// The evaluator. A turn's score is (matched + in order) / (2 × calls), where `calls` are those expected, or those made
/// if they are more and the criterion allows no more. Without `orderSensitive` all that are matched are in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialTrajectory;

impl Evaluator for PartialTrajectory {
    fn name(&self) -> &str {
        "tool_trajectory_partial_score"
    }

    fn description(&self) -> &str {
        "mean share of the expected tool calls that were made; a call out of order counts half where order matters"
    }

    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError> {
        let criterion = metric.rules.tool_trajectory.clone().unwrap_or_default();
        let threshold = metric.threshold.unwrap_or_default();
        let turns = actuals.iter().zip(expecteds).map(|(actual, expected)| {
            let (score, reason) = match criterion.share(actual, expected) {
                Ok(share) => (share.score(), share.reason),
                // A score of 0 would say that nothing was found.
                Err(problem) if problem.kind == MismatchKind::Config => {
                    return Err(EvaluationError {
                        metric: metric.name.clone(),
                        problem: problem.reason,
                    });
                }
                Err(mismatch) => (0.0, mismatch.reason),
            };
            Ok(InvocationResult {
                score,
                status: EvalStatus::of(score, threshold),
                reason,
                ..InvocationResult::default()
            })
        });
        let turns = turns.collect::<Result<_, _>>()?;
        Ok(averaged(metric, turns))
    }
}
