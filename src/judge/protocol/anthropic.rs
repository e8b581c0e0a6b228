//! Anthropic's messages.

use serde_json::{Value, json};

use super::{Message, text_of, tokens};
use crate::judge::call::{Call, Usage};

/// The request that a call is.
pub(super) fn request(call: &Call, name: &str) -> Value {
    let mut body = json!({
        "model": name,
        "stream": false,
        "system": &*call.system,
        "messages": [{"role": "user", "content": call.user}],
        "max_tokens": call.max_output_tokens,
    });
    if let Some(format) = &call.format {
        body["output_config"] =
            json!({"format": {"type": "json_schema", "schema": *format.schema}});
    }
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

/// The message in an answer; none without a list of content.
pub(super) fn message(answer: &Value) -> Option<Message> {
    let content = answer["content"].as_array()?;
    let texts = content.iter().filter(|item| item["type"] == "text");
    Some(Message {
        text: texts.filter_map(|item| text_of(&item["text"])).collect(),
        model: text_of(&answer["model"]),
        usage: usage(&answer["usage"]),
        stop: text_of(&answer["stop_reason"]),
    })
}

/// Tokens that came from the cache, and those that went into it, are counted apart there, and are part of the question here.
fn usage(usage: &Value) -> Option<Usage> {
    let counts = usage.as_object()?;
    let count = |name: &str| counts.get(name).and_then(tokens).unwrap_or_default();
    let cached = count("cache_read_input_tokens");
    Some(Usage {
        prompt: count("input_tokens") + count("cache_creation_input_tokens") + cached,
        completion: count("output_tokens"),
        cached,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_texts() {
        let answer = json!({
            "model": "claude-1",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "yes "},
                {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                {"type": "text", "text": "it is"},
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "cache_creation_input_tokens": 2,
                "cache_read_input_tokens": 3, "output_tokens": 7},
        });
        let read = message(&answer).unwrap();
        assert_eq!(read.text, "yes it is");
        assert_eq!(read.model.as_deref(), Some("claude-1"));
        assert_eq!(read.stop.as_deref(), Some("end_turn"));
        let usage = read.usage.unwrap();
        assert_eq!((usage.prompt, usage.completion, usage.cached), (10, 7, 3));
        assert_eq!(message(&json!({"id": "x"})), None);
        let silent = message(&json!({"content": []})).unwrap();
        assert_eq!(silent, Message::default());
    }
}
