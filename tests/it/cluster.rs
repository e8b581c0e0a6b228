//! Runs on a cluster: scheduler and executors are processes of their own, and the tables are those of one machine, byte for
//! byte, whatever happens to whom.

mod kinds_of_runs;
mod members;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use members::Cluster;
use rustix::process::Signal;

use crate::session_buckets::{bytes, traces_of, write};
use crate::support::{nightmill, program, summary};

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
    let cluster = Cluster::start(folder.path(), 2);
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
    assert!(left.iter().all(|name| !name.starts_with('.')), "{left:?}");
    drop(cluster);
}

/// A warehouse, scored here; and how it is scored on a cluster, in equal buckets.
struct Both {
    folder: tempfile::TempDir,
}

const BUCKETS: [&str; 2] = ["--buckets", "40"];

impl Both {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &traces_of(20_000, 2001, 11, |n| format!("{n:032x}")),
        );
        let both = Self { folder };
        here(
            &[&both.path("traces.parquet")],
            &both.path("here"),
            &BUCKETS,
        );
        both
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begin(&self, cluster: &Cluster, more: &[&str]) -> Child {
        let files = self.path("traces.parquet");
        let more = [&BUCKETS, more].concat();
        cluster.begin(&[&files], &self.path("there"), METRICS, &more)
    }

    fn wait_for(&self, kind: &str, count: usize) {
        members::wait_for(self.folder.path(), kind, count);
    }

    /// Waits for the end of a run, which must be a good one.
    fn is_equal(&self, cluster: &Cluster, mut run: Child) {
        let ended = members::wait(&mut run, Duration::from_secs(180));
        assert_eq!(ended, Some(0), "{}", cluster.said());
        assert!(bytes(&self.path("here")) == bytes(&self.path("there")));
    }
}

#[test]
fn an_executor_that_dies_changes_nothing_whatever_it_is_at() {
    // While files are read; when all rows are read and none is scored; while buckets are scored.
    for (kind, count) in [("units", 1), ("units", 4), ("buckets", 1), ("buckets", 20)] {
        let both = Both::new();
        let mut cluster = Cluster::start(both.folder.path(), 2);
        let run = both.begin(&cluster, &[]);
        both.wait_for(kind, count);
        cluster.kill(0);
        both.is_equal(&cluster, run);
    }
}

#[test]
fn an_executor_that_stands_still_and_goes_on_later_changes_nothing() {
    let both = Both::new();
    let cluster = Cluster::start(both.folder.path(), 2);
    let run = both.begin(&cluster, &[]);
    both.wait_for("buckets", 3);
    cluster.signal(0, Signal::STOP);
    // Past the time after which its parts go to the other one.
    std::thread::sleep(Duration::from_secs(12));
    cluster.signal(0, Signal::CONT);
    both.is_equal(&cluster, run);
    // It ends what it was at, and there is nothing left to be changed.
    std::thread::sleep(Duration::from_secs(2));
    assert!(bytes(&both.path("here")) == bytes(&both.path("there")));
    let left = crate::support::entries_but_records(both.folder.path());
    assert!(left.iter().all(|name| !name.starts_with('.')), "{left:?}");
}

#[test]
fn a_run_whose_scheduler_was_killed_goes_on_with_another_one() {
    let both = Both::new();
    let mut cluster = Cluster::start(both.folder.path(), 2);
    let mut run = both.begin(&cluster, &[]);
    both.wait_for("buckets", 3);
    cluster.kill_scheduler();
    let ended = members::wait(&mut run, Duration::from_secs(60));
    let said = cluster.said();
    assert_eq!(ended, Some(2), "{said}");
    assert!(said.contains("--resume goes on with it"), "{said}");
    assert!(!both.path("there").exists());
    drop(cluster);
    let cluster = Cluster::start(both.folder.path(), 1);
    let run = both.begin(&cluster, &["--resume"]);
    both.is_equal(&cluster, run);
    let resumed = summary(&both.path("there"))["buckets"]["resumed"].as_u64();
    assert!(resumed >= Some(3), "{resumed:?}");
}

#[test]
fn what_a_cluster_has_begun_ends_on_one_machine() {
    let both = Both::new();
    let mut cluster = Cluster::start(both.folder.path(), 1);
    let mut run = both.begin(&cluster, &[]);
    both.wait_for("buckets", 3);
    // Nobody is left: that must be an error, and soon.
    cluster.kill(0);
    let ended = members::wait(&mut run, Duration::from_secs(90));
    assert_eq!(ended, Some(2), "{}", cluster.said());
    let out = both.path("there");
    here(
        &[&both.path("traces.parquet")],
        &out,
        &[&BUCKETS[..], &["--resume"]].concat(),
    );
    assert!(bytes(&both.path("here")) == bytes(&out));
    // Nobody has held them against their rows: on one machine they are scored anew.
    assert_eq!(summary(&out)["buckets"]["resumed"], 0);
}

#[test]
fn a_full_disk_ends_in_equal_tables_or_in_words() {
    let both = Both::new();
    let mut cluster = Cluster::start(both.folder.path(), 1);
    cluster.add_with_full_disk(16);
    let mut run = both.begin(&cluster, &[]);
    let ended = members::wait(&mut run, Duration::from_secs(180));
    let said = cluster.said();
    match ended {
        // The other one was given what this one could not do.
        Some(0) => {}
        Some(2) => {
            assert!(said.contains("large") || said.contains("space"), "{said}");
            assert!(!said.contains("DataFusionError"), "{said}");
            cluster.kill(1);
            let run = both.begin(&cluster, &["--resume"]);
            both.is_equal(&cluster, run);
        }
        other => panic!("{other:?}: {said}"),
    }
    assert!(bytes(&both.path("here")) == bytes(&both.path("there")));
}

#[test]
fn an_executor_that_computes_other_vectors_is_refused_by_name() {
    let both = Both::new();
    let mut cluster = Cluster::with_keys(both.folder.path(), None);
    cluster.add(&[("NIGHTMILL_CPU_LEVEL", "portable")]);
    let mut run = both.begin(&cluster, &[]);
    let ended = members::wait(&mut run, Duration::from_secs(60));
    let said = cluster.said();
    assert_eq!(ended, Some(2), "{said}");
    for part in [
        "worker 127.0.0.1:",
        "scores would differ: device: cpu (portable) here",
        "NIGHTMILL_CPU_LEVEL",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for name in ["Job failed", "DataFusionError", "Execution", "\\\""] {
        assert!(!said.contains(name), "{name} is no word of ours: {said}");
    }
    assert!(!both.path("there").exists());
}

#[test]
fn a_session_of_many_traces_is_one_bucket_and_fits_into_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Half of all traces are of one session.
    let mut all = traces_of(60_000, 301, 11, |n| format!("{n:032x}"));
    for (n, trace) in all.iter_mut().enumerate() {
        if n % 2 == 0 {
            trace.session = Some("the one".into());
        }
    }
    write(folder.path(), &all);
    let files = path("traces.parquet");
    here(&[&files], &path("here"), &["--buckets", "5"]);
    let mut cluster = Cluster::with_keys(folder.path(), None);
    cluster.add(&[]);
    here(
        &[&files],
        &path("there"),
        &["--buckets", "5", "--cluster", &cluster.address],
    );
    assert!(bytes(&path("here")) == bytes(&path("there")));
}

#[test]
fn members_with_keys_know_each_other_and_nobody_else() {
    let both = Both::new();
    let keys = both.path("keys");
    let made = nightmill(["keys", &keys.display().to_string()]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let mut cluster = Cluster::with_keys(both.folder.path(), Some(&keys));
    cluster.add(&[]);
    cluster.add(&[]);
    // Without keys, or with others, nobody comes in.
    let others = both.path("others");
    assert_eq!(
        nightmill(["keys", &others.display().to_string()]).code,
        Some(0)
    );
    let files = both.path("traces.parquet").display().to_string();
    let out = both.path("there").display().to_string();
    let asked = [
        "score",
        &files,
        "--out",
        &out,
        "--cluster",
        &cluster.address,
    ];
    let refused = nightmill(asked);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("without keys?"),
        "{}",
        refused.stderr
    );
    let others = others.display().to_string();
    let refused = nightmill(asked.iter().copied().chain(["--cluster-keys", &others]));
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("with the same keys?"),
        "{}",
        refused.stderr
    );
    let work = both.path("work-x").display().to_string();
    let stranger = nightmill([
        "executor",
        "--scheduler",
        &cluster.address,
        "--work-dir",
        &work,
        "--keys",
        &others,
    ]);
    assert_eq!(stranger.code, Some(2), "{}", stranger.stderr);
    let run = both.begin(&cluster, &[]);
    both.is_equal(&cluster, run);
}

/// The commands of a page in its `bash` blocks, run as they stand.
fn run_page(page: &str, blocks: usize) {
    let page = std::fs::read_to_string(crate::support::root().join(page)).unwrap();
    let found: Vec<&str> = page
        .split("```bash\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert_eq!(found.len(), blocks);
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        crate::support::root().join("datasets"),
        folder.path().join("datasets"),
    )
    .unwrap();
    std::fs::create_dir(folder.path().join("runs")).unwrap();
    // Members must be children of the shell, to be ended with it.
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program().get_program(), bin.join("nightmill")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for block in found {
        let mut shell = Command::new("bash");
        crate::support::without_settings(&mut shell);
        shell.env("PATH", &path).current_dir(folder.path());
        shell
            .env("HOME", folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("cache"));
        shell.args([
            "-e",
            "-c",
            &format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{block}"),
        ]);
        let ran = shell.output().unwrap();
        assert!(
            ran.status.success(),
            "{block}\n{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}

/// The README's cluster, and those of the page: they listen where the pages say, so one after the other.
#[test]
fn every_command_of_the_pages_about_clusters_works() {
    run_page("README.md", 1);
    run_page("src/cluster/README.md", 3);
}

#[test]
fn nothing_listens_for_other_machines_without_keys() {
    let refused = nightmill(["scheduler", "--bind", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("give --keys DIR"),
        "{}",
        refused.stderr
    );
    let executor = [
        "executor",
        "--scheduler",
        "127.0.0.1:1",
        "--work-dir",
        "/nowhere",
        "--bind",
        "0.0.0.0:0",
    ];
    let refused = nightmill(executor);
    assert!(
        refused.stderr.contains("give --keys DIR"),
        "{}",
        refused.stderr
    );
}

#[test]
fn executors_refuse_memory_that_their_slots_can_not_do_with() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work").display().to_string();
    let asked = [
        "executor",
        "--scheduler",
        "127.0.0.1:1",
        "--work-dir",
        &work,
    ];
    let more = ["--slots", "4", "--memory-limit", "600M"];
    let refused = nightmill(asked.into_iter().chain(more));
    assert_eq!(refused.code, Some(2));
    let said = "4 parts at once need at least 683M";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
}

#[test]
fn what_a_cluster_can_not_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &traces_of(20, 3, 11, |n| format!("{n:032x}")),
    );
    let files = folder.path().join("traces.parquet").display().to_string();
    let out = folder.path().join("run").display().to_string();
    let refused = |out: &str, more: &[&str]| {
        let args = ["score", &files, "--out", out, "--cluster", "127.0.0.1:1"];
        let ran = nightmill(args.iter().chain(more));
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    assert!(refused(&out, &["--buckets", "1"]).contains("no work for several"));
    let simulated = [
        "score",
        &files,
        "--cluster",
        "127.0.0.1:1",
        "--simulate",
        "2x1,9",
    ];
    assert!(nightmill(simulated).stderr.contains("cannot be used with"));
    assert!(refused("s3://b/run", &[]).contains("--cluster-folder"));
    for out in [out.clone(), format!("file://{out}")] {
        let said = refused(&out, &["--cluster-folder", "/tmp"]);
        assert!(said.contains("leave one of them out"), "{said}");
    }
    assert!(refused("s3://b/run", &["--cluster-folder", "/no"]).contains("no such folder"));
    assert!(refused(&out, &[]).contains("is `nightmill scheduler` running there"));
    assert!(!folder.path().join("run").exists());
}

#[test]
fn what_a_cluster_would_take_is_told_of_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &traces_of(2000, 301, 11, |n| format!("{n:032x}")),
    );
    let files = folder.path().join("traces.parquet").display().to_string();
    let asked = [
        "score",
        &files,
        "--simulate",
        "100x16,1_000_000_000",
        "--no-cache",
    ];
    let told = nightmill(asked);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    for part in [
        "predicted for 1000000000 rows on 100 executors of 16 slots",
        "rows on their way",
        "files of a bucket",
    ] {
        assert!(told.stdout.contains(part), "{}", told.stdout);
    }
    let told = nightmill(asked.into_iter().chain(["--json"]));
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["predicted"]["buckets"], 6400);
    assert_eq!(told["sample"]["rows"], 2000);
    assert!(told["predicted"]["exchanged_bytes"].as_f64() > Some(5e10));
    // Nothing is left of it.
    assert_eq!(crate::support::entries(folder.path()), ["traces.parquet"]);
    let wrong = nightmill(["score", &files, "--simulate", "100"]);
    assert!(
        wrong.stderr.contains("EXECUTORSxSLOTS,ROWS"),
        "{}",
        wrong.stderr
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_executor_that_dies_at_the_moment_of_a_commit_changes_nothing() {
    let library = tempfile::tempdir().unwrap();
    let library = crate::killed_at_each_write::killer(library.path());
    let library = library.display().to_string();
    // Before its marker is there, and when it is there and nobody has been told.
    for moment in ["KILL_BEFORE_LINK", "KILL_AFTER_LINK"] {
        for markers in ["/units-", "/buckets/"] {
            let both = Both::new();
            let mut cluster = Cluster::with_keys(both.folder.path(), None);
            cluster.add(&[("LD_PRELOAD", &library), (moment, markers)]);
            // It has begun before there is anyone else.
            let mut run = both.begin(&cluster, &[]);
            assert!(cluster.waits_for_death(0), "{moment} {markers}");
            assert_eq!(run.try_wait().unwrap(), None);
            cluster.add(&[]);
            both.is_equal(&cluster, run);
        }
    }
}
