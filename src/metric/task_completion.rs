//! `task_completion`: did the agent reach what the user wanted? As in PandaProbe.

use super::judged_metric::{JudgedMetric, Step, ask, scored};
use super::registry::MetricInfo;
use crate::question::{
    Evidence, Field, Kind, PromptError, ReplyShape, StageReply, in_stored_order, prompt,
};

static EXTRACT: ReplyShape = ReplyShape::new(&[
    Field {
        key: "task",
        kind: Kind::Text,
        about: "the user's objective, in one to three sentences.",
    },
    Field {
        key: "outcome",
        kind: Kind::Text,
        about: "one text with the facts of what the system did, in order.",
    },
]);

static SCORE: ReplyShape = ReplyShape::new(&[
    Field {
        key: "verdict",
        kind: Kind::Share,
        about: "the score by the scale above.",
    },
    Field {
        key: "reason",
        kind: Kind::OptionalText,
        about: "why, in one or two sentences.",
    },
]);

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "How much of what the user wanted was done, by the trace's outcome (1 = all of it).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "task_completion",
    prompts: &["task_completion_extract", "task_completion_score"],
    next,
};

/// How far the outcome of the run meets the user's objective. The outcome is listed first, and scored apart from the trace.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    match replies {
        [] => ask(
            "extract",
            prompt!("task_completion_extract"),
            &EXTRACT,
            [("trace", evidence.value())],
        ),
        [extract] => {
            let values = ["task", "outcome"].map(|key| (key, in_stored_order(extract.value(key))));
            ask("score", prompt!("task_completion_score"), &SCORE, values)
        }
        [extract, score, ..] => Ok(scored(
            score.share("verdict"),
            score.optional_text("reason"),
            ["task", "outcome"].map(|key| (key, extract.value(key).clone())),
            threshold,
            evidence,
        )),
    }
}
