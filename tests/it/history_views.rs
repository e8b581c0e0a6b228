//! `nightmill sql --runs`: the history of many runs as tables.

use std::path::Path;

use serde_json::Value;

use crate::hand_made_runs::{HandMade, Session, three_nights};
use crate::support::{nightmill, root};

#[track_caller]
fn rows(folder: &Path, query: &str) -> Vec<Value> {
    let folder = folder.display().to_string();
    let ran = nightmill(["sql", "--runs", &folder, "--format", "json", query]);
    assert_eq!(ran.code, Some(0), "{query}: {ran:?}");
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The cells of a result as texts, in the order of its rows.
#[track_caller]
fn cells(folder: &Path, query: &str, columns: &[&str]) -> Vec<String> {
    let line = |row: &Value| {
        let cells = columns.iter().map(|column| match &row[*column] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    rows(folder, query).iter().map(line).collect()
}

#[test]
fn the_latest_state_of_a_chain_is_what_no_later_night_replaced() {
    let folder = tempfile::tempdir().unwrap();
    three_nights(folder.path());
    let of = |query: &str, columns: &[&str]| cells(folder.path(), query, columns);
    assert_eq!(
        of(
            "SELECT * FROM sessions_latest ORDER BY session_id",
            &[
                "session_id",
                "run",
                "first_run",
                "revision",
                "agent_reliability"
            ]
        ),
        [
            "a night-3 night-1 3 0.25",
            "b night-3 night-1 2 0.75",
            "c night-3 night-2 2 0.2",
            "d night-1 night-1 1 0.75"
        ]
    );
    assert_eq!(
        of(
            "SELECT trace_id, run FROM traces_latest ORDER BY trace_id",
            &["trace_id", "run"]
        ),
        [
            "a1 night-3",
            "a2 night-3",
            "a3 night-3",
            "b1 night-3",
            "b2 night-3",
            "b3 night-3",
            "c1 night-3",
            "c2 night-3",
            "d1 night-1",
            "x night-3",
            "y night-1"
        ]
    );
    let scores = "SELECT metric, count(*) AS n, round(sum(score), 2) AS sum FROM scores_latest GROUP BY metric ORDER BY metric";
    assert_eq!(
        of(scores, &["metric", "n", "sum"]),
        ["agent_reliability 4 1.95", "coherence 11 6.35"]
    );
    // Everything, state or not.
    assert_eq!(of("SELECT count(*) AS n FROM sessions", &["n"]), ["8"]);
    assert_eq!(
        of(
            "SELECT count(*) AS n FROM traces WHERE run = 'night-2'",
            &["n"]
        ),
        ["3"]
    );
    assert_eq!(
        of(
            "SELECT name, night, continues FROM runs ORDER BY night",
            &["name", "night", "continues"]
        ),
        ["night-1 1 null", "night-2 2 night-1", "night-3 3 night-2"]
    );
    assert_eq!(
        of(
            "SELECT * FROM changes ORDER BY session_id",
            &[
                "session_id",
                "metric",
                "before",
                "after",
                "passed_before",
                "passed_after",
                "run",
                "state"
            ]
        ),
        [
            "a agent_reliability 0.75 0.25 true false night-3 newly_bad",
            "b agent_reliability 0.25 0.75 false true night-3 recovered",
            "c agent_reliability 0.25 0.2 false false night-3 still_bad"
        ]
    );
}

#[test]
fn the_state_does_not_hang_on_the_names_of_runs_or_a_further_one() {
    let folder = tempfile::tempdir().unwrap();
    let nights = three_nights(folder.path());
    let query = "SELECT session_id, agent_reliability FROM sessions_latest ORDER BY session_id";
    let alone = rows(folder.path(), query);
    // A run over everything, made earlier than the last night: each session counts once, and the newer run of equal ones.
    let whole = HandMade {
        sessions: vec![
            Session::new(
                "a",
                0.25,
                &[("a1", 1, 0.9), ("a2", 25, 0.75), ("a3", 49, 0.25)],
            ),
            Session::new("d", 0.75, &[("d1", 4, 0.75)]),
        ],
        ..HandMade::new("a-whole", 53)
    };
    whole.write(folder.path());
    assert_eq!(rows(folder.path(), query), alone);
    let by_run = "SELECT session_id, run FROM sessions_latest ORDER BY session_id";
    assert_eq!(
        cells(folder.path(), by_run, &["session_id", "run"]),
        ["a night-3", "b night-3", "c night-3", "d a-whole"]
    );
    let traces = "SELECT count(*) AS n, count(DISTINCT trace_id) AS ids FROM traces_latest";
    assert_eq!(cells(folder.path(), traces, &["n", "ids"]), ["11 11"]);
    let scores = "SELECT run, count(*) AS n FROM scores_latest GROUP BY run ORDER BY run";
    assert_eq!(
        cells(folder.path(), scores, &["run", "n"]),
        ["a-whole 2", "night-1 1", "night-3 12"]
    );
    // Without the middle night its rows are gone, and what it replaced is none of its chain.
    std::fs::remove_dir_all(&nights[1]).unwrap();
    assert_eq!(
        cells(folder.path(), by_run, &["session_id", "run"]),
        ["a night-3", "b night-3", "c night-3", "d a-whole"]
    );
}

#[test]
fn a_session_of_two_runs_counts_by_the_time_of_its_traces() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, hour: i64, last: i64, reliability: f64| HandMade {
        sessions: vec![Session::new("s", reliability, &[("t", last, reliability)])],
        ..HandMade::new(name, hour)
    };
    // Made later, of older traces.
    of("new", 40, 3, 0.3).write(folder.path());
    of("old", 10, 5, 0.8).write(folder.path());
    for table in ["sessions_latest", "traces_latest", "scores_latest"] {
        let query = format!("SELECT DISTINCT run FROM {table}");
        assert_eq!(cells(folder.path(), &query, &["run"]), ["old"], "{table}");
    }
    // Scores of another metric, and of people, count beside them.
    let mut rated = of("rated", 50, 3, 0.1);
    rated.model = Some("other".into());
    rated.write(folder.path());
    assert!(
        rows(folder.path(), "SELECT * FROM changes")
            .iter()
            .all(|row| row["run_before"] != "rated")
    );
}

#[test]
fn only_tables_that_a_query_names_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let [first, ..] = three_nights(folder.path());
    std::fs::write(first.join("scores/part-00000.parquet"), "PAR1").unwrap();
    assert_eq!(rows(folder.path(), "SELECT * FROM runs").len(), 3);
    assert_eq!(rows(folder.path(), "SELECT * FROM traces_latest").len(), 11);
    let all = folder.path().display().to_string();
    let ran = nightmill(["sql", "--runs", &all, "SELECT * FROM scores"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("night-1") && ran.stderr.contains("scores/part-00000.parquet"),
        "{ran:?}"
    );
}

#[test]
fn tables_are_listed_and_wrong_uses_named() {
    let folder = tempfile::tempdir().unwrap();
    three_nights(folder.path());
    let all = folder.path().display().to_string();
    let listed = nightmill(["sql", "--runs", &all, "SHOW TABLES"]);
    for view in [
        "runs",
        "traces",
        "scores",
        "sessions",
        "scores_latest",
        "sessions_latest",
        "changes",
    ] {
        assert!(
            listed.stdout.lines().any(|line| line.starts_with(view)),
            "{listed:?}"
        );
    }
    let both = nightmill(["sql", "--runs", &all, "--run", &all, "SELECT 1"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let nothing = nightmill(["sql", "--runs", "/nowhere", "SELECT 1"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("/nowhere"), "{nothing:?}");
    // The tables can't be changed.
    let dropped = nightmill(["sql", "--runs", &all, "DROP VIEW scores"]);
    assert_eq!(dropped.code, Some(2), "{dropped:?}");
}

/// What an analysis of all runs says.
#[track_caller]
fn figures(folder: &Path, args: &[&str]) -> Vec<Value> {
    let folder = folder.display().to_string();
    let (name, rest) = args.split_first().unwrap();
    let ran = nightmill([&["runs", name, &folder, "--json"][..], rest].concat());
    assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn figures_of_nights_count_each_session_once() {
    let folder = tempfile::tempdir().unwrap();
    three_nights(folder.path());
    let counts = |args: &[&str]| -> Vec<String> {
        let line =
            |row: &Value| format!("{} {}", row["bucket_start"].as_str().unwrap(), row["count"]);
        figures(folder.path(), args).iter().map(line).collect()
    };
    for (metric, count) in [("agent_reliability", 4), ("coherence", 11)] {
        let summary = figures(folder.path(), &["summary", "--metric", metric]);
        assert_eq!(summary[0]["success_count"], count, "{metric}");
    }
    // By the clock of the runs, and by the times of traces.
    let trend = ["trend", "--metric", "coherence"];
    assert_eq!(
        counts(&trend),
        ["2026-01-01T00:00:00Z 2", "2026-01-03T00:00:00Z 9"]
    );
    let once = [&trend[..], &["--once"]].concat();
    assert_eq!(
        counts(&once),
        [
            "2026-01-01T00:00:00Z 6",
            "2026-01-02T00:00:00Z 2",
            "2026-01-03T00:00:00Z 3"
        ]
    );
    let late = [
        "summary",
        "--once",
        "--from",
        "2026-01-02",
        "--metric",
        "coherence",
    ];
    assert_eq!(figures(folder.path(), &late)[0]["success_count"], 5);
    let sessions = ["trend", "--once", "--metric", "agent_reliability"];
    assert_eq!(
        counts(&sessions),
        ["2026-01-01T00:00:00Z 1", "2026-01-03T00:00:00Z 3"]
    );
}

#[test]
fn runs_that_continue_nothing_count_once_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (name, hour) in [("one", 10), ("two", 40)] {
        let run = HandMade {
            sessions: vec![Session::new("s", 0.5, &[("t", 3, 0.5)])],
            ..HandMade::new(name, hour)
        };
        run.write(folder.path());
    }
    let trend = ["trend", "--metric", "agent_reliability"];
    // As in PandaProbe: each score, at the time of its run.
    assert_eq!(figures(folder.path(), &trend).len(), 2);
    let once = figures(folder.path(), &[&trend[..], &["--once"]].concat());
    assert_eq!((once.len(), &once[0]["count"]), (1, &Value::from(1)));
    assert_eq!(once[0]["bucket_start"], "2026-01-01T00:00:00Z");
}

#[test]
fn every_query_of_the_page_runs() {
    let folder = tempfile::tempdir().unwrap();
    three_nights(folder.path());
    let page = std::fs::read_to_string(root().join("src/history/README.md")).unwrap();
    let mut queries = 0;
    for block in page.split("```sql\n").skip(1) {
        let query = block.split("```").next().unwrap();
        rows(folder.path(), query);
        queries += 1;
    }
    assert!(queries >= 8, "{queries} queries");
}
