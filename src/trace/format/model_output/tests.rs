use super::*;
use serde_json::json;

/// Id, name, arguments, result and error of each.
fn told_of(input: Value, output: Value) -> Vec<[String; 5]> {
    let raw = |payload: Option<Payload>| payload.map(|p| p.raw).unwrap_or_default();
    calls(Some(&input), Some(&output))
        .into_iter()
        .map(|call| {
            [
                call.id.unwrap_or_default(),
                call.name,
                raw(call.arguments),
                raw(call.result),
                call.error.unwrap_or_default(),
            ]
        })
        .collect()
}

#[test]
fn calls_of_every_provider_are_found() {
    let expected = [["c", "look", "{\"a\":1}", "", ""].map(str::to_owned)];
    for output in [
        json!({"choices": [{"message": {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}}]}}]}),
        json!({"output": [{"type": "function_call", "call_id": "c", "id": "fc", "name": "look", "arguments": "{\"a\":1}"}]}),
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}}]}),
        json!([{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {"a": 1}}]}]),
        json!([{"toolCallId": "c", "toolName": "look", "input": "{\"a\":1}"}]),
        json!({"generations": [[{"message": {"lc": 1, "type": "constructor", "kwargs": {
            "tool_calls": [{"id": "c", "name": "look", "args": {"a": 1}, "type": "tool_call"}],
            "additional_kwargs": {"tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]}}}}]]}),
        json!({"content": "", "additional_kwargs": {"tool_calls": [
            {"id": "c", "function": {"name": "look", "arguments": "{\"a\":1}"}}]}}),
    ] {
        assert_eq!(told_of(json!(null), output.clone()), expected, "{output}");
    }
}

#[test]
fn results_find_their_calls() {
    let asked = json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]});
    for result in [
        json!({"role": "tool", "tool_call_id": "c", "content": "bad"}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "bad"}]}]}),
        json!({"type": "function_call_output", "call_id": "c", "output": "bad"}),
        json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "look", "result": "bad"}]}),
        json!({"role": "user", "parts": [{"type": "tool_call_response", "id": "c", "result": "bad"}]}),
    ] {
        let found = told_of(json!([asked, result]), json!(null));
        assert_eq!(found, [["c", "look", "{}", "bad", ""]], "{result}");
    }
    let failed = json!({"type": "tool", "tool_call_id": "c", "content": "bad", "status": "error"});
    assert_eq!(
        told_of(json!({"messages": [[asked, failed]]}), json!(null)),
        [["c", "look", "{}", "bad", "bad"]]
    );
}

#[test]
fn calls_without_id_are_paired_by_name_and_definitions_are_no_calls() {
    let part = |part: Value| json!({"role": "model", "parts": [part]});
    let input = json!({
        "config": {"tools": [{"function_declarations": [{"name": "hi"}]}]},
        "tools": [{"type": "function", "function": {"name": "hi", "parameters": {}}}],
        "contents": [
            part(json!({"function_call": {"name": "hi", "args": {}}})),
            part(json!({"function_response": {"name": "hi", "response": {"b": 2}}})),
        ],
    });
    let output = json!({"content": part(json!({"function_call": {"name": "hi", "args": {}}}))});
    assert_eq!(
        told_of(input, output),
        [["", "hi", "{}", "{\"b\":2}", ""], ["", "hi", "{}", "", ""]]
    );
    let definition =
        json!([{"role": "tool", "content": {"type": "function", "function": {"name": "hi"}}}]);
    assert!(
        calls(None, Some(&definition))
            .iter()
            .all(|call| call.name.is_empty())
    );
}

#[test]
fn reasons_and_tokens_are_found() {
    let chat = json!({"choices": [{"finish_reason": "length", "message": {}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    assert_eq!(finish_reason(&chat).as_deref(), Some("length"));
    assert_eq!(usage(&chat), (Some(3), Some(4)));
    let chain = json!({"generations": [[{"generation_info": {"finish_reason": "stop"}, "message": {"kwargs": {
        "usage_metadata": {"input_tokens": 5, "output_tokens": 6}}}}]]});
    assert_eq!(finish_reason(&chain).as_deref(), Some("stop"));
    assert_eq!(usage(&chain), (Some(5), Some(6)));
    let response =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    assert_eq!(
        finish_reason(&response).as_deref(),
        Some("max_output_tokens")
    );
    assert_eq!(finish_reason(&json!("text")), None);
    assert_eq!(usage(&json!({"a": 1})), (None, None));
}
