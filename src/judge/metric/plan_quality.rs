//! `plan_quality`: was the plan a good one for the task? (Specification, section 12.7.)

use super::{SCORE_WITH_REASON, ask, in_stored_order, scored, shared_stages};
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
        match replies {
            [] => shared_stages::extract_task(evidence),
            [_] => shared_stages::extract_plan(evidence),
            [task, plan, ..] if plan.list("plan").is_empty() => {
                Ok(shared_stages::no_plan(task, threshold, evidence))
            }
            // Without the trace: a plan is judged by itself, not by how the run went.
            [task, plan] => {
                let values = [
                    ("task", in_stored_order(task.value("task"))),
                    ("plan", in_stored_order(plan.value("plan"))),
                ];
                ask("score", "plan_quality_score", &SCORE_WITH_REASON, values)
            }
            [task, plan, score, ..] => Ok(scored(
                score.share("score"),
                score.optional_text("reason"),
                [
                    ("task", task.value("task").clone()),
                    ("plan", plan.value("plan").clone()),
                ],
                threshold,
                evidence,
            )),
        }
    }

    fn most_calls(&self) -> usize {
        3
    }
}
