//! Runs on a cluster: scheduler and executors are processes of their own, and the tables are those of one machine, byte for
//! byte, whatever happens to whom.

mod members;

use std::path::Path;
use std::time::Duration;

use members::Cluster;

use crate::session_buckets::{bytes, traces_of, write};
use crate::support::{nightmill, summary};

const METRICS: &str =
    "coherence,loop_detection,agent_reliability,agent_consistency,attention,stuck,empty_output";

/// Scores files here, in so many buckets.
fn here(files: &[&Path], out: &Path, more: &[&str]) {
    let mut args: Vec<String> = vec!["score".into()];
    args.extend(files.iter().map(|file| file.display().to_string()));
    args.extend(["--out".into(), out.display().to_string()]);
    args.extend(["--metrics", METRICS, "--no-cache"].map(str::to_owned));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    let ran = nightmill(&args);
    // 3: rows were set aside.
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
}

#[test]
fn two_executors_write_the_bytes_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let many = write(
        folder.path(),
        &traces_of(6000, 401, 11, |n| format!("{n:032x}")),
    );
    // Rows of one trace in several files, which say different things of its session.
    let lines = (0..40).map(|n| {
        let session = match n % 3 {
            0 => "null".to_owned(),
            other => format!("\"s{}\"", n * other),
        };
        format!(
            r#"{{"trace_id": "{:032x}", "session_id": {session}, "started_at": "2026-11-01T00:00:0{}Z", "input": "again {n}", "output": "o"}}"#,
            n * 5 % 60,
            n % 10
        )
    });
    let bad = "{\"trace_id\": \"\", \"started_at\": 5}\nno JSON\n".to_owned();
    std::fs::write(
        path("more.jsonl"),
        lines.collect::<Vec<_>>().join("\n") + "\n" + &bad,
    )
    .unwrap();
    let more = path("more.jsonl");
    let files = [many[0].as_path(), more.as_path()];
    here(&files, &path("here"), &["--buckets", "13"]);
    let cluster = Cluster::start(folder.path(), 2, &[]);
    here(
        &files,
        &path("there"),
        &["--buckets", "13", "--cluster", &cluster.address],
    );
    assert!(bytes(&path("here")) == bytes(&path("there")));
    let (here, there) = (summary(&path("here")), summary(&path("there")));
    for member in [
        "rows_read",
        "traces",
        "sessions",
        "quarantined",
        "merged_duplicates",
        "metrics",
        "worst_sessions",
        "texts",
    ] {
        assert_eq!(here[member], there[member], "{member}");
    }
    let verified = nightmill(["runs", "verify", &path("there").display().to_string()]);
    assert_eq!(verified.code, Some(0), "{}", verified.stdout);
    // Nothing is left beside the runs.
    let left = crate::support::entries_but_records(folder.path());
    assert_eq!(
        left,
        [
            "here",
            "more.jsonl",
            "there",
            "traces.parquet",
            "work-0",
            "work-1"
        ]
    );
    drop(cluster);
}

#[test]
fn an_executor_that_dies_in_the_middle_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let files = write(
        folder.path(),
        &traces_of(20_000, 2001, 11, |n| format!("{n:032x}")),
    );
    let files = [files[0].as_path()];
    here(&files, &path("here"), &["--buckets", "24"]);
    let mut cluster = Cluster::start(folder.path(), 2, &[]);
    let mut run = cluster.begin(&files, &path("there"), METRICS, &["--buckets", "24"]);
    cluster.wait_for(folder.path(), "buckets", 2);
    cluster.kill(0);
    let ended = members::wait(&mut run, Duration::from_secs(180));
    assert_eq!(ended, Some(0));
    assert!(bytes(&path("here")) == bytes(&path("there")));
}
