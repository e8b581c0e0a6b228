//! Bytes that change on disk after a run must not change a number in silence.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Ran, nightmill};

const SUPPORT: &str = "datasets/support";

#[track_caller]
fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

/// A run over the sample, made once.
struct Scored(tempfile::TempDir);

impl Scored {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scored = Self(folder);
        ended(0, &["score", SUPPORT, "--out", &scored.run()]);
        scored
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join("run").join(file)
    }

    fn run(&self) -> String {
        self.path("").display().to_string()
    }
}

fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_run_is_verified_against_what_was_written() {
    let scored = Scored::new();
    let run = scored.run();
    let whole = ended(0, &["runs", "verify", &run]);
    assert!(whole.stdout.contains("as written"), "{whole:?}");
    let folder = scored.0.path().display().to_string();
    ended(0, &["runs", "verify", &folder]);

    let faults = |expected: &[(&str, &str)]| {
        let ran = ended(1, &["runs", "verify", &run, "--json"]);
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        let found: Vec<(&str, &str)> = told[0]["faults"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| (f["file"].as_str().unwrap(), f["fault"].as_str().unwrap()))
            .collect();
        assert_eq!(found, expected);
        let text = ended(1, &["runs", "verify", &run]).stdout;
        for (file, fault) in expected {
            assert!(text.contains(file) && text.contains(fault), "{text}");
        }
    };
    let part = "scores/part-00000.parquet";
    let kept = std::fs::read(scored.path(part)).unwrap();
    flip(&scored.path(part));
    faults(&[(part, "changed")]);
    std::fs::write(scored.path(part), &kept[..kept.len() - 1]).unwrap();
    faults(&[(part, "changed")]);
    std::fs::write(scored.path(part), &kept).unwrap();
    std::fs::remove_file(scored.path("report.html")).unwrap();
    std::fs::write(scored.path("notes.txt"), "mine").unwrap();
    faults(&[("report.html", "missing"), ("notes.txt", "extra")]);

    // The manifest speaks for itself, too: any of its bytes.
    let manifest = std::fs::read_to_string(scored.path("manifest.json")).unwrap();
    let other = manifest.replacen("\"window\": 3", "\"window\": 4", 1);
    assert_ne!(manifest, other);
    std::fs::write(scored.path("manifest.json"), other).unwrap();
    faults(&[
        ("manifest.json", "changed"),
        ("report.html", "missing"),
        ("notes.txt", "extra"),
    ]);
    let none = ended(2, &["runs", "verify", SUPPORT]);
    assert!(none.stderr.contains("no run directory"), "{none:?}");
}

#[test]
fn whoever_scores_from_a_run_sees_that_a_byte_has_changed() {
    let scored = Scored::new();
    let run = scored.run();
    let out = scored.0.path().join("out").display().to_string();
    let traces = format!("{run}/traces");
    let refused = |args: &[&str], file: &str| {
        let ran = ended(2, args);
        assert!(
            ran.stderr.contains("damaged") && ran.stderr.contains(file),
            "{args:?}: {ran:?}"
        );
    };
    flip(&scored.path("traces/part-00000.parquet"));
    let part = "traces/part-00000.parquet";
    refused(&["aggregate", &run, "--out", &out], part);
    refused(&["aggregate", &traces, "--out", &out], part);
    refused(
        &["score", SUPPORT, "--signals", &traces, "--out", &out],
        part,
    );
    let query = format!("SELECT count(*) FROM '{traces}'");
    refused(&["sql", &query, "--verify"], part);
    ended(0, &["sql", &query]);
    // Tables that a command does not read are none of its business.
    ended(0, &["runs", "summary", &run]);
    flip(&scored.path("scores/part-00000.parquet"));
    let part = "scores/part-00000.parquet";
    refused(&["runs", "summary", &run], part);
    refused(&["runs", "history", &run, "--session", "s"], part);
    refused(
        &["runs", "distribution", &run, "--metric", "coherence"],
        part,
    );
    flip(&scored.path("summary.json"));
    refused(&["runs", "summary", &run], "summary.json");
}
