//! Stages that several metrics ask alike. Prompt and shape are the very same, so a caller that asks equal questions once needs
//! 13 calls instead of 16 for a trace with all seven metrics.

use serde_json::Value;

use super::{ask, nothing_to_judge};
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::Step;
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::{Field, Kind, ReplyShape, StageReply};

static TASK: ReplyShape = ReplyShape::new(&[Field {
    key: "task",
    kind: Kind::Text,
    about: "what the user wanted, in one to three sentences.",
}]);

static PLAN: ReplyShape = ReplyShape::new(&[Field {
    key: "plan",
    kind: Kind::Texts,
    about: "the steps of the plan in order, one text a step; an empty list if the trace shows no plan.",
}]);

/// What the user wanted: step_efficiency, plan_adherence and plan_quality.
pub(super) fn extract_task(evidence: &Evidence) -> Result<Step, PromptError> {
    ask(
        "extract_task",
        "extract_task",
        &TASK,
        [("trace", evidence.value())],
    )
}

/// What the agent planned: plan_adherence and plan_quality.
pub(super) fn extract_plan(evidence: &Evidence) -> Result<Step, PromptError> {
    ask(
        "extract_plan",
        "extract_plan",
        &PLAN,
        [("trace", evidence.value())],
    )
}

/// The early exit of both plan metrics.
pub(super) fn no_plan(task: &StageReply, threshold: f64, evidence: &Evidence) -> Step {
    let details = [
        ("task", task.value("task").clone()),
        ("plan", Value::Array(Vec::new())),
    ];
    let reason = "The trace shows no plan, so there is none to judge.";
    nothing_to_judge(reason, details, threshold, evidence)
}
