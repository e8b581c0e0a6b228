//! `argument_correctness`: were tools called with the right arguments? As in PandaProbe.

use serde_json::Value;

use super::judged_metric::{JudgedMetric, Step, ask, nothing_to_judge, scored};
use super::registry::MetricInfo;
use crate::question::{
    Evidence, Field, Kind, Member, MemberKind, PromptError, ReplyShape, StageReply,
    in_stored_order, prompt,
};

/// Stands for the reason of a `no` that came without one.
const NO_REASON: &str = "(no reason given)";

static EXTRACT: ReplyShape = ReplyShape::new(&[
    Field {
        key: "user_input",
        kind: Kind::Text,
        about: "the user's goal.",
    },
    Field {
        key: "tool_calls",
        kind: Kind::Objects(&[
            Member {
                key: "name",
                kind: MemberKind::Text,
                about: "the tool's name.",
            },
            Member {
                key: "parameters",
                kind: MemberKind::FreeObject,
                about: "the arguments of the call, unchanged.",
            },
            Member {
                key: "reasoning",
                kind: MemberKind::OptionalText,
                about: "why the agent made the call, by its own words in the trace; null if it does not say.",
            },
        ]),
        about: "every tool call in order; an empty list if there is none.",
    },
]);

static VERDICTS: ReplyShape = ReplyShape::new(&[Field {
    key: "verdicts",
    kind: Kind::Verdicts,
    about: "one verdict for each tool call, in the order of the calls.",
}]);

static REASON: ReplyShape = ReplyShape::new(&[Field {
    key: "reason",
    kind: Kind::Text,
    about: "the explanation of the score, in one or two sentences.",
}]);

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::judged(
    &METRIC,
    "The share of tool calls whose arguments fit the task (1 = all, also without any call).",
);

static METRIC: JudgedMetric = JudgedMetric {
    name: "argument_correctness",
    prompts: &[
        "argument_correctness_extract",
        "argument_correctness_verdicts",
        "argument_correctness_reason",
    ],
    next,
};

/// The share of tool calls whose arguments are right. 1.0 if there is no tool call.
fn next(evidence: &Evidence, threshold: f64, replies: &[StageReply]) -> Result<Step, PromptError> {
    match replies {
        [] => {
            let values = [("trace", evidence.value())];
            ask(
                "extract",
                prompt!("argument_correctness_extract"),
                &EXTRACT,
                values,
            )
        }
        [extract, ..] if extract.list("tool_calls").is_empty() => {
            let details = [
                ("user_input", extract.value("user_input").clone()),
                ("verdicts", Value::Array(Vec::new())),
            ];
            let reason = "The trace holds no tool call, so there are no arguments to judge.";
            Ok(nothing_to_judge(reason, details, threshold, evidence))
        }
        [extract] => {
            let values =
                ["user_input", "tool_calls"].map(|key| (key, in_stored_order(extract.value(key))));
            ask(
                "verdicts",
                prompt!("argument_correctness_verdicts"),
                &VERDICTS,
                values,
            )
        }
        // Asked also when every verdict is `yes`: the reason is part of the result.
        [extract, verdicts] => {
            let values = [
                ("user_input", in_stored_order(extract.value("user_input"))),
                ("score", format!("{:.2}", share_of_yes(verdicts)).into()),
                ("reasons", reasons_against(verdicts).into()),
            ];
            ask(
                "reason",
                prompt!("argument_correctness_reason"),
                &REASON,
                values,
            )
        }
        [extract, verdicts, reason, ..] => {
            let mut details = vec![
                ("user_input", extract.value("user_input").clone()),
                ("verdicts", verdicts.value("verdicts").clone()),
            ];
            if verdicts.list("verdicts").len() != extract.list("tool_calls").len() {
                details.push(("verdict_count_mismatch", true.into()));
            }
            let score = share_of_yes(verdicts);
            Ok(scored(
                score,
                reason.optional_text("reason"),
                details,
                threshold,
                evidence,
            ))
        }
    }
}

/// The share of `yes` among the verdicts the judge gave, which may be more or fewer than the calls; 1.0 if it gave none.
fn share_of_yes(verdicts: &StageReply) -> f64 {
    let verdicts = verdicts.list("verdicts");
    if verdicts.is_empty() {
        return 1.0;
    }
    let yes = verdicts
        .iter()
        .filter(|item| item["verdict"] == "yes")
        .count();
    yes as f64 / verdicts.len() as f64
}

fn reasons_against(verdicts: &StageReply) -> Vec<String> {
    let against = verdicts
        .list("verdicts")
        .iter()
        .filter(|item| item["verdict"] == "no");
    against
        .map(|item| item["reason"].as_str().filter(|reason| !reason.is_empty()))
        .map(|reason| reason.unwrap_or(NO_REASON).to_owned())
        .collect()
}
