//! `tool_correctness`: did the agent choose the right tools? As in PandaProbe.

use super::judged_metric::{JudgedMetric, SCORE_WITH_REASON, Step, ask, scored};
use super::registry::MetricInfo;
use crate::question::{
    Evidence, Field, Kind, Member, MemberKind, PromptError, ReplyShape, StageReply,
    in_stored_order, prompt,
};

const KEYS: [&str; 3] = ["user_input", "tools_called", "available_tools"];

static EXTRACT: ReplyShape = ReplyShape::new(&[
    Field {
        key: "user_input",
        kind: Kind::Text,
        about: "the user's goal.",
    },
    Field {
        key: "tools_called",
        kind: Kind::Objects(&[
            Member {
                key: "name",
                kind: MemberKind::Text,
                about: "the tool's name.",
            },
            Member {
                key: "parameters",
                kind: MemberKind::FreeObject,
                about: "the arguments of the call.",
            },
        ]),
        about: "every tool call in order; an empty list if there is none.",
    },
    Field {
        key: "available_tools",
        kind: Kind::Objects(&[
            Member {
                key: "name",
                kind: MemberKind::Text,
                about: "the tool's name.",
            },
            Member {
                key: "description",
                kind: MemberKind::OptionalText,
                about: "what the tool does.",
            },
        ]),
        about: "every tool that was available; an empty list if there is none.",
    },
]);

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "Whether the right tools were called, none too many and none too few (1 = the right ones).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "tool_correctness",
    prompts: &["tool_correctness_extract", "tool_correctness_score"],
    next,
};

/// Whether the tools called were the right ones among those the agent had.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    match replies {
        [] => ask(
            "extract",
            prompt!("tool_correctness_extract"),
            &EXTRACT,
            [("trace", evidence.value())],
        ),
        // A run without tools is scored too: leaving useful tools alone is a fault.
        [extract] => {
            let values = KEYS.map(|key| (key, in_stored_order(extract.value(key))));
            ask(
                "score",
                prompt!("tool_correctness_score"),
                &SCORE_WITH_REASON,
                values,
            )
        }
        [extract, score, ..] => Ok(scored(
            score.share("score"),
            score.optional_text("reason"),
            KEYS.map(|key| (key, extract.value(key).clone())),
            threshold,
            evidence,
        )),
    }
}
