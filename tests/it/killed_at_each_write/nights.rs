//! Nights that are killed: the runs before them stay as they are, and the same command ends in what it would have come to.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::{assert_whole, kill_everywhere, killer, passed, tables};
use crate::support::{
    TraceRow, entries, entries_but_records, program, summary, traces, write_parquet,
};

/// After every so manieth kill the command is run to its end; after the others, the next kill runs it again.
const RUN_AGAIN: usize = 8;

/// The bytes of all files of a folder.
fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(folder)
        .into_iter()
        .map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file());
    files
        .map(|entry| {
            (
                entry.path().to_owned(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

/// Makes a folder a copy of another one.
fn restore(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    for entry in walkdir::WalkDir::new(from).into_iter().map(Result::unwrap) {
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        match entry.file_type().is_dir() {
            true => std::fs::create_dir_all(target).unwrap(),
            false => {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}

fn score(file: &Path, out: &Path) -> Command {
    let mut command = program();
    command.arg("score").arg(file).arg("--out").arg(out);
    command.args([
        "--metrics",
        "loop_detection,agent_reliability",
        "--threads",
        "1",
    ]);
    command
}

/// Scores the first file and kills the night of the second one wherever it changes a file.
fn kill_the_night_of(folder: &Path, files: [&Path; 2]) {
    let library = killer(folder);
    let runs = folder.join("runs");
    let (first, second) = (runs.join("n1"), runs.join("n2"));
    passed(&mut score(files[0], &first));
    let night = || {
        let mut command = score(files[1], &second);
        command.arg("--continue").arg(&runs);
        command
    };
    passed(&mut night());
    let expected = tables(&second);
    // It reads something of the first night again.
    assert_eq!(summary(&second)["continued"]["sessions"], 1);
    assert_eq!(summary(&second)["continued"]["traces_read_again"], 1);
    std::fs::remove_dir_all(&second).unwrap();
    let before = bytes(&first);
    let kills = Cell::new(0_usize);
    kill_everywhere(&library, night, || {
        kills.set(kills.get() + 1);
        assert!(bytes(&first) == before, "the first night was changed");
        let ended = second.exists();
        if !ended && kills.get().is_multiple_of(RUN_AGAIN) {
            passed(&mut night());
        }
        if second.exists() {
            assert_whole(&second);
            assert!(tables(&second) == expected, "a night of other scores");
            std::fs::remove_dir_all(&second).unwrap();
        }
    });
    assert!(tables(&second) == expected, "a night of other scores");
    assert!(bytes(&first) == before, "the first night was changed");
    assert_eq!(entries_but_records(&runs), ["n1", "n2"]);
}

#[test]
fn a_night_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let nights: [&[TraceRow<'_>]; 2] = [
        &[
            (
                Some("a1"),
                Some("long"),
                Some(1),
                Some("where is it"),
                Some("it is late"),
            ),
            (
                Some("b1"),
                Some("short"),
                Some(2),
                Some("hello"),
                Some("good morning"),
            ),
        ],
        &[(
            Some("a2"),
            Some("long"),
            Some(9),
            Some("and now"),
            Some("it is late"),
        )],
    ];
    let files = [0, 1].map(|night| {
        let path = folder.path().join(format!("night-{night}.parquet"));
        write_parquet(&path, &[traces(nights[night])], 2);
        path
    });
    kill_the_night_of(folder.path(), files.each_ref().map(PathBuf::as_path));
}

#[test]
fn a_night_of_another_format_keeps_what_was_made_of_it_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["1", "2"].map(|night| {
        let row = json!({"id": format!("o{night}"), "traceId": format!("t{night}"), "parentObservationId": null,
            "type": "GENERATION", "name": "chat", "startTime": format!("2025-01-0{night}T00:00:00.000Z"),
            "endTime": format!("2025-01-0{night}T00:00:01.000Z"), "input": "where is it", "output": "it is late",
            "sessionId": "s", "level": "DEFAULT"});
        let path = folder.path().join(format!("{night}.jsonl"));
        std::fs::write(&path, format!("{row}\n")).unwrap();
        path
    });
    kill_the_night_of(folder.path(), files.each_ref().map(PathBuf::as_path));
    for night in ["n1", "n2"] {
        let made = folder
            .path()
            .join("runs")
            .join(night)
            .join("carried/made/0.parquet");
        assert!(made.exists(), "{night}");
    }
}

/// What counts now of all runs of a folder.
fn latest(runs: &Path) -> String {
    let query = "SELECT target_type, target_id, session_id, metric, value, status FROM scores_latest \
                 ORDER BY target_type, target_id, session_id, metric";
    let mut sql = program();
    sql.arg("sql")
        .arg("--runs")
        .arg(runs)
        .args([query, "--format", "csv"]);
    let output = sql.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Records of monitors are whole, whatever lies beside them.
fn assert_readable(monitors: &Path) {
    let names = entries(monitors);
    let records: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(records.len(), 1, "{names:?}");
    let text = std::fs::read(monitors.join(records[0])).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["name"], "nightly");
}

#[test]
fn a_monitor_and_its_runs_fit_together_again_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let at = |name: &str| folder.path().join(name);
    let line = |id: &str, day: u8| {
        let row = json!({"trace_id": id, "session_id": "s", "started_at": format!("2026-11-0{day}T00:00:00Z"),
            "input": "where is it", "output": "it is late"});
        format!("{row}\n")
    };
    let monitor = |args: &[&str]| {
        let mut command = program();
        command
            .args(["monitor", "--monitors"])
            .arg(at("state/monitors"))
            .args(args);
        command
    };
    let tick = |now: &str| monitor(&["tick", "--now", now]);
    std::fs::create_dir_all(at("state/runs")).unwrap();
    std::fs::create_dir(at("traces")).unwrap();
    std::fs::write(at("traces/1.jsonl"), line("t1", 1)).unwrap();
    let (traces, out) = (at("traces").display().to_string(), at("state/runs"));
    passed(&mut monitor(&[
        "add",
        "nightly",
        &traces,
        "--cadence",
        "daily",
        "--out",
        &out.display().to_string(),
        "--now",
        "2026-12-01T03:00:00Z",
        "--target",
        "session",
        "--metrics",
        "agent_reliability",
        "--set",
        "threads=1",
    ]));
    passed(&mut tick("2026-12-02T03:00:00Z"));
    std::fs::write(at("traces/2.jsonl"), line("t2", 2)).unwrap();
    restore(&at("state"), &at("saved"));
    let first = entries_but_records(&out).pop().unwrap();
    let before = bytes(&out.join(&first));
    passed(&mut tick("2026-12-03T03:00:00Z"));
    let expected = latest(&out);
    let runs = entries_but_records(&out);
    assert_eq!(
        summary(&out.join(&runs[1]))["continued"]["run"],
        first.as_str()
    );

    let kills = Cell::new(0_usize);
    kill_everywhere(
        &library,
        || {
            restore(&at("saved"), &at("state"));
            tick("2026-12-03T03:00:00Z")
        },
        || {
            kills.set(kills.get() + 1);
            assert!(
                bytes(&out.join(&first)) == before,
                "the first night was changed"
            );
            let made = entries_but_records(&out);
            let made: Vec<&String> = made.iter().filter(|name| !name.starts_with('.')).collect();
            for run in made.iter().filter(|run| ***run != first) {
                assert_whole(&out.join(run));
            }
            assert_readable(&at("state/monitors"));
            // At its next time it does what is left to do, also where its record does not know of a run.
            if made.len() > 1 || kills.get().is_multiple_of(RUN_AGAIN) {
                passed(&mut tick("2026-12-04T03:00:00Z"));
                assert_eq!(latest(&out), expected, "kill {}: {made:?}", kills.get());
                passed(&mut tick("2026-12-05T03:00:00Z"));
                assert_eq!(latest(&out), expected, "kill {}: {made:?}", kills.get());
            }
        },
    );
    assert_eq!(latest(&out), expected);
    assert_eq!(entries_but_records(&out), runs);
}
