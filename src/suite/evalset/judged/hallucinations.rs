//! `llm_hallucinations`: does each sentence of the final response rest on what the agent was given?

use serde_json::{Value, json};

use super::{JudgedEvaluator, Wording, reply};
use crate::question::prompt;

pub(super) static EVALUATOR: JudgedEvaluator = JudgedEvaluator {
    name: "llm_hallucinations",
    description: "share of sentences that a judge finds supported by what the agent was given",
    wording: Wording::Own {
        prompt: prompt!("evalset_hallucinations"),
        fill: |turn| {
            let context = turn.actual.context_messages.iter().flatten();
            let context: Vec<&str> = context.map(|message| message.content.as_str()).collect();
            let tools = turn.actual.tools.iter().flatten();
            let tools = tools.map(
                |call| json!({"name": call.name, "arguments": call.arguments, "result": call.result}),
            );
            Ok(json!({
                "user": turn.user(),
                "context": context,
                "tools": tools.collect::<Vec<Value>>(),
                "actual": turn.answer(),
            }))
        },
    },
    read: |reply, _| reply::hallucinations(reply),
    of_rubrics: false,
};
