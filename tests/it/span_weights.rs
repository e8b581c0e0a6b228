//! Scores of spans as signals of session metrics: by a weight, and not without one.

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use serde_json::{Value, json};

use crate::support::{Ran, nightmill, read_parquet};

/// Weights of the runs below.
const WEIGHTS: &str = "tool_error_rate=1.2,stuck=0.9";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("traces.jsonl", &rows());
        let given = |id: &str| json!({"trace_id": id, "confidence": 0.9, "loop_detection": 1.0, "coherence": 0.8});
        place.write("signals.jsonl", &["t1", "t2", "t3"].map(given));
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn write(&self, name: &str, rows: &[Value]) {
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        std::fs::write(self.at(name), lines.join("\n")).unwrap();
    }

    fn score(&self, run: &str, more: &[&str]) -> Ran {
        let (traces, signals, out) = (
            self.path("traces.jsonl"),
            self.path("signals.jsonl"),
            self.path(run),
        );
        let mut args = vec!["score", &traces, "--signals", &signals, "--out", &out];
        args.extend(more);
        nightmill(args)
    }

    fn aggregate(&self, of: &str, run: &str, more: &[&str]) -> Ran {
        let (of, out) = (self.path(of), self.path(run));
        let mut args = vec!["aggregate", &of, "--out", &out];
        args.extend(more);
        nightmill(args)
    }

    /// Reliability and consistency of the one session.
    fn session(&self, run: &str) -> [Option<f64>; 2] {
        let sessions = read_parquet(&self.at(run).join("sessions"));
        assert_eq!(sessions.num_rows(), 1);
        ["agent_reliability", "agent_consistency"].map(|name| {
            let scores = sessions.column_by_name(name).unwrap();
            let scores = scores.as_primitive::<Float64Type>();
            scores.is_valid(0).then(|| scores.value(0))
        })
    }

    /// A column of `traces`; none if there is no such column.
    fn column(&self, run: &str, name: &str) -> Option<Vec<Option<f64>>> {
        let traces = read_parquet(&self.at(run).join("traces"));
        let values = traces.column_by_name(name)?;
        Some(values.as_primitive::<Float64Type>().iter().collect())
    }
}

/// Three traces of a session. Of the calls of the first, one of two fails and the second is like the first: what it is stuck
/// is one of three steps. Then one of five, and one of six.
fn rows() -> [Value; 3] {
    let call = |second: u32, name: &str, input: &str, output: &str, error: Option<&str>| {
        json!({"span_id": format!("{name}{second}"), "kind": "TOOL", "name": name, "input": {"q": input}, "output": output,
            "error": error, "started_at": format!("2026-01-05T08:00:{second:02}Z")})
    };
    let trace = |id: &str, minute: u32, output: &str, spans: Value| {
        json!({"trace_id": id, "session_id": "s", "started_at": format!("2026-01-05T08:{minute:02}:00Z"), "input": "a question",
            "output": output, "spans": spans})
    };
    let search = |second, error| call(second, "search", "cars", "nothing found", error);
    [
        trace(
            "t1",
            0,
            "red cars are here",
            json!([search(1, Some("no such page")), search(3, None)]),
        ),
        trace(
            "t2",
            1,
            "",
            json!([search(1, None), call(2, "fetch", "x", "blue ships", None)]),
        ),
        trace("t3", 2, "new words at last", json!([])),
    ]
}

/// Bytes of the tables of a run.
fn tables(run: &Path) -> Vec<Vec<u8>> {
    let files = walkdir::WalkDir::new(run).sort_by_file_name().into_iter();
    let files = files.map(|entry| entry.unwrap().into_path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "parquet"));
    // Where rows are in files is another matter.
    let files = files.filter(|path| !path.starts_with(run.join("carried")));
    files.map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn weighed_scores_of_spans_are_signals_of_session_metrics() {
    let place = Place::new();
    let ran = place.score("plain", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Steps of 0.2, the lack of coherence; uncertainties of (1 + 0.2) * 0.1.
    assert_eq!(place.session("plain"), [Some(0.8), Some(0.88)]);
    assert_eq!(place.column("plain", "stuck"), None);

    let ran = place.score("weighed", &["--weights", WEIGHTS, "-v"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let errors = place.column("weighed", "tool_error_rate").unwrap();
    assert_eq!(errors, [Some(0.5), Some(1.0), None]);
    let stuck = place.column("weighed", "stuck").unwrap();
    assert_eq!(stuck, [Some(0.6667), Some(0.8), Some(0.8333)]);
    // 1.2 * (1 - 0.5) is more than 0.9 * (1 - 0.6667); then 0.9 * 0.2 and 0.9 * 0.1667 are less than 0.2.
    let risks = place.column("weighed", "step_risk").unwrap();
    assert_eq!(risks, [Some(0.6), Some(0.2), Some(0.2)]);
    // The worst 15 % of three steps are one. Penalties: 0.2 + 0.6 + 0.29997, 0.2 + 0.18, 0.2 + 0.15003.
    assert_eq!(place.session("weighed"), [Some(0.4), Some(0.8353)]);
    assert!(
        ran.stdout.contains("tool_error_rate 0.5000 in t1\n"),
        "{ran:?}"
    );
    let sessions = read_parquet(&place.at("weighed").join("sessions"));
    let missing = sessions.column_by_name("missing_signals").unwrap();
    // The last trace has no call.
    assert_eq!(
        missing
            .as_primitive::<arrow::datatypes::Int64Type>()
            .value(0),
        1
    );
}

#[test]
fn a_weight_of_0_and_the_order_of_rows_change_nothing() {
    let place = Place::new();
    assert_eq!(place.score("plain", &[]).code, Some(0));
    let ran = place.score("zero", &["--weights", "stuck=0,empty_output=0"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(tables(&place.at("plain")), tables(&place.at("zero")));

    let weights = "stuck=0.5,empty_output=0.7,repeated_tool_calls=0.4,output_truncated=1";
    let ran = place.score("forth", &["--weights", weights, "--threads", "1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // The empty output of the second trace: 0.7 * (1 - 0).
    let [reliability, _] = place.session("forth");
    assert_eq!(reliability, Some(0.3));
    let mut turned = rows();
    turned.reverse();
    place.write("traces.jsonl", &turned);
    let ran = place.score("back", &["--weights", weights, "--threads", "3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(tables(&place.at("forth")), tables(&place.at("back")));
}

#[test]
fn stored_scores_of_spans_are_weighed_again() {
    let place = Place::new();
    assert_eq!(place.score("run", &["--weights", WEIGHTS]).code, Some(0));
    let ran = place.aggregate("run", "again", &["--weights", WEIGHTS]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.session("again"), place.session("run"));
    for name in ["stuck", "tool_error_rate", "step_risk"] {
        assert_eq!(place.column("again", name), place.column("run", name));
    }
    assert_eq!(place.column("again", "empty_output"), None);
    // And the table that it writes, by other weights.
    let ran = place.aggregate("again", "third", &["--weights", "stuck=1.6"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        place.column("third", "step_risk").unwrap()[0],
        // 1.6 * (1 - 0.6667).
        Some(0.5333)
    );
    let ran = place.aggregate("run", "plain", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.session("plain"), [Some(0.8), Some(0.88)]);
    assert_eq!(place.column("plain", "stuck"), None);

    // By SQL, where a call must hand over what weighs.
    let sql = |signals: &str| {
        let query = format!(
            "SELECT agent_reliability(confidence, loop_detection, tool_correctness, coherence{signals})['score'] AS r FROM '{}'",
            place.path("run/traces")
        );
        nightmill(["sql", &query, "--format", "csv", "--weights", WEIGHTS])
    };
    let ran = sql(", trace_id, tool_error_rate, NULL, NULL, NULL, stuck");
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "r\n0.4\n"),
        "{ran:?}"
    );
    let ran = sql("");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("tool_error_rate has a weight"),
        "{ran:?}"
    );
}

#[test]
fn a_given_score_of_spans_is_used_and_not_computed() {
    let place = Place::new();
    let given = |id: &str, stuck: Value| json!({"trace_id": id, "confidence": 0.9, "loop_detection": 1.0, "coherence": 0.8, "stuck": stuck});
    let rows = [
        given("t1", json!(0.1)),
        given("t2", Value::Null),
        given("t3", json!(1)),
    ];
    place.write("signals.jsonl", &rows);
    let ran = place.score("run", &["--weights", "stuck=1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let stuck = place.column("run", "stuck").unwrap();
    assert_eq!(stuck, [Some(0.1), Some(0.8), Some(1.0)]);
    assert_eq!(place.session("run")[0], Some(0.1));
}

#[test]
fn settings_files_and_monitors_weigh_too() {
    let place = Place::new();
    let config = place.path("own.toml");
    std::fs::write(&config, "[weights]\nstuck = 0.9\ntool_error_rate = 1.2\n").unwrap();
    let ran = place.score("run", &["--config", &config]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.session("run"), [Some(0.4), Some(0.8353)]);

    let (traces, out, monitors) = (
        place.path("traces.jsonl"),
        place.path("runs"),
        place.path("monitors"),
    );
    let ran = nightmill([
        "monitor",
        "add",
        "m",
        &traces,
        "--target",
        "session",
        "--metrics",
        "agent_reliability",
        "--cadence",
        "daily",
        "--weights",
        "empty_output=1",
        "--out",
        &out,
        "--monitors",
        &monitors,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = nightmill([
        "monitor",
        "tick",
        "--now",
        "2036-01-01T00:00:00Z",
        "--monitors",
        &monitors,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut runs = std::fs::read_dir(place.at("runs"))
        .unwrap()
        .map(|e| e.unwrap());
    let run = runs.find(|e| e.path().join("traces").is_dir()).unwrap();
    let run = format!("runs/{}", run.file_name().to_string_lossy());
    let empty = place.column(&run, "empty_output").unwrap();
    assert_eq!(empty, [Some(1.0), Some(0.0), Some(1.0)]);
    assert_eq!(place.session(&run)[0], Some(0.0));
}

#[test]
fn weights_that_would_mislead_are_refused() {
    let place = Place::new();
    for (args, told) in [
        (&["--weights", "latency=0.5"][..], "plain number"),
        (&["--weights", "tokens=1"], "plain number"),
        (&["--weights", "stuk=1"], "no such signal"),
        (
            &["--metrics", "coherence", "--weights", "stuck=0.5"],
            "--weights stuck: this metric is not computed",
        ),
    ] {
        let ran = place.score("run", args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    assert_eq!(place.score("plain", &[]).code, Some(0));
    let ran = place.aggregate("plain", "run", &["--weights", "stuck=0.5"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("no file has a column `stuck`"),
        "{ran:?}"
    );
    // A table of lines may have the column in any row.
    let line = json!({"trace_id": "t1", "session_id": "s", "started_at": "2026-01-05T08:00:00Z", "coherence": 0.5});
    place.write("table.jsonl", &[line]);
    let ran = place.aggregate("table.jsonl", "lines", &["--weights", "stuck=0.5"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("no trace has a value of `stuck`"),
        "{ran:?}"
    );
    // Without spans there is nothing to weigh.
    let without = rows().map(|mut row| {
        row.as_object_mut().unwrap().remove("spans");
        row
    });
    place.write("traces.jsonl", &without);
    let ran = place.score("run", &["--weights", "tool_error_rate=0.5"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no column `spans`"), "{ran:?}");
}
