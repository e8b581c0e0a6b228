//! `plan_adherence`: did the agent do what it planned? (Specification, section 12.6.)

use super::{SCORE_WITH_REASON, ask, in_stored_order, scored, shared_stages};
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
        match replies {
            [] => shared_stages::extract_task(evidence),
            [_] => shared_stages::extract_plan(evidence),
            [task, plan, ..] if plan.list("plan").is_empty() => {
                Ok(shared_stages::no_plan(task, threshold, evidence))
            }
            [task, plan] => {
                let values = [
                    ("trace", evidence.value()),
                    ("task", in_stored_order(task.value("task"))),
                    ("plan", in_stored_order(plan.value("plan"))),
                ];
                ask("score", "plan_adherence_score", &SCORE_WITH_REASON, values)
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
