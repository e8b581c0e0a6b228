//! `llm_rubric_critic` and `llm_rubric_reference_critic`: which rubrics does the final response meet, where the expected
//! one is the truth of the matter?

use serde_json::{Value, json};

use super::{AskedTurn, JudgedEvaluator, Wording, reply};
use crate::question::prompt;

pub(super) static CRITIC: JudgedEvaluator = JudgedEvaluator {
    name: "llm_rubric_critic",
    description: "share of rubrics that a judge finds met, held against the expected response",
    wording: Wording::Own {
        prompt: prompt!("evalset_rubric_critic"),
        fill,
    },
    read: |reply, reading| reply::rubrics(reply, reading.rubrics),
    of_rubrics: true,
};

pub(super) static REFERENCE_CRITIC: JudgedEvaluator = JudgedEvaluator {
    name: "llm_rubric_reference_critic",
    ..CRITIC
};

fn fill(turn: &AskedTurn<'_>) -> Result<Value, String> {
    if turn.expected.final_response.is_none() {
        return Err("the turn has no expected final response to hold rubrics against".to_owned());
    }
    Ok(json!({
        "user": turn.user(),
        "actual": turn.answer(),
        "expected": turn.reference(),
        "rubrics": turn.rubric_lines(),
    }))
}
