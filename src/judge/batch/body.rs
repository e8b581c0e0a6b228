//! The body of a call in OpenAI's chat completions: what a line of a batch file carries.

use serde_json::{Value, json};

use crate::judge::Call;
use crate::judge::model_name::reasons;

/// The request that a call is, for the model that its endpoint calls `name`: what is sent without batches, too.
pub(super) fn chat_completion(call: &Call, name: &str) -> Value {
    let mut body = json!({
        "model": name,
        "messages": [
            {"role": "system", "content": &*call.system},
            {"role": "user", "content": call.user},
        ],
        limit_of_reply(name): call.max_output_tokens,
    });
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(format) = &call.format {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": {"name": format.name, "strict": true, "schema": *format.schema},
        });
    }
    body
}

/// Models that reason count their thoughts too, and know the limit by another name.
fn limit_of_reply(name: &str) -> &'static str {
    match reasons(name) {
        true => "max_completion_tokens",
        false => "max_tokens",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::judge::ReplyFormat;
    use crate::judge::call::tests::call;

    #[test]
    fn a_body_holds_everything_that_decides_the_answer() {
        let mut call = call("Is it good?");
        let body = chat_completion(&call, "gpt-4o");
        assert_eq!(
            body,
            json!({
                "model": "gpt-4o",
                "messages": [
                    {"role": "system", "content": "You judge."},
                    {"role": "user", "content": "Is it good?"},
                ],
                "temperature": 1.0,
                "max_tokens": 100,
            })
        );
        call.format = Some(ReplyFormat {
            name: "verdict",
            schema: Arc::new(json!({"type": "object"})),
        });
        let body = chat_completion(&call, "o3-mini");
        assert_eq!(body["max_completion_tokens"], 100);
        assert_eq!(body["max_tokens"], Value::Null);
        let format = &body["response_format"];
        assert_eq!(format["type"], "json_schema");
        assert_eq!(format["json_schema"]["name"], "verdict");
        assert_eq!(format["json_schema"]["schema"], json!({"type": "object"}));
    }
}
