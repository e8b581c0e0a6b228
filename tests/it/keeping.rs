//! Pruning and forgetting, by the program itself: what stays is whole, and what is gone is nowhere.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use nightmill::output::{Announced, Begun};
use serde_json::{Value, json};

use crate::killed_at_each_write::{assert_whole, kill_everywhere, killer};
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{entries, entries_but_records, nightmill, program, read_parquet};

/// A trace: id, session, minute, user, input, output.
type Row<'a> = (&'a str, Option<&'a str>, u32, &'a str, &'a str, &'a str);

fn write_rows(path: &Path, rows: &[Row<'_>]) {
    let lines = rows.iter().map(|(id, session, minute, user, input, output)| {
        json!({"trace_id": id, "session_id": session, "started_at": format!("2026-01-01T00:{minute:02}:00Z"),
               "user_id": user, "input": input, "output": output})
        .to_string()
    });
    std::fs::write(path, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
}

fn passed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn score(input: &Path, run: &Path) {
    score_all(&[input.to_owned()], run, None);
}

fn score_all(inputs: &[PathBuf], run: &Path, continues: Option<&Path>) {
    score_with(inputs, run, continues, &[]);
}

fn score_with(inputs: &[PathBuf], run: &Path, continues: Option<&Path>, more: &[&str]) {
    let mut command = program();
    command
        .arg("score")
        .args(more)
        .args(inputs)
        .arg("--out")
        .arg(run);
    if let Some(earlier) = continues {
        command.arg("--continue").arg(earlier);
    }
    passed(command.args(["--metrics", "coherence,loop_detection,agent_reliability"]));
}

fn manifest(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap()
}

/// Changes a finished run: `change` gets its manifest, whose list of files is made anew afterwards.
fn changed(run: &Path, change: impl FnOnce(&mut Value)) {
    let mut told = manifest(run);
    change(&mut told);
    let mut files = serde_json::Map::new();
    for entry in walkdir::WalkDir::new(run).sort_by_file_name() {
        let entry = entry.unwrap();
        let name = entry
            .path()
            .strip_prefix(run)
            .unwrap()
            .display()
            .to_string();
        if entry.file_type().is_file() && name != "manifest.json" {
            let bytes = std::fs::read(entry.path()).unwrap();
            let hash = blake3::hash(&bytes).to_hex().to_string();
            files.insert(name, json!({"bytes": bytes.len(), "blake3": hash}));
        }
    }
    told["files"] = files.into();
    told.as_object_mut().unwrap().remove("check");
    std::fs::write(run.join("manifest.json"), told.to_string()).unwrap();
}

fn made_days_ago(told: &mut Value, days: i64) {
    let at = chrono::Utc::now() - chrono::TimeDelta::days(days);
    told["created_at"] = json!(at.to_rfc3339());
}

/// Three nights: `a` goes on in the second, `b` in the third. The first two are old.
fn three_nights(folder: &Path) -> PathBuf {
    three_nights_with(folder, [&[], &[], &[]])
}

/// The same, each scored with more flags.
fn three_nights_with(folder: &Path, more: [&[&str]; 3]) -> PathBuf {
    let runs = folder.join("runs");
    let rows: [&[Row<'_>]; 3] = [
        &[
            ("t0", None, 0, "u", "hello", "hello you"),
            ("t1", Some("a"), 1, "u", "where is it", "in the north"),
            ("t2", Some("a"), 2, "u", "and now", "in the north"),
            ("t3", Some("b"), 3, "u", "is it red", "no, green"),
            ("t9", Some("z"), 3, "u", "is it far", "three miles"),
        ],
        &[
            ("t4", Some("a"), 4, "u", "thanks", "you are welcome"),
            ("t5", Some("c"), 5, "u", "open?", "until nine"),
        ],
        &[
            ("t6", Some("b"), 6, "u", "sure?", "quite sure"),
            ("t7", Some("d"), 7, "u", "bye", "see you"),
            ("t8", None, 8, "u", "alone", "all alone"),
        ],
    ];
    for (at, rows) in rows.iter().enumerate() {
        let input = folder.join(format!("night-{}.jsonl", at + 1));
        write_rows(&input, rows);
        let earlier = (at > 0).then(|| runs.join(format!("n{at}")));
        let run = runs.join(format!("n{}", at + 1));
        score_with(&[input], &run, earlier.as_deref(), more[at]);
    }
    let run = |at: u32| runs.join(format!("n{at}"));
    changed(&run(1), |told| made_days_ago(told, 100));
    changed(&run(2), |told| made_days_ago(told, 95));
    runs
}

/// The cells of a table, row by row.
fn rows_of(table: &Path) -> Vec<BTreeMap<String, String>> {
    let batch = read_parquet(table);
    let options = FormatOptions::default().with_null("null");
    let schema = batch.schema();
    let columns = batch.columns().iter().zip(schema.fields());
    let columns: Vec<_> = columns
        .map(|(column, field)| {
            (
                field.name(),
                ArrayFormatter::try_new(column, &options).unwrap(),
            )
        })
        .collect();
    let columns = &columns;
    let cells = |row| {
        columns
            .iter()
            .map(move |(name, cells)| ((*name).clone(), cells.value(row).to_string()))
    };
    (0..batch.num_rows())
        .map(|row| cells(row).collect())
        .collect()
}

/// What names the rows that are replaced together.
fn key(row: &BTreeMap<String, String>) -> String {
    match row["session_id"].as_str() {
        "null" => row
            .get("trace_id")
            .unwrap_or_else(|| &row["target_id"])
            .clone(),
        session => format!("session {session}"),
    }
}

/// A row with its table.
type State = BTreeSet<(String, BTreeMap<String, String>)>;

/// The latest state of the chains in a folder: rows of a run count unless a later one replaces them, or another run that
/// is there carries it.
fn latest(runs: &Path) -> State {
    let mut names = entries_but_records(runs);
    names.retain(|name| !name.starts_with('.'));
    let told: Vec<Value> = names
        .iter()
        .map(|name| manifest(&runs.join(name)))
        .collect();
    let mut replaced: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, told) in names.iter().zip(&told) {
        if let Some(earlier) = told["continues"]["run"].as_str() {
            assert!(
                names.iter().any(|name| name == earlier),
                "{name} goes on from {earlier}, which is gone"
            );
            for row in rows_of(&runs.join(name).join("replaced")) {
                replaced
                    .entry(row["run"].clone())
                    .or_default()
                    .insert(key(&row));
            }
        }
    }
    let carried: BTreeSet<&str> = told
        .iter()
        .flat_map(|told| told["carries"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let mut state = State::new();
    for name in names.iter().filter(|name| !carried.contains(name.as_str())) {
        for table in ["traces", "scores", "sessions"] {
            for mut row in rows_of(&runs.join(name).join(table)) {
                if replaced
                    .get(name)
                    .is_some_and(|keys| keys.contains(&key(&row)))
                {
                    continue;
                }
                if table == "sessions" {
                    row.entry("first_run".into())
                        .or_insert_with(|| name.clone());
                    row.entry("revision".into()).or_insert_with(|| "1".into());
                }
                assert!(
                    state.insert((table.to_owned(), row.clone())),
                    "{row:?} counts twice"
                );
            }
        }
    }
    state
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.unwrap();
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        match entry.file_type().is_dir() {
            true => std::fs::create_dir_all(target).unwrap(),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn prune(runs: &Path) -> Command {
    let mut command = program();
    command.args(["runs", "prune", "--keep", "90d"]).arg(runs);
    command
}

#[test]
fn buckets_are_carried_one_by_one_and_only_into_the_same_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights_with(folder.path(), [&["--buckets", "3"], &[], &[]]);
    let before = latest(&runs);
    passed(&mut prune(&runs));
    assert_eq!(entries_but_records(&runs), ["n3"]);
    assert_eq!(latest(&runs), before);
    let run = runs.join("n3");
    assert_whole(&run);
    let names = entries(&run.join("traces"));
    let buckets = names.iter().filter(|name| name.starts_with("bucket-0000"));
    assert!(
        names.len() > 1 && buckets.count() == names.len(),
        "{names:?}"
    );
    // It goes on as one that was never pruned.
    let input = folder.path().join("night-4.jsonl");
    write_rows(
        &input,
        &[("t10", Some("a"), 9, "u", "one more", "in the north")],
    );
    score_all(&[input], &runs.join("n4"), Some(&run));
    let traces = rows_of(&runs.join("n4/traces"));
    assert_eq!(traces.len(), 4, "{traces:?}");

    let folder = tempfile::tempdir().unwrap();
    let flags: [&[&str]; 3] = [&["--buckets", "3"], &[], &["--buckets", "4"]];
    let runs = three_nights_with(folder.path(), flags);
    let output = prune(&runs).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(told.contains("is in 3 buckets"), "{told}");
    assert_eq!(entries_but_records(&runs), ["n1", "n2", "n3"]);
}

#[test]
fn what_later_nights_need_is_carried_into_the_oldest_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    let before = latest(&runs);
    assert_eq!(
        before.iter().filter(|(table, _)| table == "traces").count(),
        10
    );
    let told = passed(prune(&runs).arg("--dry-run"));
    assert!(
        told.contains("would take over") && told.contains("2 runs would be removed"),
        "{told}"
    );
    assert_eq!(entries_but_records(&runs), ["n1", "n2", "n3"]);

    let told = passed(&mut prune(&runs));
    assert!(
        told.contains("n3: holds now, of n1, n2, 3 sessions and 6 traces"),
        "{told}"
    );
    assert_eq!(entries_but_records(&runs), ["n3"]);
    assert_eq!(latest(&runs), before);
    let run = runs.join("n3");
    assert_whole(&run);
    let told = manifest(&run);
    assert_eq!(told["carries"], json!(["n1", "n2"]));
    assert_eq!(
        (&told["continues"], &told["night"]),
        (&Value::Null, &json!(3))
    );
    assert!(!run.join("replaced").exists());
    let order: Vec<String> = rows_of(&run.join("traces"))
        .iter()
        .map(|row| row["trace_id"].clone())
        .collect();
    assert_eq!(
        order,
        ["t1", "t2", "t4", "t3", "t6", "t5", "t7", "t9", "t0", "t8"]
    );
    let sessions: Vec<[String; 3]> = rows_of(&run.join("sessions"))
        .iter()
        .map(|row| ["session_id", "first_run", "revision"].map(|name| row[name].clone()))
        .collect();
    let expected = [
        ["a", "n1", "2"],
        ["b", "n1", "2"],
        ["c", "n2", "1"],
        ["d", "n3", "1"],
        ["z", "n1", "1"],
    ];
    assert_eq!(sessions, expected.map(|row| row.map(str::to_owned)));
    let types: Vec<String> = rows_of(&run.join("scores"))
        .iter()
        .map(|row| row["target_type"].clone())
        .collect();
    assert!(types.is_sorted_by(|a, b| a >= b), "traces first: {types:?}");

    let again = passed(&mut prune(&runs));
    assert!(
        again.starts_with("0 runs removed; 1 run is not that old"),
        "{again}"
    );
    // The figures that there are read what is left.
    passed(program().args(["runs", "summary"]).arg(&runs));
}

#[test]
fn what_is_new_in_a_night_is_so_after_earlier_nights_went() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    let input = folder.path().join("night-4.jsonl");
    let rows: [Row<'_>; 4] = [
        ("t10", Some("a"), 10, "u", "once more", "in the north"),
        ("t11", Some("b"), 11, "u", "is it big", "very"),
        ("t12", Some("e"), 12, "u", "and you", "me too"),
        ("t13", Some("e"), 13, "u", "well", "yes"),
    ];
    write_rows(&input, &rows);
    score_all(&[input], &runs.join("n4"), Some(&runs.join("n3")));
    let changes = || -> Value {
        let told = passed(
            program()
                .args(["runs", "changes", "--format", "json"])
                .arg(runs.join("n4")),
        );
        serde_json::from_str(&told).unwrap()
    };
    let volume = |changes: &Value| -> Vec<(Value, Value)> {
        let of = changes["volume"].as_array().unwrap().iter();
        of.map(|of| (of["now"].clone(), of["before"].clone()))
            .collect()
    };
    let before = changes();
    let expected = [(json!(4), json!([3, 2])), (json!(1), json!([1, 1]))];
    assert_eq!(volume(&before), expected);
    assert_eq!(before["untold_sessions"], json!(0));
    passed(&mut prune(&runs));
    assert_eq!(entries_but_records(&runs), ["n3", "n4"]);
    let after = changes();
    let expected = [(json!(4), json!([3])), (json!(1), json!([1]))];
    assert_eq!(volume(&after), expected);
    let counts = |changes: &Value| -> Vec<Value> {
        let of = changes["metrics"].as_array().unwrap().iter();
        of.map(|of| json!([of["metric"], of["target"], of["now"]]))
            .collect()
    };
    assert_eq!(counts(&after), counts(&before));
    // What `a` was went with the second night.
    assert_eq!(after["untold_sessions"], json!(1));
    let states = |changes: &Value| changes["sessions"][0]["rows"].to_string();
    assert!(
        !states(&after).contains(r#""session_id":"a""#),
        "{}",
        states(&after)
    );
    let text = passed(program().args(["runs", "changes"]).arg(runs.join("n4")));
    assert!(text.contains("1 session more goes on from"), "{text}");
}

#[test]
fn a_run_that_is_gone_from_a_chain_is_named_wherever_runs_are_read_together() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    let query = "SELECT count(*) AS n FROM scores_latest";
    let ended = |args: &[&str]| {
        let output = program().args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let dir = runs.display().to_string();
    let ask = || {
        [
            ended(&["sql", query, "--runs", &dir]).1,
            ended(&["runs", "summary", &dir]).1,
            ended(&["runs", "verify", &dir]).0,
        ]
    };
    assert!(ask().iter().all(|told| !told.contains("continues")));
    std::fs::remove_dir_all(runs.join("n2")).unwrap();
    for told in ask() {
        assert!(told.contains("continues the run `n2`"), "{told}");
    }
    // One run alone has no earlier rows that could count again.
    let last = runs.join("n3").display().to_string();
    assert_eq!(ended(&["sql", query, "--runs", &last]).1, "");
}

#[test]
fn a_night_goes_on_from_what_was_carried() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    passed(&mut prune(&runs));
    let mut inputs: Vec<PathBuf> = (1..=3)
        .map(|at| folder.path().join(format!("night-{at}.jsonl")))
        .collect();
    // Sessions and a trace that were carried, one that was not, and a new one.
    let rows: &[Row<'_>] = &[
        ("t10", Some("a"), 10, "u", "one more", "in the south"),
        ("t11", Some("z"), 11, "u", "how far", "four miles"),
        ("t0", None, 0, "u", "hello", "hello again"),
        ("t12", Some("d"), 12, "u", "still there", "yes"),
        ("t13", Some("e"), 13, "u", "new", "all new"),
    ];
    inputs.push(folder.path().join("night-4.jsonl"));
    write_rows(&inputs[3], rows);
    score_all(&inputs[3..], &runs.join("n4"), Some(&runs));
    assert_eq!(manifest(&runs.join("n4"))["continues"]["night"], 4);
    let whole = folder.path().join("whole");
    score_all(&inputs, &whole.join("all"), None);
    let of = |runs: &Path| {
        let state = latest(runs).into_iter().map(|(table, mut row)| {
            row.remove("first_run");
            row.remove("revision");
            (table, row)
        });
        state.collect::<State>()
    };
    let (got, expected) = (of(&runs), of(&whole));
    let missing: Vec<_> = expected.difference(&got).collect();
    let more: Vec<_> = got.difference(&expected).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "missing {missing:#?}; too many {more:#?}"
    );
    // Nights that are pruned one by one end with the same.
    changed(&runs.join("n3"), |told| made_days_ago(told, 100));
    passed(&mut prune(&runs));
    assert_eq!(entries_but_records(&runs), ["n4"]);
    assert_eq!(
        manifest(&runs.join("n4"))["carries"],
        json!(["n1", "n2", "n3"])
    );
    assert_eq!(of(&runs), expected);
    assert_whole(&runs.join("n4"));
}

#[test]
fn a_prune_that_is_killed_leaves_a_whole_chain() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let runs = three_nights(folder.path());
    let before = latest(&runs);
    let (saved, kills) = (folder.path().join("saved"), std::cell::Cell::new(0));
    copy(&runs, &saved);
    kill_everywhere(
        &library,
        || {
            copy(&saved, &runs);
            prune(&runs)
        },
        || {
            kills.set(kills.get() + 1);
            assert_eq!(latest(&runs), before);
            for name in entries_but_records(&runs) {
                if !name.starts_with('.') {
                    assert_whole(&runs.join(name));
                }
            }
            // The next call ends it, and cleans up.
            if kills.get() % 8 == 0 {
                passed(&mut prune(&runs));
                assert_eq!(latest(&runs), before);
                assert_eq!(entries_but_records(&runs), ["n3"]);
            }
        },
    );
    assert_eq!(entries_but_records(&runs), ["n3"]);
    assert_eq!(latest(&runs), before);
}

#[test]
fn runs_that_something_needs_stay_and_whole_chains_that_are_old_go() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    let old = |name: &str| changed(&runs.join(name), |told| made_days_ago(told, 200));
    // A night that goes on from one that is not named can't go alone.
    let told = passed(
        program()
            .args(["runs", "prune", "--keep", "90d"])
            .arg(runs.join("n2")),
    );
    assert!(told.contains("n2: stays: it goes on from n1"), "{told}");
    // Scores of people stay as long as the run that they are about, or one that carries its rows.
    let ratings = folder.path().join("ratings.jsonl");
    std::fs::write(
        &ratings,
        r#"{"trace_id": "t1", "name": "helpful", "value": 1}"#,
    )
    .unwrap();
    passed(
        program()
            .args(["runs", "scores", "--import"])
            .arg(&ratings)
            .arg(runs.join("n1")),
    );
    old("n1-scores");
    let told = passed(&mut prune(&runs));
    assert!(
        told.contains("n1-scores: stays: it holds scores that people gave"),
        "{told}"
    );
    assert_eq!(entries_but_records(&runs), ["n1-scores", "n3"]);
    let told = passed(&mut prune(&runs));
    assert!(told.contains("n1-scores: stays"), "{told}");

    old("n3");
    // Not while another night may be going on from one of them.
    let target = runs.join("n4");
    let announced = Announced {
        command: "score",
        metric_names: &[],
        monitor_id: None,
    };
    let begun = Begun::announce(&target, announced).unwrap();
    let path = runs.to_str().unwrap();
    let ran = nightmill(["runs", "prune", "--keep", "90d", path]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("under way"),
        "{ran:?}"
    );
    begun.done();
    let told = passed(&mut prune(&runs));
    assert!(told.contains("2 runs removed"), "{told}");
    assert!(entries(&runs).is_empty());
}

/// Two users in three sessions. The first said things that nobody else did.
const TALKS: [Row<'_>; 7] = [
    (
        "t-1",
        Some("s-1"),
        1,
        "u-1",
        "my name is Quentin",
        "hello Quentin",
    ),
    (
        "t-2",
        Some("s-1"),
        2,
        "u-1",
        "where do I live",
        "in Larkhall",
    ),
    ("t-3", Some("s-2"), 3, "u-2", "is it open", "until nine"),
    (
        "t-4",
        Some("s-2"),
        4,
        "u-1",
        "I am Quentin too",
        "until nine",
    ),
    ("t-5", Some("s-2"), 5, "u-2", "and on Sunday", "until nine"),
    ("t-6", Some("s-3"), 6, "u-2", "bye", "see you"),
    ("t-7", None, 7, "u-1", "Quentin again", "yes, Quentin"),
];
const SECRETS: [&str; 8] = [
    "t-1", "t-2", "t-4", "t-7", "u-1", "s-1", "Quentin", "Larkhall",
];

/// Nothing in a folder says one of these: no cell of a table, and no byte of a file.
fn assert_silent(folder: &Path, secrets: &[&str]) {
    for entry in walkdir::WalkDir::new(folder) {
        let entry = entry.unwrap();
        if !entry.file_type().is_file() {
            continue;
        }
        let mut text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
        if entry.path().extension().is_some_and(|e| e == "parquet") {
            text.push_str(&format!("{:?}", rows_of(entry.path())));
        }
        for secret in secrets {
            assert!(
                !text.contains(secret),
                "{}: {secret}",
                entry.path().display()
            );
        }
    }
}

fn forget(runs: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = program()
        .args(["runs", "forget"])
        .args(args)
        .arg(runs)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

#[test]
fn a_user_is_forgotten_in_runs_and_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (input, runs, cache) = (at("talks.jsonl"), at("runs"), at("cache"));
    write_rows(&input, &TALKS);
    // Without a start it is set aside, and its reason names no trace.
    let mut rows = std::fs::read_to_string(&input).unwrap();
    rows.push_str(r#"{"trace_id": "t-8", "user_id": "u-1", "input": "x", "output": "y"}"#);
    std::fs::write(&input, rows + "\n").unwrap();
    let score = |name: &str| {
        let mut command = program();
        command
            .env_remove("NIGHTMILL_NO_CACHE")
            .arg("score")
            .arg(&input);
        command.args([
            "--metrics",
            "coherence,loop_detection,agent_reliability",
            "--json",
            "--cache",
        ]);
        let output = command
            .arg(&cache)
            .arg("--out")
            .arg(at(name))
            .output()
            .unwrap();
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        ["distinct_texts", "cached_texts"].map(|name| summary[name].as_u64().unwrap())
    };
    assert_eq!(score("runs/night"), [12, 0]);
    let run = runs.join("night");
    let kept = |id: &str| {
        let rows = rows_of(&run.join("traces")).into_iter();
        let mut rows = rows.filter(|row| row["trace_id"] == id);
        rows.next().map(|row| row["coherence"].clone())
    };
    let coherence = kept("t-5");

    let (code, told) = forget(&runs, &["--user", "u-1", "--dry-run"]);
    assert!(
        code == Some(0) && told.contains("would be forgotten"),
        "{told}"
    );
    assert_whole(&run);
    assert!(kept("t-1").is_some());

    let (code, told) = forget(&runs, &["--user", "u-1"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("night: 4 traces forgotten"), "{told}");
    assert!(
        told.contains("1 session has other traces and no score of its own"),
        "{told}"
    );
    assert!(told.contains("report.html removed"), "{told}");
    // All eight of its texts, also the one that others said too.
    assert!(told.contains("8 vectors"), "{told}");
    assert_whole(&run);
    assert_silent(&run, &SECRETS);
    assert_eq!(kept("t-5"), coherence);
    let sessions: Vec<String> = rows_of(&run.join("sessions"))
        .iter()
        .map(|row| row["session_id"].clone())
        .collect();
    assert_eq!(sessions, ["s-3"]);
    assert_eq!(manifest(&run)["forgotten"]["count"], 4);
    assert!(rows_of(&run.join("quarantine")).is_empty());

    let (code, told) = forget(&runs, &["--user", "u-1"]);
    assert!(
        code == Some(0) && told.contains("rows of 0 runs") && told.contains("0 vectors"),
        "{told}"
    );
    assert_eq!(manifest(&run)["forgotten"]["count"], 4);
    // All other vectors are still there.
    assert_eq!(score("again"), [12, 4]);

    // A file that is gone is named: who was in it can't be known.
    std::fs::remove_file(&input).unwrap();
    let (code, told) = forget(&runs, &["--user", "u-2"]);
    assert_eq!(code, Some(3), "{told}");
    assert!(
        told.contains("talks.jsonl") && told.contains("not there any more"),
        "{told}"
    );
}

#[test]
fn a_session_and_single_traces_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("talks.jsonl");
    write_rows(&input, &TALKS);
    let runs = folder.path().join("runs");
    score(&input, &runs.join("night"));
    let (code, told) = forget(&runs, &["--session", "s-2"]);
    assert!(
        code == Some(0) && told.contains("3 traces forgotten"),
        "{told}"
    );
    assert_silent(&runs, &["s-2", "t-3", "t-4", "t-5", "until nine"]);
    let ids = folder.path().join("ids.txt");
    std::fs::write(&ids, "t-1\n\n t-7 \nt-none\n").unwrap();
    let (code, told) = forget(&runs, &["--trace-ids", ids.to_str().unwrap()]);
    assert!(
        code == Some(0) && told.contains("2 traces forgotten"),
        "{told}"
    );
    assert_silent(&runs, &["t-1", "t-7"]);
    assert_whole(&runs.join("night"));
    let left: Vec<String> = rows_of(&runs.join("night/traces"))
        .iter()
        .map(|row| row["trace_id"].clone())
        .collect();
    assert_eq!(left, ["t-2", "t-6"]);
    std::fs::write(&ids, "\n").unwrap();
    assert_eq!(
        forget(&runs, &["--trace-ids", ids.to_str().unwrap()]).0,
        Some(2)
    );
    assert_eq!(forget(&runs, &["--user", ""]).0, Some(2));
    assert_eq!(forget(&runs, &[]).0, Some(2));
}

#[test]
fn a_run_that_forgets_and_is_killed_is_the_old_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = killer(folder.path());
    let input = folder.path().join("talks.jsonl");
    write_rows(&input, &TALKS);
    let (runs, saved) = (folder.path().join("runs"), folder.path().join("saved"));
    let run = runs.join("night");
    score(&input, &run);
    copy(&runs, &saved);
    let old = rows_of(&run.join("traces")).len();
    let command = || {
        let mut command = program();
        command.args(["runs", "forget", "--user", "u-1"]).arg(&runs);
        command
    };
    kill_everywhere(
        &library,
        || {
            copy(&saved, &runs);
            command()
        },
        || {
            assert_whole(&run);
            match rows_of(&run.join("traces")).len() {
                3 => assert_silent(&run, &SECRETS),
                rows => assert_eq!(rows, old),
            }
            // Also what lies under hidden names is gone after the next call.
            passed(&mut command());
            assert_eq!(entries(&runs), ["night"]);
            assert_silent(&runs, &SECRETS);
        },
    );
    assert_silent(&runs, &SECRETS);
}

#[test]
fn answers_of_judges_about_a_trace_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let input = at("talks.jsonl");
    write_rows(&input, &TALKS);
    let judge = ScriptedJudge::start(|prompt| {
        let reason = match format!("{prompt:?}").contains("Larkhall") {
            true => "it names Larkhall",
            false => "it is sure",
        };
        Answer::reply(json!({"confidence": 0.75, "reason": reason}))
    });
    let ledger = at("ledger.db");
    let score = |name: &str, more: &[&str]| {
        let mut command = program();
        command.arg("score").arg(&input).arg("--out").arg(at(name));
        command.args([
            "--metrics",
            "confidence",
            "--judge",
            "openai/judge",
            "--no-report",
            "--json",
        ]);
        command
            .arg("--judge-url")
            .arg(judge.url())
            .arg("--ledger")
            .arg(&ledger)
            .args(more);
        let output = command.env("OPENAI_API_KEY", "k").output().unwrap();
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        summary["pending_signals"].as_u64().unwrap()
    };
    assert_eq!(score("runs/night", &[]), 0);
    assert!(std::fs::read(&ledger).is_ok());
    let ids = at("ids.txt");
    std::fs::write(&ids, "t-2\nt-3\n").unwrap();
    let args = ["--trace-ids", ids.to_str().unwrap()];
    let (code, told) = forget(&at("runs"), &args);
    assert!(
        code == Some(0) && told.contains("2 answers of judges"),
        "{told}"
    );
    let asked = judge.prompt_count();
    // Five are still known, and two are not.
    assert_eq!(score("replayed", &["--replay"]), 2);
    assert_eq!(judge.prompt_count(), asked);
    for file in ["ledger.db", "ledger.db-wal"].map(at) {
        let bytes = std::fs::read(file).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("Larkhall"));
    }
    let (code, told) = forget(&at("runs"), &args);
    assert!(
        code == Some(0) && told.contains("0 answers of judges"),
        "{told}"
    );
}

#[test]
fn a_chain_forgets_in_every_night_and_what_is_carried_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let runs = three_nights(folder.path());
    let mut expected = latest(&runs);
    expected.retain(|(_, row)| row["session_id"] != "a");
    let (code, told) = forget(&runs, &["--session", "a"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(latest(&runs), expected);
    for name in ["n1", "n2", "n3"] {
        assert_whole(&runs.join(name));
    }
    assert!(rows_of(&runs.join("n2/replaced")).is_empty());

    passed(&mut prune(&runs));
    assert_eq!(latest(&runs), expected);
    // Traces of nights that went are found in the files that those read.
    let (code, told) = forget(&runs, &["--user", "u"]);
    assert!(
        code == Some(0) && told.contains("n3: 7 traces forgotten"),
        "{told}"
    );
    assert_eq!(latest(&runs), State::new());
    assert_whole(&runs.join("n3"));
    let target = runs.join("n4");
    let announced = Announced {
        command: "score",
        metric_names: &[],
        monitor_id: None,
    };
    let _begun = Begun::announce(&target, announced).unwrap();
    let (code, told) = forget(&runs, &["--user", "u"]);
    assert!(code == Some(2) && told.contains("under way"), "{told}");
}
