//! `plan_adherence`: did the agent do what it planned? As in PandaProbe.

use super::shared_stages;
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::StageReply;

/// Whether the steps of the plan ran, in order, and nothing else did. 1.0 if the trace shows no plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanAdherence;

impl JudgedMetric for PlanAdherence {
    fn name(&self) -> &'static str {
        "plan_adherence"
    }

    fn next(
        &self,
        evidence: &Evidence,
        threshold: f64,
        replies: &[StageReply],
    ) -> Result<Step, PromptError> {
        let shown_beside = [("trace", evidence.value())];
        shared_stages::task_plan_and_score(
            "plan_adherence_score",
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
