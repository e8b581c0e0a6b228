//! Readers of trajectories against files that their makers wrote, where these are at hand.

use std::path::Path;

use serde_json::Value;

use super::shared_samples::folder;
use super::{ArrayIs, FORMATS, Parts, Place, Sample, kind};

/// Reads a file with the one format that claims it, which must be this one.
fn read(folder: &Path, file: &str, format: &str) -> Parts {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    let mut claims = Vec::new();
    for candidate in FORMATS {
        let documents = match (&whole, candidate.array) {
            (Value::Array(items), ArrayIs::Documents) => items.clone(),
            _ => vec![whole.clone()],
        };
        let Some(document) = documents.first() else {
            continue;
        };
        let sample = Sample {
            file_name: file,
            document,
            columns: &[],
        };
        if (candidate.recognise)(&sample).is_some() {
            claims.push((candidate, documents));
        }
    }
    let names: Vec<_> = claims.iter().map(|(format, _)| format.name).collect();
    assert_eq!(names, [format], "{file}");
    let mut parts = Parts::default();
    let (found, documents) = claims.remove(0);
    let stem = file.split('.').next().unwrap();
    for (document, row) in documents.into_iter().zip(0..) {
        (found.read)(document, &Place { stem, row }, &mut parts).unwrap();
    }
    let mut ids: Vec<_> = parts.traces.iter().map(|t| t.trace_id.clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), parts.traces.len(), "{file}");
    parts
}

fn of_kind(parts: &Parts, kind: &str) -> usize {
    parts.spans.iter().filter(|span| span.kind == kind).count()
}

fn input(parts: &Parts, trace: usize) -> String {
    shown(parts.traces[trace].input.as_ref())
}

fn output(parts: &Parts, trace: usize) -> String {
    shown(parts.traces[trace].output.as_ref())
}

fn shown(payload: Option<&super::Payload>) -> String {
    let Some(payload) = payload else {
        return String::new();
    };
    payload.said.clone().unwrap_or_else(|| payload.raw.clone())
}

#[test]
fn pandaprobe() {
    let Some(folder) = folder("pandaprobe") else {
        return;
    };
    let parts = read(&folder, "01_chatbot_support_turn1.json", "pandaprobe");
    assert_eq!((parts.traces.len(), parts.spans.len()), (1, 5));
    assert!(input(&parts, 0).starts_with("Hi, I placed an order yesterday"));
    assert!(output(&parts, 0).starts_with("I found your order #ORD-78432."));
    assert_eq!(parts.spans[4].cost_usd, Some(0.001_995));
    assert_eq!(parts.spans[4].prompt_tokens, Some(195));
    let parts = read(&folder, "02_rag_pipeline.json", "pandaprobe");
    assert!(output(&parts, 0).starts_with("PandaProbe handles trace ingestion at scale"));
    let parts = read(&folder, "04_error_trace.json", "pandaprobe");
    assert_eq!(parts.traces[0].status.as_deref(), Some("ERROR"));
    assert_eq!(parts.traces[0].output, None);
    for file in ["03_code_review_agent.json", "05_chatbot_support_turn2.json"] {
        assert_eq!(read(&folder, file, "pandaprobe").traces.len(), 1);
    }
}

#[test]
fn tau_bench() {
    let Some(folder) = folder("tau-bench") else {
        return;
    };
    let parts = read(&folder, "gpt-4o-airline.first12.json", "tau-bench");
    // 112 messages of users, 11 of which only end the conversation.
    assert_eq!(parts.traces.len(), 101);
    assert_eq!(of_kind(&parts, kind::TOOL), 77);
    let second = parts
        .traces
        .iter()
        .position(|t| t.trace_id.ends_with(":000002:2:0001"));
    let second = second.unwrap();
    assert!(input(&parts, second).starts_with("Well, my user ID is omar_davis_3817"));
    assert_eq!(parts.traces[0].metadata["reward"], 0.0);
    let failed = parts.spans.iter().filter(|span| span.error.is_some());
    assert!(failed.count() >= 3);
}

#[test]
fn swe_agent() {
    let Some(folder) = folder("swe-agent") else {
        return;
    };
    let parts = read(&folder, "marshmallow-1867.traj", "swe-agent");
    assert_eq!((parts.traces.len(), of_kind(&parts, kind::TOOL)), (11, 11));
    assert!(input(&parts, 0).contains("TimeDelta serialization precision"));
    assert!(output(&parts, 0).ends_with("create reproduce.py"));
    assert!(input(&parts, 1).starts_with("[File: reproduce.py (1 lines total)]"));
    assert!(output(&parts, 2).ends_with("as the issue.\npython reproduce.py"));
    let tool = parts.spans.iter().find(|s| s.kind == kind::TOOL).unwrap();
    assert_eq!(tool.name, "create");
    assert_eq!(shown(tool.input.as_ref()), r#"reproduce.py"#);
    assert_eq!(parts.spans[1].model.as_deref(), Some("gpt-4o"));
    let parts = read(&folder, "pydicom-1458.traj", "swe-agent");
    assert_eq!(parts.traces.len(), 12);
    assert!(input(&parts, 0).contains("ISSUE:\nPixel Represe"));
    assert!(output(&parts, 11).ends_with("submit"));
    assert_eq!(parts.traces[0].metadata["model_stats"]["api_calls"], 12);
    let parts = read(&folder, "function_calling_simple.traj", "swe-agent");
    assert_eq!((parts.traces.len(), of_kind(&parts, kind::TOOL)), (5, 5));
    assert!(input(&parts, 1).starts_with("Found 1 matches for \"missing_colon.py\""));
}

#[test]
fn mini_swe_agent() {
    let Some(folder) = folder("mini-swe-agent") else {
        return;
    };
    let parts = read(&folder, "github_issue.traj.json", "mini-swe-agent");
    assert_eq!((parts.traces.len(), of_kind(&parts, kind::TOOL)), (10, 10));
    assert!(input(&parts, 0).starts_with("Please solve this issue"));
    assert!(output(&parts, 1).starts_with("I need to find the correct path to the file."));
    let tools = parts.spans.iter().filter(|s| s.kind == kind::TOOL);
    let failed: Vec<_> = tools.filter_map(|s| s.error.as_deref()).collect();
    assert_eq!(failed[0], "return code 1");
}

#[test]
fn openhands() {
    let Some(folder) = folder("openhands") else {
        return;
    };
    let parts = read(&folder, "basic.json", "openhands");
    assert_eq!((parts.traces.len(), of_kind(&parts, kind::TOOL)), (2, 2));
    assert!(input(&parts, 0).starts_with("Please create a simple 2048 game."));
    assert!(output(&parts, 0).starts_with(
        "I'll help you create a simple 2048 game in Python. I'll use the str_replace_editor to create the file.\nstr_replace_editor {"
    ));
    assert!(input(&parts, 1).starts_with("--- /workspace/game_2048.py"));
    assert!(output(&parts, 1).starts_with("I've created a simple implementation"));
    let models: Vec<_> = parts.spans.iter().filter(|s| s.kind == kind::LLM).collect();
    assert_eq!(models[0].prompt_tokens, Some(3486));
    let parts = read(&folder, "basic_interactions.json", "openhands");
    assert_eq!(parts.traces.len(), 3);
    assert_eq!(output(&parts, 0), "1 + 1 equals 2.");
    assert_eq!(input(&parts, 1), "No, I mean by Goldbach's conjecture!");
    assert_eq!(output(&parts, 2), "All done! What's next on the agenda?");
}

#[test]
fn atif() {
    let Some(folder) = folder("atif") else {
        return;
    };
    for (file, traces, tools) in [
        ("harbor_openhands.json", 2, 2),
        ("harbor_terminus2_continuation.json", 3, 0),
        ("harbor_terminus2_timeout.json", 3, 3),
        ("multi_tool_trajectory.json", 3, 4),
        ("parallel_tools_mixed_results.json", 2, 3),
        ("subagent_trajectories.json", 3, 1),
    ] {
        let parts = read(&folder, file, "atif");
        assert_eq!(parts.traces.len(), traces, "{file}");
        assert_eq!(of_kind(&parts, kind::TOOL), tools, "{file}");
    }
    let parts = read(&folder, "parallel_tools_mixed_results.json", "atif");
    assert_eq!(
        input(&parts, 0),
        "Get weather, stock price, and news for NYC"
    );
    assert!(output(&parts, 1).starts_with("Here is what I found: NYC is 42°F and cloudy."));
    let failed = parts.spans.iter().find(|s| s.name == "get_stock").unwrap();
    assert_eq!(
        failed.error.as_deref(),
        Some("Error: API rate limit exceeded")
    );
    let parts = read(&folder, "harbor_openhands.json", "atif");
    assert!(input(&parts, 0).starts_with("Create a file called hello.txt"));
    assert_eq!(
        input(&parts, 1),
        "File created successfully at: /app/hello.txt"
    );
    assert_eq!(parts.spans[1].cost_usd, Some(0.000_75));
    let parts = read(&folder, "subagent_trajectories.json", "atif");
    assert_eq!(
        parts.traces[2].session_id.as_deref(),
        Some("sess-child-summary-001")
    );
}

#[test]
fn google_adk() {
    let Some(folder) = folder("google-adk") else {
        return;
    };
    let parts = read(&folder, "sample.session.json", "google-adk");
    assert_eq!((parts.traces.len(), of_kind(&parts, kind::TOOL)), (1, 2));
    assert_eq!(
        input(&parts, 0),
        "Research on the factors that affect floods in Florida. "
    );
    assert!(output(&parts, 0).starts_with("## Flooding in Florida: A Comprehensive Analysis"));
    assert_eq!(
        parts.traces[0].trace_id,
        "683bcc98-7359-4b65-9cdb-307f85ae62c0:0000"
    );
}
