//! What is known of runs: finished, under way, failed; what of them is removed; what is told as JSON.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use serde_json::{Value, json};

use crate::support::{Ran, entries, nightmill, program, read_parquet};

const SUPPORT: &str = "datasets/support";

#[track_caller]
fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

#[track_caller]
fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&ended(0, &[args, &["--json"]].concat()).stdout).unwrap()
}

struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn score(&self, out: &str, metrics: &str) -> String {
        let out = self.at(out);
        let args = [
            "score",
            SUPPORT,
            "--no-report",
            "--metrics",
            metrics,
            "--out",
            &out,
        ];
        ended(0, &args);
        out
    }

    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

/// The names and states of listed runs.
fn states(listed: &Value) -> Vec<(String, String)> {
    let runs = listed.as_array().unwrap().iter();
    let of = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    runs.map(|run| (of(run, "name"), of(run, "status")))
        .collect()
}

#[test]
fn runs_that_die_or_fail_leave_a_record() {
    let place = Place::new();
    let all = place.at("");
    let out = place.path("night");
    let score = || {
        let mut command = program();
        command
            .args(["score", SUPPORT, "--threads", "1", "--out"])
            .arg(&out);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut child = score();
    let begun = || {
        entries(place.0.path())
            .iter()
            .any(|name| name.contains(".nightmill-run-"))
    };
    let start = Instant::now();
    while !begun() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let running = json_of(&["runs", "list", &all]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(states(&running), [("night".into(), "RUNNING".into())]);
    let died = json_of(&["runs", "list", &all]);
    assert_eq!(states(&died), [("night".into(), "FAILED".into())]);
    assert!(
        died[0]["error"].as_str().unwrap().contains("killed"),
        "{died}"
    );
    assert_eq!(died[0]["metric_names"][0], "coherence");
    let shown = ended(0, &["runs", "show", &place.at("night")]).stdout;
    assert!(
        shown.contains("FAILED") && shown.contains("killed"),
        "{shown}"
    );
    assert!(
        ended(0, &["runs", "list", &all])
            .stdout
            .contains("FAILED: ")
    );

    // The next try takes its place.
    place.score("night", "coherence");
    assert_eq!(
        states(&json_of(&["runs", "list", &all])),
        [("night".into(), "COMPLETED".into())]
    );
    assert_eq!(entries(place.0.path()), ["night"]);

    // A record is removed by the name of its run.
    let record = r#"{"name": "old", "created_at": "2026-01-01T00:00:00Z", "command": "score", "status": "FAILED",
        "error": "no disk", "metric_names": ["coherence"], "monitor_id": null, "process": 1}"#;
    std::fs::write(place.path(".old.nightmill-run-x.json"), record).unwrap();
    assert_eq!(
        json_of(&["runs", "list", &all]).as_array().unwrap().len(),
        2
    );
    ended(0, &["runs", "delete", &place.at("old"), "--with-scores"]);
    assert_eq!(entries(place.0.path()), ["night"]);
}

#[test]
fn lists_are_narrowed() {
    let place = Place::new();
    place.score("one", "coherence");
    place.score("two", "agent_reliability");
    std::fs::create_dir(place.path("deep")).unwrap();
    place.score("deep/three", "loop_detection");
    let all = place.at("");
    let names = |more: &[&str]| {
        let listed = json_of(&[&["runs", "list", &all][..], more].concat());
        states(&listed)
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["one", "two"]);
    assert_eq!(names(&["--nested"]), ["one", "two", "three"]);
    assert_eq!(names(&["--nested", "--limit", "1"]), ["three"]);
    assert_eq!(
        names(&["--nested", "--limit", "1", "--offset", "1"]),
        ["two"]
    );
    assert_eq!(names(&["--target", "session"]), ["two"]);
    assert_eq!(names(&["--nested", "--target", "trace"]), ["one", "three"]);
    assert_eq!(names(&["--status", "completed"]), ["one", "two"]);
    assert!(names(&["--status", "failed"]).is_empty());
    ended(2, &["runs", "list", &all, "--status", "done"]);
    let shown = json_of(&["runs", "show", &place.at("two")]);
    assert_eq!(shown["run"]["name"], "two");
    assert_eq!(shown["manifest"]["rules"]["window"], 3);
    assert!(shown["summary"]["sessions"].as_u64().unwrap() > 100);
    let text = ended(0, &["runs", "show", &place.at("two")]).stdout;
    for words in ["agent_reliability", "COMPLETED", "window", "sessions"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn runs_are_deleted_with_their_scores_or_without() {
    let place = Place::new();
    let (one, two) = (
        place.score("one", "coherence"),
        place.score("two", "coherence"),
    );
    ended(2, &["runs", "delete", &one]);
    let before = json_of(&["runs", "summary", &one]);
    ended(0, &["runs", "delete", &one, "--keep-scores"]);
    assert_eq!(
        entries(Path::new(&one)),
        ["manifest.json", "scores", "summary.json"]
    );
    assert_eq!(json_of(&["runs", "summary", &one]), before);
    ended(0, &["runs", "verify", &one]);
    ended(0, &["runs", "delete", &one, &two, "--with-scores"]);
    assert!(entries(place.0.path()).is_empty());
    // Nothing but runs is ever removed.
    let three = place.score("three", "coherence");
    std::fs::write(place.path("three/thesis.txt"), "precious").unwrap();
    let refused = ended(2, &["runs", "delete", &three, "--with-scores"]);
    assert!(refused.stderr.contains("thesis.txt"), "{refused:?}");
    let folder = place.at("");
    ended(2, &["runs", "delete", &folder, "--with-scores"]);
    assert!(place.path("three/scores").exists());
}

#[test]
fn single_scores_are_removed() {
    let place = Place::new();
    let rows = [
        json!({"trace_id": "a", "session_id": "s", "started_at": "2026-01-01T00:00:00Z", "input": "x", "output": "y"}),
        json!({"trace_id": "b", "session_id": "s", "started_at": "2026-01-01T00:00:01Z", "input": "x", "output": "z"}),
    ];
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(place.path("t.jsonl"), lines).unwrap();
    let run = place.at("run");
    let args = [
        "score",
        &place.at("t.jsonl"),
        "--no-report",
        "--out",
        &run,
        "--metrics",
        "coherence",
    ];
    ended(0, &args);
    std::fs::write(
        place.path("remove.jsonl"),
        "{\"trace_id\": \"a\", \"name\": \"coherence\"}\n",
    )
    .unwrap();
    let remove = place.at("remove.jsonl");
    ended(0, &["runs", "scores", &run, "--delete", &remove]);
    assert_eq!(read_parquet(&place.path("run/scores")).num_rows(), 1);
    let traces = read_parquet(&place.path("run/traces"));
    let column = |name: &str| {
        let column = traces.column_by_name(name).unwrap();
        column.as_primitive::<Float64Type>().clone()
    };
    assert!(column("coherence").is_null(0) && column("coherence").is_valid(1));
    assert!(column("step_risk").is_null(0) && column("step_risk").is_valid(1));
    ended(0, &["runs", "verify", &run]);
    let gone = ended(2, &["runs", "scores", &run, "--delete", &remove]);
    assert!(gone.stderr.contains("no score `coherence`"), "{gone:?}");
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    for (args, words) in [
        (
            &["runs", "list", "/nowhere", "--json"][..],
            "no run directory",
        ),
        (
            &["score", SUPPORT, "--out", "x", "--window", "0", "--json"],
            "--window",
        ),
        (&["score", "--json"], "required"),
        (&["metrics", "--jsn", "--json"], "--jsn"),
    ] {
        let ran = ended(2, args);
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        let error = &told["error"];
        assert!(error["message"].as_str().unwrap().contains(words), "{told}");
        assert_eq!(error["exit_code"], 2);
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.contains(words),
            "{ran:?}"
        );
    }
    let misspelt = ended(2, &["metrics", "--jsn", "--json"]).stdout;
    let told: Value = serde_json::from_str(&misspelt).unwrap();
    let hint = told["error"]["hint"].as_str().unwrap();
    assert_eq!(hint, "tip: a similar argument exists: '--json'");
    // Without the flag standard output is for results alone.
    assert_eq!(ended(2, &["runs", "list", "/nowhere"]).stdout, "");
    // The environment may ask for JSON as well.
    let mut command = program();
    command
        .args(["score", "/nowhere", "--out", "x"])
        .env("NIGHTMILL_JSON", "1");
    let output = command.output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &told["error"]["exit_code"]),
        (Some(2), &json!(2))
    );
    let help = ended(0, &["metrics", "--json", "--help"]);
    assert!(help.stdout.contains("Usage"), "{help:?}");
}

#[test]
fn what_a_judge_is_asked_can_be_looked_at() {
    let known = ended(0, &["metrics", "--prompt", "plan_quality"]).stdout;
    for stage in [
        "extract_task",
        "extract_plan",
        "plan_quality_score",
        "-- system",
    ] {
        assert!(known.contains(stage), "{known}");
    }
    let place = Place::new();
    let row = json!({"trace_id": "t-9", "session_id": "s", "started_at": "2026-01-01T00:00:00Z",
        "input": "where is it?", "output": "in the blue box"});
    std::fs::write(place.path("t.jsonl"), format!("{row}\n")).unwrap();
    let file = place.at("t.jsonl");
    for metric in ["confidence", "conversation"] {
        let args = [
            "metrics",
            "--prompt",
            metric,
            "--trace",
            &file,
            "--trace-id",
            "t-9",
        ];
        let shown = json_of(&args);
        let user = shown[0]["user"].as_str().unwrap();
        assert!(user.contains("in the blue box"), "{user}");
    }
    let refused = ended(2, &["metrics", "--prompt", "coherence"]);
    assert!(refused.stderr.contains("no prompt"), "{refused:?}");
    let args = [
        "metrics",
        "--prompt",
        "confidence",
        "--trace",
        &file,
        "--trace-id",
        "x",
    ];
    assert!(ended(2, &args).stderr.contains("no such trace"));
}

#[test]
fn providers_and_settings_are_listed() {
    let mut command = program();
    command
        .env_remove("ANTHROPIC_API_KEY")
        .env("OPENAI_API_KEY", "sk-canary");
    let output = command.args(["judge", "--providers"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("anthropic/") && text.contains("lacks a key"),
        "{text}"
    );
    assert!(
        text.contains("batch files") && !text.contains("canary"),
        "{text}"
    );
    let listed = json_of(&["judge", "--providers"]);
    assert_eq!(listed[0]["prefix"], "openai/");

    let template = ended(0, &["score", "--template"]).stdout;
    let place = Place::new();
    std::fs::write(place.path("n.toml"), template).unwrap();
    let out = place.at("run");
    let config = place.at("n.toml");
    let args = [
        "score",
        SUPPORT,
        "--no-report",
        "--metrics",
        "coherence",
        "--out",
        &out,
    ];
    ended(0, &[&args[..], &["--config", &config]].concat());
}
