//! `plan_quality`: was the plan a good one for the task? As in PandaProbe.

use super::judged_metric::{JudgedMetric, Step};
use super::registry::MetricInfo;
use super::shared_stages;
use crate::question::{Evidence, PromptError, StageReply, prompt};

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "How complete and sensible the agent's plan was for the task (1 = also without a plan).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "plan_quality",
    prompts: &["extract_task", "extract_plan", "plan_quality_score"],
    next,
};

/// How complete, sound, short and fitting the plan is. 1.0 if the trace shows no plan.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    // Without the trace: a plan is judged by itself, not by how the run went.
    let shown_beside = [];
    shared_stages::task_plan_and_score(
        prompt!("plan_quality_score"),
        evidence,
        threshold,
        replies,
        shown_beside,
    )
}
