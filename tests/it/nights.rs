//! Nights: runs that go on with one another come to what one run over all rows comes to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;

use crate::support::{Ran, TraceRow, nightmill, read_parquet, summary, traces, write_parquet};

/// Scores files into a run, which continues what `continues` names.
fn score(files: &[PathBuf], out: &Path, continues: Option<&Path>, more: &[&str]) -> Ran {
    let mut args: Vec<String> = vec!["score".into()];
    args.extend(files.iter().map(|file| file.display().to_string()));
    args.extend([
        "--out".into(),
        out.display().to_string(),
        "--no-report".into(),
    ]);
    if let Some(run) = continues {
        args.extend(["--continue".into(), run.display().to_string()]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    nightmill(args)
}

#[track_caller]
pub fn scored(files: &[PathBuf], out: &Path, continues: Option<&Path>, more: &[&str]) {
    let ran = score(files, out, continues, more);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The rows of a table as texts, without the columns that only nights have.
pub fn rows(table: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("∅");
    let columns: Vec<ArrayFormatter<'_>> = table
        .schema()
        .fields()
        .iter()
        .zip(table.columns())
        .filter(|(field, _)| !["first_run", "revision"].contains(&field.name().as_str()))
        .map(|(_, column)| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    (0..table.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect()
        })
        .collect()
}

/// A column of texts, null as none.
fn texts(table: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = table.column_by_name(name).unwrap();
    let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap();
    column
        .as_string::<i32>()
        .iter()
        .map(|cell| cell.map(str::to_owned))
        .collect()
}

type Row = Vec<Option<String>>;

/// What a row of `replaced` names.
fn replaced(run: &Path) -> Vec<(String, Row)> {
    if !run.join("replaced").is_dir() {
        return Vec::new();
    }
    let table = read_parquet(&run.join("replaced"));
    let of = texts(&table, "run");
    let names = ["session_id", "project_id", "trace_id"].map(|name| texts(&table, name));
    (0..table.num_rows())
        .map(|row| {
            let name = names.iter().map(|column| column[row].clone()).collect();
            (of[row].clone().unwrap(), name)
        })
        .collect()
}

/// The latest state of a chain of runs, oldest first: the rows of a table that no later run replaced.
fn latest(runs: &[PathBuf], table: &str) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (at, run) in runs.iter().enumerate() {
        let name = run.file_name().unwrap().to_string_lossy().into_owned();
        let gone: BTreeSet<Row> = runs[at + 1..]
            .iter()
            .flat_map(|later| replaced(later))
            .filter(|(of, _)| *of == name)
            .map(|(_, named)| named)
            .collect();
        let batch = read_parquet(&run.join(table));
        let sessions = texts(&batch, "session_id");
        let projects = texts(&batch, "project_id");
        let ids = ["trace_id", "target_id"];
        let id = ids.iter().find(|id| batch.column_by_name(id).is_some());
        let ids = id.map(|id| texts(&batch, id));
        for (row, shown) in rows(&batch).into_iter().enumerate() {
            let named = match &sessions[row] {
                Some(session) => vec![Some(session.clone()), projects[row].clone(), None],
                None => vec![None, None, ids.as_ref().unwrap()[row].clone()],
            };
            if !gone.contains(&named) {
                assert!(found.insert(shown), "{table}: a row is there twice");
            }
        }
    }
    found
}

#[track_caller]
fn assert_same_state(runs: &[PathBuf], whole: &Path) {
    for table in ["traces", "sessions", "scores"] {
        let expected: BTreeSet<Vec<String>> = rows(&read_parquet(&whole.join(table)))
            .into_iter()
            .collect();
        let got = latest(runs, table);
        let missing: Vec<_> = expected.difference(&got).take(3).collect();
        let more: Vec<_> = got.difference(&expected).take(3).collect();
        assert!(
            missing.is_empty() && more.is_empty(),
            "{table}: {} of {} rows are the same; missing {missing:#?}; too many {more:#?}",
            expected.intersection(&got).count(),
            expected.len()
        );
    }
}

#[derive(Clone, Debug)]
pub struct Trace {
    pub id: String,
    pub session: Option<String>,
    pub seconds: i64,
    pub input: Option<String>,
    pub output: Option<String>,
}

impl Trace {
    pub fn row(&self) -> TraceRow<'_> {
        (
            Some(&self.id),
            self.session.as_deref(),
            Some(self.seconds),
            self.input.as_deref(),
            self.output.as_deref(),
        )
    }
}

pub fn some_traces() -> impl Strategy<Value = Vec<Trace>> {
    let word = prop::sample::select(vec!["refund", "parcel", "late", "shoe", "card", "login"]);
    let text = prop::option::weighted(
        0.9,
        prop::collection::vec(word, 0..6).prop_map(|w| w.join(" ")),
    );
    let session = prop::option::weighted(0.85, 0..5u8);
    // Few ids, so that some rows are of one trace, be it in another session.
    let trace = (0..40u8, session, 0..20i64, text.clone(), text).prop_map(
        |(id, session, seconds, input, output)| Trace {
            id: format!("{:032x}", u64::from(id) * 7919 + 1),
            session: session.map(|s| format!("s{s}")),
            seconds,
            input,
            output,
        },
    );
    prop::collection::vec(trace, 4..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_split_into_nights_ends_with_the_scores_of_one_run(
        all in some_traces(),
        nights in prop::collection::vec(0..4usize, 40),
        lines in prop::collection::vec(any::<bool>(), 4),
        buckets in 1..4u8,
    ) {
        let buckets = buckets.to_string();
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        let mut runs: Vec<PathBuf> = Vec::new();
        for (night, as_lines) in lines.iter().enumerate() {
            let of: Vec<Trace> = all
                .iter()
                .zip(nights.iter().cycle())
                .filter(|(_, of)| **of == night)
                .map(|(trace, _)| trace.clone())
                .collect();
            if of.is_empty() {
                continue;
            }
            let rows: Vec<TraceRow<'_>> = of.iter().map(Trace::row).collect();
            let file = match *as_lines {
                false => {
                    let file = folder.path().join(format!("night-{night}.parquet"));
                    write_parquet(&file, &[traces(&rows)], 3);
                    file
                }
                true => {
                    let file = folder.path().join(format!("night-{night}.jsonl"));
                    let text: String = of
                        .iter()
                        .map(|trace| {
                            let row = serde_json::json!({
                                "trace_id": trace.id, "session_id": trace.session,
                                "started_at": format!("1970-01-01T00:00:{:02}Z", trace.seconds),
                                "input": trace.input, "output": trace.output,
                            });
                            format!("{row}\n")
                        })
                        .collect();
                    std::fs::write(&file, text).unwrap();
                    file
                }
            };
            let out = folder.path().join(format!("runs/{night}"));
            let before = runs.last().map(|_| folder.path().join("runs"));
            // Later nights have as many as the first.
            let more = ["--buckets", &buckets];
            let more = if before.is_none() { &more[..] } else { &[] };
            scored(std::slice::from_ref(&file), &out, before.as_deref(), more);
            files.push(file);
            runs.push(out);
        }
        let whole = folder.path().join("whole");
        scored(&files, &whole, None, &[]);
        assert_same_state(&runs, &whole);
    }
}

/// Three nights of one session and some others.
pub fn three_nights(folder: &Path) -> Vec<PathBuf> {
    let at = |night: usize| folder.join(format!("night-{night}.parquet"));
    let nights: [&[TraceRow<'_>]; 3] = [
        &[
            (
                Some("a1"),
                Some("long"),
                Some(1),
                Some("where is my parcel"),
                Some("it is late"),
            ),
            (
                Some("b1"),
                Some("short"),
                Some(2),
                Some("a refund please"),
                Some("it is on its way"),
            ),
            (Some("x1"), None, Some(3), Some("alone"), Some("alone too")),
        ],
        &[
            (
                Some("a2"),
                Some("long"),
                Some(10),
                Some("and now"),
                Some("it is late"),
            ),
            (
                Some("c1"),
                Some("new"),
                Some(11),
                Some("hello"),
                Some("how can I help"),
            ),
        ],
        &[
            (
                Some("a3"),
                Some("long"),
                Some(20),
                Some("still not here"),
                Some("it is late"),
            ),
            (
                Some("a0"),
                Some("long"),
                Some(0),
                Some("hello"),
                Some("good morning"),
            ),
        ],
    ];
    nights
        .iter()
        .enumerate()
        .map(|(night, rows)| {
            write_parquet(&at(night), &[traces(rows)], 2);
            at(night)
        })
        .collect()
}

#[test]
fn a_session_that_goes_on_is_one_session_and_says_since_when() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |night: usize| folder.path().join(format!("runs/n{night}"));
    scored(&files[..1], &out(0), None, &[]);
    scored(&files[1..2], &out(1), Some(&out(0)), &[]);
    let ran = score(&files[2..], &out(2), Some(&folder.path().join("runs")), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains("continues n1: night 3, 1 session of earlier nights go on"),
        "{ran:?}"
    );
    let sessions = read_parquet(&out(2).join("sessions"));
    assert_eq!(texts(&sessions, "session_id"), [Some("long".to_owned())]);
    assert_eq!(texts(&sessions, "first_run"), [Some("n0".to_owned())]);
    assert_eq!(texts(&sessions, "revision"), [Some("3".to_owned())]);
    assert_eq!(texts(&sessions, "traces"), [Some("4".to_owned())]);
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out(2).join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["continues"]["run"], "n1");
    assert_eq!(manifest["continues"]["night"], 3);
    assert_eq!(summary(&out(2))["continued"]["traces_read_again"], 2);
    let whole = folder.path().join("whole");
    scored(&files, &whole, None, &[]);
    assert_same_state(&[out(0), out(1), out(2)], &whole);
    // What was whole stays whole.
    let verified = nightmill([
        "runs",
        "verify",
        &folder.path().join("runs").display().to_string(),
    ]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn a_file_that_is_gone_leaves_scores_that_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |night: usize| folder.path().join(format!("runs/n{night}"));
    scored(&files[..1], &out(0), None, &[]);
    scored(&files[1..2], &out(1), Some(&out(0)), &[]);
    std::fs::remove_file(&files[0]).unwrap();
    let ran = score(&files[2..], &out(2), Some(&out(1)), &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout
            .contains("1 trace of earlier nights keep their scores: 1 files are gone or changed"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("night-0.parquet is gone"), "{ran:?}");
    let traces = read_parquet(&out(2).join("traces"));
    let before = read_parquet(&out(1).join("traces"));
    let coherence = |table: &RecordBatch, id: &str| {
        let at = texts(table, "trace_id")
            .iter()
            .position(|t| t.as_deref() == Some(id))
            .unwrap();
        texts(table, "coherence")[at].clone()
    };
    assert_eq!(coherence(&traces, "a1"), coherence(&before, "a1"));
    let details = texts(&traces, "details").into_iter().flatten();
    assert_eq!(
        details
            .filter(|details| details.contains(r#""kept_from":"n1""#))
            .count(),
        1
    );
    // And the next night keeps them once more.
    write_parquet(
        &folder.path().join("night-3.parquet"),
        &[crate::support::traces(&[(
            Some("a4"),
            Some("long"),
            Some(30),
            Some("x"),
            Some("y"),
        )])],
        2,
    );
    let ran = score(
        &[folder.path().join("night-3.parquet")],
        &out(3),
        Some(&out(2)),
        &[],
    );
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(summary(&out(3))["continued"]["traces_kept"], 1);
    assert_eq!(summary(&out(3))["sessions"], 1);
    // Where it comes again itself, what it says now is scored.
    let again = folder.path().join("night-4.parquet");
    let row = (
        Some("a1"),
        Some("long"),
        Some(1),
        Some("a cat"),
        Some("the stock market"),
    );
    write_parquet(&again, &[crate::support::traces(&[row])], 2);
    let ran = score(&[again], &out(4), Some(&out(3)), &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let traces = read_parquet(&out(4).join("traces"));
    assert_ne!(coherence(&traces, "a1"), coherence(&before, "a1"));
    let mut details = texts(&traces, "details").into_iter().flatten();
    assert!(!details.any(|details| details.contains("kept_from")));
}

#[test]
fn lines_added_to_a_file_are_news_and_a_changed_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.jsonl");
    let line = |id: &str, seconds: u8, output: &str| {
        format!(
            "{{\"trace_id\":\"{id}\",\"session_id\":\"s\",\"started_at\":\"2026-01-01T00:00:{seconds:02}Z\",\
             \"input\":\"where is it\",\"output\":\"{output}\"}}\n"
        )
    };
    let first = line("t1", 1, "it is late");
    std::fs::write(&file, &first).unwrap();
    let out = |name: &str| folder.path().join("runs").join(name);
    let files = [file.clone()];
    scored(&files, &out("n1"), None, &[]);
    std::fs::write(&file, first.clone() + &line("t2", 2, "it is late")).unwrap();
    scored(&files, &out("n2"), Some(&out("n1")), &[]);
    let whole = folder.path().join("whole");
    scored(&files, &whole, None, &[]);
    assert_same_state(&[out("n1"), out("n2")], &whole);

    std::fs::write(&file, line("t1", 1, "it is here")).unwrap();
    let other = folder.path().join("other.jsonl");
    std::fs::write(&other, line("t3", 3, "it is late")).unwrap();
    let ran = score(&[other], &out("n3"), Some(&out("n2")), &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("was changed since"), "{ran:?}");
}

#[test]
fn what_can_t_go_on_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |name: &str| folder.path().join("runs").join(name);
    scored(&files[..1], &out("n0"), None, &[]);
    let refused = |ran: Ran, why: &str| {
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    };
    let next = &files[1..2];
    let ran = score(next, &out("n1"), Some(&out("n0")), &["--window", "5"]);
    refused(ran, "was made with window 3, and this one has 5");
    let ran = score(
        next,
        &out("n1"),
        Some(&out("n0")),
        &["--metrics", "coherence"],
    );
    refused(ran, "was made with metrics");
    let ran = score(next, &out("n1"), Some(&out("n0")), &["--precision", "int8"]);
    refused(ran, "the earlier run was made with precision");
    let ran = score(next, &out("n1"), Some(&folder.path().join("nowhere")), &[]);
    refused(ran, "holds none");
    assert!(!out("n1").exists());

    scored(next, &out("n1"), Some(&out("n0")), &[]);
    let ran = score(&files[2..], &out("other"), Some(&out("n0")), &[]);
    refused(ran, "the run `n1` continues `n0` already");
    std::fs::rename(out("n0"), folder.path().join("away")).unwrap();
    let ran = score(&files[2..], &out("n2"), Some(&out("n1")), &[]);
    refused(ran, "it continues the run `n0`, which is neither at");
    // Both moved together are found.
    std::fs::create_dir(folder.path().join("moved")).unwrap();
    std::fs::rename(folder.path().join("away"), folder.path().join("moved/n0")).unwrap();
    std::fs::rename(out("n1"), folder.path().join("moved/n1")).unwrap();
    scored(
        &files[2..],
        &out("n2"),
        Some(&folder.path().join("moved/n1")),
        &[],
    );
    std::fs::rename(out("n2"), folder.path().join("moved/n2")).unwrap();
}

#[test]
fn of_several_ends_of_chains_one_must_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let runs = folder.path().join("runs");
    let out = |name: &str| runs.join(name);
    scored(&files[..1], &out("n0"), None, &[]);
    scored(&files[1..2], &out("n1"), Some(&runs), &[]);
    scored(&files[2..], &out("other"), None, &[]);
    let ran = score(&files[2..], &out("n2"), Some(&runs), &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("no other run continues: `n1`, `other`"),
        "{ran:?}"
    );
    scored(&files[2..], &out("n2"), Some(&out("n1")), &[]);
}

#[test]
fn a_run_that_a_later_one_continues_is_not_deleted_alone() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |name: &str| folder.path().join(name);
    scored(&files[..1], &out("n0"), None, &[]);
    scored(&files[1..2], &out("n1"), Some(&out("n0")), &[]);
    for what in ["--with-scores", "--keep-scores"] {
        let args = [
            "runs".into(),
            "delete".into(),
            out("n0").display().to_string(),
            what.into(),
        ];
        let ran = nightmill(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.stderr.contains("runs prune") && out("n0/traces").is_dir(),
            "{ran:?}"
        );
    }
    let both = ["n0", "n1"].map(|name| out(name).display().to_string());
    let args = ["runs".to_owned(), "delete".into(), "--with-scores".into()];
    let ran = nightmill(args.into_iter().chain(both));
    assert_eq!((ran.code, out("n0").exists()), (Some(0), false), "{ran:?}");
}

#[test]
fn of_two_that_continue_one_run_at_once_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |name: &str| folder.path().join(name);
    scored(&files[..1], &out("n0"), None, &[]);
    for turn in 0..4 {
        let ran = std::thread::scope(|scope| {
            let night = |at: usize| {
                let (file, before) = (files[at].clone(), out("n0"));
                let to = out(&format!("turn{turn}-{at}"));
                scope.spawn(move || score(&[file], &to, Some(&before), &[]))
            };
            [night(1), night(2)].map(|night| night.join().unwrap())
        });
        let codes = ran.each_ref().map(|ran| ran.code);
        assert!(
            codes == [Some(0), Some(2)] || codes == [Some(2), Some(0)],
            "{ran:?}"
        );
        for at in [1, 2] {
            let _ = std::fs::remove_dir_all(out(&format!("turn{turn}-{at}")));
        }
        // The same name for both: one run is there, and the other is told.
        let ran = std::thread::scope(|scope| {
            let run = |at: usize| {
                let (file, to) = (files[at].clone(), out(&format!("same{turn}")));
                scope.spawn(move || score(&[file], &to, None, &[]))
            };
            [run(1), run(2)].map(|run| run.join().unwrap())
        });
        let done = ran.iter().filter(|ran| ran.code == Some(0)).count();
        assert_eq!(done, 1, "{ran:?}");
    }
}

#[test]
fn a_row_that_names_half_of_its_session_touches_the_one_it_ends_up_in() {
    let folder = tempfile::tempdir().unwrap();
    let line = |id: &str, project: Option<&str>, session: Option<&str>, second: u8| {
        let row = serde_json::json!({"trace_id": id, "project_id": project, "session_id": session,
            "started_at": format!("2026-01-01T00:00:{second:02}Z"), "input": "where is it", "output": "it is late"});
        format!("{row}\n")
    };
    let (p, q) = (Some("p"), Some("q"));
    let first = [
        line("t1", p, Some("a"), 1),
        line("t2", p, Some("b"), 2),
        line("t3", q, Some("a"), 3),
        line("t4", p, Some("a"), 4),
    ]
    .concat();
    let again = [
        [line("t1", None, Some("b"), 5)].concat(),
        [line("t1", q, None, 5)].concat(),
        // Of rows that are all new, too.
        [line("n", q, Some("x"), 5), line("n", None, Some("a"), 6)].concat(),
    ];
    for (at, second) in again.iter().enumerate() {
        let at = |name: &str| folder.path().join(at.to_string()).join(name);
        std::fs::create_dir_all(at("runs")).unwrap();
        let files = [at("first.jsonl"), at("second.jsonl")];
        std::fs::write(&files[0], &first).unwrap();
        std::fs::write(&files[1], second).unwrap();
        scored(&files[..1], &at("runs/n1"), None, &[]);
        scored(&files[1..], &at("runs/n2"), Some(&at("runs")), &[]);
        scored(&files, &at("whole"), None, &[]);
        assert_same_state(&[at("runs/n1"), at("runs/n2")], &at("whole"));
    }
}

#[test]
fn a_renamed_run_is_still_the_one_that_was_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let files = three_nights(folder.path());
    let out = |name: &str| folder.path().join("runs").join(name);
    scored(&files[..1], &out("n0"), None, &[]);
    scored(&files[1..2], &out("n1"), Some(&out("n0")), &[]);
    std::fs::rename(out("n0"), out("first")).unwrap();
    let query = "SELECT session_id, traces FROM sessions_latest ORDER BY session_id";
    let runs = folder.path().join("runs").display().to_string();
    let ran = nightmill(["sql", "--runs", &runs, query, "--format", "csv"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.stdout.trim(),
        "session_id,traces\nlong,2\nnew,1\nshort,1",
        "{ran:?}"
    );
}

#[test]
fn signals_that_a_night_was_given_go_on_with_its_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = |id: &str, second: u8| {
        let row = serde_json::json!({"trace_id": id, "session_id": "s", "started_at": format!("2026-01-01T00:00:{second:02}Z"),
            "input": "where is it", "output": "it is late", "spans": "[]"});
        format!("{row}\n")
    };
    let given = |id: &str| {
        format!(
            "{}\n",
            serde_json::json!({"trace_id": id, "confidence": 0.25, "stuck": 0.125, "coherence": 0.75})
        )
    };
    std::fs::write(at("1.jsonl"), line("t1", 1)).unwrap();
    std::fs::write(at("2.jsonl"), line("t2", 2)).unwrap();
    std::fs::write(at("3.jsonl"), line("t3", 3)).unwrap();
    std::fs::write(at("given.jsonl"), given("t1")).unwrap();
    let weights = ["--weights", "stuck=0.5", "--no-cache"];
    let signals = at("given.jsonl").display().to_string();
    let with = [&weights[..], &["--signals", &signals]].concat();
    scored(&[at("1.jsonl")], &at("runs/1"), None, &with);
    scored(&[at("2.jsonl")], &at("runs/2"), Some(&at("runs")), &weights);
    scored(&[at("3.jsonl")], &at("runs/3"), Some(&at("runs")), &weights);
    let files = [at("1.jsonl"), at("2.jsonl"), at("3.jsonl")];
    scored(&files, &at("whole"), None, &with);
    assert_same_state(&[at("runs/1"), at("runs/2"), at("runs/3")], &at("whole"));
}

#[test]
fn spans_of_an_earlier_trace_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let line = |id: &str, parent: Option<&str>, trace: &str| {
        let row = serde_json::json!({"id": id, "traceId": trace, "parentObservationId": parent, "type": "GENERATION",
            "name": "chat", "startTime": "2025-01-01T00:00:00.000Z", "endTime": "2025-01-01T00:00:01.000Z",
            "input": "where is it", "output": "it is late", "sessionId": "s", "level": "DEFAULT"});
        format!("{row}\n")
    };
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("1.jsonl"), line("o1", None, "t1")).unwrap();
    std::fs::write(at("2.jsonl"), line("o2", Some("o1"), "t1")).unwrap();
    std::fs::write(at("3.jsonl"), line("o3", None, "t3")).unwrap();
    scored(&[at("1.jsonl")], &at("runs/n1"), None, &[]);
    let ran = score(&[at("2.jsonl")], &at("runs/n2"), Some(&at("runs")), &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("hold spans of the trace `t1`"),
        "{ran:?}"
    );
    scored(&[at("3.jsonl")], &at("runs/n2"), Some(&at("runs")), &[]);
}

#[test]
fn seven_nights_of_real_sessions_are_one_warehouse() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data/sessions/tau_airline_gpt4o.parquet");
    if !source.exists() {
        eprintln!("no real sessions here");
        return;
    }
    let all = read_parquet(&source);
    let folder = tempfile::tempdir().unwrap();
    // A session's traces go on from night to night, every ninth one comes late, and some come twice.
    let night_of = |row: usize| (row / 3 + if row.is_multiple_of(9) { 5 } else { 0 }) % 7;
    let (mut files, mut runs) = (Vec::new(), Vec::new());
    for night in 0..7 {
        let rows = (0..all.num_rows())
            .filter(|row| night_of(*row) == night || (row.is_multiple_of(50) && night == 6));
        let rows: arrow::array::UInt64Array = rows.map(|row| row as u64).collect();
        let rows = arrow::compute::take_record_batch(&all, &rows).unwrap();
        let file = folder.path().join(format!("night-{night}.parquet"));
        write_parquet(&file, &[rows], 100);
        let out = folder.path().join(format!("runs/{night}"));
        let before = (night > 0).then(|| folder.path().join("runs"));
        scored(std::slice::from_ref(&file), &out, before.as_deref(), &[]);
        files.push(file);
        runs.push(out);
    }
    assert!(summary(&runs[6])["continued"]["sessions"].as_u64().unwrap() > 10);
    let whole = folder.path().join("whole");
    scored(&files, &whole, None, &[]);
    assert_same_state(&runs, &whole);
}
