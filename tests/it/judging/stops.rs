//! The first clear refusal ends the asking: the rest is pending, and the run says why in one line.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::scene::{Scene, case_of, expect, id, reply_to, traces};
use super::scene_of_turns::{self, turns_of};
use super::tables::{Table, score, scores};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::summary;

const TRACES: usize = 24;

fn good(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

/// Every row of the run waits for this reason, which the run told once in one line.
#[track_caller]
fn all_wait(scene: &Scene, stdout: &str, why: &str) {
    let rows = scores(&scene.at("run"));
    assert_eq!(rows.len(), TRACES);
    for row in rows.values() {
        assert_eq!((row.status.as_str(), row.score), ("PENDING", None));
        assert!(row.reason.contains(why), "{}", row.reason);
    }
    let lines = stdout
        .lines()
        .filter(|line| line.starts_with(&format!("note: {why}")));
    assert_eq!(lines.count(), 1, "{stdout}");
    let judge = summary(&scene.at("run"))["judge"].clone();
    let told = judge["stopped"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].as_str().unwrap().starts_with(why), "{told:?}");
    let calls = &judge["calls"];
    assert_eq!(
        (&calls["failed"], &calls["withheld"]),
        (&0.into(), &TRACES.into())
    );
}

#[test]
fn a_wrong_key_sends_no_more_than_is_under_way_at_once() {
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(|_| Answer::status(401, &[], "wrong key"));
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    let ran = expect(3, command.args(["--judge-concurrency", "4"]));
    assert!(
        (1..=4).contains(&judge.prompt_count()),
        "{}",
        judge.prompt_count()
    );
    let why = "the judge refused the key (401); nothing more was asked";
    all_wait(&scene, &ran.stdout, why);
    drop(judge);
    // Nothing of it is kept: with another key all is asked.
    let judge = ScriptedJudge::start(good);
    expect(0, &mut scene.judge(&judge.url(), "confidence", "second"));
    assert_eq!(judge.prompt_count(), TRACES);
}

#[test]
fn an_endpoint_where_nobody_is_ends_the_run_in_seconds() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let scene = Scene::new(&traces(TRACES));
    let url = format!("http://127.0.0.1:{port}/v1");
    let started = Instant::now();
    let mut command = scene.judge(&url, "confidence", "run");
    let ran = expect(3, command.args(["--judge-tries", "2"]));
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    let why = "the judge can't be reached; nothing more was asked";
    all_wait(&scene, &ran.stdout, why);
    // Each of the sixteen at once tries twice at most.
    let sent = summary(&scene.at("run"))["judge"]["calls"]["sent"].clone();
    assert!((2..=32).contains(&sent.as_u64().unwrap()), "{sent}");
}

/// A model that was never let in is left alone; others go on.
#[test]
fn a_model_that_is_not_known_is_asked_no_more() {
    for (status, why) in [
        (404, "the judge does not know `openai/other` (404)"),
        (
            403,
            "the judge does not let this key ask `openai/other` (403)",
        ),
    ] {
        let scene = Scene::new(&traces(3));
        let judge = ScriptedJudge::start(move |asked| match asked.model.as_str() {
            "other" => Answer::status(status, &[], "not here"),
            _ => good(asked),
        });
        let mut command = scene.judge(&judge.url(), "confidence,step_efficiency", "run");
        command.args(["--judge-model", "confidence=openai/other"]);
        expect(3, command.args(["--judge-concurrency", "1"]));
        let others = judge
            .prompts()
            .iter()
            .filter(|a| a.model == "other")
            .count();
        assert_eq!(others, 1, "{status}");
        for case in 0..3 {
            let row = score(&scene.at("run"), &id(case), "confidence");
            assert_eq!(row.status, "PENDING", "{}", row.reason);
            assert!(row.reason.contains(why), "{}", row.reason);
            let row = score(&scene.at("run"), &id(case), "step_efficiency");
            assert_eq!(row.status, "SUCCESS", "{}", row.reason);
        }
    }
}

/// Gateways refuse single questions so, too.
#[test]
fn a_model_that_has_answered_may_refuse_a_question() {
    for status in [403, 404] {
        let scene = Scene::new(&traces(3));
        let judge = ScriptedJudge::start(move |asked| match asked.number {
            1 => Answer::status(status, &[], "not this one"),
            _ => good(asked),
        });
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        expect(3, command.args(["--judge-concurrency", "1"]));
        let judge_of_run = summary(&scene.at("run"))["judge"].clone();
        let calls = &judge_of_run["calls"];
        assert_eq!(
            (&calls["failed"], &calls["answered"]),
            (&1.into(), &2.into())
        );
        assert!(judge_of_run.get("stopped").is_none(), "{judge_of_run}");
    }
}

/// The compatible policy counts failed calls, and nothing else ends them.
#[test]
fn the_compatible_policy_stops_at_nothing() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(|_| Answer::status(401, &[], "wrong key"));
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(3, command.args(["--judge-policy", "compat"]));
    assert_eq!(judge.prompt_count(), 3 * 6);
    for case in 0..3 {
        let row = score(&scene.at("run"), &id(case), "confidence");
        assert_eq!(row.status, "FAILED");
    }
}

/// What came before the refusal stays.
#[test]
fn a_key_that_ends_in_the_run_keeps_what_was_answered() {
    let scene = Scene::new(&traces(4));
    let judge = ScriptedJudge::start(|asked| match case_of(asked) {
        0 | 1 => good(asked),
        _ => Answer::status(401, &[], "expired"),
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(3, command.args(["--judge-concurrency", "1"]));
    assert_eq!(judge.prompt_count(), 3);
    let rows = (0..4).map(|case| score(&scene.at("run"), &id(case), "confidence").status);
    let expected = ["SUCCESS", "SUCCESS", "PENDING", "PENDING"];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn conversations_of_turns_wait_too() {
    let scene = scene_of_turns::Scene::new(&turns_of(&["s-1", "s-2", "s-3"]), &[]);
    let judge = ScriptedJudge::start(|_| Answer::status(401, &[], "wrong key"));
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
    let ran = expect(3, command.args(["--judge-concurrency", "1"]));
    assert_eq!(judge.prompt_count(), 1);
    assert!(
        ran.stdout.contains("  the judge refused the key (401);"),
        "{ran:?}"
    );
    let statuses = Table::of(&scene.at("run"), "judge_verdicts").texts("status");
    assert_eq!(statuses, vec![Some("PENDING".to_owned()); 3]);
}
