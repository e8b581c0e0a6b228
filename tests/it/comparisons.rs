//! Metrics that compare outputs with expected texts, in runs of the program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Float64Type};
use serde_json::{Value, json};

use crate::support::{Ran, nightmill, read_parquet, summary, write_parquet};

const ALL: &str = "factuality,format,tone";

struct Place {
    folder: tempfile::TempDir,
}

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

    /// The scores of a metric, in the order of ids; none where there is none.
    fn scores(&self, run: &str, metric: &str) -> Vec<(String, Option<f64>, String)> {
        let scores = read_parquet(&self.at(run).join("scores"));
        let text = |name: &str| {
            let column = scores.column_by_name(name).unwrap();
            let column = arrow::compute::cast(column, &DataType::Utf8).unwrap();
            column.as_string::<i32>().clone()
        };
        let (ids, metrics, statuses) = (text("target_id"), text("metric"), text("status"));
        let raw = scores.column_by_name("score_raw").unwrap();
        let raw = raw.as_primitive::<Float64Type>();
        let mut found: Vec<_> = (0..scores.num_rows())
            .filter(|row| metrics.value(*row) == metric)
            .map(|row| {
                let score = raw.is_valid(row).then(|| raw.value(row));
                (
                    ids.value(row).to_owned(),
                    score,
                    statuses.value(row).to_owned(),
                )
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }
}

fn trace(id: &str, output: Value, expected: Value) -> Value {
    json!({"trace_id": id, "started_at": "2026-01-05T08:00:00Z", "input": "a question", "session_id": "s",
        "output": output, "expected": expected})
}

/// Texts of each kind that the metrics tell apart.
fn texts(i: usize) -> [Option<String>; 2] {
    let words = [
        "refund",
        "I think",
        "good",
        "maybe",
        "therefore",
        "order 5",
        "it",
        "caf\u{e9}",
    ];
    let prose = |k: usize| {
        let words = (0..2 + (i * k) % 23).map(|j| words[(i * k + j * j) % 8]);
        words
            .collect::<Vec<_>>()
            .join(if i.is_multiple_of(2) { " " } else { ". " })
    };
    let json = |k: usize| {
        format!(
            "{{\"id\": {}, \"tags\": [\"a\", {k}], \"x\": \"{}\"}}",
            i % 5,
            prose(k)
        )
    };
    let [output, expected] = match i % 4 {
        0 => [prose(3), prose(5)],
        1 => [json(3), json(5)],
        2 => [
            format!("# T\n- {}\n* b", prose(2)),
            format!("# T\n- {}", prose(2)),
        ],
        _ => [format!("```json\n{}\n```", json(2)), json(2)],
    };
    [
        (!i.is_multiple_of(11)).then_some(output),
        (!i.is_multiple_of(7)).then_some(expected),
    ]
}

fn batch(rows: &[usize]) -> RecordBatch {
    let column = |of: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| of(*row)).collect::<StringArray>())
    };
    let times: TimestampMicrosecondArray = rows.iter().map(|i| Some(*i as i64 / 3)).collect();
    RecordBatch::try_from_iter_with_nullable([
        (
            "trace_id",
            column(&|i| Some(format!("{:032x}", i * 7919 + 1))),
            true,
        ),
        ("session_id", column(&|i| Some(format!("s{}", i % 9))), true),
        (
            "started_at",
            Arc::new(times.with_timezone("UTC")) as ArrayRef,
            true,
        ),
        (
            "input",
            column(&|i| Some(format!("question {}", i % 10))),
            true,
        ),
        ("output", column(&|i| texts(i)[0].clone()), true),
        ("expected", column(&|i| texts(i)[1].clone()), true),
    ])
    .unwrap()
}

/// The bytes of all tables of a run but its quarantine.
fn tables(run: &Path) -> Vec<(String, Vec<u8>)> {
    let files = walkdir::WalkDir::new(run).sort_by_file_name().into_iter();
    let files = files.map(|entry| entry.unwrap().into_path());
    let tables = files.filter(|path| path.extension().is_some_and(|e| e == "parquet"));
    let apart = ["quarantine", "carried"].map(|name| run.join(name));
    let tables = tables.filter(|path| !apart.iter().any(|folder| path.starts_with(folder)));
    let name = |path: &Path| path.strip_prefix(run).unwrap().display().to_string();
    tables
        .map(|path| (name(&path), std::fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn order_batches_files_and_threads_change_no_comparison() {
    let place = Place::new();
    let all: Vec<usize> = (0..120).collect();
    write_parquet(&place.at("one.parquet"), &[batch(&all)], 1000);
    let mut turned = all;
    turned.reverse();
    for (part, rows) in turned.chunks(40).enumerate() {
        write_parquet(
            &place.at(&format!("part-{part}.parquet")),
            &[batch(rows)],
            7,
        );
    }
    let path = |name: &str| place.at(name).display().to_string();
    let one = path("one.parquet");
    let parts = [
        path("part-2.parquet"),
        path("part-0.parquet"),
        path("part-1.parquet"),
    ];
    let parts = parts.each_ref().map(String::as_str);
    for (at, metrics) in [ALL, "tone,coherence,format,loop_detection", "format"]
        .iter()
        .enumerate()
    {
        let (first, second) = (format!("one-{at}"), format!("parts-{at}"));
        // With the output embedded too, it must be said what its documents are.
        let plain: &[&str] = match metrics.contains("coherence") {
            true => &["--text-columns", "output"],
            false => &[],
        };
        let more = |threads| [plain, &["--threads", threads, "--no-report"]].concat();
        let ran = place.score(&[&one], metrics, &first, &more("1"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let ran = place.score(&parts, metrics, &second, &more("3"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let (first, second) = (tables(&place.at(&first)), tables(&place.at(&second)));
        assert!(first.len() >= 3);
        for (one, other) in first.iter().zip(&second) {
            assert!(one == other, "{} differs: {metrics}", one.0);
        }
        assert_eq!(first.len(), second.len());
    }
    // Whatever else is computed, a metric has the same scores.
    for metric in ["tone", "format"] {
        assert_eq!(place.scores("one-0", metric), place.scores("one-1", metric));
    }
    assert_eq!(
        place.scores("one-0", "format"),
        place.scores("one-2", "format")
    );
    // A missing output is the empty text, a missing expected text is no evidence.
    let scores = place.scores("one-0", "factuality");
    let status = |i: usize| {
        let id = format!("{:032x}", i * 7919 + 1);
        let found = scores.iter().find(|score| score.0 == id).unwrap();
        (found.1, found.2.clone())
    };
    assert_eq!(status(7), (None, "NO_EVIDENCE".to_owned()));
    assert_eq!(status(11), (Some(0.0), "SUCCESS".to_owned()));
    let without = (0..120).filter(|i| i % 7 == 0).count();
    assert_eq!(
        summary(&place.at("one-0"))["traces_without_expected"],
        without
    );
}

#[test]
fn a_run_that_compares_says_what_came_of_it() {
    let place = Place::new();
    let file = place.jsonl(
        "traces.jsonl",
        &[
            trace(
                "a",
                json!("The capital is Paris."),
                json!("The capital is Paris."),
            ),
            trace(
                "b",
                json!({"city": "Rome", "n": 2}),
                json!("{\"city\": \"Rome\", \"n\": 3}"),
            ),
            trace("c", json!("Anything"), json!(null)),
        ],
    );
    let ran = place.score(&[&file], ALL, "run", &["--fail-under", "factuality=0.9"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for line in [
        "means: factuality 0.7500, ",
        "1 trace has no expected text: no factuality, no format, no tone, and in no mean",
        "gate FAILED: mean factuality 0.7500 (at least 0.9)",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    // Nothing was embedded.
    assert!(!ran.stdout.contains("texts "), "{}", ran.stdout);
    let factuality: Vec<_> = place.scores("run", "factuality");
    let scores: Vec<_> = factuality.iter().map(|score| score.1).collect();
    assert_eq!(scores, [Some(1.0), Some(0.5), None]);
    let traces = read_parquet(&place.at("run/traces"));
    let column = |name: &str| traces.column_by_name(name).unwrap().clone();
    assert_eq!(column("format").null_count(), 1);
    let details = column("details");
    let of_c: Value = serde_json::from_str(details.as_string::<i32>().value(2)).unwrap();
    assert_eq!(of_c["tone"], json!({"note": "no_expected_text"}));
    let report = std::fs::read_to_string(place.at("run/report.html")).unwrap();
    assert!(report.contains("data-metric=\"factuality\""));
    assert!(report.contains("1 trace has no expected text"), "{report}");
    let scored = read_parquet(&place.at("run/scores"));
    let reasons = scored
        .column_by_name("reason")
        .unwrap()
        .as_string::<i32>()
        .clone();
    let reasons: Vec<&str> = reasons.iter().flatten().collect();
    for reason in [
        "Failed sub-checks: json_validity, json_schema.",
        "The trace has no expected text.",
    ] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
    // Where no trace has one, nothing was compared.
    let bare = place.jsonl("bare.jsonl", &[trace("a", json!("x"), json!(null))]);
    let mut row = trace("b", json!("x"), json!(null));
    row["expected"] = json!("");
    let empty = place.jsonl("empty.jsonl", &[row]);
    assert_eq!(place.score(&[&bare], ALL, "bare", &[]).code, Some(3));
    assert_eq!(
        place.score(&[&bare, &empty], ALL, "some", &[]).code,
        Some(0)
    );
    // A threshold is also that of the sub-checks of the format.
    let ran = place.score(&[&file], "format", "strict", &["--threshold", "format=1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = nightmill([
        "runs",
        "summary",
        &place.at("run").display().to_string(),
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\"tone\""), "{}", ran.stdout);
}

#[test]
fn the_expected_column_may_have_another_name_but_must_be_there() {
    let place = Place::new();
    let rows = |name: &str| {
        let mut row = trace("a", json!("yes it is"), json!(null));
        let row = row.as_object_mut().unwrap();
        row.remove("expected");
        row.insert(name.to_owned(), json!("yes it is"));
        Value::Object(row.clone())
    };
    let file = place.jsonl("traces.jsonl", &[rows("reference")]);
    let parquet = place.at("traces.parquet");
    let sql = format!("SELECT * FROM '{file}'");
    let ran = nightmill(["sql", &sql, "--out", &parquet.display().to_string()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for file in [file, parquet.display().to_string()] {
        let refused = place.score(&[&file], "format", "run", &[]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for part in ["no column `expected`", "--map expected=COLUMN", "reference"] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
        let map = ["--map", "expected=reference", "--overwrite"];
        let ran = place.score(&[&file], ALL, "run", &map);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(place.scores("run", "factuality")[0].1, Some(1.0));
        // Whoever names it wants it compared.
        let idle = place.score(&[&file], "coherence", "run", &map);
        assert_eq!(idle.code, Some(2), "{idle:?}");
        assert!(idle.stderr.contains("--map expected"), "{}", idle.stderr);
    }
    // Runs that do not ask for it neither need the column nor have columns for it.
    let file = place.jsonl("plain.jsonl", &[rows("other")]);
    let ran = place.score(
        &[&file],
        "all",
        "all",
        &["--judge", "openai/x", "--offline"],
    );
    assert!(!ran.stderr.contains("expected"), "{ran:?}");
    let ran = place.score(&[&file], "coherence", "plain", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let traces = read_parquet(&place.at("plain/traces"));
    assert!(traces.column_by_name("format").is_none());
    assert!(summary(&place.at("plain"))["traces_without_expected"].is_null());
}

#[test]
fn documents_are_compared_as_they_are() {
    let place = Place::new();
    let document = r#"{"b": 1.50, "a": [1,2],  "t": "x"}"#;
    let rows = [
        trace("a", json!(document), json!(document)),
        trace("b", json!("[1, 2]"), json!("[1, 2, 3]")),
    ];
    let file = place.jsonl("traces.jsonl", &rows);
    // Embedded, it must be said what such texts are; compared, they are what they are.
    let refused = place.score(&[&file], "coherence,format", "run", &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--json-columns output"),
        "{}",
        refused.stderr
    );
    let expected = |place: &Place, run: &str| {
        let of = |metric: &str| -> Vec<Option<f64>> {
            place
                .scores(run, metric)
                .iter()
                .map(|score| score.1)
                .collect()
        };
        (of("factuality"), of("format"))
    };
    let ran = place.score(&[&file], ALL, "plain", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let plain = expected(&place, "plain");
    assert_eq!(plain.0, [Some(1.0), Some(2.0 / 3.0)]);
    // Neither what they are declared to be nor the text mode changes a comparison.
    for (run, more) in [
        ("declared", &["--json-columns", "output,expected"][..]),
        ("text", &["--text-columns", "output,expected"]),
    ] {
        let ran = place.score(&[&file], ALL, run, more);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(expected(&place, run), plain, "{run}");
    }
    for (run, mode) in [("whole", "compat"), ("content", "content")] {
        let metrics = format!("coherence,{ALL}");
        let more = ["--json-columns", "output", "--text-mode", mode];
        let ran = place.score(&[&file], &metrics, run, &more);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(expected(&place, run), plain, "{run}");
    }
    // Where nothing is embedded, the text mode means nothing.
    let idle = place.score(&[&file], ALL, "idle", &["--text-mode", "content"]);
    assert_eq!(idle.code, Some(2), "{idle:?}");
    assert!(idle.stderr.contains("--text-mode"), "{}", idle.stderr);
}

#[test]
fn rows_of_one_trace_are_merged_before_they_are_compared() {
    let place = Place::new();
    let outputs = place.jsonl(
        "1-outputs.jsonl",
        &[
            trace("a", json!("the answer"), json!(null)),
            trace("b", json!("old"), json!("new")),
            trace("d", json!("alone"), json!("alone")),
        ],
    );
    let references = place.jsonl(
        "2-references.jsonl",
        &[
            trace("a", json!(null), json!("the answer")),
            trace("b", json!("new"), json!(null)),
            trace("c", json!(null), json!("nobody said it")),
        ],
    );
    let ran = place.score(&[&outputs, &references], "factuality", "run", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let scores: Vec<_> = place
        .scores("run", "factuality")
        .into_iter()
        .map(|s| s.1)
        .collect();
    assert_eq!(scores, [Some(1.0), Some(1.0), Some(0.0), Some(1.0)]);
}
