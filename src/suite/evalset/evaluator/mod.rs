//! What scores the turns of a case, looked up by name (as in trpc-agent-go).

mod external;
mod final_response;
mod partial_trajectory;
mod registry;
mod semantic_response;
mod tool_trajectory;

use super::aggregate::mean_over_turns;
use super::criterion::Comparison;
use super::model::{EvalMetric, Invocation};
pub use super::result::{DetailValue, EvalStatus, RubricScore};
pub use external::ExternalEvaluator;
pub use final_response::FinalResponse;
pub use partial_trajectory::PartialTrajectory;
pub use registry::Registry;
pub use semantic_response::SemanticResponse;
pub use tool_trajectory::ToolTrajectory;

/// What an evaluator says of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluateResult {
    /// Over all turns.
    pub score: f64,
    /// Over all turns; not evaluated where there are none.
    pub status: EvalStatus,
    /// Exactly one a turn, in their order.
    pub per_invocation: Vec<InvocationResult>,
}

/// What an evaluator says of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InvocationResult {
    /// 0 to 1.
    pub score: f64,
    /// By the threshold of the metric.
    pub status: EvalStatus,
    /// Why; empty where there is nothing to say.
    pub reason: String,
    /// Rubric by rubric.
    pub rubric_scores: Vec<RubricScore>,
    /// What a judge said or a model found, where that is more than a score.
    pub value: Option<DetailValue>,
    /// What the judge was asked, where the metrics file words it.
    pub prompt: Option<String>,
}

/// Why a case could not be evaluated: it fails, and none of its metrics counts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("metric `{metric}`: {problem}")]
pub struct EvaluationError {
    /// The metric's name.
    pub metric: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// Scores turns without asking anybody.
pub trait Evaluator: Send + Sync {
    /// What metrics name it by.
    fn name(&self) -> &str;

    /// One line for readers.
    fn description(&self) -> &str;

    /// Whether it reads cosines of responses, which the run finds with an embedding model before it scores.
    fn reads_cosines(&self) -> bool {
        false
    }

    /// Scores the turns of a case; both lists are of one length.
    ///
    /// # Errors
    /// [`EvaluationError`] if the metric lacks what the evaluator needs.
    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError>;
}

/// What comes of the turns of a metric: their mean, held against its threshold; not evaluated without turns.
pub(super) fn averaged(metric: &EvalMetric, turns: Vec<InvocationResult>) -> EvaluateResult {
    let judged = turns.iter().map(|turn| (turn.score, turn.status));
    let (score, status) = mean_over_turns(metric.threshold.unwrap_or_default(), judged);
    EvaluateResult {
        score,
        status,
        per_invocation: turns,
    }
}

/// What a comparison comes to: 1 for a match, 0 and the reason for a mismatch.
fn compared(metric: &EvalMetric, comparison: Comparison) -> InvocationResult {
    let (score, reason) = match comparison {
        Ok(()) => (1.0, String::new()),
        Err(mismatch) => (0.0, mismatch.reason),
    };
    InvocationResult {
        score,
        status: EvalStatus::of(score, metric.threshold.unwrap_or_default()),
        reason,
        ..InvocationResult::default()
    }
}

/// A metric that does not say what its evaluator needs.
pub(super) fn lacks(metric: &EvalMetric, member: &str) -> EvaluationError {
    EvaluationError {
        metric: metric.name.clone(),
        problem: format!("the metrics file gives it no `{member}`; add one"),
    }
}
