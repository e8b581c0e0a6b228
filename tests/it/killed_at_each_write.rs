//! Runs killed at every single call that changes a file: what is there is whole, and the next run mends the rest.
#![cfg(target_os = "linux")]

mod nights;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{entries_but_records, program, root, traces, write_parquet};

/// The library that kills, built by the compiler that the program's own C code needs.
pub fn killer(folder: &Path) -> PathBuf {
    let library = folder.join("kill_at.so");
    let source = root().join("tests/it/killed_at_each_write/kill_at.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
    let built = compiler.arg(&library).arg(source).status().unwrap();
    assert!(built.success(), "cc could not build kill_at.c");
    library
}

/// The bytes of a run's tables.
fn tables(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(run).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.path().extension().is_some_and(|e| e == "parquet"));
    let named = files.map(|entry| {
        let name = entry.path().strip_prefix(run).unwrap().to_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    named.collect()
}

fn passed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}

/// Kills the command at its first call, at its second, and so on, until it gets to its end; `check` looks after each.
pub fn kill_everywhere(
    library: &Path,
    mut command: impl FnMut() -> Command,
    mut check: impl FnMut(),
) {
    let mut last = 0;
    for at in 1.. {
        let mut command = command();
        command
            .env("LD_PRELOAD", library)
            .env("KILL_AT", at.to_string());
        let status = quiet(&mut command).status().unwrap();
        if status.signal() != Some(9) {
            assert!(status.success(), "{status} at call {at}");
            break;
        }
        check();
        last = at;
    }
    assert!(last > 20, "only {last} calls were seen");
}

fn small(path: &Path) {
    let rows: Vec<_> = ["t0", "t1", "t2"]
        .into_iter()
        .map(|id| (Some(id), Some("s"), Some(1), Some("hello"), Some("hello")))
        .collect();
    write_parquet(path, &[traces(&rows)], 10);
}

/// Runs verify the checksums in the manifest.
pub fn assert_whole(run: &Path) {
    let mut verify = program();
    passed(verify.args(["runs", "verify"]).arg(run));
}

#[test]
fn a_new_run_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let input = folder.path().join("traces.parquet");
    small(&input);
    let runs = folder.path().join("runs");
    let run = runs.join("night");
    let score = || {
        let mut command = program();
        command.arg("score").arg(&input).arg("--out").arg(&run);
        command
    };
    passed(&mut score());
    let expected = tables(&run);
    std::fs::remove_dir_all(&run).unwrap();
    kill_everywhere(&library, score, || {
        if run.exists() {
            assert_whole(&run);
            assert_eq!(tables(&run), expected);
            std::fs::remove_dir_all(&run).unwrap();
        }
    });
    assert_eq!(tables(&run), expected);
    // The last run has removed what all others left.
    assert_eq!(entries_but_records(&runs), ["night"]);
}

#[test]
fn a_run_that_replaces_another_leaves_the_old_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let input = folder.path().join("traces.parquet");
    small(&input);
    let runs = folder.path().join("runs");
    let run = runs.join("night");
    let score = |metrics: &str| {
        let mut command = program();
        command.arg("score").arg(&input).arg("--out").arg(&run);
        command.args(["--overwrite", "--no-report", "--metrics", metrics]);
        command
    };
    passed(&mut score("coherence"));
    let old = tables(&run);
    passed(&mut score("loop_detection"));
    let new = tables(&run);
    assert_ne!(old, new);
    passed(&mut score("coherence"));
    kill_everywhere(
        &library,
        || score("loop_detection"),
        || {
            assert_whole(&run);
            let found = tables(&run);
            assert!(found == old || found == new);
            if found == new {
                passed(&mut score("coherence"));
            }
        },
    );
    assert_eq!(tables(&run), new);
    assert_eq!(entries_but_records(&runs), ["night"]);
}

#[test]
fn what_was_answered_is_not_lost_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let input = folder.path().join("traces.parquet");
    small(&input);
    let judge = ScriptedJudge::start(|_| {
        Answer::reply(serde_json::json!({"confidence": 0.75, "reason": "sure"}))
    });
    let ledger = folder.path().join("ledger.db");
    let run = folder.path().join("night");
    let score = || {
        let mut command = program();
        command.arg("score").arg(&input).arg("--out").arg(&run);
        command.args([
            "--metrics",
            "confidence",
            "--judge",
            "openai/judge",
            "--no-report",
        ]);
        command.arg("--judge-url").arg(judge.url());
        command
            .arg("--ledger")
            .arg(&ledger)
            .env("OPENAI_API_KEY", "k");
        command
    };
    let mut kills = 0;
    kill_everywhere(&library, score, || {
        kills += 1;
        let _ = std::fs::remove_dir_all(&run);
    });
    assert_whole(&run);
    let asked = judge.prompt_count();
    assert!(asked < kills, "{asked} questions, {kills} kills");
    // Everything that the last run used is in the ledger.
    std::fs::remove_dir_all(&run).unwrap();
    passed(&mut score());
    assert_eq!(judge.prompt_count(), asked);
}

#[test]
fn a_record_of_a_suite_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let records = folder.path().join("records");
    let run = || {
        let mut command = program();
        command.args(["suite", "run", "datasets/suites/regression", "--out"]);
        command
            .arg(&records)
            .arg("--junit")
            .arg(folder.path().join("j.xml"));
        command
    };
    kill_everywhere(&library, run, || {
        let entries = std::fs::read_dir(&records).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("run_") && name.ends_with(".json") {
                let mut show = program();
                passed(show.args(["suite", "show"]).arg(&path));
                assert_whole(&path.with_extension(""));
            }
        }
    });
    // The last run has removed what all others left under hidden names.
    let hidden = entries_but_records(&records);
    assert!(
        hidden
            .iter()
            .all(|name| name == ".lock" || !name.starts_with('.')),
        "{hidden:?}"
    );
}
