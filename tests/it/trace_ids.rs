//! Ids come out as they went in, and match in any spelling; signals that can't be right are refused.

use std::path::Path;

use arrow::array::{Array, AsArray};
use serde_json::{Value, json};

use crate::support::{Ran, nightmill, read_parquet, summary};

/// One id in the spellings that tracing systems use.
const BARE: &str = "41637175274549C59B57E656EB7A20F4";
const HYPHENATED: &str = "41637175-2745-49c5-9b57-e656eb7a20f4";
const OTHER: &str = "0af7651916cd43dd8448eb211c80319c";

fn write_lines(path: &Path, rows: &[Value]) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

fn trace(id: &str, second: u32, output: &str) -> Value {
    json!({"trace_id": id, "session_id": "s", "started_at": format!("2026-01-01T00:00:{second:02}Z"),
        "input": "Where is my parcel?", "output": output})
}

fn texts(table: &Path, column: &str) -> Vec<String> {
    let rows = read_parquet(table);
    let ids = rows.column_by_name(column).unwrap();
    let ids = arrow::compute::cast(ids, &arrow::datatypes::DataType::Utf8).unwrap();
    ids.as_string::<i32>()
        .iter()
        .map(|id| id.unwrap_or("null").to_owned())
        .collect()
}

fn run(args: &[&str]) -> Ran {
    nightmill(args.iter().copied().chain(["--precision", "f32"]))
}

#[test]
fn ids_come_out_as_they_were_given_and_match_in_any_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    let repeated = "It left our house this morning.";
    write_lines(
        &at("traces.jsonl"),
        &[
            trace(OTHER, 1, repeated),
            trace(BARE, 2, repeated),
            // The same trace in another spelling: the first one stands.
            trace(HYPHENATED, 2, repeated),
        ],
    );
    let signals = |low: f64| {
        json!([{"trace_id": HYPHENATED, "confidence": low},
               {"trace_id": OTHER.to_uppercase(), "confidence": 0.9}])
    };
    write_lines(&at("signals.jsonl"), signals(0.1).as_array().unwrap());
    let (traces, given) = (shown("traces.jsonl"), shown("signals.jsonl"));
    let scored = run(&[
        "score",
        &traces,
        "--signals",
        &given,
        "--out",
        &shown("run"),
    ]);
    assert_eq!(scored.code, Some(0), "{scored:?}");
    assert_eq!(texts(&at("run/traces"), "trace_id"), [OTHER, BARE]);
    assert_eq!(summary(&at("run"))["merged_duplicates"], 1);
    assert_eq!(summary(&at("run"))["unmatched_signals"], 0);
    let confidence = read_parquet(&at("run/traces"));
    let confidence = confidence.column_by_name("confidence").unwrap();
    assert_eq!(confidence.null_count(), 0);
    // Everything that names traces uses the same spelling.
    let details = texts(&at("run/traces"), "details");
    assert!(details[1].contains(OTHER), "{details:?}");
    let ids = texts(&at("run/scores"), "target_id");
    assert!(
        ids.iter().all(|id| [OTHER, BARE, "s"].contains(&&**id)),
        "{ids:?}"
    );
    let metadata = texts(&at("run/scores"), "metadata").join("");
    assert!(
        metadata.contains(BARE) && !metadata.contains(HYPHENATED),
        "{metadata}"
    );
    let flagged = read_parquet(&at("run/sessions"));
    let flagged = flagged.column_by_name("flagged_traces").unwrap();
    let flagged = flagged.as_list::<i32>().value(0);
    let flagged: Vec<Option<&str>> = flagged.as_string::<i32>().iter().collect();
    assert_eq!(flagged, [Some(OTHER), Some(BARE)]);

    // A finished run is asked in any spelling.
    for spelling in [BARE, HYPHENATED, "{41637175-2745-49C5-9B57-E656EB7A20F4}"] {
        let history = nightmill(["runs", "history", &shown("run"), "--trace", spelling]);
        assert!(
            history.stdout.contains("coherence"),
            "{spelling}: {history:?}"
        );
    }
    // So are scores of people: imported ones have the run's spelling, edited ones are found.
    let rated = json!({"trace_id": HYPHENATED, "name": "helpful", "value": 0.5});
    write_lines(&at("rated.jsonl"), &[rated]);
    let imported = nightmill([
        "runs",
        "scores",
        &shown("run"),
        "--import",
        &shown("rated.jsonl"),
    ]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert_eq!(texts(&at("run-scores/scores"), "target_id"), [BARE]);
    let edit = json!({"trace_id": HYPHENATED, "name": "coherence", "value": 0.25});
    write_lines(&at("edit.jsonl"), &[edit]);
    let edited = nightmill([
        "runs",
        "scores",
        &shown("run"),
        "--edit",
        &shown("edit.jsonl"),
    ]);
    assert_eq!(edited.code, Some(0), "{edited:?}");

    // Session scores of the run's own table name traces alike.
    let again = nightmill(["aggregate", &shown("run/traces"), "--out", &shown("again")]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let metadata = texts(&at("again/scores"), "metadata").join("");
    assert!(
        metadata.contains(BARE) && !metadata.contains(HYPHENATED),
        "{metadata}"
    );
}

#[test]
fn signals_that_cannot_be_right_are_refused_with_row_and_value() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    write_lines(
        &at("traces.jsonl"),
        &[trace("a", 1, "Yes."), trace("b", 2, "No.")],
    );
    let score = |signals: &[Value], out: &str| {
        write_lines(&at("signals.jsonl"), signals);
        let (traces, given) = (shown("traces.jsonl"), shown("signals.jsonl"));
        run(&["score", &traces, "--signals", &given, "--out", &shown(out)])
    };
    let percent = [
        json!({"trace_id": "a", "confidence": 0.5}),
        json!({"trace_id": "b", "confidence": 80}),
    ];
    let below = [json!({"trace_id": "a", "tool_correctness": -0.5})];
    let twice = [
        json!({"trace_id": "a", "confidence": 0.5, "coherence": 1.0}),
        json!({"trace_id": "a", "confidence": 0.75}),
    ];
    for (signals, words) in [
        (
            &percent[..],
            &["`confidence`", "row 1", "80", "from 0 to 1"][..],
        ),
        (&below, &["`tool_correctness`", "row 0", "-0.5"]),
        (
            &twice,
            &[
                "`confidence`",
                "row 1",
                "`a`",
                "0.75",
                "0.5",
                "first in row 0",
            ],
        ),
    ] {
        let refused = score(signals, "refused");
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for word in words {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
        }
        assert!(!at("refused").exists());
    }
    // Rows that don't contradict one another are one.
    let parts = [
        json!({"trace_id": "a", "confidence": 0.5}),
        json!({"trace_id": "a", "confidence": 0.5, "tool_correctness": 1.0}),
        json!({"trace_id": "b", "confidence": 1.0}),
    ];
    let scored = score(&parts, "run");
    assert_eq!(scored.code, Some(0), "{scored:?}");
    assert_eq!(summary(&at("run"))["unmatched_signals"], 0);

    // A table of signals goes the way of all rows: what can't be right is set aside and counted.
    write_lines(
        &at("table.jsonl"),
        &[
            json!({"trace_id": "a", "session_id": "s", "started_at": "2026-01-01T00:00:00Z", "confidence": 80}),
            json!({"trace_id": "b", "session_id": "s", "started_at": "2026-01-01T00:00:01Z", "confidence": 0.5}),
        ],
    );
    let aggregated = nightmill(["aggregate", &shown("table.jsonl"), "--out", &shown("table")]);
    assert_eq!(aggregated.code, Some(3), "{aggregated:?}");
    let reasons = texts(&at("table/quarantine"), "reason");
    assert_eq!(reasons, ["`confidence` is 80, not from 0 to 1"]);
}
