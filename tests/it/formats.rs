//! Traces of other formats, through the program: recognised, assembled, scored and refused.

use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use serde_json::Value;

use crate::support::{Ran, nightmill, read_parquet, root, summary};

const CHEAP: &str = "empty_output,tool_error_rate,repeated_tool_calls,stuck";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn import(&self, paths: &[&str], out: &str, more: &[&str]) -> Ran {
        let out = self.at(out).display().to_string();
        let mut args = vec!["import"];
        args.extend(paths);
        args.extend(["--out", &out]);
        args.extend(more);
        nightmill(args)
    }
}

fn sample(name: &str) -> String {
    root()
        .join("datasets/formats")
        .join(name)
        .display()
        .to_string()
}

fn table(path: &Path) -> RecordBatch {
    let file = std::fs::File::open(path).unwrap();
    let reader =
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// Input and output by trace, in the order of sessions and times.
fn words(batch: &RecordBatch) -> Vec<(String, String)> {
    let text = |name: &str| {
        batch
            .column_by_name(name)
            .unwrap()
            .as_string::<i32>()
            .clone()
    };
    let times = batch.column_by_name("started_at").unwrap();
    let times = times.as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
    let (inputs, outputs) = (text("input"), text("output"));
    let mut rows: Vec<_> = (0..batch.num_rows())
        .map(|row| {
            (
                times.value(row),
                inputs.value(row).to_owned(),
                outputs.value(row).to_owned(),
            )
        })
        .collect();
    rows.sort();
    rows.into_iter()
        .map(|(_, input, output)| (input, output))
        .collect()
}

#[test]
fn one_talk_in_three_formats_is_the_same_traces() {
    let place = Place::new();
    let mapping = sample("house.toml");
    for (name, more) in [
        ("otlp.jsonl", &[][..]),
        ("langfuse.jsonl", &[]),
        ("house.jsonl", &["--mapping", &mapping]),
    ] {
        let ran = place.import(&[&sample(name)], &format!("{name}.parquet"), more);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert!(ran.stdout.contains("5 traces"), "{name}: {}", ran.stdout);
    }
    let otlp = table(&place.at("otlp.jsonl.parquet"));
    let langfuse = table(&place.at("langfuse.jsonl.parquet"));
    let house = table(&place.at("house.jsonl.parquet"));
    let expected = words(&otlp);
    assert_eq!(expected[0].0, "Where is my order 1042?");
    assert!(expected[0].1.starts_with("Your order 1042 was shipped"));
    assert_eq!(words(&langfuse), expected);
    assert_eq!(words(&house), expected);
    for batch in [&otlp, &langfuse] {
        let tokens = batch.column_by_name("prompt_tokens").unwrap();
        let tokens = tokens.as_primitive::<UInt64Type>();
        // 40 to 44: the agent's span repeats nothing.
        assert_eq!(tokens.iter().flatten().sum::<u64>(), 210);
    }
    for batch in [&otlp, &langfuse, &house] {
        let spans = batch.column_by_name("spans").unwrap().as_list::<i32>();
        let values = spans.values().as_struct();
        let kinds = values.column_by_name("kind").unwrap().as_string::<i32>();
        assert_eq!(kinds.iter().filter(|kind| *kind == Some("TOOL")).count(), 4);
    }
}

#[test]
fn order_splitting_packing_and_memory_change_nothing() {
    let place = Place::new();
    let text = std::fs::read_to_string(sample("otlp.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let whole = place.write("a/whole.jsonl", &text);
    let mut backwards = lines.clone();
    backwards.reverse();
    let backwards = place.write("b/backwards.jsonl", backwards.join("\n"));
    let mut parts = Vec::new();
    for (number, chunk) in lines.chunks(3).enumerate() {
        parts.push(place.write(&format!("c/{number}.jsonl"), chunk.join("\n")));
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
    let packed = place.write("d/traces.jsonl.gz", gz.finish().unwrap());
    let zst = place.write(
        "e/traces.json.zst",
        zstd::encode_all(text.as_bytes(), 1).unwrap(),
    );
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut tables = Vec::new();
    for (out, paths, more) in [
        ("1.parquet", &[whole.as_str()][..], &[][..]),
        ("2.parquet", &[&backwards], &[]),
        ("3.parquet", &parts, &["--threads", "1"]),
        ("4.parquet", &[&packed], &[]),
        ("5.parquet", &[&zst], &[]),
        ("6.parquet", &[&whole], &["--memory-limit", "1K"]),
    ] {
        let ran = place.import(paths, out, more);
        assert_eq!(ran.code, Some(0), "{out}: {}", ran.stderr);
        assert_eq!(
            ran.stdout.contains("over the disk"),
            out == "6.parquet",
            "{}",
            ran.stdout
        );
        tables.push(std::fs::read(place.at(out)).unwrap());
    }
    assert!(tables.iter().all(|bytes| *bytes == tables[0]));
    // Nothing is left beside the results.
    let names = crate::support::entries(place.0.path());
    assert!(
        names
            .iter()
            .all(|name| !name.starts_with(".nightmill-import")),
        "{names:?}"
    );
}

#[test]
fn score_reads_exports_without_a_flag() {
    let place = Place::new();
    let imported = place.import(&[&sample("otlp.jsonl")], "otlp.parquet", &[]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let mut tables = Vec::new();
    for (run, path) in [
        ("direct", sample("otlp.jsonl")),
        ("imported", place.at("otlp.parquet").display().to_string()),
    ] {
        let out = place.at(run).display().to_string();
        let metrics = format!("coherence,loop_detection,{CHEAP}");
        let ran = nightmill(["score", &path, "--metrics", &metrics, "--out", &out]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(place.at(run).join("manifest.json")).unwrap())
                .unwrap();
        assert_eq!(manifest["inputs"][0]["path"], path);
        assert_eq!(manifest["rules"]["text_mode"], "content");
        assert_eq!(summary(&place.at(run))["traces"], 5);
        tables.push(read_parquet(&place.at(run).join("traces")));
        // Converted files are working files.
        assert!(!place.at(run).join("work").exists());
    }
    assert_eq!(tables[0], tables[1]);
    let errors = tables[0].column_by_name("tool_error_rate").unwrap();
    let errors = errors.as_primitive::<arrow::datatypes::Float64Type>();
    assert_eq!(
        errors.iter().flatten().filter(|score| *score < 1.0).count(),
        1
    );
}

#[test]
fn documents_are_kept_whole_where_that_is_asked() {
    let place = Place::new();
    let ran = place.import(
        &[&sample("langfuse.jsonl")],
        "whole.parquet",
        &["--text-mode", "compat"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let batch = table(&place.at("whole.parquet"));
    let inputs = batch
        .column_by_name("input")
        .unwrap()
        .as_string::<i32>()
        .clone();
    for input in inputs.iter().flatten() {
        let document: Value = serde_json::from_str(input).unwrap();
        assert_eq!(document["messages"][0]["role"], "user");
    }
    // What was said alone can't be made into documents again.
    let ran = place.import(&[&sample("langfuse.jsonl")], "said.parquet", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (said, out) = (place.at("said.parquet"), place.at("run"));
    let refused = nightmill([
        "score",
        &said.display().to_string(),
        "--text-mode",
        "compat",
        "--out",
        &out.display().to_string(),
    ]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("import them again"),
        "{}",
        refused.stderr
    );
}

#[test]
fn what_is_not_known_is_refused_with_what_was_found() {
    let place = Place::new();
    let unknown = place.write("x.json", r#"{"colour": "red", "size": 3}"#);
    let ran = place.import(&[&unknown], "x.parquet", &[]);
    assert_eq!(ran.code, Some(2));
    for words in ["colour, size", "--format", "--mapping"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    let scores = place.write("s.jsonl", r#"{"id":"1","timestamp":"2026-01-01","project_id":"p","environment":"e","trace_id":"t","observation_id":null,"session_id":null,"dataset_run_id":null,"name":"n","value":1,"source":"API","comment":null,"data_type":"NUMERIC","string_value":null,"created_at":"2026-01-01","updated_at":"2026-01-01"}"#);
    let ran = place.import(&[&scores], "s.parquet", &[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("scores"), "{}", ran.stderr);
    assert!(!place.at("s.parquet").exists());
    // Files in a folder that nobody knows are named and passed over.
    let otlp = std::fs::read(sample("otlp.jsonl")).unwrap();
    place.write("mixed/a.jsonl", &otlp);
    place.write("mixed/notes.json", r#"{"colour": "red"}"#);
    let folder = place.at("mixed").display().to_string();
    let ran = nightmill(["import", &folder, "--explain"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("a.jsonl: otlp: "), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("notes.json: passed over"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("session_id"), "{}", ran.stdout);
}

#[test]
fn a_document_that_can_not_be_read_is_one_row_of_the_quarantine() {
    let place = Place::new();
    let mut text = std::fs::read_to_string(sample("otlp.jsonl")).unwrap();
    text.push_str("{\"resourceSpans\": [{\n");
    let path = place.write("broken.jsonl", &text);
    let out = place.at("run").display().to_string();
    let ran = nightmill(["score", &path, "--metrics", "empty_output", "--out", &out]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    let quarantine = read_parquet(&place.at("run").join("quarantine"));
    assert_eq!(quarantine.num_rows(), 1);
    assert_eq!(summary(&place.at("run"))["traces"], 5);
    let ran = place.import(&[&path], "broken.parquet", &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stdout.contains("row 14"), "{}", ran.stdout);
}

#[test]
fn files_of_one_name_in_two_folders_are_two_sessions() {
    let place = Place::new();
    let step =
        r#"{"action": "ls", "observation": "a.txt", "response": "I look.", "thought": "look"}"#;
    let run = format!(
        r#"{{"environment": "main", "trajectory": [{step}], "history": [], "info": {{}}}}"#
    );
    let (one, two) = (
        place.write("a/run.traj", &run),
        place.write("b/run.traj", &run),
    );
    let ran = place.import(&[&one, &two], "both.parquet", &["--format", "swe-agent"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let batch = table(&place.at("both.parquet"));
    let sessions = batch
        .column_by_name("session_id")
        .unwrap()
        .as_string::<i32>();
    assert_eq!(batch.num_rows(), 2);
    assert_ne!(sessions.value(0), sessions.value(1));
}

/// An export of one model call.
fn exported(number: u32, input: &str, output: &str) -> String {
    let text =
        |key: &str, text: &str| serde_json::json!({"key": key, "value": {"stringValue": text}});
    let message = |role: &str, text: &str| {
        serde_json::json!([{"role": role, "parts": [{"type": "text", "content": text}]}])
            .to_string()
    };
    let start = 1_767_225_600_000_000_000_u64 + u64::from(number) * 5_000_000_000;
    let span = serde_json::json!({
        "traceId": format!("{number:032x}"), "spanId": format!("{number:016x}"), "name": "chat",
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1_000_000_000).to_string(),
        "attributes": [text("gen_ai.operation.name", "chat"), text("gen_ai.conversation.id", "s"),
            text("gen_ai.input.messages", &message("user", input)),
            text("gen_ai.output.messages", &message("assistant", output))],
    });
    format!(
        "{}\n",
        serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    )
}

#[test]
fn an_agent_that_says_nothing_has_the_numbers_of_an_empty_output() {
    let place = Place::new();
    let talk = [
        ("What is the refund policy?", ""),
        ("And for shoes?", ""),
        ("Hello?", "We refund within thirty days."),
    ];
    let exports: String = (1..)
        .zip(talk)
        .map(|(number, (input, output))| exported(number, input, output))
        .collect();
    let own: String = (1_u32..)
        .zip(talk)
        .map(|(number, (input, output))| {
            let row = serde_json::json!({"trace_id": format!("{number:032x}"), "session_id": "s",
                "started_at": format!("2026-01-01T00:00:{:02}Z", number * 5), "input": input, "output": output});
            format!("{row}\n")
        })
        .collect();
    let mut tables = Vec::new();
    for (name, text) in [("exports", exports), ("own", own)] {
        let path = place.write(&format!("{name}.jsonl"), text);
        let out = place.at(name).display().to_string();
        let metrics = "coherence,loop_detection,empty_output";
        let ran = nightmill(["score", &path, "--metrics", metrics, "--out", &out]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let batch = read_parquet(&place.at(name).join("traces"));
        let scores = ["coherence", "loop_detection", "empty_output"].map(|metric| {
            let column = batch.column_by_name(metric).unwrap();
            let column = column.as_primitive::<arrow::datatypes::Float64Type>();
            column.iter().collect::<Vec<_>>()
        });
        tables.push(scores);
    }
    assert_eq!(tables[0], tables[1]);
    let mut empty = tables[0][2].clone();
    empty.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(empty, [Some(0.0), Some(0.0), Some(1.0)]);
}

#[test]
fn whole_documents_are_not_embedded_as_what_was_said() {
    let place = Place::new();
    let sample = sample("langfuse.jsonl");
    let ran = place.import(&[&sample], "whole.parquet", &["--text-mode", "compat"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (whole, out) = (place.at("whole.parquet"), place.at("run"));
    for more in [&[][..], &["--format", "parquet"]] {
        let mut args = vec!["score", whole.to_str().unwrap(), "--text-mode", "content"];
        args.extend(["--out", out.to_str().unwrap()]);
        args.extend(more);
        let refused = nightmill(args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("import them again"),
            "{}",
            refused.stderr
        );
    }
}
