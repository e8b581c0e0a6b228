//! `task_completion`: did the agent reach what the user wanted? As in PandaProbe.

use super::{ask, in_stored_order, scored};
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::{Field, Kind, ReplyShape, StageReply};

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

/// How far the outcome of the run meets the user's objective. The outcome is listed first, and scored apart from the trace.
#[derive(Clone, Copy, Debug)]
pub struct TaskCompletion;

impl JudgedMetric for TaskCompletion {
    fn name(&self) -> &'static str {
        "task_completion"
    }

    fn next(
        &self,
        evidence: &Evidence,
        threshold: f64,
        replies: &[StageReply],
    ) -> Result<Step, PromptError> {
        match replies {
            [] => ask(
                "extract",
                "task_completion_extract",
                &EXTRACT,
                [("trace", evidence.value())],
            ),
            [extract] => {
                let values =
                    ["task", "outcome"].map(|key| (key, in_stored_order(extract.value(key))));
                ask("score", "task_completion_score", &SCORE, values)
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

    fn most_calls(&self) -> usize {
        2
    }
}
