use super::*;
use serde_json::json;

#[test]
fn the_last_word_of_each_side_is_found() {
    let chat = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": [{"type": "text", "text": "Two"}, {"type": "image_url", "image_url": "x"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "content": "2.0"},
        {"role": "assistant", "content": "Three"},
    ]);
    for document in [
        chat.clone(),
        json!({"messages": chat.clone()}),
        json!({"messages": [chat.clone()]}),
        json!(chat.to_string()),
    ] {
        assert_eq!(said(&document, Speaker::User).as_deref(), Some("Two"));
        assert_eq!(said(&document, Speaker::Agent).as_deref(), Some("Three"));
    }
}

#[test]
fn frameworks_are_understood() {
    for (document, words) in [
        (
            json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "a"}}),
            "a",
        ),
        (
            json!([{"type": "human", "content": "a"}, {"type": "ai", "content": ""}]),
            "a",
        ),
        (
            json!([{"role": "user", "parts": [{"type": "text", "content": "a"}]}]),
            "a",
        ),
        (json!({"role": "user", "parts": [{"text": "a"}]}), "a"),
        (json!({"query": "a", "limit": 3}), "a"),
        (json!({"args": ["a"], "kwargs": {}}), "a"),
        (
            json!([{"role": "user", "content": "a"}, {"type": "function_call", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "output": "x"}]),
            "a",
        ),
        (json!({"inputs": {"question": "a"}}), "a"),
    ] {
        assert_eq!(
            said(&document, Speaker::User).as_deref(),
            Some(words),
            "{document}"
        );
    }
    for (document, words) in [
        (
            json!({"choices": [{"message": {"role": "assistant", "content": "b"}}]}),
            "b",
        ),
        (
            json!({"generations": [[{"text": "b", "type": "ChatGeneration"}]]}),
            "b",
        ),
        (
            json!([{"role": "assistant", "parts": [{"type": "reasoning", "content": "x"}, {"type": "text", "content": "b"}]}]),
            "b",
        ),
        (json!({"answer": "b", "sources": []}), "b"),
    ] {
        assert_eq!(
            said(&document, Speaker::Agent).as_deref(),
            Some(words),
            "{document}"
        );
    }
    for unknown in [
        json!({"a": 1, "b": 2}),
        json!([1, 2]),
        json!([{"type": "invoice", "total": 5}]),
        json!({"author": "Melville", "title": "Moby Dick"}),
        json!({"role": "admin", "rights": ["all"]}),
        json!({"role": "assistant", "content": {"temperature": 5}}),
    ] {
        for speaker in [Speaker::User, Speaker::Agent] {
            assert_eq!(said(&unknown, speaker), None, "{unknown}");
        }
    }
}

#[test]
fn who_says_nothing_says_the_empty_text() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    for silent in [
        json!([{"role": "assistant", "parts": [{"type": "text", "content": ""}], "finish_reason": "stop"}]),
        json!({"role": "assistant", "content": ""}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "assistant", "content": []}),
        json!([{"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}]}]),
        json!([{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]}]),
        json!([{"toolCallId": "c", "toolName": "f", "input": {}}]),
        json!([call]),
        json!({"messages": []}),
        json!({"output": ""}),
        json!({"answer": null, "sources": ["d"]}),
        json!({"message": {"role": "assistant", "content": ""}, "done": true}),
        json!({}),
        json!([]),
        json!({"completion": "", "error": "rate limit"}),
        json!({"choices": [{"message": {"role": "assistant", "content": null}}]}),
    ] {
        assert_eq!(
            said(&silent, Speaker::Agent).as_deref(),
            Some(""),
            "{silent}"
        );
    }
    for silent in [
        json!([{"role": "system", "content": "Be kind."}]),
        json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]),
        json!([{"role": "assistant", "content": "How can I help?"}]),
        json!([{"role": "user", "content": "old"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]),
    ] {
        assert_eq!(
            said(&silent, Speaker::User).as_deref(),
            Some(""),
            "{silent}"
        );
    }
}

#[test]
fn nobody_speaks_for_the_agent() {
    let user = |text: &str| json!({"type": "human", "content": text});
    let agent = |text: &str| json!({"type": "ai", "content": text});
    for (state, words) in [
        (json!([user("Q"), agent("")]), ""),
        (json!([user("Q"), agent("A"), user("Q2")]), ""),
        (json!([user("Q"), agent("A"), user("Q2"), agent("")]), ""),
        (json!([user("Q"), agent("A"), user("Q2"), agent("B")]), "B"),
        (
            json!([user("Q"), agent("Let me look."), {"role": "tool", "content": "RAW"}]),
            "Let me look.",
        ),
        (json!([user("Q"), {"role": "writer", "content": "W"}]), "W"),
    ] {
        let state = json!({"messages": state});
        assert_eq!(
            said(&state, Speaker::Agent).as_deref(),
            Some(words),
            "{state}"
        );
    }
    assert_eq!(said(&user("Q"), Speaker::Agent).as_deref(), Some(""));
}

#[test]
fn what_is_asked_now_comes_before_what_was_said_before() {
    let old = json!([{"type": "human", "content": "OLD Q"}, {"type": "ai", "content": "OLD A"}]);
    for document in [
        json!({"question": "NEW", "chat_history": old}),
        json!({"input": "NEW", "chat_history": [["OLD Q", "OLD A"]]}),
        json!({"input": {"question": "NEW", "chat_history": old}}),
        json!({"question": "NEW", "messages": old}),
        json!({"query": "NEW", "history": old}),
        json!({"messages": [{"role": "user", "content": "NEW"}], "chat_history": old}),
        json!({"text": "NEW", "prompt": "TEMPLATE {text}"}),
        json!({"user_input": "NEW", "prompt": "You are kind."}),
        json!({"prompt": "NEW", "system": "Be kind."}),
    ] {
        assert_eq!(
            said(&document, Speaker::User).as_deref(),
            Some("NEW"),
            "{document}"
        );
    }
    for document in [
        json!({"input": "Q", "chat_history": old, "output": "NEW"}),
        json!({"answer": "NEW", "messages": old}),
        json!({"generation": "NEW", "documents": ["d"]}),
        json!({"message": {"role": "assistant", "content": "NEW"}, "response": "200 OK"}),
        json!({"output": "", "result": "NEW"}),
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "NEW"}]}}], "usageMetadata": {}}),
    ] {
        assert_eq!(
            said(&document, Speaker::Agent).as_deref(),
            Some("NEW"),
            "{document}"
        );
    }
}

#[test]
fn files_and_parts_that_nobody_knows_say_nothing() {
    let message = json!([{"role": "user", "parts": [
        {"type": "text", "content": "What is it?"},
        {"type": "blob", "mime_type": "image/png", "content": "9bFlIkpYt5Hf"},
        {"type": "file", "file_id": "F", "content": "FILE"},
        {"type": "custom", "content": "CUSTOM"},
    ]}]);
    assert_eq!(
        said(&message, Speaker::User).as_deref(),
        Some("What is it?")
    );
}

#[test]
fn texts_that_hold_a_value_are_read_as_that() {
    for (text, raw, json, words) in [
        (r#""hi""#, r#""hi""#, true, "hi"),
        (
            r#""{\"answer\":\"b\"}""#,
            r#""{\"answer\":\"b\"}""#,
            true,
            "b",
        ),
        (
            "{'role': 'assistant', 'text': \"it's\"}",
            "{'role': 'assistant', 'text': \"it's\"}",
            false,
            "it's",
        ),
        (
            r#"[{"role":"assistant","content":"\ud83d bad"}]"#,
            r#"[{"role":"assistant","content":"\ud83d bad"}]"#,
            true,
            "\u{fffd} bad",
        ),
    ] {
        let found = payload(&json!(text), Speaker::Agent).unwrap();
        assert_eq!((found.raw.as_str(), found.json), (raw, json));
        assert_eq!(found.said.as_deref(), Some(words), "{text}");
    }
    let plain = payload(&json!("\"Yes\", he said."), Speaker::Agent).unwrap();
    assert_eq!(plain, Payload::text("\"Yes\", he said."));
    assert_eq!(payload(&json!("null"), Speaker::Agent), None);
    let zero = json!({"answer": -0.0});
    assert_eq!(said(&zero, Speaker::Agent).as_deref(), Some("0"));
}
