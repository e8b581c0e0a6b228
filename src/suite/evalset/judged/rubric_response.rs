//! `llm_rubric_response`: which rubrics does the final response meet?

use serde_json::json;

use super::{JudgedEvaluator, Wording, reply};
use crate::question::prompt;

pub(super) static EVALUATOR: JudgedEvaluator = JudgedEvaluator {
    name: "llm_rubric_response",
    description: "share of rubrics that a judge finds met by the final response",
    wording: Wording::Own {
        prompt: prompt!("evalset_rubric_response"),
        fill: |turn| {
            Ok(json!({
                "user": turn.user(),
                "actual": turn.answer(),
                "rubrics": turn.rubric_lines(),
            }))
        },
    },
    read: |reply, reading| reply::rubrics(reply, reading.rubrics),
    of_rubrics: true,
};
