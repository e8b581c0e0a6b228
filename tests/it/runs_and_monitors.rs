//! Runs over time and monitors: the program as a process.

use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::Value;

use crate::scripted_judge::{Answer, ScriptedJudge};

use crate::support::{Ran, entries, entries_but_records, nightmill, root, summary};

const SUPPORT: &str = "datasets/support";

/// Runs the program; it must end with this code.
#[track_caller]
fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

/// What the program prints as JSON.
#[track_caller]
fn json(args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    serde_json::from_str(&ended(0, &args).stdout).unwrap()
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn counted(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["count"].as_u64().unwrap()).sum()
}

fn scored_into(folder: &Path, name: &str) -> PathBuf {
    let run = folder.join(name);
    let out = run.display().to_string();
    ended(0, &["score", SUPPORT, "--no-report", "--out", &out]);
    run
}

#[test]
fn two_runs_are_listed_and_looked_at_together() {
    let folder = tempfile::tempdir().unwrap();
    let first = scored_into(folder.path(), "first");
    scored_into(folder.path(), "second");
    let all = folder.path().display().to_string();
    let one = first.display().to_string();

    let listed = json(&["runs", "list", &all]);
    let names: Vec<&str> = rows(&listed)
        .iter()
        .map(|run| run["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(listed[0]["command"], "score");
    assert_eq!(listed[0]["status"], "COMPLETED");
    assert_eq!(listed[0]["traces"], summary(&first)["traces"]);
    // A run named twice is one run.
    assert_eq!(rows(&json(&["runs", "list", &one, &one])).len(), 1);
    let table = ended(0, &["runs", "list", &all]).stdout;
    assert!(
        table.contains("second") && table.contains("COMPLETED"),
        "{table}"
    );

    let told = summary(&first);
    let coherence = rows(&told["metrics"])
        .iter()
        .find(|metric| metric["name"] == "coherence")
        .unwrap();
    let count = coherence["count"].as_u64().unwrap();
    let summed = json(&["runs", "summary", &all, "--metric", "coherence"]);
    assert_eq!(rows(&summed).len(), 1);
    let row = &summed[0];
    assert_eq!(row["target"], "TRACE");
    assert_eq!(row["success_count"].as_u64(), Some(2 * count));
    for (ours, theirs) in [
        ("avg_score", "mean"),
        ("min_score", "min"),
        ("max_score", "max"),
    ] {
        let difference = row[ours].as_f64().unwrap() - coherence[theirs].as_f64().unwrap();
        assert!(difference.abs() <= 0.00005 + 1e-9, "{ours}: {row}");
    }
    // Without a metric: every metric of traces and of sessions.
    let every = json(&["runs", "summary", &all]);
    assert_eq!(rows(&every).len(), rows(&told["metrics"]).len());

    let spread = ["runs", "distribution", &all, "--metric", "coherence"];
    let buckets = json(&spread);
    assert_eq!(counted(rows(&buckets)), 2 * count);
    let closed = json(&[&spread[..], &["--buckets", "1", "--closed"]].concat());
    assert_eq!(
        (rows(&closed).len(), counted(rows(&closed))),
        (1, 2 * count)
    );

    let over_time = ["runs", "trend", &all, "--metric", "agent_reliability"];
    let sessions = told["sessions"].as_u64().unwrap();
    for interval in ["hour", "day", "week"] {
        let trend = json(&[&over_time[..], &["--interval", interval]].concat());
        assert_eq!(counted(rows(&trend)), 2 * sessions, "{interval}");
    }
    let future = json(&[&over_time[..], &["--from", "2999-01-01"]].concat());
    assert!(rows(&future).is_empty());
    let past = json(&[&over_time[..], &["--to", "2999-01-01"]].concat());
    assert_eq!(counted(rows(&past)), 2 * sessions);
}

#[test]
fn sessions_are_compared_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let first = scored_into(folder.path(), "first");
    scored_into(folder.path(), "second");
    let all = folder.path().display().to_string();
    let compare = [
        "runs",
        "comparison",
        &all,
        "--metric",
        "agent_reliability",
        "--limit",
        "3",
    ];
    let worst = json(&compare);
    let told = summary(&first);
    assert_eq!(worst["total"], told["sessions"]);
    assert_eq!(rows(&worst["rows"]).len(), 3);
    assert_eq!(
        worst["rows"][0]["score"].as_f64(),
        told["worst_sessions"][0]["agent_reliability"].as_f64()
    );
    let next = json(&[&compare[..], &["--offset", "1"]].concat());
    assert_eq!(next["rows"][0], worst["rows"][1]);
    let best = json(&[&compare[..], &["--order", "descending"]].concat());
    assert!(
        best["rows"][0]["score"].as_f64() > worst["rows"][0]["score"].as_f64(),
        "{best}"
    );

    let session = worst["rows"][0]["target_id"].as_str().unwrap();
    let follow = ["runs", "history", &all, "--session", session];
    let history = json(&follow);
    // Two session metrics in two runs.
    assert_eq!(rows(&history).len(), 4);
    let runs: Vec<&str> = rows(&history)
        .iter()
        .map(|row| row["run"].as_str().unwrap())
        .collect();
    assert!(
        runs.contains(&"first") && runs.contains(&"second"),
        "{runs:?}"
    );
    let short = json(&[&follow[..], &["--limit", "1"]].concat());
    assert_eq!(rows(&short), &rows(&history)[..1]);
    let one = json(&[&follow[..], &["--metric", "agent_reliability"]].concat());
    assert_eq!(rows(&one).len(), 2);
}

#[test]
fn broken_runs_and_wrong_flags_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = scored_into(folder.path(), "good");
    let all = folder.path().display().to_string();
    let broken = folder.path().join("broken");
    std::fs::create_dir_all(broken.join("scores")).unwrap();

    let listed = ended(3, &["runs", "list", &all]);
    assert!(listed.stdout.contains("good"), "{listed:?}");
    assert!(listed.stderr.contains("broken"), "{listed:?}");
    let refused = ended(2, &["runs", "summary", &all]);
    assert!(refused.stderr.contains("broken"), "{refused:?}");

    for file in ["manifest.json", "summary.json"] {
        std::fs::copy(good.join(file), broken.join(file)).unwrap();
    }
    std::fs::write(broken.join("scores/part-00000.parquet"), "PAR1").unwrap();
    let refused = ended(2, &["runs", "summary", &all]);
    assert!(
        refused.stderr.contains("broken") && refused.stderr.contains("part-00000.parquet"),
        "{refused:?}"
    );

    let good = good.display().to_string();
    let nowhere = folder.path().join("none").display().to_string();
    for (args, expected) in [
        (vec!["list", &nowhere], "no run directory"),
        (vec!["trend", &good, "--metric", "coherense"], "`coherence`"),
        (vec!["summary", &good, "--target", "span"], "session"),
        (
            vec![
                "distribution",
                &good,
                "--metric",
                "coherence",
                "--buckets",
                "0",
            ],
            "1 to 100",
        ),
        (vec!["summary", &good, "--from", "soon"], "ISO 8601"),
    ] {
        let refused = ended(2, &[&["runs"][..], &args[..]].concat());
        assert!(refused.stderr.contains(expected), "{args:?}: {refused:?}");
    }
}

/// A folder with monitors, traces that grow, and runs.
struct Place {
    folder: tempfile::TempDir,
    monitors: String,
    traces: String,
    out: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let place = Self {
            monitors: at("monitors"),
            traces: at("traces"),
            out: at("runs"),
            folder,
        };
        std::fs::create_dir(&place.traces).unwrap();
        place.grow("2026-11-19");
        place
    }

    /// Puts the sample traces of a day into the folder.
    fn grow(&self, day: &str) {
        let from = root()
            .join(SUPPORT)
            .join(format!("date={day}/part-0.parquet"));
        std::fs::copy(from, Path::new(&self.traces).join(format!("{day}.parquet"))).unwrap();
    }

    #[track_caller]
    fn monitor(&self, code: i32, args: &[&str]) -> Ran {
        let folder = ["monitor", "--monitors", &self.monitors];
        ended(code, &[&folder[..], args].concat())
    }

    #[track_caller]
    fn add(&self, code: i32, name: &str, more: &[&str]) -> Ran {
        let args = [
            "add",
            name,
            &self.traces,
            "--cadence",
            "daily",
            "--out",
            &self.out,
            "--now",
            "2026-12-01T03:00:00Z",
        ];
        self.monitor(code, &[&args[..], more].concat())
    }

    /// Outcomes of a tick, in its order.
    #[track_caller]
    fn tick(&self, code: i32, now: &str) -> Vec<String> {
        let ran = self.monitor(code, &["tick", "--now", now, "--json"]);
        let ticked: Value = serde_json::from_str(&ran.stdout).unwrap();
        rows(&ticked["monitors"])
            .iter()
            .map(|monitor| monitor["outcome"].as_str().unwrap().to_owned())
            .collect()
    }

    fn runs(&self) -> Vec<String> {
        match Path::new(&self.out).exists() {
            true => entries_but_records(Path::new(&self.out)),
            false => Vec::new(),
        }
    }
}

const COHERENCE: [&str; 4] = ["--target", "trace", "--metrics", "coherence"];

#[test]
fn a_monitor_runs_when_it_is_due_and_something_is_new() {
    let place = Place::new();
    place.add(0, "Nightly", &COHERENCE);
    let listed = place.monitor(0, &["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["name"], "Nightly");
    assert_eq!(listed[0]["next_run_at"], "2026-12-02T03:00:00Z");

    assert_eq!(place.tick(0, "2026-12-02T02:59:59Z"), ["not_due"]);
    assert!(place.runs().is_empty());
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    let runs = place.runs();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(runs[0], format!("{id}_2026-12-02T03-00-00Z"));
    let told = json(&["runs", "list", &place.out]);
    assert_eq!(told[0]["status"], "COMPLETED");

    let shown = place.monitor(0, &["show", "Nightly", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["last_run_id"], runs[0].as_str());
    assert!(shown["seen"][0]["rows"].as_u64() > Some(0), "{shown}");

    // Nothing new; then a file more.
    assert_eq!(place.tick(0, "2026-12-03T03:00:00Z"), ["skipped_unchanged"]);
    assert_eq!(place.runs().len(), 1);
    place.grow("2026-11-20");
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["ran"]);
    let runs = place.runs();
    assert_eq!(runs.len(), 2);
    let traces = |run: &str| summary(&Path::new(&place.out).join(run))["traces"].as_u64();
    // The second goes on where the first ended: what is new, and the sessions that it touches.
    let second = summary(&Path::new(&place.out).join(&runs[1]));
    assert_eq!(second["continued"]["run"], runs[0].as_str());
    assert_eq!(second["continued"]["night"], 2);
    assert!(traces(&runs[1]) > Some(0), "{runs:?}");
    // By hand it runs at once, new or not, also if it is paused.
    place.monitor(0, &["pause", "Nightly"]);
    assert_eq!(place.tick(0, "2027-01-01"), ["not_due"]);
    place.monitor(0, &["trigger", "Nightly", "--now", "2027-01-02"]);
    assert_eq!(place.runs().len(), 3);
    place.monitor(0, &["resume", "Nightly", "--now", "2027-01-02"]);
    let changed = place.monitor(
        0,
        &[
            "set",
            "Nightly",
            "--cadence",
            "weekly",
            "--set",
            "threads=1",
            "--now",
            "2027-01-03",
        ],
    );
    assert!(
        changed.stdout.contains("2027-01-10T00:00:00Z") && changed.stdout.contains("threads=1"),
        "{changed:?}"
    );
    place.monitor(0, &["remove", "Nightly"]);
    assert!(place.tick(0, "2028-01-01").is_empty());
    assert_eq!(place.runs().len(), 3, "runs of a removed monitor stay");
}

#[test]
fn a_failing_or_damaged_monitor_stops_no_other() {
    let place = Place::new();
    place.add(0, "good", &COHERENCE);
    // Due at the same time, and first by id.
    place.add(
        0,
        "bad",
        &[&COHERENCE[..], &["--set", "model=/nonexistent"]].concat(),
    );
    assert_eq!(place.tick(3, "2026-12-02T03:00:00Z"), ["failed", "ran"]);
    assert_eq!(place.runs().len(), 1);
    // The next time of a failed one has moved on, too.
    assert_eq!(
        place.tick(0, "2026-12-02T04:00:00Z"),
        ["not_due", "not_due"]
    );
    // Why it failed is there in the morning.
    let listed = place.monitor(0, &["list"]);
    assert!(
        listed.stdout.contains("FAILED") && listed.stdout.contains("/nonexistent"),
        "{listed:?}"
    );
    let all = ended(0, &["runs", "list", &place.out, "--status", "failed"]);
    assert!(all.stdout.contains("FAILED: "), "{all:?}");
    place.monitor(0, &["remove", "bad"]);

    std::fs::write(Path::new(&place.monitors).join("damaged.json"), "{").unwrap();
    let listed = place.monitor(3, &["list"]);
    assert!(listed.stdout.contains("good"), "{listed:?}");
    assert!(listed.stderr.contains("damaged.json"), "{listed:?}");
    place.grow("2026-11-20");
    assert_eq!(place.tick(3, "2026-12-03T03:00:00Z"), ["ran"]);
    place.monitor(0, &["remove", "damaged"]);
    place.monitor(0, &["list"]);
}

#[test]
fn a_changed_file_without_a_matching_trace_is_nothing_new() {
    let place = Place::new();
    let ledger = place.folder.path().join("ledger.db");
    std::fs::write(&ledger, "").unwrap();
    let ledger = format!("ledger={}", ledger.display());
    let nowhere = [
        "--target",
        "trace",
        "--metrics",
        "task_completion",
        "--judge",
        "openai/gpt-4o-mini",
        "--filters",
        r#"{"user_id":"nobody"}"#,
        "--set",
        "replay=true",
        "--set",
        &ledger,
    ];
    place.add(0, "judged", &nowhere);
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    place.grow("2026-11-20");
    assert_eq!(place.tick(0, "2026-12-03T03:00:00Z"), ["skipped_unchanged"]);
    // Other filters, and the same file is new.
    let wide = [
        "set",
        "judged",
        "--filters",
        r#"{"date_from":"2026-11-20"}"#,
        "--sample",
        "0",
    ];
    place.monitor(0, &wide);
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["ran"]);
}

#[test]
fn a_changed_monitor_looks_at_all_files_again() {
    let place = Place::new();
    place.add(0, "part", &[&COHERENCE[..], &["--sample", "0"]].concat());
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    assert_eq!(place.tick(0, "2026-12-03T03:00:00Z"), ["skipped_unchanged"]);
    place.monitor(
        0,
        &[
            "set",
            "part",
            "--cadence",
            "daily",
            "--now",
            "2026-12-03T03:00:00Z",
        ],
    );
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["skipped_unchanged"]);
    place.monitor(0, &["set", "part", "--sample", "1"]);
    assert_eq!(place.tick(0, "2026-12-05T03:00:00Z"), ["ran"]);
    assert_eq!(place.tick(0, "2026-12-06T03:00:00Z"), ["skipped_unchanged"]);
}

#[test]
fn a_monitor_goes_on_with_its_files_while_its_judge_is_silent() {
    let down = Arc::new(AtomicBool::new(true));
    let judge = {
        let down = Arc::clone(&down);
        ScriptedJudge::start(move |_| match down.load(SeqCst) {
            true => Answer::status(400, &[], "closed for tonight"),
            false => Answer::reply(r#"{"confidence": 0.5, "reason": "r"}"#),
        })
    };
    let place = Place::new();
    let row = r#"{"trace_id":"t","started_at":"2026-01-01T00:00:00Z","input":"a","output":"b"}"#;
    std::fs::remove_file(Path::new(&place.traces).join("2026-11-19.parquet")).unwrap();
    std::fs::write(Path::new(&place.traces).join("a.jsonl"), row).unwrap();
    let ledger = place.folder.path().join("ledger.db");
    let settings = [
        format!("judge_url={}", judge.url()),
        format!("ledger={}", ledger.display()),
    ];
    let judged = [
        "--target",
        "trace",
        "--metrics",
        "confidence",
        "--judge",
        "openai/test",
    ];
    let settings = ["--set", &settings[0], "--set", &settings[1]];
    place.add(0, "judged", &[&judged[..], &settings].concat());
    for day in ["2026-12-02", "2026-12-03"] {
        assert_eq!(place.tick(3, &format!("{day}T03:00:00Z")), ["ran"], "{day}");
    }
    down.store(false, SeqCst);
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["ran"]);
    assert_eq!(place.tick(0, "2026-12-05T03:00:00Z"), ["skipped_unchanged"]);
}

/// Signals that a monitor of sessions takes up are told apart from what it was asked for.
#[test]
fn failed_signals_are_no_failures_of_a_session_monitor() {
    let judge = ScriptedJudge::start(|_| Answer::status(400, &[], "closed for tonight"));
    let place = of_two_users();
    let settings = [
        format!("judge_url={}", judge.url()),
        format!("ledger={}", place.folder.path().join("ledger.db").display()),
    ];
    let settings = ["--set", &settings[0], "--set", &settings[1]];
    let judged = |target, metric| {
        let chosen = ["--target", target, "--metrics", metric];
        [&chosen[..], &["--judge", "openai/test"], &settings].concat()
    };
    let listed = |name: &str| {
        place.monitor(3, &["trigger", name, "--now", "2026-12-02"]);
        let run = place.runs().into_iter().find(|run| run.starts_with(name));
        let run = Path::new(&place.out).join(run.unwrap());
        let failed = summary(&run)["failed_signals"].clone();
        assert!(failed.as_u64() > Some(0), "{name}");
        let path = run.display().to_string();
        let table = ended(0, &["runs", "list", &path]).stdout;
        (json(&["runs", "list", &path])[0].clone(), failed, table)
    };
    place.add(0, "sessions", &judged("session", "agent_reliability"));
    let (run, failed, table) = listed("sessions");
    assert_eq!(
        run["metric_names"],
        serde_json::json!(["agent_reliability"])
    );
    assert_eq!(run["model"], "openai/test");
    assert_eq!(
        (&run["failed"], &run["failed_signals"]),
        (&0.into(), &failed)
    );
    assert_eq!(run["status"], "INCOMPLETE");
    assert!(
        table.contains(&format!("0 and {failed} signals")),
        "{table}"
    );

    place.add(0, "traces", &judged("trace", "confidence"));
    let (run, failed, _) = listed("traces");
    assert_eq!(
        (&run["failed"], &run["failed_signals"]),
        (&failed, &0.into())
    );
}

#[test]
fn a_later_row_that_makes_an_old_trace_match_is_something_new() {
    let place = Place::new();
    let row = |rest: &str| {
        format!(
            r#"{{"trace_id":"t","started_at":"2026-01-01T00:00:00Z","input":"a","output":"b",{rest}}}"#
        )
    };
    let file = |name: &str, rest: &str| {
        let path = Path::new(&place.traces).join(name);
        std::fs::write(path, row(rest)).unwrap();
    };
    file("a.jsonl", r#""user_id":"u-1","status":"OK""#);
    let filters = ["--filters", r#"{"user_id":"u-1","status":"ERROR"}"#];
    place.add(0, "failed", &[&COHERENCE[..], &filters].concat());
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    // The new row says only that the trace failed; its user is in the old one.
    file("b.jsonl", r#""status":"ERROR""#);
    assert_eq!(place.tick(0, "2026-12-03T03:00:00Z"), ["ran"]);
    let runs = place.runs();
    let traces = |run: &str| summary(&Path::new(&place.out).join(run))["traces"].as_u64();
    assert_eq!((traces(&runs[0]), traces(&runs[1])), (Some(0), Some(1)));
    // Another trace that does not match is nothing new.
    let other = row(r#""user_id":"u-1","status":"OK""#).replace(r#""t""#, r#""u""#);
    std::fs::write(Path::new(&place.traces).join("c.jsonl"), other).unwrap();
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["skipped_unchanged"]);
}

#[test]
fn monitors_that_can_t_work_are_refused() {
    let place = Place::new();
    let session = ["--target", "session", "--metrics", "agent_reliability"];
    for (given, more, expected) in [
        (&COHERENCE, vec!["--set", "windw=3"], "`window`"),
        (&COHERENCE, vec!["--set", "metrics=coherence"], "--metrics"),
        (&COHERENCE, vec!["--set", "threshold=coherence=2"], "0 to 1"),
        (
            &COHERENCE,
            vec!["--metrics", "loop_detection", "--sample", "0.5"],
            "--target session",
        ),
        (
            &COHERENCE,
            vec!["--metrics", "coherence,loop_detection"],
            "--target session",
        ),
        (&COHERENCE, vec!["--sample", "1.5"], "[0, 1]"),
        (&COHERENCE, vec!["--metrics", "confidence"], "--judge"),
        (&session, vec!["--metrics", "conversation"], "--judge"),
        (&COHERENCE, vec!["--filters", "[]"], "JSON object"),
        (&COHERENCE, vec!["--filters", r#"{"usr":"x"}"#], "`usr`"),
        (
            &COHERENCE,
            vec!["--weights", "coherence=1"],
            "signal weights",
        ),
        (
            &session,
            vec!["--filters", r#"{"environment":"x"}"#],
            "`environment`",
        ),
        (
            &session,
            vec!["--metrics", "coherence"],
            "agent_reliability",
        ),
    ] {
        let refused = place.add(2, "wrong", &[&given[..], &more[..]].concat());
        assert!(refused.stderr.contains(expected), "{more:?}: {refused:?}");
    }
    place.add(
        0,
        "weighted",
        &[&session[..], &["--weights", "coherence=2"]].concat(),
    );
    let shown = place.monitor(0, &["show", "weighted"]).stdout;
    assert!(shown.contains(r#""coherence":2.0"#), "{shown}");
    let missing = place.monitor(2, &["show", "wieghted"]);
    assert!(missing.stderr.contains("`weighted`"), "{missing:?}");
}

#[test]
fn a_judge_is_named_when_a_monitor_is_made_or_changed() {
    let place = Place::new();
    let judged = ["--target", "trace", "--metrics", "coherence,confidence"];
    let refused = place.add(2, "judged", &judged);
    assert!(
        refused.stderr.contains("confidence") && refused.stderr.contains("--judge"),
        "{refused:?}"
    );
    place.add(
        0,
        "judged",
        &[&judged[..], &["--judge", "openai/x"]].concat(),
    );
    let refused = place.monitor(2, &["set", "judged", "--judge", ""]);
    assert!(refused.stderr.contains("--judge"), "{refused:?}");
    place.monitor(
        0,
        &["set", "judged", "--judge", "", "--metrics", "coherence"],
    );
    let refused = place.monitor(2, &["set", "judged", "--metrics", "confidence"]);
    assert!(refused.stderr.contains("--judge"), "{refused:?}");

    // The settings file may name the judge, as for any run.
    let file = place.folder.path().join("judge.toml");
    std::fs::write(&file, "judge = \"openai/x\"\n").unwrap();
    let file = file.display().to_string();
    let more = ["--metrics", "confidence", "--config", &file];
    place.monitor(0, &[&["set", "judged"][..], &more].concat());
    // So may the configuration of the judge of conversations.
    let config = place.folder.path().join("conversations.toml");
    std::fs::write(&config, "model = \"openai/x\"\n").unwrap();
    let config = format!("judge_config={}", config.display());
    let conversations = ["--target", "session", "--metrics", "conversation"];
    place.add(
        0,
        "talks",
        &[&conversations[..], &["--set", &config]].concat(),
    );
}

/// Placeholders are kept, secrets are refused; what an earlier record holds all the same is not shown.
#[test]
fn monitors_keep_and_show_no_secrets() {
    const CANARY: &str = "canarypw9";
    let place = Place::new();
    let judged = [
        "--target",
        "trace",
        "--metrics",
        "confidence",
        "--judge",
        "openai/x",
    ];
    let secret = [
        "judge_url=http://bob:canarypw9@127.0.0.1:9/v1",
        "judge_url=http://127.0.0.1:9/v1?k=canarypw9",
        "judge_headers=x-key=canarypw9",
        "judge_headers=Authorization: canarypw9",
    ];
    for setting in secret {
        let refused = place.add(2, "keyed", &[&judged[..], &["--set", setting]].concat());
        assert!(refused.stderr.contains("${NAME}"), "{refused:?}");
        assert!(!refused.stderr.contains(CANARY), "{refused:?}");
    }
    let url = "judge_url=http://${U}:${P}@127.0.0.1:9/v1";
    let header = "judge_headers=x-key=${KEY}";
    let settings = ["--set", url, "--set", header];
    place.add(0, "keyed", &[&judged[..], &settings].concat());
    for setting in secret {
        let refused = place.monitor(2, &["set", "keyed", "--set", setting]);
        assert!(refused.stderr.contains("${NAME}"), "{refused:?}");
    }

    let file = entries(Path::new(&place.monitors));
    let file = file.iter().find(|name| name.ends_with(".json")).unwrap();
    let file = Path::new(&place.monitors).join(file);
    let record = std::fs::read_to_string(&file).unwrap();
    assert!(
        record.contains("${P}") && record.contains("${KEY}"),
        "{record}"
    );
    let record = record.replace("${P}", CANARY).replace("${KEY}", CANARY);
    std::fs::write(&file, record).unwrap();
    for args in [
        &["show", "keyed"][..],
        &["show", "keyed", "--json"],
        &["list", "--json"],
        &["pause", "keyed"],
        &["resume", "keyed"],
    ] {
        let told = place.monitor(0, args).stdout;
        assert!(!told.contains(CANARY), "{told}");
        assert!(told.contains("x-key=[secret]"), "{told}");
        assert!(
            told.contains("http://${U}:[secret]@127.0.0.1:9/v1"),
            "{told}"
        );
    }
}

#[test]
fn a_name_belongs_to_one_monitor() {
    let place = Place::new();
    place.add(0, "nightly", &COHERENCE);
    let listed = place.monitor(0, &["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    let later = [&COHERENCE[..], &["--now", "2026-12-02"]].concat();
    let args = [
        &[
            "add",
            "nightly",
            &place.traces,
            "--cadence",
            "daily",
            "--out",
            &place.out,
        ][..],
        &later,
    ]
    .concat();
    let refused = place.monitor(2, &args);
    assert!(
        refused.stderr.contains(id) && refused.stderr.contains("another name"),
        "{refused:?}"
    );
    place.add(0, "weekly", &COHERENCE);
    let refused = place.monitor(2, &["set", "weekly", "--name", "nightly"]);
    assert!(refused.stderr.contains(id), "{refused:?}");
    // Two monitors may write to one folder: their runs have names of their own.
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran", "ran"]);
    assert_eq!(place.runs().len(), 2);
}

/// A place whose traces are of two users: sessions `a` (both), `b` (the second), `c` (the first), and a trace alone (the first).
fn of_two_users() -> Place {
    let place = Place::new();
    std::fs::remove_file(Path::new(&place.traces).join("2026-11-19.parquet")).unwrap();
    let rows = [
        ("a1", Some("a"), "u1"),
        ("a2", Some("a"), "u2"),
        ("b1", Some("b"), "u2"),
        ("c1", Some("c"), "u1"),
        ("n1", None, "u1"),
    ];
    put(&place, "first", &rows);
    place
}

fn put(place: &Place, name: &str, rows: &[(&str, Option<&str>, &str)]) {
    let lines: String = rows
        .iter()
        .map(|(id, session, user)| {
            let row = serde_json::json!({
                "trace_id": id, "session_id": session, "user_id": user,
                "started_at": "2026-11-19T00:00:00Z", "input": format!("Where is {id}?"), "output": "On its way.",
            });
            format!("{row}\n")
        })
        .collect();
    let path = Path::new(&place.traces).join(format!("{name}.jsonl"));
    std::fs::write(path, lines).unwrap();
}

/// The ids in a column of a table of the last run.
fn ids_of_last_run(place: &Place, table: &str, column: &str) -> Vec<String> {
    let run = Path::new(&place.out).join(place.runs().last().unwrap());
    let rows = crate::support::read_parquet(&run.join(table));
    let ids = rows.column_by_name(column).unwrap();
    let ids = arrow::array::AsArray::as_string::<i32>(ids);
    ids.iter().map(|id| id.unwrap().to_owned()).collect()
}

#[test]
fn a_session_monitor_scores_the_sessions_that_pass_and_no_others() {
    let place = of_two_users();
    let session = [
        "--target",
        "session",
        "--metrics",
        "agent_reliability",
        "--filters",
        r#"{"user_id":"u1"}"#,
        "--weights",
        "coherence=2",
    ];
    place.add(0, "mine", &session);
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    assert_eq!(
        ids_of_last_run(&place, "sessions", "session_id"),
        ["a", "c"]
    );
    // A session is scored whole, and a trace without session belongs to none.
    assert_eq!(
        ids_of_last_run(&place, "traces", "trace_id"),
        ["a1", "a2", "c1"]
    );
    let run = Path::new(&place.out).join(&place.runs()[0]);
    let told = summary(&run);
    assert_eq!(
        (&told["rows_read"], &told["rows_left_out"]),
        (&5.into(), &2.into())
    );
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    let targets = &manifest["request"]["targets"];
    assert_eq!(targets["target_type"], "SESSION");
    assert_eq!(targets["filters"], serde_json::json!({"user_id": "u1"}));
    assert_eq!(manifest["rules"]["weights"]["coherence"], 2.0);
    let listed = &json(&["runs", "list", &place.out])[0];
    assert_eq!(listed["filters"], serde_json::json!({"user_id": "u1"}));
    assert_eq!(listed["sampling_rate"], 1.0);
    assert_eq!(listed["monitor_id"], manifest["monitor_id"]);
    assert!(listed["monitor_id"].is_string());
    assert_eq!(
        listed["metric_names"],
        serde_json::json!(["agent_reliability"])
    );
    assert_eq!(listed["model"], Value::Null);

    // New: not a trace of a session that does not pass, nor one that the filters leave out, but one that they match.
    put(
        &place,
        "second",
        &[("b2", Some("b"), "u2"), ("a3", Some("a"), "u2")],
    );
    assert_eq!(place.tick(0, "2026-12-03T03:00:00Z"), ["skipped_unchanged"]);
    put(&place, "third", &[("a4", Some("a"), "u1")]);
    assert_eq!(place.tick(0, "2026-12-04T03:00:00Z"), ["ran"]);
    let expected = ["a1", "a2", "a3", "a4", "c1"];
    assert_eq!(ids_of_last_run(&place, "traces", "trace_id"), expected);

    place.monitor(0, &["set", "mine", "--sample", "0.5"]);
    place.monitor(0, &["trigger", "mine", "--now", "2026-12-05"]);
    let half = ids_of_last_run(&place, "sessions", "session_id");
    assert_eq!(half.len(), 1, "{half:?}");
    place.monitor(0, &["trigger", "mine", "--now", "2026-12-06"]);
    assert_eq!(ids_of_last_run(&place, "sessions", "session_id"), half);
    place.monitor(0, &["set", "mine", "--sample", "0"]);
    place.monitor(0, &["trigger", "mine", "--now", "2026-12-07"]);
    assert!(ids_of_last_run(&place, "traces", "trace_id").is_empty());
}

#[test]
fn a_trace_monitor_scores_the_traces_that_pass() {
    let place = of_two_users();
    let filters = ["--filters", r#"{"user_id":"u1"}"#];
    place.add(0, "mine", &[&COHERENCE[..], &filters].concat());
    assert_eq!(place.tick(0, "2026-12-02T03:00:00Z"), ["ran"]);
    assert_eq!(
        ids_of_last_run(&place, "traces", "trace_id"),
        ["a1", "c1", "n1"]
    );
    assert_eq!(ids_of_last_run(&place, "scores", "target_id").len(), 3);
    let run = Path::new(&place.out).join(&place.runs()[0]);
    // Texts of other traces are not embedded: three inputs, and outputs that are all alike.
    assert_eq!(summary(&run)["distinct_texts"], 4);
}
