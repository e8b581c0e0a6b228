//! Sessions in buckets: no number of them changes a score, and a run that was broken off goes on where it was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use crate::nights::{Trace, rows, scored, some_traces, three_nights};
use crate::support::{
    TraceRow, entries_but_records, nightmill, program, read_parquet, summary, traces, write_parquet,
};

const TABLES: [&str; 5] = ["traces", "sessions", "attention", "scores", "carried"];

/// The rows of the tables, each sorted.
fn sorted(run: &Path) -> Vec<Vec<Vec<String>>> {
    let table = |name: &&str| {
        let files = std::fs::read_dir(run.join(name)).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let parquet = paths.filter(|path| path.extension().is_some_and(|e| e == "parquet"));
        let mut rows: Vec<_> = parquet
            .flat_map(|path| rows(&read_parquet(&path)))
            .collect();
        rows.sort();
        rows
    };
    TABLES.iter().map(table).collect()
}

/// What the summary says of scores.
fn said(run: &Path) -> Value {
    let mut said = summary(run);
    for member in ["buckets", "stages", "tokens_per_second"] {
        said.as_object_mut().unwrap().remove(member);
    }
    said
}

/// The bytes of the tables of a run.
pub fn bytes(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = TABLES
        .iter()
        .flat_map(|table| std::fs::read_dir(run.join(table)).unwrap());
    let paths = files.map(|entry| entry.unwrap().path());
    let parquet = paths.filter(|path| path.extension().is_some_and(|e| e == "parquet"));
    parquet
        .map(|path| {
            let name = path.strip_prefix(run).unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

pub fn write(folder: &Path, all: &[Trace]) -> Vec<PathBuf> {
    let file = folder.join("traces.parquet");
    let rows: Vec<TraceRow<'_>> = all.iter().map(Trace::row).collect();
    let group = if all.len() < 1000 { 7 } else { 5000 };
    write_parquet(&file, &[traces(&rows)], group);
    vec![file]
}

const METRICS: [&str; 2] = [
    "--metrics",
    "coherence,loop_detection,agent_reliability,agent_consistency,attention,stuck,empty_output",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn no_number_of_buckets_or_threads_changes_a_score(
        all in some_traces(),
        buckets in 2..30u32,
        threads in 1..4u32,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let files = write(folder.path(), &all);
        let out = |name: &str| folder.path().join(name);
        let (buckets, threads) = (buckets.to_string(), threads.to_string());
        let [metrics, names] = METRICS;
        scored(&files, &out("one"), None, &[metrics, names]);
        scored(&files, &out("many"), None, &[metrics, names, "--buckets", &buckets, "--threads", &threads]);
        scored(&files, &out("again"), None, &[metrics, names, "--buckets", &buckets]);
        prop_assert_eq!(sorted(&out("one")), sorted(&out("many")));
        prop_assert_eq!(said(&out("one")), said(&out("many")));
        prop_assert!(bytes(&out("many")) == bytes(&out("again")));
        scored(&files, &out("piece"), None, &[metrics, names, "--buckets", "1"]);
        prop_assert!(bytes(&out("one")) == bytes(&out("piece")));
        let verified = nightmill(["runs", "verify", &out("many").display().to_string()]);
        prop_assert_eq!(verified.code, Some(0));
    }
}

/// Traces of as many sessions: those whose number `alone` divides have none.
pub fn traces_of(
    count: usize,
    sessions: usize,
    alone: usize,
    id: impl Fn(usize) -> String,
) -> Vec<Trace> {
    let texts = [
        "where is my parcel",
        "it is late",
        "a refund please",
        "it is on its way",
    ];
    let traces = (0..count).map(|n| Trace {
        id: id(n),
        session: (n % alone != 0).then(|| format!("s{}", n * 7919 % sessions)),
        seconds: (n % 977) as i64,
        input: Some(texts[n % 4].into()),
        output: Some(texts[(n / 3) % 4].into()),
    });
    traces.collect()
}

/// Sessions and traces enough for several buckets.
fn some(folder: &Path) -> Vec<PathBuf> {
    write(folder, &traces_of(24, 7, 6, |n| format!("t{n}")))
}

#[test]
fn the_bytes_of_a_bucket_do_not_depend_on_what_shares_its_stream() {
    let folder = tempfile::tempdir().unwrap();
    let all = traces_of(30_000, 4001, 11, |n| format!("{n:032x}"));
    let files = write(folder.path(), &all);
    let run = |threads: &'static str| {
        let out = folder.path().join(threads);
        scored(
            &files,
            &out,
            None,
            &["--buckets", "7", "--threads", threads],
        );
        bytes(&out)
    };
    let one = run("1");
    assert!(one == run("2") && one == run("3"));
}

#[test]
fn tables_of_buckets_are_read_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let files = some(folder.path());
    let out = |name: &str| folder.path().join("runs").join(name);
    scored(&files, &out("one"), None, &[]);
    scored(&files, &out("many"), None, &["--buckets", "5"]);
    let names = std::fs::read_dir(out("many").join("traces")).unwrap();
    let names: Vec<String> = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.len() > 2 && names.iter().all(|n| n.starts_with("bucket-0000")),
        "{names:?}"
    );
    let manifest = std::fs::read(out("many").join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["buckets"], 5);
    assert_eq!(summary(&out("many"))["buckets"]["count"], 5);
    let answer = |run: &str| {
        let run = out(run).display().to_string();
        // Rounded: in which order floats are added is not said.
        let query = "SELECT count(*) AS n, round(sum(coherence), 6) AS c FROM traces";
        let ran = nightmill(["sql", query, "--run", &run, "--format", "csv"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let scores = nightmill(["runs", "summary", &run, "--json"]);
        assert_eq!(scores.code, Some(0), "{scores:?}");
        let mut scores: Value = serde_json::from_str(&scores.stdout).unwrap();
        for metric in scores.as_array_mut().unwrap() {
            metric.as_object_mut().unwrap().remove("latest_score_at");
        }
        (ran.stdout, scores)
    };
    assert_eq!(answer("one"), answer("many"));
    let bucket =
        "SELECT count(*) AS n FROM traces WHERE bucket_of(project_id, session_id, trace_id, 5) = 0";
    let run = out("many").display().to_string();
    let ran = nightmill(["sql", bucket, "--run", &run, "--format", "csv"]);
    let first = read_parquet(&out("many").join("traces/bucket-00000.parquet"));
    assert_eq!(ran.stdout, format!("n\n{}\n", first.num_rows()), "{ran:?}");
}

#[cfg(target_os = "linux")]
mod broken_off {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::killed_at_each_write::{assert_whole, killer};

    fn score(files: &[PathBuf], out: &Path, more: &[&str]) -> Command {
        let mut command = program();
        command.arg("score").args(files).arg("--out").arg(out);
        command.args(["--no-report", "--threads", "1"]).args(more);
        command
    }

    /// Runs the command until its `at`th call that changes a file; whether it was killed there.
    fn kill(library: &Path, mut command: Command, at: usize) -> bool {
        command
            .env("LD_PRELOAD", library)
            .env("KILL_AT", at.to_string());
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        !status.success()
    }

    /// Kills a run when it has finished a bucket, and returns at which call that was.
    fn break_off(library: &Path, command: impl Fn() -> Command, runs: &Path) -> usize {
        let is_marker = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let bucket = name.and_then(|name| name.strip_suffix(".json"));
            let in_work = path
                .parent()
                .is_some_and(|folder| folder.ends_with("work/buckets"));
            in_work && bucket.is_some_and(|bucket| bucket.parse::<u32>().is_ok())
        };
        let at = (1..).step_by(5).find(|at| {
            assert!(
                kill(library, command(), *at),
                "no bucket was finished before the run was"
            );
            let mut entries = walkdir::WalkDir::new(runs).into_iter().flatten();
            entries.any(|entry| is_marker(entry.path()))
        });
        at.unwrap()
    }

    fn leftovers(folder: &Path) -> usize {
        let names = entries_but_records(folder);
        names.iter().filter(|name| name.contains("partial")).count()
    }

    #[test]
    fn a_run_goes_on_wherever_it_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let library = killer(folder.path());
        let files = some(folder.path());
        let runs = folder.path().join("runs");
        let (whole, run) = (folder.path().join("whole"), runs.join("night"));
        let buckets = ["--buckets", "4"];
        assert!(score(&files, &whole, &buckets).status().unwrap().success());
        let (mut most, mut kills) = (0, 0);
        for at in (1..).step_by(3) {
            if !kill(&library, score(&files, &run, &buckets), at) {
                break;
            }
            kills += 1;
            if run.exists() {
                assert_whole(&run);
                std::fs::remove_dir_all(&run).unwrap();
            }
            // Killed once more, while it goes on.
            if at % 2 == 0 {
                kill(
                    &library,
                    score(&files, &run, &["--buckets", "4", "--resume"]),
                    at / 2,
                );
                let _ = std::fs::remove_dir_all(&run);
            }
            let output = score(&files, &run, &["--buckets", "4", "--resume"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{at}: {output:?}");
            assert_whole(&run);
            assert!(bytes(&run) == bytes(&whole), "killed at {at}");
            let resumed = summary(&run)["buckets"]["resumed"].as_u64().unwrap();
            let counted = |mut said: Value| {
                let members = said.as_object_mut().unwrap();
                // Texts of buckets that were there are not read again.
                for member in [
                    "texts",
                    "distinct_texts",
                    "dedup_share",
                    "tokens",
                    "cached_texts",
                ] {
                    members.remove(member);
                }
                said
            };
            assert_eq!(counted(said(&run)), counted(said(&whole)), "killed at {at}");
            assert_eq!(entries_but_records(&runs), ["night"]);
            std::fs::remove_dir_all(&run).unwrap();
            most = most.max(resumed);
        }
        assert!(most >= 3 && kills > 20, "{most} buckets, {kills} kills");
    }

    #[test]
    fn what_is_left_waits_for_the_same_question_alone() {
        let folder = tempfile::tempdir().unwrap();
        let library = killer(folder.path());
        let files = some(folder.path());
        let runs = folder.path().join("runs");
        let run = runs.join("night");
        let with = |more: &[&str]| {
            let all = [&["--buckets", "4"][..], more].concat();
            score(&files, &run, &all).output().unwrap()
        };
        let killed = break_off(&library, || score(&files, &run, &["--buckets", "4"]), &runs);
        assert!(!run.exists());
        // Another run in the same folder leaves it alone.
        assert!(
            score(&files, &runs.join("other"), &[])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(leftovers(&runs), 1);
        let other = with(&["--resume", "--window", "5"]);
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        assert_eq!(other.status.code(), Some(2), "{said}");
        assert!(said.contains("window: null then, \"5\" now"), "{said}");
        let other = score(&files, &run, &["--buckets", "3", "--resume"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        assert!(said.contains("buckets: 4 then, 3 now"), "{said}");
        assert_eq!(leftovers(&runs), 1);
        let resumed = with(&["--resume"]);
        assert!(resumed.status.success(), "{resumed:?}");
        assert!(summary(&run)["buckets"]["resumed"].as_u64() > Some(0));
        let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
        assert!(text.contains("buckets"), "{text}");
        assert_eq!(leftovers(&runs), 0);
        std::fs::remove_dir_all(&run).unwrap();
        // Without --resume a run begins anew, and nothing of the earlier one stays.
        kill(&library, score(&files, &run, &["--buckets", "4"]), killed);
        let anew = with(&[]);
        assert!(anew.status.success(), "{anew:?}");
        assert_eq!(summary(&run)["buckets"]["resumed"], 0);
        assert_eq!(leftovers(&runs), 0);
    }

    #[test]
    fn what_decides_scores_must_be_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let library = killer(folder.path());
        let runs = folder.path().join("runs");
        let path = |name: &str| folder.path().join(name).display().to_string();
        // A mapping.
        let (lines, mapping) = (path("house.jsonl"), path("house.toml"));
        let house = std::fs::read_to_string("datasets/formats/house.jsonl").unwrap();
        let more: String = (0..8)
            .map(|n| house.replace("talk-", &format!("talk-{n}-")))
            .collect();
        std::fs::write(&lines, more).unwrap();
        let rules = std::fs::read_to_string("datasets/formats/house.toml").unwrap();
        std::fs::write(&mapping, &rules).unwrap();
        let house = || {
            let more = ["--mapping", &mapping, "--buckets", "9", "--resume"];
            score(&[PathBuf::from(&lines)], &runs.join("house"), &more)
        };
        break_off(&library, house, &runs);
        std::fs::write(&mapping, format!("{rules}\n# edited\n")).unwrap();
        let refused = |output: std::process::Output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.code() == Some(2) && said.contains("asked something else"),
                "{said}"
            );
        };
        refused(house().output().unwrap());
        // A file of an earlier night.
        let files = three_nights(folder.path());
        let nights = folder.path().join("nights");
        scored(&files[..2], &nights.join("n0"), None, &["--buckets", "9"]);
        let night = || {
            let first = nights.join("n0").display().to_string();
            score(
                &files[2..],
                &nights.join("n1"),
                &["--continue", &first, "--resume"],
            )
        };
        break_off(&library, night, &nights);
        std::fs::remove_file(&files[0]).unwrap();
        refused(night().output().unwrap());
        assert_eq!((leftovers(&runs), leftovers(&nights)), (1, 1));
    }

    #[test]
    fn forgetting_removes_what_was_broken_off() {
        let folder = tempfile::tempdir().unwrap();
        let library = killer(folder.path());
        let files = some(folder.path());
        let runs = folder.path().join("runs");
        assert!(
            score(&files, &runs.join("first"), &[])
                .status()
                .unwrap()
                .success()
        );
        let night = || score(&files, &runs.join("night"), &["--buckets", "4"]);
        break_off(&library, night, &runs);
        assert_eq!(leftovers(&runs), 1);
        let ids = folder.path().join("ids");
        std::fs::write(&ids, "t3\n").unwrap();
        let (runs_arg, ids) = (runs.display().to_string(), ids.display().to_string());
        let ran = nightmill(["runs", "forget", &runs_arg, "--trace-ids", &ids]);
        assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
        assert_eq!(leftovers(&runs), 0);
    }
}

#[test]
fn flags_of_buckets_are_refused_where_they_would_have_no_effect() {
    let data = "datasets/support";
    let refused = |args: &[&str], said: &str| {
        let ran = nightmill(args);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(said),
            "{args:?}: {ran:?}"
        );
    };
    for flag in [&["--buckets", "4"][..], &["--resume"]] {
        let with = |command: &[&'static str]| [command, flag].concat();
        let said = format!("{}: ", flag[0]);
        refused(&with(&["aggregate", data, "--out", "/nowhere/x"]), &said);
        refused(&with(&["plan", data]), &said);
    }
    let bucket = ["score", data, "--resume", "--out", "s3://runs/x"];
    refused(&bucket, "name a local --out");
    let none = ["score", data, "--buckets", "0", "--out", "/nowhere/x"];
    refused(&none, "expected auto, or a whole number from 1 to 99999");
}
