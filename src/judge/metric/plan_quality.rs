//! `plan_quality`: was the plan a good one for the task? As in PandaProbe.

use super::shared_stages;
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::StageReply;

/// How complete, sound, short and fitting the plan is. 1.0 if the trace shows no plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanQuality;

impl JudgedMetric for PlanQuality {
    fn name(&self) -> &'static str {
        "plan_quality"
    }

    fn next(
        &self,
        evidence: &Evidence,
        threshold: f64,
        replies: &[StageReply],
    ) -> Result<Step, PromptError> {
        // Without the trace: a plan is judged by itself, not by how the run went.
        let shown_beside = [];
        shared_stages::task_plan_and_score(
            "plan_quality_score",
            evidence,
            threshold,
            replies,
            shown_beside,
        )
    }

    fn most_calls(&self) -> usize {
        3
    }
}
