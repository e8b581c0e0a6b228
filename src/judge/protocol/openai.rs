//! OpenAI's chat completions: what single calls and lines of batch files carry, and the message that comes back.

use serde_json::{Map, Value, json};

use super::{Message, text_of, tokens};
use crate::judge::call::{Call, Usage};

/// Starts of the names of models that know the limit of a reply by another name: they count their thoughts too.
const COUNT_THOUGHTS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];

/// The request that a call is, for the model that its endpoint calls `name`.
pub(in crate::judge) fn chat_completion(call: &Call, name: &str) -> Value {
    if let Some(body) = &call.body {
        return of_body(call, name, (**body).clone());
    }
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

/// A request that says beside model and messages what `body` says.
fn of_body(call: &Call, name: &str, mut body: Map<String, Value>) -> Value {
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let system = (!call.system.is_empty()).then(|| message("system", &call.system));
    let messages = system.into_iter().chain([message("user", &call.user)]);
    body.insert("model".to_owned(), name.into());
    body.insert("messages".to_owned(), messages.collect());
    Value::Object(body)
}

fn limit_of_reply(name: &str) -> &'static str {
    let counts_thoughts = COUNT_THOUGHTS.iter().any(|start| name.starts_with(start));
    match counts_thoughts {
        true => "max_completion_tokens",
        false => "max_tokens",
    }
}

/// The message in an answer; an empty one that stopped for no reason where there is none.
pub(super) fn message(answer: &Value) -> Message {
    let choice = &answer["choices"][0];
    Message {
        text: text(&choice["message"]["content"]),
        model: text_of(&answer["model"]),
        usage: usage(&answer["usage"]),
        stop: text_of(&choice["finish_reason"]),
    }
}

/// A string, or the texts of an array of parts; those of thoughts are none.
fn text(content: &Value) -> String {
    let of_part = |part: &Value| match part["type"] == "text" {
        true => text_of(&part["text"]),
        false => None,
    };
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(of_part).collect(),
        _ => String::new(),
    };
    text.trim().to_owned()
}

fn usage(usage: &Value) -> Option<Usage> {
    let prompt = tokens(&usage["prompt_tokens"])?;
    let rest = || tokens(&usage["total_tokens"])?.checked_sub(prompt);
    Some(Usage {
        prompt,
        completion: tokens(&usage["completion_tokens"]).or_else(rest)?,
        cached: tokens(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or_default(),
    })
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

    #[test]
    fn a_body_of_the_user_says_all_but_model_and_messages() {
        let said = json!({"top_p": 0.5, "model": "theirs", "max_tokens": 7});
        let call = Call {
            system: "".into(),
            body: said.as_object().cloned().map(Arc::new),
            ..call("Is it good?")
        };
        let messages = json!([{"role": "user", "content": "Is it good?"}]);
        let expected = json!({"top_p": 0.5, "model": "m", "max_tokens": 7, "messages": messages});
        assert_eq!(chat_completion(&call, "m"), expected);
    }

    #[test]
    fn texts_are_read_with_and_without_parts() {
        let said = |content: Value| {
            let choice = json!({"message": {"content": content}, "finish_reason": "stop"});
            message(&json!({"model": "m-1", "choices": [choice]}))
        };
        let parts = json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "yes, "},
            {"type": "text", "text": "it is "},
        ]);
        for (content, text) in [
            (json!(" yes\n"), "yes"),
            (parts, "yes, it is"),
            (json!(null), ""),
            (json!(3), ""),
        ] {
            let message = said(content);
            assert_eq!(message.text, text);
            assert_eq!(message.model.as_deref(), Some("m-1"));
            assert_eq!(message.stop.as_deref(), Some("stop"));
        }
        for none in [json!({"choices": []}), json!([1]), json!(null)] {
            assert_eq!(message(&none), Message::default(), "{none}");
        }
    }

    #[test]
    fn tokens_are_counted_where_the_provider_did() {
        let counted = |counts: Value| usage(&counts).map(|u| (u.prompt, u.completion, u.cached));
        let tokens = json!({"prompt_tokens": 7, "completion_tokens": 2});
        assert_eq!(counted(tokens), Some((7, 2, 0)));
        let total = json!({"prompt_tokens": 7, "total_tokens": 12});
        assert_eq!(counted(total), Some((7, 5, 0)));
        let cached = json!({"prompt_tokens": 7, "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 6}});
        assert_eq!(counted(cached), Some((7, 0, 6)));
        for unknown in [
            json!(null),
            json!({"completion_tokens": 2, "total_tokens": 9}),
            json!({"prompt_tokens": 7}),
            json!({"prompt_tokens": 7, "total_tokens": 3}),
            json!({"prompt_tokens": -1, "completion_tokens": 2}),
        ] {
            assert_eq!(counted(unknown), None);
        }
    }
}
