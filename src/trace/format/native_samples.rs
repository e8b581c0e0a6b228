//! Files that their systems wrote themselves, where the shared folder has them.

use serde_json::Value;

use super::{FORMATS, Format, Parts, Place, Sample, kind};

/// The files of text in a folder of samples, by name, which are so many; none if they are not here.
fn samples(folder: &str, count: usize) -> Vec<(String, String)> {
    let Some(path) = super::shared_samples::folder(folder) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(&path).unwrap();
    let mut files: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            Some((name, std::fs::read_to_string(path).ok()?))
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), count, "{}", path.display());
    files
}

/// The only format that claims the first document, and what it reads.
fn read(name: &str, text: &str) -> (&'static Format, Parts) {
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(_) => text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    };
    let sample = Sample {
        file_name: name,
        document: &documents[0],
        columns: &[],
    };
    let claims: Vec<&Format> = FORMATS
        .iter()
        .copied()
        .filter(|format| (format.recognise)(&sample).is_some())
        .collect();
    let [format] = claims.as_slice() else {
        panic!("{name}: {claims:?}")
    };
    let mut parts = Parts::default();
    for (row, document) in documents.into_iter().enumerate() {
        (format.read)(
            document,
            &Place {
                stem: name,
                row: row as u64,
            },
            &mut parts,
        )
        .unwrap();
    }
    (*format, parts)
}

/// Spans of a kind, by name and in the order of their names.
fn named<'p>(parts: &'p Parts, kind: &str) -> Vec<&'p str> {
    let of_kind = parts.spans.iter().filter(|span| span.kind == kind);
    let mut names: Vec<&str> = of_kind.map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn langfuse_traces_are_read() {
    // File, spans, model calls, tools, start of the trace's input and output.
    type Expected = (
        &'static str,
        usize,
        usize,
        &'static [&'static str],
        &'static str,
        &'static str,
    );
    let expected: [Expected; 11] = [
        (
            "agno",
            6,
            4,
            &["duckduckgo_search"],
            "What is currently trending on Twitter?",
            "To find out what's currently trending",
        ),
        ("autogen", 2, 1, &[], "Say 'Hello World!'", "Hello World!"),
        (
            "beeai",
            29,
            5,
            &["tool.search.wikipedia.success-12"],
            "I'm planning a trip to Barcelona",
            "Barcelona is a vibrant city",
        ),
        ("crewai", 6, 1, &[], "", ""),
        ("google-adk", 5, 2, &["say_hello"], "hi", "Hello Langfuse"),
        (
            "langgraph-js",
            20,
            2,
            &["get_weather"],
            "What's the weather in San Francisco?",
            "It's always sunny in San Francisco!",
        ),
        (
            "langgraph-python",
            9,
            2,
            &["Web-Search"],
            "Search the web for 'example'",
            "The search for \"example\"",
        ),
        (
            "llamaindex",
            2,
            1,
            &[],
            "What is Langfuse?",
            "Langfuse is a tool designed",
        ),
        ("openai-agents", 5, 2, &["get_weather"], "", ""),
        (
            "pydantic-ai",
            12,
            4,
            &[
                "get_dad_joke_suggestion",
                "get_one_liner_suggestion",
                "get_pun_suggestion",
            ],
            "programming",
            "Why do programmers hate nature?",
        ),
        (
            "vercel",
            3,
            2,
            &["getWeather"],
            "What is the weather like today",
            // Nothing but a call.
            "",
        ),
    ];
    for (name, text) in samples("langfuse", 11) {
        let (format, parts) = read(&name, &text);
        assert_eq!(format.name, "langfuse-trace");
        let known = expected.iter().find(|(start, ..)| name.starts_with(start));
        let (_, spans, models, tools, input, output) = known.unwrap();
        assert_eq!(
            (parts.traces.len(), parts.spans.len()),
            (1, *spans),
            "{name}"
        );
        assert_eq!(named(&parts, kind::LLM).len(), *models, "{name}");
        assert_eq!(named(&parts, kind::TOOL), *tools, "{name}");
        let facts = &parts.traces[0];
        for (payload, start) in [(&facts.input, input), (&facts.output, output)] {
            let words = payload
                .as_ref()
                .map_or("", |p| p.said.as_deref().unwrap_or(&p.raw));
            assert!(words.starts_with(start), "{name}: {words}");
            assert_eq!(words.is_empty(), start.is_empty(), "{name}: {words}");
        }
        if name.starts_with("google-adk") {
            assert_eq!(facts.session_id.as_deref(), Some("demo-session"));
            let tool = parts
                .spans
                .iter()
                .find(|span| span.kind == kind::TOOL)
                .unwrap();
            assert!(tool.output.as_ref().unwrap().raw.contains("Hello Langfuse"));
        }
        if name.starts_with("langgraph-js") {
            let reasoned = parts.spans.iter().filter_map(|span| span.completion_tokens);
            assert_eq!(reasoned.max(), Some(99));
        }
        if name.starts_with("openai-agents") {
            let models = parts.spans.iter().filter(|span| span.kind == kind::LLM);
            let said: Vec<_> = models
                .filter_map(|span| span.input.as_ref()?.said.as_deref())
                .collect();
            assert_eq!(said, ["What's the weather in Tokyo?"; 2]);
        }
    }
}

#[test]
fn langsmith_runs_are_read() {
    for (name, text) in samples("langsmith", 3) {
        let (format, parts) = read(&name, &text);
        assert_eq!(format.name, "langsmith");
        let lines = text.lines().count();
        assert_eq!(
            (parts.traces.len(), parts.spans.len()),
            (0, lines),
            "{name}"
        );
        assert_eq!(parts.unknown, Vec::<String>::new());
        let ids: std::collections::HashSet<&str> = parts
            .spans
            .iter()
            .map(|span| span.span_id.as_str())
            .collect();
        assert_eq!(ids.len(), lines / 2, "{name}: a post and a patch each");
        let root = parts
            .spans
            .iter()
            .find(|span| span.parent_span_id.is_none())
            .unwrap();
        let asked = root.input.as_ref().unwrap().said.as_deref();
        let question = match name.as_str() {
            "trace_albums_tracks.jsonl" => "Which albums have the most tracks?",
            "trace_revenue_by_country.jsonl" => "What is the total revenue by country?",
            _ => "Who are the top 5 customers by total spending?",
        };
        assert_eq!(asked, Some(question));
        assert_eq!(root.of.project_id.as_deref(), Some("skills-fixtures"));
        let tokens: u64 = parts
            .spans
            .iter()
            .filter_map(|span| span.prompt_tokens)
            .sum();
        assert!(tokens > 397, "{name}: {tokens}");
        let tools = named(&parts, kind::TOOL);
        assert_eq!(
            tools,
            [
                "execute_sql_query",
                "execute_sql_query",
                "get_database_schema"
            ]
        );
        let failed = parts.spans.iter().filter_map(|span| span.output.as_ref());
        assert!(
            failed
                .into_iter()
                .any(|output| output.raw.starts_with("SQL Error: no such table"))
        );
    }
}

#[test]
fn mlflow_traces_are_read() {
    for (name, text) in samples("mlflow", 1) {
        let (format, parts) = read(&name, &text);
        assert_eq!(format.name, "mlflow");
        assert_eq!(
            (parts.traces.len(), parts.spans.len()),
            (101, 355),
            "{name}"
        );
        assert_eq!(named(&parts, kind::AGENT).len(), 101);
        assert_eq!(named(&parts, kind::LLM).len(), 177);
        assert_eq!(named(&parts, kind::TOOL).len(), 77);
        let errors = parts.spans.iter().filter(|span| span.error.is_some());
        assert_eq!(errors.count(), 7);
        let first = &parts.traces[0];
        assert_eq!(
            first.session_id.as_deref(),
            Some("tau-airline-gpt4o/task000/trial0")
        );
        assert_eq!(first.user_id.as_deref(), Some("replay-user"));
        assert_eq!(
            first.input.as_ref().unwrap().said.as_deref(),
            Some("Hi! I'm looking to book a flight from New York to Seattle on May 20th.")
        );
        assert!(
            first
                .output
                .as_ref()
                .unwrap()
                .raw
                .starts_with("To assist you with booking a flight")
        );
        assert!(
            parts
                .traces
                .iter()
                .all(|facts| facts.input.is_some() && facts.ended_at.is_some())
        );
    }
}
