//! Input that can be misread is refused with the flag to give, and files that lack something follow one rule.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Ran, nightmill, read_parquet, summary, traces, write_parquet};

fn write_lines(path: &Path, rows: &[Value]) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

fn trace(number: usize, output: &str) -> Value {
    json!({"trace_id": format!("t{number}"), "session_id": "s", "input": "Where is my parcel?",
        "started_at": format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60), "output": output})
}

fn score(input: &Path, out: &Path, more: &[&str]) -> Ran {
    let (input, out) = (input.display().to_string(), out.display().to_string());
    let args = [
        "score",
        &input,
        "--metrics",
        "coherence",
        "--no-report",
        "--out",
        &out,
    ];
    nightmill(args.iter().chain(more))
}

#[test]
fn json_in_text_columns_is_refused_until_somebody_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let document = |n: usize| {
        json!({"messages": [{"role": "assistant", "content": format!("It left, {n}.")}]})
            .to_string()
    };
    let rows: Vec<Value> = (0..4).map(|n| trace(n, &document(n))).collect();
    write_lines(&at("traces.jsonl"), &rows);
    let parquet = at("traces.parquet");
    let texts: Vec<String> = (0..4).map(document).collect();
    let ids: Vec<String> = (0..4).map(|n| format!("t{n}")).collect();
    let table: Vec<_> = (0..4)
        .map(|n| {
            (
                Some(&*ids[n]),
                Some("s"),
                Some(n as i64),
                Some("Where?"),
                Some(&*texts[n]),
            )
        })
        .collect();
    write_parquet(&parquet, &[traces(&table)], 2);
    // Cells of JSON Lines that hold the documents themselves say what they are; the summary says how they were read.
    let objects: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row["output"] = serde_json::from_str(row["output"].as_str().unwrap()).unwrap();
            row
        })
        .collect();
    write_lines(&at("objects.jsonl"), &objects);
    let ran = score(&at("objects.jsonl"), &at("objects"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("compat"), "{ran:?}");
    for file in [at("traces.jsonl"), parquet] {
        let refused = score(&file, &at("refused"), &[]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let name = file.display().to_string();
        for word in [
            &*name,
            "`output`",
            "row 0",
            "--json-columns output",
            "--text-columns output",
        ] {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
        }
        assert!(!at("refused").exists());
    }
    let mut means = Vec::new();
    for (name, flags) in [
        (
            "json",
            &["--json-columns", "output", "--text-mode", "content"][..],
        ),
        ("text", &["--text-columns", "output"]),
    ] {
        let out = at(name);
        let ran = score(&at("traces.jsonl"), &out, flags);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        means.push(summary(&out)["metrics"][0]["mean"].as_f64().unwrap());
    }
    assert_ne!(means[0], means[1]);
    let both = ["--json-columns", "output", "--text-columns", "output"];
    let both = score(&at("traces.jsonl"), &at("refused"), &both);
    assert!(
        both.code == Some(2) && both.stderr.contains("choose one"),
        "{both:?}"
    );

    // Texts that only begin like JSON, and a few documents among texts, are texts.
    let mut rows: Vec<Value> = (0..6).map(|n| trace(n, "[1] {name}, see there.")).collect();
    rows.extend((6..8).map(|n| trace(n, &document(n))));
    write_lines(&at("mixed.jsonl"), &rows);
    let ran = score(&at("mixed.jsonl"), &at("mixed"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_file_without_a_column_is_skipped_like_a_broken_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let input = at("in");
    std::fs::create_dir(&input).unwrap();
    write_lines(
        &input.join("a.jsonl"),
        &[trace(0, "It left."), trace(1, "It did.")],
    );
    let row = arrow::array::RecordBatch::try_from_iter([(
        "trace_id",
        std::sync::Arc::new(arrow::array::StringArray::from(vec!["x"])) as arrow::array::ArrayRef,
    )])
    .unwrap();
    let alone = at("alone");
    std::fs::create_dir(&alone).unwrap();
    write_parquet(&alone.join("b.parquet"), std::slice::from_ref(&row), 10);
    let other = at("other");
    std::fs::create_dir(&other).unwrap();
    write_parquet(&other.join("b.parquet"), &[row], 10);
    let good: Vec<_> = [(
        Some("t9"),
        Some("s"),
        Some(9),
        Some("Where?"),
        Some("Here."),
    )]
    .to_vec();
    write_parquet(&other.join("c.parquet"), &[traces(&good)], 10);

    let failed = score(&other, &at("failed"), &[]);
    assert_eq!(failed.code, Some(2), "{failed:?}");
    let skipped = score(&other, &at("run"), &["--on-bad-file", "skip"]);
    assert_eq!(skipped.code, Some(3), "{skipped:?}");
    assert_eq!(summary(&at("run"))["traces"], 1);
    assert_eq!(summary(&at("run"))["unreadable_files"], 1);
    let reasons = read_parquet(&at("run/quarantine"));
    let reason = format!("{:?}", reasons.column_by_name("reason").unwrap());
    assert!(reason.contains("no column `started_at`"), "{reason}");
    // Where nothing is left, nothing is scored.
    let nothing = score(&alone, &at("nothing"), &["--on-bad-file", "skip"]);
    assert!(
        nothing.code == Some(2) && nothing.stderr.contains("no rows to score"),
        "{nothing:?}"
    );
}

#[test]
fn empty_files_follow_one_rule_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("empty.jsonl"), "").unwrap();
    std::fs::write(at("blank.jsonl"), "\n  \n").unwrap();
    write_parquet(&at("empty.parquet"), &[traces(&[])], 10);
    for name in ["empty.jsonl", "blank.jsonl", "empty.parquet"] {
        let ran = score(&at(name), &at("run"), &[]);
        assert_eq!(ran.code, Some(2), "{name}: {ran:?}");
        assert!(
            ran.stderr.contains("no rows to score"),
            "{name}: {}",
            ran.stderr
        );
        assert!(!at("run").exists());
    }
    // Beside a file with rows they are no fault.
    let input = at("in");
    std::fs::create_dir(&input).unwrap();
    std::fs::write(input.join("a.jsonl"), "").unwrap();
    write_lines(&input.join("b.jsonl"), &[trace(0, "It left.")]);
    let ran = score(&input, &at("run"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn vectors_are_written_as_parquet_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.csv").display().to_string();
    let words = [
        "embed",
        "datasets/chats.jsonl",
        "--columns",
        "question",
        "--out",
        &out,
    ];
    let refused = nightmill(words);
    assert!(
        refused.code == Some(2) && refused.stderr.contains(".parquet"),
        "{refused:?}"
    );
}
