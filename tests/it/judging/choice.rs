//! Which traces are judged: conditions on signals, samples, filters and tags.

use std::process::Command;

use serde_json::json;

use super::scene::{Scene, case_of, expect, id, reply_to, stage, trace, traces};
use super::tables::targets;
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::{program, summary};

fn script(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

/// The cases that a run by `confidence` judges. What the server saw, the table and the summary must agree; traces that are
/// not judged have no row of that metric.
#[track_caller]
fn judged(scene: &Scene, judge: &ScriptedJudge, out: &str, more: &[&str]) -> Vec<usize> {
    let mut command = scene.judge(&judge.url(), "confidence,loop_detection", out);
    judged_by(scene, judge, out, command.args(more))
}

#[track_caller]
fn judged_by(scene: &Scene, judge: &ScriptedJudge, out: &str, command: &mut Command) -> Vec<usize> {
    scene.forget_answers();
    let before = judge.prompt_count();
    expect(0, command);
    let mut cases: Vec<usize> = judge.prompts()[before..].iter().map(case_of).collect();
    cases.sort_unstable();
    let ids: Vec<String> = cases.iter().map(|case| id(*case)).collect();
    assert_eq!(targets(&scene.at(out), "confidence"), ids);
    let summary = summary(&scene.at(out));
    assert_eq!(summary["judge"]["traces"], cases.len());
    assert_eq!(summary["pending_signals"], 0);
    cases
}

#[test]
fn a_condition_looks_at_computed_signals() {
    let mut traces = traces(4);
    // The third repeats the second, word for word; the others have nothing in common.
    for (trace, output) in traces.iter_mut().zip([
        "Your parcel left the harbour on Monday.",
        "Please restart the router and wait.",
        "Please restart the router and wait.",
        "Bees dance to tell where flowers bloom.",
    ]) {
        trace["output"] = json!(output);
    }
    let scene = Scene::new(&traces);
    let judge = ScriptedJudge::start(script);
    let judged = |out, condition| judged(&scene, &judge, out, &["--judge-where", condition]);
    assert_eq!(judged("looped", "loop_detection < 0.5"), [2]);
    assert_eq!(judged("fresh", "loop_detection >= 0.5"), [0, 1, 3]);
    assert_eq!(
        judged("either", "loop_detection < 0.5 OR trace_id = 't-000'"),
        [0, 2]
    );
    assert_eq!(
        listed(&scene, "fresh")["filters"],
        json!({"condition": "loop_detection >= 0.5"})
    );
    assert_eq!(judged("none", "loop_detection > 2").len(), 0);
}

#[test]
fn a_condition_looks_at_given_signals() {
    let scene = Scene::new(&traces(3));
    let signals = scene.at("signals.jsonl");
    let lines = (0..3).map(|case| {
        let coherence = [0.1, 0.59999, 0.6][case];
        json!({"trace_id": id(case), "coherence": coherence}).to_string() + "\n"
    });
    std::fs::write(&signals, lines.collect::<String>()).unwrap();
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "confidence,coherence", "run");
    command.arg("--signals").arg(&signals);
    command.args(["--judge-where", "coherence < 0.6"]);
    assert_eq!(judged_by(&scene, &judge, "run", &mut command), [0, 1]);
}

#[test]
fn a_condition_that_is_no_sql_is_refused_by_name_and_nothing_is_asked() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    for condition in ["coherence <", "no_such_signal < 0.5", "coherence; DROP"] {
        let mut command = scene.judge(&judge.url(), "confidence,coherence", "run");
        let ran = expect(2, command.args(["--judge-where", condition]));
        assert!(ran.stderr.contains("--judge-where"), "{ran:?}");
        assert!(!scene.at("run").exists());
    }
    assert_eq!(judge.asked().len(), 0);
}

/// A trace that has a score already is not asked about again.
#[test]
fn given_scores_are_not_judged() {
    let scene = Scene::new(&traces(2));
    let signals = scene.at("signals.jsonl");
    let line = json!({"trace_id": id(0), "confidence": 0.25});
    std::fs::write(&signals, format!("{line}\n")).unwrap();
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(0, command.arg("--signals").arg(&signals));
    let cases: Vec<usize> = judge.prompts().iter().map(case_of).collect();
    assert_eq!(cases, [1]);
    let table = super::tables::Table::of(&scene.at("run"), "traces");
    assert_eq!(table.numbers("confidence"), [Some(0.25), Some(0.75)]);
}

#[test]
fn samples_are_nested_repeatable_and_rounded_down() {
    const COUNT: usize = 21;
    let scene = Scene::new(&traces(COUNT));
    let judge = ScriptedJudge::start(script);
    let sample = |out, more: &[&str]| judged(&scene, &judge, out, more);
    let fifth = sample("fifth", &["--judge-sample", "0.2"]);
    let half = sample("half", &["--judge-sample", "0.5"]);
    assert_eq!((fifth.len(), half.len()), (4, 10));
    assert!(
        fifth.iter().all(|case| half.contains(case)),
        "{fifth:?} {half:?}"
    );
    assert_eq!(sample("again", &["--judge-sample", "0.2"]), fifth);
    // One at least, and none for nothing.
    assert_eq!(sample("least", &["--judge-sample", "0.01"]).len(), 1);
    assert_eq!(sample("none", &["--judge-sample", "0"]).len(), 0);
    assert_eq!(
        sample(super::scene::ALL_BUT_CONVERSATIONS, &[]).len(),
        COUNT
    );
    let other = sample("other", &["--judge-sample", "0.5", "--sample-seed", "1"]);
    assert!(other.len() == 10 && other != half, "{other:?}");
    // The share is one of those that pass the filters.
    let late = [
        "--judge-only",
        "from=2026-01-01T00:00:11Z",
        "--judge-sample",
        "0.5",
    ];
    let late = sample("late", &late);
    assert_eq!(late.len(), 5);
    assert!(late.iter().all(|case| *case >= 11), "{late:?}");
    let mut wrong = scene.judge(&judge.url(), "confidence", "wrong");
    let ran = expect(2, wrong.args(["--judge-sample", "1.5"]));
    assert!(ran.stderr.contains("--judge-sample"), "{ran:?}");
}

#[test]
fn filters_and_tags_choose_traces() {
    let mut traces = traces(5);
    traces[1]["name"] = json!("Refund desk");
    traces[1]["tags"] = json!(["vip", "eu"]);
    traces[2]["status"] = json!("ERROR");
    traces[2]["environment"] = json!("production");
    traces[2]["tags"] = json!("[\"eu\"]");
    traces[3]["user_id"] = json!("u-3");
    traces[3]["release"] = json!("1.2.0");
    traces[3]["tags"] = json!(["us"]);
    traces[4]["session_id"] = json!("other");
    let scene = Scene::new(&traces);
    let judge = ScriptedJudge::start(script);
    for (at, (flags, expected)) in [
        (vec!["--judge-only", "name=REFUND"], vec![1]),
        (vec!["--judge-only", "status=error"], vec![2]),
        (vec!["--judge-only", "environment=production"], vec![2]),
        (vec!["--judge-only", "user=u-3"], vec![3]),
        (vec!["--judge-only", "release=1.2.0"], vec![3]),
        (vec!["--judge-only", "session=other"], vec![4]),
        // From the first moment on, up to the second and without it.
        (
            vec![
                "--judge-only",
                "from=2026-01-01T00:00:01Z,to=2026-01-01T00:00:03Z",
            ],
            vec![1, 2],
        ),
        (vec!["--judge-tags", "vip"], vec![1]),
        (vec!["--judge-tags", "us,eu"], vec![1, 2, 3]),
        (
            vec!["--judge-tags", "eu", "--judge-only", "status=completed"],
            vec![1],
        ),
        (vec!["--judge-tags", "nobody"], vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let got = judged(&scene, &judge, &format!("run{at}"), &flags);
        assert_eq!(got, expected, "{flags:?}");
    }
    for (flag, word) in [
        ("colour=red", "colour"),
        ("from=yesterday", "from"),
        (
            "status=nonsense",
            "PENDING or RUNNING or COMPLETED or ERROR",
        ),
    ] {
        let mut command = scene.judge(&judge.url(), "confidence", "wrong");
        let ran = expect(2, command.args(["--judge-only", flag]));
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
}

/// Rows of one trace id are judged as the one trace that they are.
#[test]
fn rows_of_one_trace_are_judged_once() {
    let mut later = trace(0);
    later["output"] = json!("case-000: the last word");
    later["status"] = json!("ERROR");
    let scene = Scene::new(&[trace(0), trace(1), later]);
    let judge = ScriptedJudge::start(script);
    assert_eq!(judged(&scene, &judge, "run", &[]), [0, 1]);
    let prompts = judge.prompts();
    let first = prompts.iter().find(|asked| case_of(asked) == 0).unwrap();
    assert!(first.user.contains("the last word"), "{}", first.user);
    assert!(!first.user.contains("left the house"), "{}", first.user);
    // The later row says how the trace ended.
    let sampled = ["--judge-only", "status=error", "--judge-sample", "0.9"];
    let failed = judged(&scene, &judge, "failed", &sampled);
    assert_eq!(failed, [0]);
    let listed = listed(&scene, "failed");
    assert_eq!(listed["filters"], json!({"status": "ERROR"}));
    assert_eq!(listed["sampling_rate"], 0.9);
    assert_eq!(listed["model"], "openai/test");
    assert_eq!(
        listed["metric_names"],
        json!(["confidence", "loop_detection"])
    );
    assert_eq!(listed["monitor_id"], json!(null));
}

/// What `runs list` says of a run.
#[track_caller]
fn listed(scene: &Scene, run: &str) -> serde_json::Value {
    let mut command = program();
    command.args(["runs", "list", "--json"]).arg(scene.at(run));
    let listed = expect(0, &mut command).stdout;
    serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0].clone()
}

/// The last row of a trace says its name and status, and silence says that it has none and ended well: to filters, to
/// the table and to the judge alike.
#[test]
fn the_last_row_says_name_and_status() {
    let (mut first, mut last) = (trace(0), trace(0));
    first["name"] = json!("old name");
    first["status"] = json!("ERROR");
    last.as_object_mut().unwrap().remove("name");
    let scene = Scene::new(&[first, last]);
    let judge = ScriptedJudge::start(script);
    let run = |out, filter: &str| judged(&scene, &judge, out, &["--judge-only", filter]);
    assert_eq!(run("named", "name=old"), [0; 0]);
    assert_eq!(run("failed", "status=error"), [0; 0]);
    assert_eq!(run("ended", "status=completed"), [0]);
    let names = super::tables::Table::of(&scene.at("ended"), "traces").texts("name");
    assert_eq!(names, [None]);
    let shown = &judge.prompts()[0].user;
    assert!(
        !shown.contains("old name") && !shown.contains("ERROR\""),
        "{shown}"
    );
}

/// What `plan` says of a file: traces, and conversations.
pub(super) fn planned(scene: &Scene, file: &str, more: &[&str]) -> (u64, u64) {
    let mut plan = crate::support::program();
    plan.arg("plan").arg(scene.at(file));
    plan.args(["--metrics", "confidence,conversation", "--json"]);
    plan.args([
        "--judge",
        "openai/test",
        "--judge-url",
        "http://127.0.0.1:9/v1",
    ]);
    plan.arg("--ledger").arg(scene.at("ledger.db")).args(more);
    let told: serde_json::Value = serde_json::from_str(&expect(0, &mut plan).stdout).unwrap();
    let calls = |name: &str| {
        let metrics = told["metrics"].as_array().unwrap();
        let found = metrics.iter().find(|metric| metric["name"] == name);
        found.unwrap()["calls"].as_u64().unwrap()
    };
    (calls("confidence"), calls("conversation"))
}

#[test]
fn ids_may_be_uuids_of_sixteen_bytes_and_labels_whole_numbers() {
    use arrow::array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray};
    use std::sync::Arc;

    let uuids = |values: &[u8]| -> ArrayRef {
        let bytes = values.iter().map(|value| [200 + value; 16]);
        Arc::new(FixedSizeBinaryArray::try_from_iter(bytes).unwrap())
    };
    let text = |values: [&str; 4]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let times = [1, 2, 3, 4].map(|minute| format!("2026-01-01T00:0{minute}:00Z"));
    let batch = RecordBatch::try_from_iter([
        ("trace_id", uuids(&[1, 2, 3, 4])),
        // Two sessions of one id, in two projects.
        ("session_id", uuids(&[9, 9, 9, 9])),
        ("project_id", uuids(&[5, 5, 6, 6])),
        ("user_id", Arc::new(Int64Array::from(vec![42, 42, 42, 7]))),
        ("started_at", text(times.each_ref().map(String::as_str))),
        ("input", text(["a", "b", "c", "d"])),
        ("output", text(["e", "f", "g", "h"])),
    ]);
    let scene = Scene::new(&[]);
    let path = scene.at("uuids.parquet");
    crate::support::write_parquet(&path, &[batch.unwrap()], 3);
    assert_eq!(planned(&scene, "uuids.parquet", &[]), (4, 2));
    let of = |filter: &str| planned(&scene, "uuids.parquet", &["--judge-only", filter]);
    assert_eq!(of("user=42"), (3, 2));
    assert_eq!(of("user=7"), (1, 1));
    let session = "d1".repeat(16);
    assert_eq!(of(&format!("session={session}")), (4, 2));
}

#[test]
fn a_broken_row_group_takes_only_its_own_traces_away() {
    use arrow::array::{RecordBatch, StringArray};
    use std::sync::Arc;

    let column = |of: &dyn Fn(usize) -> String| {
        let values: Vec<String> = (0..4).map(of).collect();
        Arc::new(StringArray::from(values)) as arrow::array::ArrayRef
    };
    let batch = RecordBatch::try_from_iter([
        ("trace_id", column(&id)),
        ("session_id", column(&|case| format!("s-{}", case / 2))),
        (
            "started_at",
            column(&|case| format!("2026-01-01T00:0{case}:00Z")),
        ),
        ("input", column(&|case| format!("in {case}"))),
        ("output", column(&|case| format!("out {case}"))),
    ]);
    let scene = Scene::new(&[]);
    let path = scene.at("broken.parquet");
    crate::support::write_parquet(&path, &[batch.unwrap()], 2);
    let skip = ["--on-bad-file", "skip"];
    assert_eq!(planned(&scene, "broken.parquet", &skip), (4, 2));
    // The head of the first page of the first row group.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4..12].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(planned(&scene, "broken.parquet", &skip), (2, 1));
    let mut plan = crate::support::program();
    plan.arg("plan").arg(&path);
    plan.args(["--metrics", "confidence", "--judge", "openai/test"]);
    let refused = expect(2, &mut plan);
    assert!(refused.stderr.contains("broken.parquet"), "{refused:?}");
}

/// The known calls and the dollars of a plan by two metrics that share nothing, at a dollar a token.
fn known_and_cost(scene: &Scene, url: &str) -> (u64, f64) {
    let mut plan = crate::support::program();
    plan.arg("plan").arg(scene.at("traces.jsonl"));
    plan.args(["--metrics", "task_completion,confidence", "--json"]);
    plan.args(["--judge", "openai/test", "--judge-url", url]);
    plan.args(["--price", "openai/test=1000000:1000000"]);
    plan.arg("--ledger").arg(scene.at("ledger.db"));
    let told: serde_json::Value = serde_json::from_str(&expect(0, &mut plan).stdout).unwrap();
    let total = &told["total"];
    assert_eq!(total["calls"], 6);
    (
        total["known"].as_u64().unwrap(),
        total["cost"].as_f64().unwrap(),
    )
}

#[test]
fn a_plan_counts_as_cost_what_no_stage_has_an_answer_to() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let (known, all) = known_and_cost(&scene, &judge.url());
    assert_eq!(known, 0);
    let run = |out: &str, code: i32, more: &[&str]| {
        let mut command = scene.judge(&judge.url(), "task_completion,confidence", out);
        expect(code, command.args(more));
    };
    run("capped", 3, &["--max-calls", "3"]);
    let (known, rest) = known_and_cost(&scene, &judge.url());
    assert_eq!(known, 3);
    assert!(rest > 0.0 && rest < all, "{rest} of {all}");
    run("whole", 0, &[]);
    assert_eq!(known_and_cost(&scene, &judge.url()), (6, 0.0));
}

#[test]
fn a_plan_knows_answers_that_came_without_a_schema() {
    let scene = Scene::new(&traces(2));
    // Keys that a stage does not know are passed over.
    let reply = r#"{"task":"t","outcome":"o","verdict":0.5,"confidence":0.5,"reason":"r"}"#;
    let judge = ScriptedJudge::start(move |asked| match stage(asked) {
        "" => Answer::reply(reply),
        _ => Answer::status(400, &[], "response_format is not supported"),
    });
    let metrics = "task_completion,confidence";
    expect(0, &mut scene.judge(&judge.url(), metrics, "run"));
    assert_eq!(known_and_cost(&scene, &judge.url()), (6, 0.0));
}
