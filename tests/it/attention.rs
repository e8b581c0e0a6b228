//! The order of sessions for the morning: whom it puts first, why, and what it refuses to be misled by.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{nightmill, read_parquet, summary};

/// Sessions of two turns in which all goes well, and one that is in trouble.
fn warehouse() -> Vec<Value> {
    let mut rows = Vec::new();
    let mut row = |session: &str, turn: usize, input: &str, output: &str, spans: Value| {
        rows.push(json!({
            "trace_id": format!("{session}-{turn}"),
            "session_id": session,
            "started_at": format!("2026-11-20T10:{turn:02}:00Z"),
            "input": input,
            "output": output,
            "spans": spans,
        }));
    };
    let call = |name: &str, input: &str, error: Value| json!({ "kind": "TOOL", "name": name, "input": input, "output": "x", "error": error });
    for n in 0..12 {
        let session = format!("good{n:02}");
        let number = format!("{n}");
        let (look, close) = (
            call("look", &number, Value::Null),
            call("close", "", Value::Null),
        );
        row(
            &session,
            0,
            "where is my parcel",
            "It is on its way.",
            json!([look]),
        );
        row(&session, 1, "thank you", "You are welcome.", json!([close]));
    }
    let look = call("look", "7", json!("no such parcel"));
    let sorry = "I am sorry, I could not find a parcel of this number in our system at all today";
    row("bad", 0, "where is my parcel", sorry, json!([look]));
    row("bad", 1, "no, I said the red parcel", sorry, json!([look]));
    row("bad", 2, "forget it", sorry, json!([look]));
    rows
}

fn write(path: &Path, rows: &[Value]) {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(path, lines).unwrap();
}

fn score(file: &Path, out: &Path, more: &[&str]) -> crate::support::Ran {
    let (file, out) = (file.display().to_string(), out.display().to_string());
    nightmill([&["score", &file, "--out", &out, "--no-report"], more].concat())
}

#[test]
fn a_session_in_trouble_comes_first_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (
        folder.path().join("traces.jsonl"),
        folder.path().join("run"),
    );
    write(&file, &warehouse());
    let ran = score(&file, &out, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let attention = &summary(&out)["attention"];
    assert_eq!(attention["sessions"], 13);
    assert_eq!(attention["model"], "unsupervised");
    let first = &attention["first"][0];
    assert_eq!(
        (&first["session_id"], &first["place"]),
        (&json!("bad"), &json!(1))
    );
    assert_eq!(attention["first"].as_array().unwrap().len(), 10);
    let why = first["why"].as_str().unwrap();
    // The step that it ended with ends no other session: of 15 such steps, the session goes on after 14.
    let expected =
        "93 % of steps like its last one are followed by another (more than 92 % of sessions)";
    assert_eq!(why.split("; ").next(), Some(expected));
    let table = read_parquet(&out.join("attention/part-00000.parquet"));
    let sessions = read_parquet(&out.join("sessions/part-00000.parquet"));
    assert_eq!(table.num_rows(), sessions.num_rows());
    assert_eq!(
        table.column_by_name("session_id"),
        sessions.column_by_name("session_id")
    );
    let query = "SELECT failed_calls, repeated_calls, misalignment, stagnation, disengagement \
                 FROM sessions WHERE session_id = 'bad'";
    let run = out.display().to_string();
    let ran = nightmill(["sql", query, "--run", &run, "--format", "csv"]);
    let row = ran.stdout.lines().nth(1).unwrap_or_default();
    assert_eq!(row, "3.0,2.0,0.5,1.0,0.5", "{ran:?}");
}

#[test]
fn sessions_that_began_alike_and_ended_otherwise_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (
        folder.path().join("traces.jsonl"),
        folder.path().join("run"),
    );
    let answers = ["It is 20.", "That makes 20.0", "so: 20!", "It must be 30"];
    let rows: Vec<Value> = answers
        .iter()
        .enumerate()
        .map(|(n, answer)| {
            json!({ "trace_id": format!("t{n}"), "session_id": format!("s{n}"), "started_at": "2026-11-20T10:00:00Z",
                    "input": "how much is it?", "output": answer })
        })
        .collect();
    write(&file, &rows);
    let ran = score(&file, &out, &["--metrics", "attention"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let first = &summary(&out)["attention"]["first"][0];
    assert_eq!(first["session_id"], "s3");
    assert_eq!(
        first["why"].as_str().unwrap().split("; ").next(),
        Some(
            "100 % of sessions that began alike ended in another answer (more than 75 % of sessions)"
        )
    );
    // It needs no model.
    let manifest = std::fs::read(out.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["model"], Value::Null);
}

#[test]
fn spans_that_cannot_be_read_take_no_trace_from_a_run_that_scores_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("traces.jsonl");
    let mut rows = warehouse();
    rows[0]["spans"] = json!("no list");
    rows[1]["spans"] = json!(17);
    write(&file, &rows);
    let ran = score(&file, &folder.path().join("run"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = "spans of 2 traces can't be read";
    assert!(ran.stdout.contains(said), "{ran:?}");
    assert_eq!(summary(&folder.path().join("run"))["traces"], 27);
    let strict = score(
        &file,
        &folder.path().join("strict"),
        &["--metrics", "spans,attention"],
    );
    assert_eq!(strict.code, Some(3), "{strict:?}");
    assert!(!strict.stdout.contains(said), "{strict:?}");
    assert_eq!(summary(&folder.path().join("strict"))["traces"], 25);
}

#[test]
fn a_run_of_other_metrics_has_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (
        folder.path().join("traces.jsonl"),
        folder.path().join("run"),
    );
    write(&file, &warehouse());
    let ran = score(&file, &out, &["--metrics", "loop_detection"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!out.join("attention").exists());
    assert_eq!(summary(&out)["attention"], Value::Null);
    let sessions = read_parquet(&out.join("sessions/part-00000.parquet"));
    assert!(sessions.column_by_name("output_words").is_none());
    for flag in ["--threshold", "--fail-under"] {
        let refused = score(&file, &out, &["--overwrite", flag, "attention=0.5"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
}
