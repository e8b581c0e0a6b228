use super::*;
use serde_json::json;

fn read_one(document: Value) -> SpanFacts {
    let mut parts = Parts::default();
    let place = Place { stem: "f", row: 0 };
    read(document, &place, &mut parts).unwrap();
    assert_eq!(parts.unknown, Vec::<String>::new());
    parts.spans.remove(0)
}

fn sample(document: &Value) -> Option<String> {
    recognise(&Sample {
        file_name: "a.jsonl",
        document,
        columns: &[],
    })
}

#[test]
fn a_generation_of_the_new_export_is_read() {
    let row = json!({
        "id": "o1", "trace_id": "t1", "project_id": "p", "type": "GENERATION", "parent_observation_id": "o0",
        "start_time": "2026-03-01 10:00:00.250000", "end_time": "2026-03-01 10:00:01.000000", "name": "chat",
        "level": "DEFAULT", "environment": "production", "user_id": "u", "session_id": "s", "trace_name": "support",
        "tags": ["a", "b"], "release": "v7", "provided_model_name": "gpt-x", "is_root_observation": false,
        "input": "[{\"role\":\"user\",\"content\":\"Where is it?\"}]",
        "output": "{\"role\":\"assistant\",\"content\":\"Here.\"}",
        "usage_details": {"input": 100, "input_cached_tokens": 20, "output": 7, "output_reasoning": 3, "total": 130},
        "total_cost": 0.25, "cost_details": {"total": 0.25},
        "tool_calls": ["{\"id\":\"c1\",\"arguments\":\"{\\\"q\\\":1}\",\"type\":\"function\",\"index\":0}"],
        "tool_call_names": ["look"],
    });
    assert!(sample(&row).is_some());
    let span = read_one(row);
    assert_eq!(
        (span.kind.as_str(), span.name.as_str()),
        (kind::LLM, "chat")
    );
    assert_eq!(span.of.session_id.as_deref(), Some("s"));
    assert_eq!(span.of.name.as_deref(), Some("support"));
    assert_eq!(span.of.tags, ["a", "b"]);
    assert_eq!(span.of.environment.as_deref(), Some("production"));
    assert_eq!(
        (span.prompt_tokens, span.completion_tokens),
        (Some(120), Some(10))
    );
    assert_eq!(span.cost_usd, Some(0.25));
    assert_eq!(
        span.ended_at.unwrap() - span.started_at.unwrap(),
        750_000_000
    );
    assert_eq!(span.input.unwrap().said.as_deref(), Some("Where is it?"));
    assert_eq!(span.output.unwrap().said.as_deref(), Some("Here."));
    assert_eq!(span.calls.len(), 1);
    assert_eq!(span.calls[0].name, "look");
    assert_eq!(span.calls[0].id.as_deref(), Some("c1"));
    assert_eq!(span.calls[0].arguments.as_ref().unwrap().raw, "{\"q\":1}");
}

#[test]
fn cells_of_csv_are_text() {
    let span = read_one(json!({
        "id": "o1", "trace_id": "t1", "type": "TOOL", "parent_observation_id": "", "start_time": "2026-03-01 10:00:00.000000",
        "end_time": "", "name": "search", "level": "ERROR", "status_message": "timed out", "input": "{\"q\":\"x\"}",
        "output": "", "usage_details": "{}", "total_cost": "0", "tags": "[\"a\"]", "session_id": "", "public": "false",
        "metadata": "{\"plan\":\"gold\",\"scope\":{\"name\":\"sdk\"}}",
    }));
    assert_eq!(span.kind, kind::TOOL);
    assert_eq!(span.parent_span_id, None);
    assert_eq!(span.ended_at, None);
    assert_eq!(span.error.as_deref(), Some("timed out"));
    assert_eq!(span.status.as_deref(), Some("ERROR"));
    assert_eq!(span.input.unwrap().raw, "{\"q\":\"x\"}");
    assert_eq!(span.output, None);
    assert_eq!((span.cost_usd, span.prompt_tokens), (None, None));
    assert_eq!(span.of.session_id, None);
    assert_eq!(span.of.tags, ["a"]);
    assert_eq!(Value::Object(span.of.metadata), json!({"plan": "gold"}));
}

#[test]
fn spans_are_what_their_instrumentation_says() {
    let span = |attributes: Value, output: Value| {
        read_one(
            json!({"id": "o", "trace_id": "t", "type": "SPAN", "parent_observation_id": null,
            "start_time": "2026-03-01T10:00:00Z", "name": "execute_tool x", "input": {}, "output": output,
            "metadata": {"attributes": attributes}}),
        )
    };
    let tool = span(
        json!({"openinference.span.kind": "TOOL", "tool.name": "find", "tool.parameters": "{\"a\":1}"}),
        json!("found"),
    );
    assert_eq!(
        (tool.kind.as_str(), tool.name.as_str()),
        (kind::TOOL, "find")
    );
    assert_eq!(tool.input.unwrap().raw, "{\"a\":1}");
    let begun = span(json!({"openinference.span.kind": "TOOL"}), json!(null));
    assert_eq!(begun.kind, kind::CHAIN);
    let agent = span(
        json!({"gen_ai.operation.name": "invoke_agent"}),
        json!(null),
    );
    assert_eq!(agent.kind, kind::AGENT);
    let message =
        json!({"type": "tool", "content": "no such table", "status": "error", "tool_call_id": "c"});
    let answered = span(json!({}), message);
    assert_eq!(
        (answered.kind.as_str(), answered.name.as_str()),
        (kind::TOOL, "x")
    );
    assert_eq!(answered.output.unwrap().raw, "no such table");
    assert_eq!(answered.error.as_deref(), Some("no such table"));
    assert_eq!(span(json!({}), json!("done")).kind, kind::CHAIN);
}

#[test]
fn tokens_that_are_in_the_input_are_not_added_again() {
    let row =
        json!({"usage_details": {"input": 100, "input_cached": 20, "output": 5, "total": 105}});
    assert_eq!(
        tokens(&Row::new(row.as_object().unwrap())),
        (Some(100), Some(5), 0)
    );
    let row = json!({"usage_details": "[{\"key\":\"input\",\"value\":3}]"});
    assert_eq!(
        tokens(&Row::new(row.as_object().unwrap())),
        (Some(3), None, 0)
    );
}

#[test]
fn what_is_missing_is_named() {
    let mut parts = Parts::default();
    let place = Place { stem: "f", row: 0 };
    let error = read(json!({"id": "o"}), &place, &mut parts).unwrap_err();
    assert!(error.contains("trace_id"), "{error}");
    assert!(sample(&json!({"id": 1, "trace_id": 2, "type": "x"})).is_none());
}
