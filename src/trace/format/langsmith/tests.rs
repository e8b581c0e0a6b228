use super::*;
use serde_json::json;

fn read_all(documents: &[Value]) -> Parts {
    let mut parts = Parts::default();
    for (row, document) in documents.iter().enumerate() {
        let place = Place {
            stem: "f",
            row: row as u64,
        };
        read(document.clone(), &place, &mut parts).unwrap();
    }
    parts
}

fn sample(document: &Value) -> Option<String> {
    recognise(&Sample {
        file_name: "a.jsonl",
        document,
        columns: &[],
    })
}

#[test]
fn rows_of_the_bulk_export_are_read() {
    let root = json!({
        "id": "r", "trace_id": "r", "dotted_order": "20260301T100000000000Zr", "name": "agent", "run_type": "chain",
        "start_time": "2026-03-01T10:00:00.000000", "end_time": "2026-03-01T10:00:02.000000", "status": "success",
        "inputs": "{\"messages\":[{\"type\":\"human\",\"content\":\"Why?\"}]}", "outputs": "{\"output\":\"Because.\"}",
        "extra": "{\"metadata\":{\"thread_id\":\"conv\",\"user_id\":\"u\",\"revision_id\":\"v1\",\"ls_run_depth\":0,\"plan\":\"x\"}}",
        "session_id": "project", "tags": ["beta"], "parent_run_id": null, "total_tokens": 30, "prompt_tokens": 20,
        "completion_tokens": 10, "total_cost": "0.5", "novel": true,
    });
    let model = json!({
        "id": "m", "trace_id": "r", "dotted_order": "20260301T100000000000Zr.20260301T100000500000Zm", "name": "ChatX",
        "run_type": "llm", "start_time": "2026-03-01T10:00:00.500000", "end_time": "2026-03-01T10:00:01.000000",
        "inputs": "{\"messages\":[[{\"lc\":1,\"type\":\"constructor\",\"id\":[\"langchain\",\"schema\",\"messages\",\"HumanMessage\"],\"kwargs\":{\"content\":\"Why?\"}}]]}",
        "outputs": {"generations": [[{"generation_info": {"finish_reason": "tool_calls"}, "message": {"lc": 1, "type": "constructor",
            "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "",
            "additional_kwargs": {"tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{\"q\":1}"}}]}}}}]]},
        "extra": {"metadata": {"ls_model_name": "gpt-x"}}, "session_id": "project", "status": "success",
        "tags": ["seq:step:1"], "prompt_tokens": 20, "completion_tokens": 10,
    });
    assert!(sample(&root).is_some());
    let parts = read_all(&[root, model]);
    let [root, model] = parts.spans.as_slice() else {
        panic!()
    };
    assert_eq!(root.of.session_id.as_deref(), Some("conv"));
    assert_eq!(root.of.project_id.as_deref(), Some("project"));
    assert_eq!(root.of.tags, ["beta"]);
    assert_eq!(root.of.release.as_deref(), Some("v1"));
    assert_eq!(root.of.metadata.get("plan"), Some(&json!("x")));
    assert!(!root.of.metadata.contains_key("ls_run_depth"));
    assert_eq!(root.parent_span_id, None);
    assert_eq!(root.input.as_ref().unwrap().said.as_deref(), Some("Why?"));
    assert_eq!(
        root.output.as_ref().unwrap().said.as_deref(),
        Some("Because.")
    );
    assert_eq!(
        (root.cost_usd, root.status.as_deref()),
        (Some(0.5), Some("OK"))
    );
    assert_eq!(model.kind, kind::LLM);
    assert_eq!(model.parent_span_id.as_deref(), Some("r"));
    assert_eq!(model.of.tags, Vec::<String>::new());
    assert_eq!(model.model.as_deref(), Some("gpt-x"));
    assert_eq!(model.finish_reason.as_deref(), Some("tool_calls"));
    assert_eq!(model.input.as_ref().unwrap().said.as_deref(), Some("Why?"));
    assert_eq!(model.calls[0].name, "look");
    assert_eq!(model.calls[0].arguments.as_ref().unwrap().raw, "{\"q\":1}");
    assert_eq!(parts.unknown, ["novel"]);
}

#[test]
fn posts_and_patches_are_halves_of_a_run() {
    let post = json!({"operation": "post", "id": "t", "trace_id": "r", "parent_run_id": "r", "run_type": "tool",
        "dotted_order": "20260301T100000000000Zr.20260301T100001000000Zt", "name": "look", "start_time": "2026-03-01T10:00:01",
        "inputs": {"input": "{'q': 1}"}, "extra": {"tool_call_id": "c"}});
    let patch = json!({"operation": "patch", "id": "t", "trace_id": "r", "parent_run_id": "r", "name": "look",
        "dotted_order": "20260301T100000000000Zr.20260301T100001000000Zt", "end_time": "2026-03-01T10:00:03", "error": null,
        "outputs": {"output": {"content": "no such table", "type": "tool", "status": "error", "tool_call_id": "c"}}});
    assert!(sample(&post).is_some() && sample(&patch).is_some());
    let parts = read_all(&[post, patch]);
    let [post, patch] = parts.spans.as_slice() else {
        panic!()
    };
    assert_eq!(
        (post.kind.as_str(), patch.kind.as_str()),
        (kind::TOOL, kind::OTHER)
    );
    assert_eq!(post.span_id, patch.span_id);
    assert_eq!(post.input.as_ref().unwrap().raw, "{'q': 1}");
    assert_eq!(patch.output.as_ref().unwrap().raw, "no such table");
    assert_eq!(patch.error.as_deref(), Some("no such table"));
    assert_eq!((post.ended_at, patch.started_at), (None, None));
}

#[test]
fn runs_in_runs_are_read_and_what_is_missing_is_named() {
    let nested = json!({"id": "a", "trace_id": "a", "run_type": "chain", "parent_run_id": null, "inputs": {}, "outputs": {},
        "error": "boom", "child_runs": [{"id": "b", "trace_id": "a", "run_type": "retriever", "parent_run_id": "a"}]});
    let parts = read_all(&[nested]);
    assert_eq!(parts.spans.len(), 2);
    assert_eq!(parts.spans[0].error.as_deref(), Some("boom"));
    assert_eq!(parts.spans[0].status.as_deref(), Some("ERROR"));
    assert_eq!(parts.spans[1].kind, kind::RETRIEVER);
    let place = Place { stem: "f", row: 0 };
    let error = read(json!({"id": "a"}), &place, &mut Parts::default()).unwrap_err();
    assert!(error.contains("trace_id"), "{error}");
    assert!(sample(&json!({"id": "a", "trace_id": "t", "inputs": {}})).is_none());
}
