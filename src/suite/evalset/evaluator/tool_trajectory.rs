//! `tool_trajectory_avg_score`: the share of turns whose tool calls are the expected ones.

use super::{EvaluateResult, EvaluationError, Evaluator, averaged, compared};
use crate::suite::evalset::model::{EvalMetric, Invocation};

/// The evaluator.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolTrajectory;

impl Evaluator for ToolTrajectory {
    fn name(&self) -> &str {
        "tool_trajectory_avg_score"
    }

    fn description(&self) -> &str {
        "share of turns whose tool calls are the expected ones"
    }

    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError> {
        // Old metrics files have no criterion: calls are then compared exactly, in any order.
        let criterion = metric.rules.tool_trajectory.clone().unwrap_or_default();
        let turns = actuals.iter().zip(expecteds).map(|(actual, expected)| {
            compared(metric, criterion.compare(Some(actual), Some(expected)))
        });
        let turns = turns.collect();
        Ok(averaged(metric, turns))
    }
}
