use super::*;
use serde_json::json;

fn read_one(document: Value) -> Parts {
    let mut parts = Parts::default();
    read(document, &Place { stem: "f", row: 0 }, &mut parts).unwrap();
    parts
}

fn sample(document: &Value) -> Option<String> {
    recognise(&Sample {
        file_name: "a",
        document,
        columns: &[],
    })
}

/// Spans of version 3: a model that asks for a tool, and the tool that fails.
fn third() -> Value {
    json!([
        {"trace_id": "x", "span_id": "a=", "parent_span_id": null, "name": "agent", "start_time_unix_nano": 1_767_225_600_000_000_000_i64,
            "end_time_unix_nano": 1_767_225_602_000_000_000_i64, "events": [], "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": {"mlflow.spanType": "\"AGENT\"", "mlflow.spanInputs": "{\"question\": \"Why?\"}", "mlflow.spanOutputs": "\"Because.\""}},
        {"trace_id": "x", "span_id": "b=", "parent_span_id": "a=", "name": "chat", "start_time_unix_nano": "1767225600000000000",
            "status": {"code": "STATUS_CODE_OK", "message": ""}, "attributes": {"mlflow.spanType": "\"CHAT_MODEL\"",
            "mlflow.spanInputs": "{\"model\": \"gpt-x\", \"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}]}",
            "mlflow.spanOutputs": "{\"choices\": [{\"finish_reason\": \"tool_calls\", \"message\": {\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"c\", \"function\": {\"name\": \"look\", \"arguments\": \"{}\"}}]}}]}",
            "mlflow.chat.tokenUsage": "{\"input_tokens\": 9, \"output_tokens\": 2, \"total_tokens\": 11}", "mlflow.llm.cost": "{\"total_cost\": 0.1}"}},
        {"trace_id": "x", "span_id": "c=", "parent_span_id": "a=", "name": "look", "status": {"code": "STATUS_CODE_ERROR", "message": ""},
            "events": [{"name": "exception", "attributes": {"exception.message": "no such table"}}],
            "attributes": {"mlflow.spanType": "\"TOOL\"", "mlflow.spanInputs": "{\"q\": 1}", "mlflow.spanOutputs": "null"}},
    ])
}

fn check(parts: &Parts) {
    let facts = &parts.traces[0];
    assert_eq!(facts.trace_id, "tr-1");
    assert_eq!(facts.input.as_ref().unwrap().said.as_deref(), Some("Why?"));
    assert_eq!(facts.output.as_ref().unwrap().raw, "Because.");
    let [agent, chat, look] = parts.spans.as_slice() else {
        panic!()
    };
    assert_eq!(
        (agent.kind.as_str(), agent.parent_span_id.as_deref()),
        (kind::AGENT, None)
    );
    assert_eq!(
        (chat.kind.as_str(), chat.parent_span_id.as_deref()),
        (kind::LLM, Some("a="))
    );
    assert_eq!(chat.started_at, agent.started_at);
    assert_eq!(chat.model.as_deref(), Some("gpt-x"));
    assert_eq!(
        (chat.prompt_tokens, chat.completion_tokens, chat.cost_usd),
        (Some(9), Some(2), Some(0.1))
    );
    assert_eq!(chat.finish_reason.as_deref(), Some("tool_calls"));
    assert_eq!(chat.calls[0].name, "look");
    assert_eq!(look.error.as_deref(), Some("no such table"));
    assert_eq!(
        (look.input.as_ref().unwrap().raw.as_str(), &look.output),
        ("{\"q\":1}", &None)
    );
}

#[test]
fn json_and_rows_of_version_3_are_read_alike() {
    let whole = json!({"info": {"trace_id": "tr-1", "request_time": "2026-01-01T00:00:00Z", "state": "OK",
        "trace_metadata": {}, "tags": {}, "request_preview": "{\"question\": \"Wh..."}, "data": {"spans": third()}});
    assert!(sample(&whole).is_some());
    check(&read_one(whole.clone()));
    let row = json!({"trace_id": "tr-1", "trace": whole.to_string(), "client_request_id": null, "state": "OK",
        "request_time": 1_767_225_600_000_i64, "execution_duration": 2000, "request": "{\"question\": \"Why?\"}",
        "response": "Because.", "trace_metadata": "{}", "tags": "{}", "spans": third().to_string(), "assessments": "[]"});
    assert!(sample(&row).is_some());
    let parts = read_one(row.clone());
    check(&parts);
    assert_eq!(parts.traces[0].ended_at, Some(1_767_225_602_000_000_000));
    let mut nested = row.clone();
    nested["spans"] = third();
    check(&read_one(nested));
    let mut without = row;
    without["spans"] = json!(null);
    check(&read_one(without));
}

#[test]
fn version_2_is_read() {
    let whole = json!({"info": {"request_id": "r", "experiment_id": "1", "timestamp_ms": 1_767_225_600_000_i64, "execution_time_ms": 5,
            "status": "OK", "request_metadata": {"mlflow.trace.session": "s"}, "tags": {}},
        "data": {"request": "{\"query\": \"Why?\"}", "response": "\"Because.\"", "spans": [
            {"name": "search", "context": {"span_id": "0x1", "trace_id": "0xa"}, "parent_id": "0x0", "start_time": 1_767_225_600_000_000_000_i64,
                "end_time": 1_767_225_601_000_000_000_i64, "status_code": "ERROR", "status_message": "gone",
                "attributes": {"mlflow.spanType": "\"RETRIEVER\"", "mlflow.spanInputs": "{\"query\": \"w\"}"}, "events": []}]}});
    assert!(sample(&whole).is_some());
    let parts = read_one(whole);
    let facts = &parts.traces[0];
    assert_eq!(
        (facts.trace_id.as_str(), facts.session_id.as_deref()),
        ("r", Some("s"))
    );
    assert_eq!(facts.input.as_ref().unwrap().said.as_deref(), Some("Why?"));
    assert_eq!(facts.output.as_ref().unwrap().raw, "Because.");
    let span = &parts.spans[0];
    assert_eq!(
        (span.span_id.as_str(), span.parent_span_id.as_deref()),
        ("0x1", Some("0x0"))
    );
    assert_eq!(
        (span.kind.as_str(), span.error.as_deref()),
        (kind::RETRIEVER, Some("gone"))
    );
    assert_eq!(
        span.ended_at.unwrap() - span.started_at.unwrap(),
        1_000_000_000
    );
    let row = json!({"request_id": "r", "timestamp_ms": 1_767_225_600_000_i64, "status": "OK", "execution_time_ms": 5,
        "request": "Why?", "response": "Because.", "request_metadata": "{}", "spans": "[]", "tags": "{}"});
    assert!(sample(&row).is_some());
    assert_eq!(
        read_one(row).traces[0].output.as_ref().unwrap().raw,
        "Because."
    );
}

#[test]
fn previews_are_said_to_be_previews_and_odd_spans_are_refused() {
    let parts = read_one(
        json!({"info": {"trace_id": "t", "request_preview": "Why is th..."}, "data": {"spans": []}}),
    );
    assert_eq!(parts.traces[0].input.as_ref().unwrap().raw, "Why is th...");
    assert!(
        parts.traces[0]
            .metadata
            .contains_key("mlflow.request_preview")
    );
    let mut refused = Parts::default();
    let place = Place { stem: "f", row: 0 };
    let row = json!({"trace_id": "t", "trace_metadata": {}, "spans": "[Span(name='x')]"});
    let error = read(row, &place, &mut refused).unwrap_err();
    assert!(error.contains("to_dict"), "{error}");
    assert!(sample(&json!({"trace_id": "t", "spans": []})).is_none());
}
