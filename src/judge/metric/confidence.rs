//! `confidence`: does the agent act like one that knows what it does? As in PandaProbe.

use super::{ask, scored};
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::{Field, Kind, ReplyShape, StageReply};

static SCORE: ReplyShape = ReplyShape::new(&[
    Field {
        key: "confidence",
        kind: Kind::Share,
        about: "the score by the guide above.",
    },
    Field {
        key: "reason",
        kind: Kind::OptionalText,
        about: "why, in one or two sentences.",
    },
]);

/// How decided and steady the agent acts over the run.
#[derive(Clone, Copy, Debug)]
pub struct Confidence;

impl JudgedMetric for Confidence {
    fn name(&self) -> &'static str {
        "confidence"
    }

    fn next(
        &self,
        evidence: &Evidence,
        threshold: f64,
        replies: &[StageReply],
    ) -> Result<Step, PromptError> {
        match replies {
            [] => ask(
                "score",
                "confidence_score",
                &SCORE,
                [("trace", evidence.value())],
            ),
            [score, ..] => Ok(scored(
                score.share("confidence"),
                score.optional_text("reason"),
                [],
                threshold,
                evidence,
            )),
        }
    }

    fn most_calls(&self) -> usize {
        1
    }
}
