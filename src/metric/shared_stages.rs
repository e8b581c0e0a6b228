//! Stages that several metrics ask alike. Prompt and shape are the very same, so a caller that asks equal questions once needs
//! 13 calls instead of 16 for a trace with all seven metrics.

use std::collections::BTreeMap;

use serde_json::Value;

use super::judged_metric::{SCORE_WITH_REASON, Step, ask, nothing_to_judge, scored};
use crate::question::{
    Evidence, Field, Kind, Prompt, PromptError, ReplyShape, StageReply, in_stored_order, prompt,
};

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
        prompt!("extract_task"),
        &TASK,
        [("trace", evidence.value())],
    )
}

/// What the agent planned: plan_adherence and plan_quality.
fn extract_plan(evidence: &Evidence) -> Result<Step, PromptError> {
    ask(
        "extract_plan",
        prompt!("extract_plan"),
        &PLAN,
        [("trace", evidence.value())],
    )
}

/// The stages of both plan metrics: task, plan, and `score` of the two. A trace without plan ends after the second.
pub(super) fn task_plan_and_score<const N: usize>(
    score_prompt: Prompt,
    evidence: &Evidence,
    threshold: f64,
    replies: &[StageReply],
    shown_beside: [(&'static str, minijinja::Value); N],
) -> Result<Step, PromptError> {
    match replies {
        [] => extract_task(evidence),
        [_] => extract_plan(evidence),
        [task, plan, ..] if plan.list("plan").is_empty() => Ok(no_plan(task, threshold, evidence)),
        [task, plan] => {
            let mut values = BTreeMap::from(shown_beside);
            values.insert("task", in_stored_order(task.value("task")));
            values.insert("plan", in_stored_order(plan.value("plan")));
            ask("score", score_prompt, &SCORE_WITH_REASON, values)
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

/// The early exit of both plan metrics.
fn no_plan(task: &StageReply, threshold: f64, evidence: &Evidence) -> Step {
    let details = [
        ("task", task.value("task").clone()),
        ("plan", Value::Array(Vec::new())),
    ];
    let reason = "The trace shows no plan, so there is none to judge.";
    nothing_to_judge(reason, details, threshold, evidence)
}
