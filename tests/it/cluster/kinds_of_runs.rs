//! Runs of every kind on a cluster, beside the same runs on one machine: judged ones, nights, given signals, files in a
//! bucket of the network, little memory.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::members::Cluster;
use crate::bucket::Bucket;
use crate::scripted_judge::{PassRules, ScriptedJudge, pass_judge_with};
use crate::session_buckets::{bytes, traces_of, write};
use crate::support::{program, read_parquet, summary};

const BUCKETS: [&str; 2] = ["--buckets", "9"];

/// Runs a command to its end, which must be a good one.
#[track_caller]
fn passes(command: &mut Command) {
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // 3: rows were set aside.
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{said}");
}

fn score(files: &[&Path], out: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.arg("score").args(files).arg("--out").arg(out);
    command.args(["--no-cache", "--no-report"]).args(more);
    command
}

/// A judge whose numbers are a function of what it is asked.
fn judge() -> ScriptedJudge {
    let rules = PassRules {
        hashed: true,
        ..PassRules::default()
    };
    ScriptedJudge::start(pass_judge_with(rules))
}

#[test]
fn judged_metrics_are_asked_once_by_the_driver_and_joined_by_executors() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(
        folder.path(),
        &traces_of(300, 41, 11, |n| format!("{n:032x}")),
    );
    let files = path("traces.parquet");
    let judged = |out: &str, more: &[&str]| {
        let judge = judge();
        let url = judge.url();
        let ledger = path(&format!("{out}.db"));
        let mut command = score(&[&files], &path(out), &BUCKETS);
        command.args([
            "--metrics",
            "coherence,confidence,agent_reliability,attention",
        ]);
        command.args(["--judge", "openai/test", "--judge-url", &url]);
        command
            .args(["--judge-sample", "0.5", "--ledger"])
            .arg(ledger);
        command.env("NO_PROXY", "127.0.0.1").args(more);
        passes(&mut command);
        judge.asked().len()
    };
    let asked_here = judged("here", &[]);
    let cluster = Cluster::start(folder.path(), 2);
    let asked_there = judged("there", &["--cluster", &cluster.address]);
    // A half of 300 traces, which say few different things.
    assert!(asked_here > 10, "{asked_here}");
    assert_eq!(asked_here, asked_there);
    assert!(bytes(&path("here")) == bytes(&path("there")));
    let metrics = |run: &str| summary(&path(run))["metrics"].clone();
    assert_eq!(metrics("here"), metrics("there"));
    assert!(metrics("here").to_string().contains("confidence"));
}

#[test]
fn nights_go_on_from_cluster_to_machine_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let all = traces_of(900, 61, 11, |n| format!("{n:032x}"));
    for night in 0..3 {
        let night_folder = path(&format!("night-{night}"));
        std::fs::create_dir(&night_folder).unwrap();
        let of_night = all.chunks(300).nth(night).unwrap();
        write(&night_folder, of_night);
    }
    let cluster = Cluster::start(folder.path(), 2);
    let night = |chain: &str, night: usize, cluster: Option<&str>| {
        let files = path(&format!("night-{night}/traces.parquet"));
        let out = path(&format!("{chain}/n{night}"));
        let mut command = score(&[&files], &out, &[]);
        match night {
            0 => command.args(BUCKETS),
            _ => command
                .arg("--continue")
                .arg(path(&format!("{chain}/n{}", night - 1))),
        };
        if let Some(address) = cluster {
            command.args(["--cluster", address]);
        }
        passes(&mut command);
        let mut tables = bytes(&out);
        if out.join("replaced").is_dir() {
            for entry in std::fs::read_dir(out.join("replaced")).unwrap() {
                let file = entry.unwrap().path();
                tables.insert(
                    file.strip_prefix(&out).unwrap().into(),
                    std::fs::read(file).unwrap(),
                );
            }
        }
        tables
    };
    let address = Some(&*cluster.address);
    for chain in ["there", "mixed"] {
        for at in 0..3 {
            let here = match path(&format!("here/n{at}")).exists() {
                true => bytes(&path(&format!("here/n{at}"))),
                false => night("here", at, None),
            };
            let of_chain = night(
                chain,
                at,
                if chain == "mixed" && at == 1 {
                    None
                } else {
                    address
                },
            );
            assert!(
                here.iter()
                    .all(|(file, bytes)| of_chain.get(file) == Some(bytes)),
                "{chain}, night {at}"
            );
        }
    }
    let sessions = read_parquet(&path("there/n2/sessions"));
    assert!(sessions.num_rows() > 30, "{}", sessions.num_rows());
    assert_eq!(
        summary(&path("there/n2"))["continued"],
        summary(&path("here/n2"))["continued"]
    );
}

#[test]
fn given_signals_reach_their_traces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let all = traces_of(300, 41, 11, |n| format!("{n:032x}"));
    write(folder.path(), &all);
    let lines = (0..300).filter(|n| n % 3 == 0).map(|n| {
        let confidence = f64::from(n) / 300.0;
        format!("{{\"trace_id\": \"{n:032x}\", \"confidence\": {confidence}}}\n")
    });
    let unknown = "{\"trace_id\": \"nobody\", \"confidence\": 0.5}\n".to_owned();
    std::fs::write(path("signals.jsonl"), lines.collect::<String>() + &unknown).unwrap();
    let cluster = Cluster::start(folder.path(), 2);
    for (out, more) in [
        ("here", &[][..]),
        ("there", &["--cluster", &cluster.address][..]),
    ] {
        let mut command = score(&[&path("traces.parquet")], &path(out), &BUCKETS);
        command.arg("--signals").arg(path("signals.jsonl"));
        command.args([
            "--metrics",
            "coherence,agent_reliability,agent_consistency,attention",
        ]);
        passes(command.args(more));
    }
    assert!(bytes(&path("here")) == bytes(&path("there")));
    for member in ["unmatched_signals", "metrics"] {
        assert_eq!(
            summary(&path("here"))[member],
            summary(&path("there"))[member]
        );
    }
    assert_eq!(summary(&path("there"))["unmatched_signals"], 1);
}

#[test]
fn executors_bring_files_of_a_bucket_of_the_network_to_themselves() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(
        folder.path(),
        &traces_of(6000, 401, 11, |n| format!("{n:032x}")),
    );
    bucket.put(
        "traces/a.parquet",
        &std::fs::read(path("traces.parquet")).unwrap(),
    );
    bucket.put(
        "traces/b.jsonl",
        b"{\"trace_id\": \"b\", \"session_id\": null, \"started_at\": \"2026-11-01T00:00:00Z\", \"input\": \"x\", \"output\": \"y\"}\nno JSON\n",
    );
    let endpoint = format!("http://127.0.0.1:{}", bucket.port);
    let variables = [
        ("NO_PROXY", "127.0.0.1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_ACCESS_KEY_ID", "night-key"),
        ("AWS_SECRET_ACCESS_KEY", "night-secret"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];
    let mut cluster = Cluster::with_keys(folder.path(), None);
    cluster.add(&variables);
    cluster.add(&variables);
    for (out, more) in [
        ("here", &[][..]),
        ("there", &["--cluster", &cluster.address][..]),
    ] {
        let mut command = score(&[Path::new("s3://night/traces/")], &path(out), &BUCKETS);
        passes(command.envs(variables).args(more));
    }
    assert!(bytes(&path("here")) == bytes(&path("there")));
    let told = summary(&path("there"));
    assert_eq!(
        (&told["traces"], &told["quarantined"]),
        (&6001.into(), &1.into())
    );
    // A run for the bucket is made in a folder that all see, and carried there.
    let shared = path("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut command = score(
        &[Path::new("s3://night/traces/")],
        Path::new("s3://night/runs/there"),
        &BUCKETS,
    );
    command.args(["--cluster", &cluster.address, "--cluster-folder"]);
    passes(command.arg(&shared).envs(variables));
    for (name, bytes) in bytes(&path("here")) {
        let key = format!("runs/there/{}", name.display());
        assert!(bucket.get(&key) == bytes, "{key}");
    }
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0);
    // One that may not read there says which file, and the run ends.
    let mut cluster = Cluster::with_keys(folder.path(), None);
    cluster.add(&[
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        variables[1],
        variables[2],
        variables[3],
    ]);
    let mut command = score(&[Path::new("s3://night/traces/")], &path("never"), &BUCKETS);
    let ran = command
        .envs(variables)
        .args(["--cluster", &cluster.address])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("s3://night/traces/"), "{said}");
    assert!(!path("never").exists());
}

#[test]
fn little_memory_spills_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Half of all rows are of one session; long ids fill memory sooner than many rows.
    let mut all = traces_of(240_000, 301, 11, |n| format!("{n:0200x}"));
    for trace in all.iter_mut().step_by(2) {
        trace.session = Some("the one".into());
    }
    write(folder.path(), &all);
    let files = path("traces.parquet");
    let metrics = [
        "--metrics",
        "agent_consistency,empty_output,attention",
        "--buckets",
        "5",
    ];
    passes(&mut score(&[&files], &path("here"), &metrics));
    let mut cluster = Cluster::with_keys(folder.path(), None);
    cluster.add_with(&["--memory-limit", "192M"]);
    let mut command = score(&[&files], &path("there"), &metrics);
    command.args(["--cluster", &cluster.address]);
    let ended = AtomicBool::new(false);
    let spilled = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut spilled = false;
            while !ended.load(Relaxed) && !spilled {
                spilled = has_spilled(&path("work-0"));
                std::thread::sleep(Duration::from_millis(2));
            }
            spilled
        });
        passes(&mut command);
        ended.store(true, Relaxed);
        watching.join().unwrap()
    });
    assert!(spilled);
    assert!(bytes(&path("here")) == bytes(&path("there")));
}

/// Whether rows that did not fit into memory are in an executor's folder.
fn has_spilled(work: &Path) -> bool {
    let files = walkdir::WalkDir::new(work).into_iter().flatten();
    let mut files = files.filter(|entry| entry.file_type().is_file());
    files.any(|entry| {
        let folder = entry.path().parent().and_then(Path::file_name);
        folder.is_some_and(|name| name.to_string_lossy().starts_with("datafusion-"))
            && entry.metadata().is_ok_and(|data| data.len() > 0)
    })
}
