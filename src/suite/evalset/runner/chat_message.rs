//! Messages of trpc-agent-go as OpenAI's chat completions have them.

use serde_json::{Map, Value, json};

use crate::suite::evalset::model::Message;

/// The message for a chat endpoint. A role that is not given is the user's.
pub(super) fn chat_message(message: &Message) -> Value {
    let role = match message.role.as_str() {
        "" => "user",
        role => role,
    };
    let mut chat = Map::new();
    chat.insert("role".to_owned(), role.into());
    chat.insert("content".to_owned(), content(message));
    let calls = message.rest.get("tool_calls").and_then(Value::as_array);
    if let Some(calls) = calls.filter(|calls| !calls.is_empty()) {
        chat.insert("tool_calls".to_owned(), calls.iter().map(call).collect());
    }
    if let Some(id) = message.rest.get("tool_id").and_then(Value::as_str) {
        chat.insert("tool_call_id".to_owned(), id.into());
    }
    Value::Object(chat)
}

/// The text, or, where there are parts too, the text and then the parts.
fn content(message: &Message) -> Value {
    let parts = message.rest.get("content_parts").and_then(Value::as_array);
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
        return message.content.as_str().into();
    };
    let text = (!message.content.is_empty()).then(|| text_part(&message.content));
    text.into_iter()
        .chain(parts.iter().filter_map(part))
        .collect()
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Data stands in files as base64, as endpoints take it. A part of a type that is not known is left out.
fn part(part: &Value) -> Option<Value> {
    let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    match part.get("type")?.as_str()? {
        "text" => Some(text_part(&text(part, "text")?)),
        "image" => {
            let image = part.get("image")?;
            let url = text(image, "url")
                .filter(|url| !url.is_empty())
                .or_else(|| {
                    let format = text(image, "format").unwrap_or_else(|| "png".to_owned());
                    Some(format!(
                        "data:image/{format};base64,{}",
                        text(image, "data")?
                    ))
                });
            let mut shown = json!({"url": url?});
            if let Some(detail) = text(image, "detail").filter(|detail| !detail.is_empty()) {
                shown["detail"] = detail.into();
            }
            Some(json!({"type": "image_url", "image_url": shown}))
        }
        "audio" => {
            let audio = part.get("audio")?;
            let (data, format) = (text(audio, "data")?, text(audio, "format")?);
            Some(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
        }
        "file" => {
            let file = part.get("file")?;
            let file = match text(file, "file_id").filter(|id| !id.is_empty()) {
                Some(id) => json!({"file_id": id}),
                None => {
                    let kind = text(file, "format")
                        .unwrap_or_else(|| "application/octet-stream".to_owned());
                    let data = format!("data:{kind};base64,{}", text(file, "data")?);
                    json!({"filename": text(file, "filename"), "file_data": data})
                }
            };
            Some(json!({"type": "file", "file": file}))
        }
        _ => None,
    }
}

fn call(call: &Value) -> Value {
    let function = |name: &str| call.get("function").and_then(|function| function.get(name));
    json!({
        "id": call.get("id").cloned().unwrap_or_default(),
        "type": "function",
        "function": {
            "name": function("name").cloned().unwrap_or_default(),
            "arguments": function("arguments").cloned().unwrap_or_else(|| "{}".into()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(message: Value) -> Value {
        chat_message(&Message::from_json(message).unwrap())
    }

    #[test]
    fn plain_messages_have_role_and_content() {
        assert_eq!(
            converted(json!({"role": "system", "content": "x", "reasoning_content": "y"})),
            json!({"role": "system", "content": "x"})
        );
        assert_eq!(
            converted(json!({"content": "x"})),
            json!({"role": "user", "content": "x"})
        );
    }

    #[test]
    fn calls_and_results_of_tools_keep_their_ids() {
        let calls = json!([{"id": "1", "type": "function", "index": 0, "extra_fields": {"a": 1},
            "function": {"name": "t", "arguments": "{\"a\":1}", "strict": true}}]);
        assert_eq!(
            converted(json!({"role": "assistant", "tool_calls": calls})),
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "t", "arguments": "{\"a\":1}"}}]})
        );
        assert_eq!(
            converted(json!({"role": "tool", "content": "r", "tool_id": "1", "tool_name": "t"})),
            json!({"role": "tool", "content": "r", "tool_call_id": "1"})
        );
    }

    #[test]
    fn parts_follow_the_text() {
        let parts = json!([
            {"type": "text", "text": "b"},
            {"type": "image", "image": {"url": "https://x.test/a.png", "detail": "low"}},
            {"type": "image", "image": {"data": "AAA=", "format": "jpeg"}},
            {"type": "audio", "audio": {"data": "BBB=", "format": "wav"}},
            {"type": "file", "file": {"file_id": "f1"}},
            {"type": "smell", "smell": {}},
        ]);
        assert_eq!(
            converted(json!({"role": "user", "content": "a", "content_parts": parts}))["content"],
            json!([
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b"},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAA="}},
                {"type": "input_audio", "input_audio": {"data": "BBB=", "format": "wav"}},
                {"type": "file", "file": {"file_id": "f1"}},
            ])
        );
    }
}
