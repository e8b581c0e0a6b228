//! Which traces and sessions a run takes, and from where: filters, ids, samples, numbers as times, pipes.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use arrow::array::AsArray;
use serde_json::{Value, json};

use crate::support::{Ran, nightmill, program, read_parquet};

struct Place(tempfile::TempDir);

impl Place {
    /// Six traces of three sessions and two users; the last has no session.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("traces.jsonl", &rows());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, rows: &[Value]) {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(self.path(name), lines).unwrap();
    }

    fn score(&self, out: &str, more: &[&str]) -> Ran {
        let (file, out) = (self.at("traces.jsonl"), self.at(out));
        let score = [
            "score",
            &file,
            "--no-report",
            "--out",
            &out,
            "--metrics",
            "coherence",
        ];
        nightmill(score.iter().chain(more))
    }

    /// The traces of a run.
    fn traces(&self, out: &str) -> Vec<String> {
        let batch = read_parquet(&self.path(out).join("traces"));
        let ids = batch
            .column_by_name("trace_id")
            .unwrap()
            .as_string::<i32>()
            .iter();
        let mut ids: Vec<String> = ids.map(|id| id.unwrap().to_owned()).collect();
        ids.sort();
        ids
    }
}

fn rows() -> Vec<Value> {
    let row = |id: &str, session: Option<&str>, user: &str, tags: Value| {
        json!({"trace_id": id, "session_id": session, "customer": user, "tags": tags,
               "started_at": "2026-01-01T00:00:00Z", "input": "red", "output": format!("green {id}")})
    };
    vec![
        row("a1", Some("a"), "u1", json!(["new"])),
        row("a2", Some("a"), "u2", json!([])),
        row("b1", Some("b"), "u1", json!([])),
        row("c1", Some("c"), "u2", json!(["new", "odd"])),
        row("c2", Some("c"), "u2", json!([])),
        row("alone", None, "u1", json!([])),
    ]
}

#[test]
fn flags_choose_traces_and_sessions() {
    let place = Place::new();
    std::fs::write(place.path("wanted"), "a2\n\nc2\n").unwrap();
    let file = format!("@{}", place.at("wanted"));
    let user = r#"{"user_id": "u1"}"#;
    for (out, more, expected) in [
        (
            "ids",
            &["--trace-ids", "b1,c2,nowhere"][..],
            &["b1", "c2"][..],
        ),
        ("file", &["--trace-ids", &file], &["a2", "c2"]),
        ("tags", &["--tags", "odd,new"], &["a1", "c1"]),
        (
            "sessions",
            &["--session-ids", "a,c"],
            &["a1", "a2", "c1", "c2"],
        ),
        (
            "users",
            &["--filters", user, "--map", "user_id=customer"],
            &["a1", "alone", "b1"],
        ),
        (
            "their",
            &[
                "--target",
                "session",
                "--filters",
                user,
                "--map",
                "user_id=customer",
            ],
            &["a1", "a2", "b1"],
        ),
        (
            "tagged",
            &["--target", "session", "--tags", "odd"],
            &["c1", "c2"],
        ),
    ] {
        let ran = place.score(out, more);
        assert_eq!(ran.code, Some(0), "{more:?}: {ran:?}");
        assert_eq!(place.traces(out), expected, "{more:?}");
    }
    // A sample is the same every time, and a part of a larger one.
    let sampled = |out: &str, share: &str| {
        assert_eq!(place.score(out, &["--sample", share]).code, Some(0));
        place.traces(out)
    };
    let (half, again, third) = (
        sampled("h", "0.5"),
        sampled("i", "0.5"),
        sampled("t", "0.34"),
    );
    assert_eq!((half.len(), &half), (3, &again));
    assert!(
        third.len() == 2 && third.iter().all(|id| half.contains(id)),
        "{third:?}"
    );
    // What the manifest says was chosen.
    let manifest = std::fs::read(place.path("tags/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(
        manifest["request"]["targets"]["filters"]["tags"],
        json!(["odd", "new"])
    );
    for (more, words) in [
        (&["--trace-ids", "nowhere"][..], "no trace is chosen"),
        (&["--sample", "0"], "no trace is chosen"),
        (&["--filters", "{\"usr\": 1}"], "usr"),
        (&["--map", "usr_id=customer"], "`user_id`"),
    ] {
        let ran = place.score("none", more);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(words),
            "{more:?}: {ran:?}"
        );
        assert!(!place.path("none").exists());
    }
}

#[test]
fn numbers_are_times_when_the_unit_is_said() {
    let place = Place::new();
    let seconds = 1_767_225_600_i64;
    for (unit, factor) in [
        ("s", 1),
        ("ms", 1000),
        ("us", 1_000_000),
        ("ns", 1_000_000_000),
    ] {
        let row = json!({"trace_id": "a", "started_at": seconds * factor, "input": "red", "output": "green"});
        place.write("traces.jsonl", &[row]);
        let ran = place.score(unit, &["--time-unit", unit]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        // The same as a Parquet column of whole numbers.
        let file = place.at(&format!("{unit}.parquet"));
        let query = format!("SELECT * FROM '{}'", place.at("traces.jsonl"));
        assert_eq!(nightmill(["sql", &query, "--out", &file]).code, Some(0));
        let out = place.at(&format!("{unit}-p"));
        let args = [
            "score",
            &file,
            "--no-report",
            "--metrics",
            "coherence",
            "--out",
            &out,
        ];
        let refused = nightmill(args);
        assert!(
            refused.code == Some(2) && refused.stderr.contains("--time-unit"),
            "{refused:?}"
        );
        let ran = nightmill(args.iter().chain(&["--time-unit", unit]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for out in [unit.to_owned(), format!("{unit}-p")] {
            let batch = read_parquet(&place.path(&out).join("traces"));
            let times = batch.column_by_name("started_at").unwrap();
            let times = times.as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
            assert_eq!(times.value(0), seconds * 1_000_000, "{out}");
        }
    }
    // Nobody guesses.
    let ran = place.score("unsaid", &[]);
    assert!(
        ran.code == Some(3) && ran.stdout.contains("--time-unit"),
        "{ran:?}"
    );
}

#[test]
fn standard_input_and_pipes_are_read() {
    let place = Place::new();
    let lines = std::fs::read(place.path("traces.jsonl")).unwrap();
    let piped = |out: &str, path: &str, input: &[u8]| {
        let mut command = program();
        command.args([
            "score",
            path,
            "--no-report",
            "--metrics",
            "coherence",
            "--out",
        ]);
        command
            .arg(place.path(out))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // A program that refuses its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    };
    assert!(piped("stdin", "-", &lines).status.success());
    assert_eq!(place.traces("stdin").len(), 6);
    assert!(piped("fd", "/dev/stdin", &lines).status.success());
    assert_eq!(place.traces("fd"), place.traces("stdin"));
    let parquet = place.at("t.parquet");
    let query = format!("SELECT * FROM '{}'", place.at("traces.jsonl"));
    assert_eq!(nightmill(["sql", &query, "--out", &parquet]).code, Some(0));
    let bytes = std::fs::read(&parquet).unwrap();
    assert!(piped("parquet", "-", &bytes).status.success());
    assert_eq!(place.traces("parquet"), place.traces("stdin"));
    assert!(!piped("nothing", "-", b"").status.success());

    // A pipe without writer, in a folder, holds nobody up.
    let folder = place.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(place.path("traces.jsonl"), folder.join("a.jsonl")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.join("b.jsonl"))
        .status();
    assert!(made.unwrap().success());
    for paths in [
        folder.display().to_string(),
        format!("{}/*.jsonl", folder.display()),
    ] {
        let out = place.at(&format!("f{}", paths.len()));
        let args = [
            "score",
            &paths,
            "--no-report",
            "--metrics",
            "coherence",
            "--out",
            &out,
        ];
        let ran = nightmill(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}
