//! `llm_final_response`: does the final response say what the reference says?

use serde_json::json;

use super::{JudgedEvaluator, Wording, reply};
use crate::question::prompt;

pub(super) static EVALUATOR: JudgedEvaluator = JudgedEvaluator {
    name: "llm_final_response",
    description: "share of turns whose final response a judge finds valid by the expected one",
    wording: Wording::Own {
        prompt: prompt!("evalset_final_response"),
        fill: |turn| {
            Ok(json!({
                "user": turn.user(),
                "actual": turn.answer(),
                "expected": turn.reference(),
            }))
        },
    },
    read: |reply, _| reply::valid_label(reply),
    of_rubrics: false,
};
