//! Exports of other systems in commands beside `score` and `import`, and what runs say of their text mode.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Ran, nightmill, read_parquet, root, summary};

fn sample(name: &str) -> String {
    let path = root().join("datasets/formats").join(name);
    path.display().to_string()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }
}

fn sql(query: &str, more: &[&str]) -> Ran {
    let mut args = vec!["sql", query, "--format", "csv"];
    args.extend(more);
    nightmill(args)
}

#[test]
fn sql_reads_exports_as_traces() {
    let place = Place::new();
    let (otlp, langfuse) = (sample("otlp.jsonl"), sample("langfuse.jsonl"));
    let query = |file: &str| {
        format!("SELECT count(*) AS traces, sum(prompt_tokens) AS tokens FROM '{file}'")
    };
    for file in [&otlp, &langfuse] {
        let ran = sql(&query(file), &[]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.stdout, "traces,tokens\n5,210\n");
        // What is odd about the file is said where no result is.
        assert!(ran.stderr.contains("5 traces"), "{ran:?}");
        assert!(ran.stderr.contains("--input-format"), "{ran:?}");
    }
    // Both at once, each made once.
    let both = format!(
        "SELECT count(*) AS same FROM '{otlp}' a JOIN '{langfuse}' b ON a.input = b.input AND a.output = b.output"
    );
    let ran = sql(&both, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr.matches("is read as").count(), 2, "{ran:?}");
    assert_eq!(ran.stdout, "same\n5\n");
    let mapping = sample("house.toml");
    let ran = sql(
        &format!("SELECT count(*) AS traces FROM '{}'", sample("house.jsonl")),
        &["--mapping", &mapping],
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "traces\n5\n"),
        "{ran:?}"
    );

    // As they are, and by a name that does not fit.
    let raw = format!("SELECT count(*) AS lines FROM '{otlp}'");
    let ran = sql(&raw, &["--input-format", "jsonl"]);
    let lines = std::fs::read_to_string(&otlp).unwrap().lines().count();
    assert_eq!(ran.stdout, format!("lines\n{lines}\n"), "{ran:?}");
    assert_eq!(ran.stderr, "");

    // Tables of a run are never anything else, whatever is said of other files.
    let out = place.path("run");
    let ran = nightmill(["score", &otlp, "--metrics", "stuck", "--out", &out]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = sql(
        &format!("SELECT count(*) AS traces FROM '{out}/traces'"),
        &["--mapping", &mapping],
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "traces\n5\n"),
        "{ran:?}"
    );
}

#[test]
fn sql_says_what_it_could_not_read() {
    let place = Place::new();
    let mut text = std::fs::read_to_string(sample("otlp.jsonl")).unwrap();
    text.push_str("{\"resourceSpans\": [{\n");
    std::fs::write(place.at("broken.jsonl"), text).unwrap();
    let query = format!(
        "SELECT count(*) AS traces FROM '{}'",
        place.path("broken.jsonl")
    );
    let ran = sql(&query, &[]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(3), "traces\n5\n"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("could not be read"), "{ran:?}");
}

#[test]
fn embed_takes_the_texts_of_an_export() {
    let place = Place::new();
    let out = place.path("vectors.parquet");
    let ran = nightmill([
        "embed",
        &sample("langfuse.jsonl"),
        "--columns",
        "input,output",
        "--out",
        &out,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("5 traces"), "{ran:?}");
    assert!(ran.stdout.contains("5 rows"), "{ran:?}");
    let ran = sql(
        &format!(
            "SELECT input, cosine_similarity(input_embedding, input_embedding) > 0.999 AS whole FROM '{out}' ORDER BY started_at"
        ),
        &[],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("Where is my order 1042?,true"),
        "{ran:?}"
    );

    let own = place.at("own.jsonl");
    std::fs::write(&own, "{\"text\": \"hello\"}\n").unwrap();
    let own = own.display().to_string();
    let out = place.path("own.parquet");
    let ran = nightmill(["embed", &own, "--columns", "text", "--out", &out]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (export, other) = (sample("langfuse.jsonl"), place.path("other.parquet"));
    for (args, told) in [
        (
            vec!["embed", &own, "--columns", "text", "--text-mode", "content"],
            "no effect",
        ),
        (
            vec!["embed", &own, &export, "--columns", "input"],
            "name files of one kind",
        ),
    ] {
        let mut args = args;
        args.extend(["--out", &other]);
        let ran = nightmill(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
}

#[test]
fn cases_are_made_of_an_export() {
    let place = Place::new();
    let sets = |name: &str, file: &str, more: &[&str]| -> Value {
        let out = place.path(name);
        let mut args = vec![
            "suite",
            "from-traces",
            file,
            "--out",
            &out,
            "--app",
            "shop",
            "--set",
            "talks",
        ];
        args.extend(more);
        let ran = nightmill(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("5 turns"), "{ran:?}");
        let set = std::fs::read(place.at(name).join("shop/talks.evalset.json")).unwrap();
        serde_json::from_slice(&set).unwrap()
    };
    let house = sample("house.toml");
    let of_otlp = sets("otlp", &sample("otlp.jsonl"), &[]);
    let of_langfuse = sets("langfuse", &sample("langfuse.jsonl"), &[]);
    let of_house = sets("house", &sample("house.jsonl"), &["--mapping", &house]);
    let said = |set: &Value| -> Vec<String> {
        let cases = set["evalCases"].as_array().unwrap().iter();
        let turns = cases.flat_map(|case| case["conversation"].as_array().unwrap());
        let mut said: Vec<String> = turns
            .map(|turn| format!("{} > {}", turn["userContent"], turn["finalResponse"]))
            .collect();
        said.sort();
        said
    };
    assert_eq!(said(&of_otlp).len(), 5);
    assert!(
        said(&of_otlp)
            .iter()
            .any(|turn| turn.contains("Where is my order 1042?") && turn.contains("was shipped")),
        "{:?}",
        said(&of_otlp)
    );
    assert_eq!(said(&of_otlp), said(&of_langfuse));
    assert_eq!(said(&of_otlp), said(&of_house));
    assert!(of_otlp.to_string().contains("\"tools\""), "{of_otlp}");
}

#[test]
fn a_run_says_which_text_mode_made_its_scores() {
    let place = Place::new();
    let documents = place.at("documents.jsonl");
    let line = |id: &str| {
        format!(
            "{{\"trace_id\": \"{id}\", \"session_id\": \"s\", \"started_at\": \"2026-01-01T00:00:00Z\", \"input\": \"[1]\", \"output\": \"[1]\"}}\n"
        )
    };
    std::fs::write(&documents, line("a") + &line("b")).unwrap();
    let plain = place.at("plain.jsonl");
    std::fs::write(&plain, (line("a") + &line("b")).replace("[1]", "words")).unwrap();
    for (run, file, more, mode, told) in [
        (
            "content",
            sample("langfuse.jsonl"),
            &[][..],
            "content",
            Some("of documents, what was said is embedded"),
        ),
        (
            "whole",
            sample("langfuse.jsonl"),
            &["--text-mode", "compat"],
            "compat",
            Some("documents are embedded whole"),
        ),
        (
            "json",
            documents.display().to_string(),
            &["--json-columns", "input,output"],
            "compat",
            Some("documents are embedded whole"),
        ),
        ("plain", plain.display().to_string(), &[], "compat", None),
    ] {
        let out = place.path(run);
        let mut args = vec!["score", &file, "--metrics", "coherence", "--out", &out];
        args.extend(more);
        let ran = nightmill(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let line = told.map(|told| format!("text mode {mode}: {told}\n"));
        match &line {
            Some(line) => assert!(ran.stdout.contains(line.as_str()), "{ran:?}"),
            None => assert!(!ran.stdout.contains("text mode"), "{ran:?}"),
        }
        let kept = summary(&place.at(run));
        assert_eq!(kept["text_mode"], told.map_or(Value::Null, |_| mode.into()));
        let page = std::fs::read_to_string(place.at(run).join("report.html")).unwrap();
        assert!(
            page.contains(&format!("<dt>Text mode</dt><dd>{mode}: ")),
            "{run}"
        );
        let shown = nightmill(["runs", "show", &out]);
        let shown = shown
            .stdout
            .lines()
            .find(|line| line.contains("text mode"))
            .unwrap()
            .to_owned();
        assert!(shown.trim_end().ends_with(mode), "{shown}");
        let scores = read_parquet(&place.at(run).join("scores"));
        let column = arrow::compute::cast(
            scores.column_by_name("text_mode").unwrap(),
            &arrow::datatypes::DataType::Utf8,
        )
        .unwrap();
        let column = arrow::array::AsArray::as_string::<i32>(column.as_ref());
        assert!(column.iter().flatten().all(|one| one == mode));
    }
}
