//! The `content` text mode: what people and agents said, without the chat envelope.

use super::json::Json;
use super::serialise::to_text;

/// The contents of a value's messages, one after the other, separated by line breaks.
///
/// * a string is itself;
/// * an object with `messages`, or an array of messages: the content of each;
/// * a message is an object with `content`, which is a string or a list of parts with `text`;
/// * a value of any other shape is its compat text.
pub fn content_of(value: &Json) -> String {
    let mut pieces = Vec::new();
    match value {
        Json::Object(_) => match (value.get("messages"), value.get("content")) {
            (Some(Json::Array(messages)), _) => {
                messages.iter().for_each(|m| push_message(&mut pieces, m))
            }
            (_, Some(_)) => push_message(&mut pieces, value),
            _ => return to_text(value),
        },
        Json::Array(items) if !items.is_empty() && items.iter().all(is_message) => {
            items.iter().for_each(|m| push_message(&mut pieces, m));
        }
        other => return to_text(other),
    }
    pieces.join("\n")
}

fn is_message(value: &Json) -> bool {
    value.get("content").is_some()
}

fn push_message(pieces: &mut Vec<String>, message: &Json) {
    let content = match message {
        Json::Object(_) => message.get("content"),
        other => Some(other),
    };
    match content {
        None | Some(Json::Null) => {}
        Some(Json::Array(parts)) => {
            for part in parts {
                match part {
                    Json::Object(_) => {
                        let text = part.get("text").and_then(Json::text);
                        pieces.extend(text.map(str::to_owned));
                    }
                    other => pieces.push(to_text(other)),
                }
            }
        }
        Some(other) => pieces.push(to_text(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::TextMode;

    fn content(json: &str) -> String {
        TextMode::Content.text_of(json.as_bytes()).unwrap()
    }

    #[test]
    fn messages_lose_their_envelope_and_escapes() {
        assert_eq!(
            content(r#"{"messages":[{"role":"user","content":"Grüße"}]}"#),
            "Grüße"
        );
        assert_eq!(
            content(
                r#"{"messages":[{"role":"user","content":"a"},{"role":"tool","content":[{"type":"text","text":"b"},{"type":"image"}]}]}"#
            ),
            "a\nb"
        );
        assert_eq!(
            content(r#"[{"role":"user","content":"a"},{"content":null}]"#),
            "a"
        );
        assert_eq!(content(r#"{"role":"assistant","content":"done"}"#), "done");
    }

    #[test]
    fn other_shapes_are_their_compat_text() {
        assert_eq!(content(r#""plain""#), "plain");
        assert_eq!(content(r#"{"query":"é"}"#), r#"{"query": "\u00e9"}"#);
        assert_eq!(content("null"), "");
        assert_eq!(content("[]"), "[]");
    }
}
