//! Metrics of spans, in runs of the program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use serde_json::{Value, json};

use crate::support::{Ran, nightmill, read_parquet, summary, write_parquet};

struct Place {
    folder: tempfile::TempDir,
}

/// A row of `scores`: trace, score, status, reason.
type Scored = (String, Option<f64>, String, String);

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn jsonl(&self, name: &str, rows: &[Value]) -> String {
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        std::fs::write(self.at(name), lines.join("\n")).unwrap();
        self.at(name).display().to_string()
    }

    fn score(&self, paths: &[&str], metrics: &str, run: &str, more: &[&str]) -> Ran {
        let out = self.at(run).display().to_string();
        let mut args = vec!["score"];
        args.extend(paths);
        args.extend(["--metrics", metrics, "--out", &out]);
        args.extend(more);
        nightmill(args)
    }

    fn scores(&self, run: &str, metric: &str) -> Vec<Scored> {
        let scores = read_parquet(&self.at(run).join("scores"));
        let text = |name: &str| {
            let column = scores.column_by_name(name).unwrap();
            let column = arrow::compute::cast(column, &DataType::Utf8).unwrap();
            column.as_string::<i32>().clone()
        };
        let (ids, metrics) = (text("target_id"), text("metric"));
        let (statuses, reasons) = (text("status"), text("reason"));
        let raw = scores.column_by_name("score").unwrap();
        let raw = raw.as_primitive::<Float64Type>();
        let mut found: Vec<Scored> = (0..scores.num_rows())
            .filter(|row| metrics.value(*row) == metric)
            .map(|row| {
                (
                    ids.value(row).to_owned(),
                    raw.is_valid(row).then(|| raw.value(row)),
                    statuses.value(row).to_owned(),
                    reasons.value(row).to_owned(),
                )
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Scores of a metric by the order of trace ids.
    fn numbers(&self, run: &str, metric: &str) -> Vec<Option<f64>> {
        let scores = self.scores(run, metric).into_iter();
        scores.map(|(_, score, ..)| score).collect()
    }

    /// A column of `traces` by the order of trace ids.
    fn column(&self, run: &str, name: &str) -> Vec<Option<f64>> {
        let traces = read_parquet(&self.at(run).join("traces"));
        let ids = traces.column_by_name("trace_id").unwrap();
        let values = traces.column_by_name(name).unwrap();
        let values = values.as_primitive::<Float64Type>();
        let mut found: Vec<(String, Option<f64>)> = (0..traces.num_rows())
            .map(|row| {
                let id = ids.as_string::<i32>().value(row).to_owned();
                (id, values.is_valid(row).then(|| values.value(row)))
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, value)| value).collect()
    }
}

fn call(second: u32, name: &str, input: Value, output: &str, error: Option<&str>) -> Value {
    json!({"span_id": format!("{name}{second}"), "parent_span_id": "root", "kind": "TOOL", "name": name, "input": input,
        "output": output, "error": error, "started_at": format!("2026-01-05T08:00:{second:02}Z"), "ended_at": format!("2026-01-05T08:00:{second:02}.5Z")})
}

fn answer(prompt: u64, finish: &str) -> Value {
    json!({"span_id": format!("llm{prompt}"), "kind": "LLM", "prompt_tokens": prompt, "completion_tokens": 5, "finish_reason": finish})
}

fn trace(id: &str, session: Option<&str>, minute: u32, output: Value, spans: Value) -> Value {
    json!({"trace_id": id, "session_id": session, "started_at": format!("2026-01-05T08:{minute:02}:00Z"), "input": "a question",
        "output": output, "spans": spans})
}

fn rows() -> Vec<Value> {
    vec![
        trace(
            "t1",
            Some("s"),
            0,
            json!("red cars are here"),
            json!([
                answer(10, "stop"),
                call(
                    1,
                    "search",
                    json!({"q": "cars", "n": 1}),
                    "nothing found",
                    Some("no such page")
                ),
                call(
                    3,
                    "search",
                    json!({"n": 1, "q": "cars"}),
                    "nothing found",
                    None
                ),
            ]),
        ),
        trace(
            "t2",
            Some("s"),
            1,
            json!(""),
            json!([
                answer(10, "length"),
                answer(20, "stop"),
                call(
                    1,
                    "search",
                    json!("{\"q\": \"cars\", \"n\": 1}"),
                    "nothing found",
                    None
                ),
                call(2, "fetch", json!("x"), "blue ships", None),
            ]),
        ),
        trace("t3", Some("s"), 2, json!("new words at last"), Value::Null),
        trace("t4", None, 3, json!("standing alone"), json!([])),
        trace(
            "t5",
            None,
            4,
            json!(null),
            json!([{"span_id": "a", "kind": "AGENT"}]),
        ),
    ]
}

#[test]
fn a_run_says_what_its_spans_say() {
    let place = Place::new();
    let file = place.jsonl("traces.jsonl", &rows());
    let ran = place.score(&[&file], "spans", "run", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let all = |metric: &str| place.numbers("run", metric);
    assert_eq!(
        all("tool_error_rate"),
        [Some(0.5), Some(1.0), None, None, None]
    );
    // The same arguments, written in another way; one of two, and one of two again.
    assert_eq!(
        all("repeated_tool_calls"),
        [Some(0.5), Some(0.5), None, None, None]
    );
    assert_eq!(
        all("empty_output"),
        [Some(1.0), Some(0.0), Some(1.0), Some(1.0), Some(0.0)]
    );
    assert_eq!(
        all("output_truncated"),
        [Some(1.0), Some(0.5), None, None, None]
    );
    let stuck = place.scores("run", "stuck");
    let numbers: Vec<Option<f64>> = stuck.iter().map(|(_, score, ..)| *score).collect();
    // Call, the same call, output: one of three. Then the call once more and another one: period 1 or 2 explains one of
    // five steps. A trace without spans goes on where its session is: one of six.
    assert_eq!(numbers[..3], [Some(0.6667), Some(0.8), Some(0.8333)]);
    // Nothing before them, or nothing in them.
    assert_eq!(numbers[3..], [None, None]);
    assert_eq!(stuck[3].2, "NO_EVIDENCE");
    assert!(
        stuck[0].3.contains("every 1 step explains 33 %"),
        "{stuck:?}"
    );

    // Plain numbers have columns, and no scores.
    assert_eq!(
        place.column("run", "latency"),
        [Some(2.5), Some(1.5), None, None, None]
    );
    assert_eq!(
        place.column("run", "tokens"),
        [Some(15.0), Some(40.0), None, None, None]
    );
    assert!(place.scores("run", "latency").is_empty());
    for metric in ["tool_error_rate", "stuck", "empty_output"] {
        assert_eq!(place.column("run", metric), all(metric), "{metric}");
    }
    let told = summary(&place.at("run"));
    let named: Vec<&str> = told["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        named,
        [
            "tool_error_rate",
            "repeated_tool_calls",
            "empty_output",
            "output_truncated",
            "stuck"
        ]
    );
    // No text was embedded, and no model loaded.
    assert_eq!(told["texts"], 0);
    assert_eq!(told["traces_without_spans"], 2);
    assert!(ran.stdout.contains("2 traces have no spans"), "{ran:?}");
}

#[test]
fn runs_that_ask_for_none_have_no_column_of_spans() {
    let place = Place::new();
    let file = place.jsonl("traces.jsonl", &rows());
    assert_eq!(
        place.score(&[&file], "coherence,stuck", "run", &[]).code,
        Some(0)
    );
    let traces = read_parquet(&place.at("run").join("traces"));
    assert!(traces.column_by_name("stuck").is_some());
    assert!(traces.column_by_name("tokens").is_none());
    assert_eq!(place.numbers("run", "coherence").len(), 5);
    let out = place.at("plain").display().to_string();
    assert_eq!(nightmill(["score", &file, "--out", &out]).code, Some(0));
    assert!(summary(&place.at("plain"))["traces_without_spans"].is_null());
    let traces = read_parquet(&place.at("plain").join("traces"));
    assert!(traces.column_by_name("stuck").is_none());
}

/// Bytes of the tables of a run.
fn tables(run: &Path) -> Vec<Vec<u8>> {
    ["traces", "scores"]
        .iter()
        .flat_map(|table| {
            let files = walkdir::WalkDir::new(run.join(table)).sort_by_file_name();
            files.into_iter().map(|entry| entry.unwrap().into_path())
        })
        .filter(|path| path.is_file())
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn order_files_and_threads_change_no_score_of_spans() {
    let place = Place::new();
    let rows: Vec<Value> = (0..120)
        .map(|i| {
            let spans: Vec<Value> = (0..i % 4)
                .map(|k| {
                    let name = ["search", "fetch", "look"][(i + k) % 3];
                    let error = (i % 5 == 0).then_some("broken");
                    call(
                        (k / 2) as u32,
                        name,
                        json!({"q": i % 3, "k": k}),
                        &format!("result {}", i % 2),
                        error,
                    )
                })
                .collect();
            trace(
                &format!("t{i:03}"),
                Some(&format!("s{}", i % 7)),
                (i / 7) as u32,
                json!(format!("text {} of it", i % 6)),
                json!(spans),
            )
        })
        .collect();
    let whole = place.jsonl("whole.jsonl", &rows);
    assert_eq!(
        place
            .score(&[&whole], "spans", "whole", &["--threads", "1"])
            .code,
        Some(0)
    );
    // Split, in another order, and with the spans of each trace turned round.
    let turned: Vec<Value> = rows
        .iter()
        .rev()
        .map(|row| {
            let mut row = row.clone();
            row["spans"].as_array_mut().unwrap().reverse();
            row
        })
        .collect();
    let (a, b) = (
        place.jsonl("a.jsonl", &turned[..50]),
        place.jsonl("b.jsonl", &turned[50..]),
    );
    assert_eq!(
        place
            .score(&[&a, &b], "spans", "split", &["--threads", "3"])
            .code,
        Some(0)
    );
    assert_eq!(tables(&place.at("whole")), tables(&place.at("split")));

    // Parquet, with spans as JSON text in bytes.
    let text = |of: &dyn Fn(&Value) -> String| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(of(row)))
                .collect::<StringArray>(),
        )
    };
    let columns = ["trace_id", "session_id", "started_at", "input", "output"];
    let mut columns: Vec<(&str, ArrayRef)> = columns
        .into_iter()
        .map(|name| (name, text(&|row| row[name].as_str().unwrap().to_owned())))
        .collect();
    columns.push(("spans", text(&|row| row["spans"].to_string())));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write_parquet(&place.at("traces.parquet"), &[batch], 13);
    let parquet = place.at("traces.parquet").display().to_string();
    assert_eq!(
        place.score(&[&parquet], "spans", "parquet", &[]).code,
        Some(0)
    );
    assert_eq!(tables(&place.at("whole")), tables(&place.at("parquet")));
}

#[test]
fn what_can_be_misread_is_refused() {
    let place = Place::new();
    let without: Vec<Value> = rows()
        .into_iter()
        .map(|mut row| {
            row.as_object_mut().unwrap().remove("spans");
            row
        })
        .collect();
    let file = place.jsonl("traces.jsonl", &without);
    let ran = place.score(&[&file], "tool_error_rate", "run", &[]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("no column `spans`"), "{ran:?}");
    // Outputs alone may be stuck.
    assert_eq!(
        place.score(&[&file], "stuck,empty_output", "run", &[]).code,
        Some(0)
    );
    assert_eq!(
        place.numbers("run", "stuck")[1..],
        [None, Some(1.0), None, None]
    );

    let file = place.jsonl("traces.jsonl", &rows());
    for (flag, value) in [
        ("--threshold", "latency=0.5"),
        ("--fail-under", "tokens=0.5"),
    ] {
        let ran = place.score(&[&file], "spans", "no", &[flag, value]);
        assert_ne!(ran.code, Some(0));
        assert!(ran.stderr.contains("plain number"), "{ran:?}");
    }
    // A cell that is no list of spans sets its row aside.
    let mut bad = rows();
    bad[1]["spans"] = json!("[{]");
    bad[2]["spans"] = json!({"kind": "TOOL"});
    let file = place.jsonl("bad.jsonl", &bad);
    let ran = place.score(&[&file], "spans", "bad", &["--on-bad-file", "skip"]);
    assert!(place.at("bad").join("quarantine").exists(), "{ran:?}");
    assert_eq!(place.numbers("bad", "empty_output").len(), 3);
}

#[test]
fn a_gate_may_be_on_being_stuck() {
    let place = Place::new();
    let again: Vec<Value> = (0..6)
        .map(|i| {
            trace(
                &format!("t{i}"),
                Some("s"),
                i,
                json!("the same words again"),
                Value::Null,
            )
        })
        .collect();
    let file = place.jsonl("traces.jsonl", &again);
    let ran = place.score(&[&file], "stuck", "run", &["--fail-under", "stuck=0.5"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let scores = place.numbers("run", "stuck");
    assert_eq!(
        scores,
        [
            None,
            Some(0.5),
            Some(0.3333),
            Some(0.25),
            Some(0.2),
            Some(0.1667)
        ]
    );
}
