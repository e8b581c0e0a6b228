//! `plan_adherence`: did the agent do what it planned? As in PandaProbe.

use super::judged_metric::{JudgedMetric, Step};
use super::registry::MetricInfo;
use super::shared_stages;
use crate::question::{Evidence, PromptError, StageReply, prompt};

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "Whether the agent followed its own plan (1 = step by step, also without a plan).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "plan_adherence",
    prompts: &["extract_task", "extract_plan", "plan_adherence_score"],
    next,
};

/// Whether the steps of the plan ran, in order, and nothing else did. 1.0 if the trace shows no plan.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    let shown_beside = [("trace", evidence.value())];
    shared_stages::task_plan_and_score(
        prompt!("plan_adherence_score"),
        evidence,
        threshold,
        replies,
        shown_beside,
    )
}
