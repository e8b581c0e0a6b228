//! `step_efficiency`: did the agent take no more steps than needed? As in PandaProbe.

use super::{SCORE_WITH_REASON, ask, in_stored_order, scored, shared_stages};
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::StageReply;

/// How close the run is to the shortest way to the task.
#[derive(Clone, Copy, Debug)]
pub struct StepEfficiency;

impl JudgedMetric for StepEfficiency {
    fn name(&self) -> &'static str {
        "step_efficiency"
    }

    fn next(
        &self,
        evidence: &Evidence,
        threshold: f64,
        replies: &[StageReply],
    ) -> Result<Step, PromptError> {
        match replies {
            [] => shared_stages::extract_task(evidence),
            [task] => {
                let values = [
                    ("trace", evidence.value()),
                    ("task", in_stored_order(task.value("task"))),
                ];
                ask("score", "step_efficiency_score", &SCORE_WITH_REASON, values)
            }
            [task, score, ..] => Ok(scored(
                score.share("score"),
                score.optional_text("reason"),
                [("task", task.value("task").clone())],
                threshold,
                evidence,
            )),
        }
    }

    fn most_calls(&self) -> usize {
        2
    }
}
