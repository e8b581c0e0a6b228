//! `step_efficiency`: did the agent take no more steps than needed? As in PandaProbe.

use super::judged_metric::{JudgedMetric, SCORE_WITH_REASON, Step, ask, scored};
use super::registry::MetricInfo;
use super::shared_stages;
use crate::question::{Evidence, PromptError, StageReply, in_stored_order, prompt};

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "How few steps the trace took beyond those it needed (1 = none).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "step_efficiency",
    prompts: &["extract_task", "step_efficiency_score"],
    next,
};

/// How close the run is to the shortest way to the task.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    match replies {
        [] => shared_stages::extract_task(evidence),
        [task] => {
            let values = [
                ("trace", evidence.value()),
                ("task", in_stored_order(task.value("task"))),
            ];
            ask(
                "score",
                prompt!("step_efficiency_score"),
                &SCORE_WITH_REASON,
                values,
            )
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
