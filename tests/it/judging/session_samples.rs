//! Which sessions are judged as conversations: `--judge-sample` is a share of the sessions.

use std::path::Path;

use serde_json::{Value, json};

use super::choice::planned;
use super::retry::{denied, retry, verdict};
use super::scene::{Scene, expect, reply_to, stage, traces};
use super::tables::{Table, targets};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};

const METRICS: &str = "confidence,conversation";

fn script(asked: &Asked) -> Answer {
    match stage(asked) {
        "confidence_score" => Answer::reply(reply_to(asked, 0.75)),
        _ => verdict(asked),
    }
}

/// Sessions `s-00`, `s-01` and so on, of so many traces each.
fn sessions(count: usize, each: usize) -> Vec<Value> {
    let mut traces = traces(count * each);
    for (case, trace) in traces.iter_mut().enumerate() {
        trace["session_id"] = json!(format!("s-{:02}", case / each));
    }
    traces
}

/// The sessions of a run that were judged.
fn judged(run: &Path) -> Vec<String> {
    let sessions = Table::of(run, "judge_verdicts").texts("session_id");
    sessions.into_iter().map(Option::unwrap).collect()
}

#[test]
fn a_sample_takes_a_share_of_the_sessions_and_of_the_traces() {
    let scene = Scene::new(&sessions(20, 3));
    let judge = ScriptedJudge::start(script);
    let run = |out: &str, more: &[&str]| {
        let mut command = scene.judge(&judge.url(), METRICS, out);
        expect(0, command.args(more));
        let talks = judged(&scene.at(out));
        let counts = (targets(&scene.at(out), "confidence").len(), talks.len());
        let calls = (counts.0 as u64, counts.1 as u64);
        assert_eq!(planned(&scene, "traces.jsonl", more), calls, "{more:?}");
        (counts, talks)
    };
    let (counts, tenth) = run("tenth", &["--judge-sample", "0.1"]);
    assert_eq!(counts, (6, 2));
    let whole = Table::of(&scene.at("tenth"), "judge_verdicts").numbers("traces");
    assert_eq!(whole, [Some(3.0), Some(3.0)]);
    let (counts, third) = run("third", &["--judge-sample", "0.3"]);
    assert_eq!(counts, (18, 6));
    assert!(
        tenth.iter().all(|s| third.contains(s)),
        "{tenth:?} {third:?}"
    );
    let (counts, other) = run("other", &["--judge-sample", "0.3", "--sample-seed", "1"]);
    assert!(counts == (18, 6) && other != third, "{other:?}");
    assert_eq!(run("least", &["--judge-sample", "0.01"]).0, (1, 1));
    assert_eq!(run("none", &["--judge-sample", "0"]).0, (0, 0));
    // The share is one of the sessions with a trace that passes: ten traces, in four sessions.
    let late = ["--judge-only", "from=2026-01-01T00:00:50Z"];
    let (counts, late) = run("late", &[&late[..], &["--judge-sample", "0.5"]].concat());
    assert_eq!(counts, (5, 2));
    assert!(late.iter().all(|s| s.as_str() >= "s-16"), "{late:?}");
    let one = [
        "--judge-where",
        "trace_id = 't-001'",
        "--judge-sample",
        "0.5",
    ];
    assert_eq!(run("one", &one), ((1, 1), vec!["s-00".to_owned()]));
}

/// The samples of traces and of sessions have little in common: a trace that failed must not bring its session along.
#[test]
fn a_retry_asks_about_no_session_that_the_sample_left_out() {
    let scene = Scene::new(&sessions(20, 1));
    let judge = super::retry::Mendable::start(
        |asked| (stage(asked) == "confidence_score").then(denied),
        script,
    );
    let mut first = scene.judge(&judge.judge.url(), METRICS, "first");
    expect(3, first.args(["--judge-sample", "0.25"]));
    let talks = judged(&scene.at("first"));
    let failed = targets(&scene.at("first"), "confidence");
    assert_eq!((failed.len(), talks.len()), (5, 5));
    let apart = |id: &String| !talks.contains(&id.replace("t-0", "s-"));
    assert!(failed.iter().any(apart), "{failed:?} {talks:?}");
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "second"));
    });
    let stages: Vec<&str> = asked.iter().map(stage).collect();
    assert_eq!(stages, ["confidence_score"; 5]);
    assert_eq!(judged(&scene.at("second")), talks);
}
