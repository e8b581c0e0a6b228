//! Files that others wrote, where they lie beside the checkout: counts and texts were compared with the files by eye.

use std::path::PathBuf;

use serde_json::Value;

use super::values::nested;
use super::{ArrayIs, FORMATS, Format, Parts, Payload, Place, Sample, SpanFacts, kind};

fn folder() -> Option<PathBuf> {
    super::shared_samples::folder("")
}

/// The documents of a file of JSON or JSON Lines.
fn documents(path: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        return text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
    }
    match serde_json::from_str(&text).unwrap() {
        Value::Array(items) => items,
        document => vec![document],
    }
}

fn claims(file_name: &str, document: &Value) -> Vec<&'static Format> {
    let sample = Sample {
        file_name,
        document,
        columns: &[],
    };
    FORMATS
        .iter()
        .filter(|format| (format.recognise)(&sample).is_some())
        .copied()
        .collect()
}

/// The format's name and what it reads from a file.
fn read(file: &str) -> Option<(&'static str, Parts)> {
    let path = folder()?.join(file);
    let stem = path.file_stem()?.to_str()?.to_owned();
    let documents = documents(&path);
    let format = match claims(&stem, &documents[0]).as_slice() {
        [one] => *one,
        claims => panic!(
            "{file}: {:?}",
            claims.iter().map(|f| f.name).collect::<Vec<_>>()
        ),
    };
    assert_eq!(format.array, ArrayIs::Documents);
    let mut parts = Parts::default();
    for (row, document) in (0..).zip(documents) {
        (format.read)(document, &Place { stem: &stem, row }, &mut parts).unwrap();
    }
    Some((format.name, parts))
}

fn count(parts: &Parts, kind: &str) -> usize {
    parts.spans.iter().filter(|span| span.kind == kind).count()
}

fn traces(parts: &Parts) -> usize {
    let ids: std::collections::HashSet<_> = parts.spans.iter().map(|s| &s.of.trace_id).collect();
    ids.len()
}

fn words(payload: &Option<Payload>) -> &str {
    match payload {
        Some(Payload {
            said: Some(said), ..
        }) => said,
        Some(Payload {
            raw, json: false, ..
        }) => raw,
        _ => "",
    }
}

fn span<'p>(parts: &'p Parts, id: &str) -> &'p SpanFacts {
    parts.spans.iter().find(|span| span.span_id == id).unwrap()
}

#[test]
fn otlp_lines() {
    let Some((format, parts)) = read("otel-genai/otlp_file_export.jsonl") else {
        return;
    };
    assert_eq!((format, parts.spans.len()), ("otlp", 355));
    assert_eq!(count(&parts, kind::LLM), 177);
    assert_eq!(count(&parts, kind::AGENT), 101);
    assert_eq!(count(&parts, kind::TOOL), 77);
    assert_eq!(traces(&parts), 101);
    let failed: Vec<_> = parts
        .spans
        .iter()
        .filter(|span| span.error.is_some())
        .collect();
    assert_eq!(failed.len(), 7);
    let root = span(&parts, "96efea4f84152bf1");
    assert_eq!(
        root.of.session_id.as_deref(),
        Some("tau-airline-gpt4o/task000/trial0")
    );
    assert_eq!(root.of.release.as_deref(), Some("1.0.0"));
    assert_eq!(
        words(&root.input),
        "Hi! I'm looking to book a flight from New York to Seattle on May 20th."
    );
    assert_eq!(
        words(&root.output),
        "To assist you with booking a flight, I'll need your user ID. Could you please provide that?"
    );
    let call = span(&parts, "19759224a222eccc");
    assert_eq!(call.finish_reason.as_deref(), Some("stop"));
    assert_eq!(call.model.as_deref(), Some("gpt-4o"));

    let path = folder().unwrap().join("otel-genai/otlp_file_export.jsonl");
    let mut of_bytes = Parts::default();
    let read_bytes = super::otlp::FORMAT.read_bytes.unwrap();
    for line in std::fs::read(path).unwrap().split(|byte| *byte == b'\n') {
        if !line.is_empty() {
            read_bytes(line, &Place { stem: "", row: 0 }, &mut of_bytes).unwrap();
        }
    }
    assert_eq!(of_bytes.spans, parts.spans);
}

#[test]
fn jaeger_and_tempo() {
    let Some((format, parts)) = read("otel-genai/jaeger_helm.json") else {
        return;
    };
    assert_eq!(
        (format, parts.spans.len(), traces(&parts)),
        ("jaeger", 96, 1)
    );
    assert_eq!(count(&parts, kind::LLM), 4);
    assert_eq!(
        (count(&parts, kind::TOOL), count(&parts, kind::AGENT)),
        (1, 1)
    );
    for id in ["e37fdd8f56146d31", "6c728e555894414d"] {
        let first = span(&parts, id);
        assert_eq!(words(&first.input), "list all Helm releases");
        assert_eq!(words(&first.output), "");
        assert_eq!(first.calls.len(), 1);
        assert_eq!(first.calls[0].name, "helm_list_releases");
        assert_eq!(
            first.calls[0].id.as_deref(),
            Some("call_P09kjRKHTTJA02oB9HIe4u5t")
        );
        assert_eq!(
            (first.prompt_tokens, first.completion_tokens),
            (Some(1820), Some(13))
        );
    }
    for id in ["e4594ab9853c8b23", "e813c1b43582a58e"] {
        let last = span(&parts, id);
        assert_eq!(words(&last.input), "list all Helm releases");
        assert!(
            words(&last.output)
                .starts_with("There are two Helm releases installed in the cluster:")
        );
        assert_eq!(last.finish_reason.as_deref(), Some("stop"));
        assert_eq!(last.calls.len(), 1, "{:?}", last.calls);
        assert!(last.calls[0].result.is_some());
    }
    let tool = span(&parts, "75cdce51ad52a7c8");
    assert_eq!(
        (tool.name.as_str(), tool.error.as_ref()),
        ("helm_list_releases", None)
    );
    assert_eq!(tool.input.as_ref().unwrap().raw, "{}");
    assert_eq!(tool.parent_span_id.as_deref(), Some("e37fdd8f56146d31"));
    let failed = span(&parts, "1648021c0a3f968d");
    assert_eq!(failed.status.as_deref(), Some("ERROR"));
    for (file, spans, models) in [("jaeger_helm_2.json", 72, 2), ("jaeger_k8s.json", 72, 2)] {
        let (format, parts) = read(&format!("otel-genai/{file}")).unwrap();
        assert_eq!(
            (format, count(&parts, kind::LLM)),
            ("jaeger", models),
            "{file}"
        );
        assert!(parts.spans.len() >= spans, "{file}: {}", parts.spans.len());
    }

    let (format, parts) = read("otel-genai/tempo_export_with_batches.json").unwrap();
    assert_eq!(
        (format, parts.spans.len(), traces(&parts)),
        ("tempo", 86, 1)
    );
    assert_eq!(
        (count(&parts, kind::LLM), count(&parts, kind::TOOL)),
        (6, 1)
    );
    let last = span(&parts, "2373d7ea8819e064");
    assert_eq!(words(&last.input), "list all helm releases\n");
    assert!(words(&last.output).starts_with("There are two Helm releases currently deployed:"));
    let of = &span(&parts, "c8186a2f55581ff1").of;
    assert_eq!(
        of.session_id.as_deref(),
        Some("ctx-eff35888-55ab-4eb0-b90d-7b21f711f91f")
    );
}

#[test]
fn phoenix_lists() {
    let Some((format, parts)) = read("phoenix/rest_spans.json") else {
        return;
    };
    assert_eq!(
        (format, parts.spans.len(), traces(&parts)),
        ("phoenix", 40, 13)
    );
    assert_eq!(
        (count(&parts, kind::LLM), count(&parts, kind::TOOL)),
        (21, 9)
    );
    let call = span(&parts, "3834bb2b26f7ce15");
    assert!(
        words(&call.input)
            .starts_with("It's just for me, and the details should be in my profile.")
    );
    assert_eq!(
        (call.prompt_tokens, call.completion_tokens),
        (Some(56), Some(23))
    );
    // The call stands in its words as JSON, and has a span of its own.
    assert!(words(&call.output).contains("get_user_details"));

    let (format, parts) = read("phoenix/pxi_turn_trace.json").unwrap();
    assert_eq!(
        (format, parts.spans.len(), traces(&parts)),
        ("phoenix", 18, 1)
    );
    let root = span(&parts, "s01");
    assert_eq!(words(&root.input), "can you save this trace to a dataset?");
    assert!(words(&root.output).starts_with("Done! I created the dataset"));
    let call = span(&parts, "s02");
    assert_eq!(words(&call.input), "can you save this trace to a dataset?");
    assert_eq!(words(&call.output), "");
    assert_eq!(call.calls.len(), 1);
    assert_eq!(call.calls[0].name, "list_datasets");
    let failed: Vec<_> = parts
        .spans
        .iter()
        .filter(|span| span.error.is_some())
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].kind, kind::TOOL);

    let (format, parts) = read("phoenix/pxi_suggestion_traces.json").unwrap();
    assert_eq!(
        (format, parts.spans.len(), traces(&parts)),
        ("phoenix", 31, 3)
    );
    assert_eq!(
        (count(&parts, kind::LLM), count(&parts, kind::TOOL)),
        (16, 12)
    );
}

#[test]
fn any_agent_traces() {
    if folder().is_none() {
        return;
    }
    for (file, spans, tools, models) in [
        ("GOOGLE", 7, 3, 3),
        ("LANGCHAIN", 7, 2, 4),
        ("OPENAI", 6, 2, 3),
        ("SMOLAGENTS", 7, 3, 3),
    ] {
        let (format, parts) = read(&format!("any-agent/{file}_trace.json")).unwrap();
        assert_eq!(
            (format, parts.spans.len(), traces(&parts)),
            ("any-agent", spans, 1),
            "{file}"
        );
        assert_eq!(
            (count(&parts, kind::TOOL), count(&parts, kind::LLM)),
            (tools, models),
            "{file}"
        );
        let told = parts
            .spans
            .iter()
            .find(|span| span.input.is_some())
            .unwrap();
        assert!(
            words(&told.input).contains("Find what year it is in the America/New_York timezone"),
            "{file}: {told:?}"
        );
        let cost: f64 = parts.spans.iter().filter_map(|span| span.cost_usd).sum();
        assert!(cost > 1e-4 && cost < 1e-3, "{file}: {cost}");
        let output = parts.traces[0].output.as_ref().unwrap();
        let steps = nested(&output.raw).unwrap();
        assert_eq!(steps["steps"].as_array().map(Vec::len), Some(2), "{file}");
        let tool = parts
            .spans
            .iter()
            .find(|span| span.name == "get_current_time")
            .unwrap();
        assert_eq!(
            tool.input.as_ref().unwrap().raw,
            "{\"timezone\": \"America/New_York\"}"
        );
    }
}

#[test]
fn openinference_attributes_and_vercels_spans() {
    let Some((format, parts)) = read("openinference/vercel_ai_v6_all_spans.json") else {
        return;
    };
    assert_eq!((format, parts.spans.len()), ("otel-js", 10));
    assert_eq!(
        (count(&parts, kind::LLM), count(&parts, kind::AGENT)),
        (4, 4)
    );
    assert_eq!(count(&parts, kind::EMBEDDING), 2);
    let first = &parts.spans[0];
    assert_eq!(words(&first.input), "Write a haiku about programming.");
    assert!(words(&first.output).starts_with("Lines of code align,"));
    assert_eq!(
        (first.prompt_tokens, first.completion_tokens),
        (Some(14), Some(20))
    );
    assert_eq!(words(&parts.spans[3].output), "3 + 3 equals 6.");
    for file in [
        "openinference_client_span_input_output_only",
        "openinference_client_span_tool_calls",
        "otel_genai_client_span_tool_calls",
    ] {
        let (format, parts) = read(&format!("openinference/{file}.json")).unwrap();
        assert_eq!(format, "span-attributes");
        let span = &parts.spans[0];
        assert_eq!(words(&span.input), "Weather in Paris?", "{file}");
        assert_eq!(
            words(&span.output),
            "The weather in Paris is currently rainy with a temperature of 57°F.",
            "{file}"
        );
        assert_eq!(
            (span.prompt_tokens, span.completion_tokens),
            (Some(97), Some(52))
        );
        assert_eq!(span.model.as_deref(), Some("gpt-4-0613"));
        assert_eq!(span.calls.len(), 1, "{file}: {:?}", span.calls);
        assert_eq!(span.calls[0].name, "get_weather");
        assert_eq!(span.calls[0].result.as_ref().unwrap().raw, "rainy, 57°F");
    }
    let (_, parts) = read("openinference/otel_genai_tool_execution_span.json").unwrap();
    let tool = &parts.spans[0];
    assert_eq!(
        (tool.kind.as_str(), tool.name.as_str()),
        (kind::TOOL, "get_weather")
    );
    assert_eq!(tool.input.as_ref().unwrap().raw, "{\"city\": \"New York\"}");
}

#[test]
fn no_file_is_claimed_by_two_formats() {
    let Some(folder) = folder() else {
        return;
    };
    let mut seen = 0;
    for dir in std::fs::read_dir(folder).unwrap() {
        let Ok(files) = std::fs::read_dir(dir.unwrap().path()) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("json" | "jsonl")) {
                continue;
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let Some(first) = serde_json::Deserializer::from_str(&text)
                .into_iter::<Value>()
                .next()
                .and_then(Result::ok)
            else {
                continue;
            };
            for document in [Some(&first), first.get(0)].into_iter().flatten() {
                let claims = claims(name, document);
                let names: Vec<_> = claims.iter().map(|format| format.name).collect();
                assert!(names.len() < 2, "{name}: {names:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}
