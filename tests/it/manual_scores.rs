//! `nightmill runs scores`: scores of people beside those of runs.

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use serde_json::{Value, json};

use crate::support::{Ran, entries, nightmill, read_parquet, traces, write_parquet};

/// Runs the program; it must end with this code.
#[track_caller]
fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

#[track_caller]
fn json_of(args: &[&str]) -> Value {
    let args = [args, &["--json"]].concat();
    serde_json::from_str(&ended(0, &args).stdout).unwrap()
}

/// A folder with a run `run` over three traces, `a`, `b` and `c`, of which the last has no session.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let rows = [
            (Some("a"), Some("s"), Some(1), Some("red"), Some("green")),
            (Some("b"), Some("s"), Some(2), Some("ships"), Some("boats")),
            (Some("c"), None, Some(3), Some("north"), Some("south")),
        ];
        write_parquet(&place.path("traces.parquet"), &[traces(&rows)], 10);
        let (file, out) = (place.at("traces.parquet"), place.at("run"));
        ended(
            0,
            &[
                "score",
                &file,
                "--metrics",
                "coherence",
                "--no-report",
                "--out",
                &out,
            ],
        );
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn file(&self, name: &str, rows: &[Value]) -> String {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(self.path(name), lines).unwrap();
        self.at(name)
    }

    /// `runs scores` of the run, with a file of these rows.
    #[track_caller]
    fn scores(&self, code: i32, what: &str, dir: &str, rows: &[Value]) -> Ran {
        let file = self.file("given.jsonl", rows);
        ended(code, &["runs", "scores", &self.at(dir), what, &file])
    }
}

/// A column of a run's scores, in the order of rows.
fn texts(run: &Path, name: &str) -> Vec<Option<String>> {
    let batch = read_parquet(&run.join("scores"));
    let column = arrow::compute::cast(batch.column_by_name(name).unwrap(), &DataType::Utf8);
    let column = column.unwrap();
    let texts = column.as_string::<i32>();
    texts.iter().map(|text| text.map(str::to_owned)).collect()
}

fn numbers(run: &Path, name: &str) -> Vec<Option<f64>> {
    let batch = read_parquet(&run.join("scores"));
    let column = batch.column_by_name(name).unwrap();
    column.as_primitive::<Float64Type>().iter().collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

fn bytes_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = walkdir::WalkDir::new(folder).sort_by_file_name();
    let files = files.into_iter().map(|entry| entry.unwrap().into_path());
    files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn imported_scores_count_where_they_should() {
    let place = Place::new();
    let before = bytes_below(&place.path("run"));
    let rows = [
        json!({"trace_id": "a", "name": "helpful", "value": 0.2, "reason": "no", "metadata": {"by": "me"}}),
        json!({"trace_id": "b", "name": "helpful", "value": "1.0", "source": "programmatic"}),
        json!({"trace_id": "c", "name": "helpful", "value": 0.60006}),
        json!({"trace_id": "c", "name": "safe", "value": "TRUE", "data_type": "BOOLEAN"}),
        json!({"trace_id": "c", "name": "tone", "value": "dry", "data_type": "CATEGORICAL"}),
    ];
    let ran = place.scores(0, "--import", "run", &rows);
    assert!(
        ran.stdout
            .starts_with("5 scores of 3 traces: helpful, safe, tone\n"),
        "{ran:?}"
    );
    assert_eq!(
        bytes_below(&place.path("run")),
        before,
        "the run was changed"
    );

    let made = place.path("run-scores");
    assert_eq!(entries(&made), ["manifest.json", "scores", "summary.json"]);
    assert_eq!(
        texts(&made, "value"),
        some(&["0.2", "1.0", "0.60006", "true", "dry"])
    );
    assert_eq!(
        numbers(&made, "score"),
        [Some(0.2), Some(1.0), Some(0.6001), None, None]
    );
    assert_eq!(numbers(&made, "score_raw")[2], Some(0.60006));
    let sources = [
        "ANNOTATION",
        "PROGRAMMATIC",
        "ANNOTATION",
        "ANNOTATION",
        "ANNOTATION",
    ];
    assert_eq!(texts(&made, "source"), some(&sources));
    assert_eq!(texts(&made, "status"), some(&["SUCCESS"; 5]));
    assert_eq!(
        texts(&made, "metadata")[..2],
        some(&[r#"{"by":"me"}"#, "{}"])
    );
    // What a trace belongs to comes from the run.
    let sessions = texts(&made, "session_id");
    assert_eq!(sessions[..3], [some(&["s", "s"]), vec![None]].concat());

    let all = place.at("");
    let listed = json_of(&["runs", "list", &all]);
    assert_eq!(
        (
            &listed[1]["name"],
            &listed[1]["command"],
            &listed[1]["status"]
        ),
        (&json!("run-scores"), &json!("import"), &json!("COMPLETED"))
    );
    let summed = json_of(&["runs", "summary", &all]);
    let row = |metric: &str| {
        let mut rows = summed.as_array().unwrap().iter();
        rows.find(|row| row["metric"] == metric).unwrap().clone()
    };
    let helpful = row("helpful");
    assert_eq!(
        (
            &helpful["target"],
            &helpful["success_count"],
            &helpful["failed_count"]
        ),
        (&json!("TRACE"), &json!(3), &json!(0))
    );
    assert_eq!(
        (
            &helpful["min_score"],
            &helpful["median_score"],
            &helpful["max_score"]
        ),
        (&json!(0.2), &json!(0.6001), &json!(1.0))
    );
    // Truth values and words are counted, and have no mean.
    for metric in ["safe", "tone"] {
        assert_eq!(row(metric)["success_count"], 1);
        assert_eq!(row(metric)["avg_score"], Value::Null);
    }
    assert_eq!(row("coherence")["success_count"], 3);
    let latest = json_of(&["runs", "history", &all, "--trace", "c"]);
    let known = latest.as_array().unwrap().iter();
    let known: Vec<[&Value; 4]> = known
        .map(|row| ["metric", "score", "value", "run"].map(|key| &row[key]))
        .collect();
    assert_eq!(known[0][0], "coherence");
    let words = [
        [
            json!("helpful"),
            json!(0.6001),
            json!("0.60006"),
            json!("run-scores"),
        ],
        [
            json!("safe"),
            Value::Null,
            json!("true"),
            json!("run-scores"),
        ],
        [
            json!("tone"),
            Value::Null,
            json!("dry"),
            json!("run-scores"),
        ],
    ];
    assert_eq!(known[1..], words.each_ref().map(|row| row.each_ref()));
    let one = ["runs", "history", &all, "--trace", "c", "--metric", "tone"];
    let table = ended(0, &one).stdout;
    assert!(
        table.contains("dry") && !table.contains("helpful"),
        "{table}"
    );
    for wrong in [
        &["runs", "history", &all][..],
        &["runs", "history", &all, "--trace", "c", "--session", "s"],
        &["runs", "history", &all, "--trace", "c", "--metric", "tome"],
    ] {
        let refused = ended(2, wrong);
        assert!(
            refused.stderr.contains("--") && refused.stdout.is_empty(),
            "{refused:?}"
        );
    }
    let buckets = json_of(&[
        "runs",
        "distribution",
        &all,
        "--metric",
        "helpful",
        "--buckets",
        "2",
    ]);
    let counts: Vec<&Value> = buckets
        .as_array()
        .unwrap()
        .iter()
        .map(|b| &b["count"])
        .collect();
    assert_eq!(counts, [1, 1, 1], "{buckets}");
    let trend = json_of(&[
        "runs",
        "trend",
        &all,
        "--metric",
        "helpful",
        "--interval",
        "week",
    ]);
    assert_eq!(trend[0]["count"], 3);
    let unknown = ended(2, &["runs", "trend", &all, "--metric", "helpfull"]);
    assert!(unknown.stderr.contains("`helpful`"), "{unknown:?}");

    // Again: a directory of its own.
    place.scores(0, "--import", "run", &rows[..1]);
    assert!(place.path("run-scores-2").exists());
}

#[test]
fn parquet_is_imported_too() {
    let place = Place::new();
    let query = format!(
        "SELECT trace_id, 'agreed' AS name, 0.5 AS value, '{{\"n\": 1}}' AS metadata FROM '{}' ORDER BY trace_id",
        place.at("run/traces")
    );
    let file = place.at("agreed.parquet");
    ended(0, &["sql", &query, "--out", &file]);
    let out = place.at("elsewhere");
    ended(
        0,
        &[
            "runs",
            "scores",
            &place.at("run"),
            "--import",
            &file,
            "--out",
            &out,
        ],
    );
    let made = place.path("elsewhere");
    assert_eq!(texts(&made, "target_id"), some(&["a", "b", "c"]));
    assert_eq!(numbers(&made, "score"), [Some(0.5); 3]);
    assert_eq!(texts(&made, "metadata"), some(&[r#"{"n":1}"#; 3]));
}

#[test]
fn rows_that_do_not_fit_stop_the_import_by_name() {
    let place = Place::new();
    let good = json!({"trace_id": "a", "name": "n", "value": 1});
    for (bad, words) in [
        (
            json!({"trace_id": "a", "name": "n", "value": 4.5}),
            "column `value`: `4.5`",
        ),
        (
            json!({"trace_id": "a", "name": "n", "value": "NaN"}),
            "from 0 to 1",
        ),
        (
            json!({"trace_id": "a", "name": "n"}),
            "column `value`: null",
        ),
        (json!({"trace_id": "a", "value": 1}), "column `name`"),
        (json!({"name": "n", "value": 1}), "column `trace_id`"),
        (
            json!({"trace_id": "z", "name": "n", "value": 1}),
            "`z` is no trace",
        ),
        (
            json!({"trace_id": "a", "name": "n", "value": 1, "data_type": "BOOLEAN"}),
            "true nor false",
        ),
        (
            json!({"trace_id": "a", "name": "n", "value": 1, "source": "ME"}),
            "ANNOTATION",
        ),
        (
            json!({"trace_id": "a", "name": "n", "value": 1, "metadata": [1]}),
            "JSON object",
        ),
        (
            json!({"trace_id": "a", "name": "n", "value": 1, "reson": "x"}),
            "`reason`",
        ),
    ] {
        let ran = place.scores(2, "--import", "run", &[good.clone(), bad.clone()]);
        assert!(
            ran.stderr.contains(words) && ran.stderr.contains("given.jsonl`, row 1"),
            "{bad}: {ran:?}"
        );
        assert!(!place.path("run-scores").exists());
    }
    place.scores(2, "--import", "run", &[]);
    ended(2, &["runs", "scores", &place.at("run")]);
}

#[test]
fn edits_change_value_reason_and_metadata_and_the_trace_alone() {
    let place = Place::new();
    let run = place.path("run");
    let before = bytes_below(&run);
    let (values, reasons) = (texts(&run, "value"), texts(&run, "reason"));
    let edits = [
        json!({"trace_id": "b", "name": "coherence", "value": 0.25, "metadata": {"seen": true}}),
        json!({"trace_id": "c", "name": "coherence", "reason": "looked at"}),
    ];
    place.scores(0, "--edit", "run", &edits);
    assert_eq!(texts(&run, "value")[0], values[0]);
    assert_eq!(texts(&run, "value")[1].as_deref(), Some("0.25"));
    assert_eq!(texts(&run, "value")[2], values[2]);
    assert_eq!(numbers(&run, "score")[1], Some(0.25));
    assert_eq!(texts(&run, "reason")[..2], reasons[..2]);
    assert_eq!(texts(&run, "reason")[2].as_deref(), Some("looked at"));
    assert_eq!(
        texts(&run, "metadata")[1].as_deref(),
        Some(r#"{"seen":true}"#)
    );
    let passed = read_parquet(&run.join("scores"));
    let passed = passed
        .column_by_name("passed")
        .unwrap()
        .as_boolean()
        .clone();
    assert!(
        passed.is_valid(1) && !passed.value(1),
        "0.25 is below the threshold"
    );
    assert_eq!(
        texts(&run, "source"),
        some(&["AUTOMATED", "ANNOTATION", "ANNOTATION"])
    );
    assert_eq!(texts(&run, "status"), some(&["SUCCESS"; 3]));
    // The table of traces says the same, and what follows from it.
    let wide = read_parquet(&run.join("traces"));
    let column = |name: &str| -> Vec<Option<f64>> {
        let column = wide.column_by_name(name).unwrap();
        column.as_primitive::<Float64Type>().iter().collect()
    };
    assert_eq!(column("coherence")[1], Some(0.25));
    assert_eq!(column("coherence")[0], numbers(&run, "score")[0]);
    assert_eq!(column("step_risk")[1], Some(0.75));
    assert_ne!(column("step_risk")[0], Some(0.75));
    assert!(
        wide.column_by_name("flagged")
            .unwrap()
            .as_boolean()
            .value(1)
    );
    ended(0, &["runs", "verify", &place.at("run")]);
    // Every other file is what it was, and the manifest knows the new ones.
    let after = bytes_below(&run);
    let changed: Vec<&Path> = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .map(|((path, _), _)| path.strip_prefix(&run).unwrap())
        .collect();
    let expected = [
        "manifest.json",
        "scores/part-00000.parquet",
        "traces/part-00000.parquet",
    ]
    .map(Path::new);
    assert_eq!((before.len(), changed), (after.len(), expected.to_vec()));
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    let part = std::fs::read(run.join("scores/part-00000.parquet")).unwrap();
    let hash = blake3::hash(&part).to_hex().to_string();
    assert_eq!(
        manifest["files"]["scores/part-00000.parquet"]["blake3"],
        hash
    );
    assert!(manifest["edited_at"].is_string());

    let before = bytes_below(&run);
    for (bad, words) in [
        (
            json!({"trace_id": "b", "name": "coherence", "value": 2}),
            "from 0 to 1",
        ),
        (
            json!({"trace_id": "b", "name": "coherence"}),
            "nothing to change",
        ),
        (
            json!({"trace_id": "z", "name": "coherence", "value": 1}),
            "no score `coherence`",
        ),
        (
            json!({"trace_id": "b", "name": "tone", "value": 1}),
            "no score `tone`",
        ),
        (
            json!({"trace_id": "b", "name": "coherence", "value": 1, "source": "AUTOMATED"}),
            "columns are",
        ),
    ] {
        let ran = place.scores(2, "--edit", "run", &[edits[1].clone(), bad]);
        assert!(ran.stderr.contains(words), "{ran:?}");
        assert_eq!(bytes_below(&run), before);
    }
    let twice = place.scores(2, "--edit", "run", &[edits[0].clone(), edits[0].clone()]);
    assert!(twice.stderr.contains("named twice"), "{twice:?}");
    let hidden = entries(place.0.path());
    assert!(
        !hidden.iter().any(|name| name.starts_with('.')),
        "{hidden:?}"
    );
}

/// Scores that people gave to traces go before computed ones where session scores are made again; so do edits.
#[test]
fn session_scores_are_made_of_what_people_said() {
    let place = Place::new();
    let (run, first) = (place.at("run"), place.at("first"));
    ended(0, &["aggregate", &run, "--out", &first]);
    let of_session = |out: &str| {
        let batch = read_parquet(&place.path(out).join("scores"));
        let names = batch.column_by_name("metric").unwrap();
        let names = arrow::compute::cast(names, &DataType::Utf8).unwrap();
        let at = names
            .as_string::<i32>()
            .iter()
            .position(|n| n == Some("agent_reliability"));
        let scores = batch.column_by_name("score").unwrap();
        scores.as_primitive::<Float64Type>().value(at.unwrap())
    };
    let computed = of_session("first");
    let rows = [
        json!({"trace_id": "a", "name": "coherence", "value": 0.9}),
        json!({"trace_id": "a", "name": "coherence", "value": 0.1}),
        json!({"trace_id": "b", "name": "helpful", "value": 0.0}),
    ];
    let ran = place.scores(0, "--import", "run", &rows);
    assert!(ran.stdout.contains("nightmill aggregate"), "{ran:?}");
    let imported = place.at("run-scores");
    let ran = ended(
        0,
        &["aggregate", &run, &imported, "--out", &place.at("second")],
    );
    assert!(!ran.stdout.contains("unmatched"), "{ran:?}");
    // One risk of 0.9 and one of less: the worst step is all of the riskiest 15 %.
    assert_eq!(of_session("second"), 0.1);
    assert_ne!(computed, 0.1);
    let wide = read_parquet(&place.path("second/traces"));
    let column = wide.column_by_name("step_risk").unwrap();
    assert_eq!(column.as_primitive::<Float64Type>().value(0), 0.9);

    place.scores(
        0,
        "--edit",
        "run",
        &[json!({"trace_id": "b", "name": "coherence", "value": 0.05})],
    );
    ended(0, &["aggregate", &run, "--out", &place.at("third")]);
    assert_eq!(of_session("third"), 0.05);
    ended(0, &["runs", "verify", &place.at("third")]);
    let alone = ended(2, &["aggregate", &imported, "--out", &place.at("fourth")]);
    assert!(alone.stderr.contains("name the run"), "{alone:?}");
}
