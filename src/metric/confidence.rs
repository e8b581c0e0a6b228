//! `confidence`: does the agent act like one that knows what it does? As in PandaProbe.

use super::judged_metric::{JudgedMetric, Step, ask, scored};
use super::registry::MetricInfo;
use crate::question::{Evidence, Field, Kind, PromptError, ReplyShape, StageReply, prompt};

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

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "How decided and consistent the agent acted (1 = sure of its way, 0 = lost).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "confidence",
    prompts: &["confidence_score"],
    next,
};

/// How decided and steady the agent acts over the run.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    match replies {
        [] => ask(
            "score",
            prompt!("confidence_score"),
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
