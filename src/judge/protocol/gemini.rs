//! Gemini's generateContent.

use serde_json::{Value, json};

use super::{Message, text_of, tokens};
use crate::judge::call::{Call, Usage};

/// The request that a call is. The model is in the path.
pub(super) fn request(call: &Call) -> Value {
    let mut generation = json!({"maxOutputTokens": call.max_output_tokens});
    if let Some(format) = &call.format {
        generation["responseMimeType"] = json!("application/json");
        generation["responseJsonSchema"] = json!(*format.schema);
    }
    if let Some(temperature) = call.temperature {
        generation["temperature"] = json!(temperature);
    }
    json!({
        "systemInstruction": {"parts": [{"text": &*call.system}]},
        "contents": [{"role": "user", "parts": [{"text": call.user}]}],
        "generationConfig": generation,
    })
}

/// The message in an answer; none without candidates, and none where an error stands in their place.
pub(super) fn message(answer: &Value) -> Option<Message> {
    if answer.get("error").is_some() {
        return None;
    }
    answer.get("candidates")?;
    let candidate = &answer["candidates"][0];
    let parts = candidate["content"]["parts"].as_array();
    let said = parts.into_iter().flatten().filter(|p| p["thought"] != true);
    Some(Message {
        text: said.filter_map(|part| text_of(&part["text"])).collect(),
        model: text_of(&answer["modelVersion"]),
        usage: usage(&answer["usageMetadata"]),
        stop: text_of(&candidate["finishReason"]),
    })
}

/// Thoughts are counted apart there, and are part of the reply here. Where there is no reply, Gemini does not count one, though
/// thoughts may have been billed: these are in the total alone.
fn usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| tokens(&usage[name]);
    let of_tools = count("toolUsePromptTokenCount");
    let question = match (count("promptTokenCount"), of_tools) {
        (None, None) => return None,
        (prompt, of_tools) => prompt.unwrap_or_default() + of_tools.unwrap_or_default(),
    };
    let reply = count("candidatesTokenCount")
        .map(|reply| reply + count("thoughtsTokenCount").unwrap_or_default());
    let rest = || count("totalTokenCount")?.checked_sub(question);
    Some(Usage {
        prompt: question,
        completion: reply.or_else(rest)?,
        cached: count("cachedContentTokenCount").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_texts_without_thoughts() {
        let answer = json!({
            "candidates": [{
                "content": {"role": "model", "parts": [
                    {"text": "hm", "thought": true}, {"text": "yes "}, {"text": "it is"},
                ]},
                "finishReason": "STOP",
            }],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3,
                "thoughtsTokenCount": 4, "cachedContentTokenCount": 2, "totalTokenCount": 12},
            "modelVersion": "gemini-1",
        });
        let read = message(&answer).unwrap();
        assert_eq!(read.text, "yes it is");
        assert_eq!(read.model.as_deref(), Some("gemini-1"));
        assert_eq!(read.stop.as_deref(), Some("STOP"));
        let counts = read.usage.unwrap();
        assert_eq!((counts.prompt, counts.completion, counts.cached), (5, 7, 2));
        for none in [
            json!({"id": "x"}),
            json!({"error": {}, "candidates": []}),
            json!([1]),
        ] {
            assert_eq!(message(&none), None, "{none}");
        }
        let silent = message(&json!({"candidates": []})).unwrap();
        assert_eq!(silent, Message::default());
        let thoughts =
            json!({"promptTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 10});
        assert_eq!(
            usage(&thoughts).map(|u| (u.prompt, u.completion)),
            Some((7, 3))
        );
        assert_eq!(usage(&json!({"candidatesTokenCount": 3})), None);
    }
}
