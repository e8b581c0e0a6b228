//! Hard caps: what the server saw never passes them, and what is left over is done by a later run.

use std::collections::HashSet;
use std::time::Duration;

use super::scene::{SEVEN, SHARED_CALLS, Scene, bodies, expect, reply_to, traces};
use super::tables::{assert_same_tables, scores};
use crate::scripted_judge::{Answer, Asked, Reply, ScriptedJudge};
use crate::support::summary;

/// Tokens of every answer.
const PROMPT: u64 = 700;
const COMPLETION: u64 = 50;
const PRICE: &str = "openai/test=100:200";
/// Dollars of an answer at that price.
const COST: f64 = (700.0 * 100.0 + 50.0 * 200.0) / 1e6;

fn counted(asked: &Asked) -> Answer {
    let reply: Reply = reply_to(asked, 0.75).into();
    Answer::Reply(reply.usage(PROMPT, COMPLETION, 0))
}

/// How many rows of judged metrics ended in a way.
fn ended(scene: &Scene, out: &str, status: &str) -> usize {
    let rows = scores(&scene.at(out));
    rows.values().filter(|row| row.status == status).count()
}

#[test]
fn a_cap_on_calls_holds_and_a_later_run_asks_only_the_rest() {
    const TRACES: usize = 4;
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(counted);
    let metrics = SEVEN.join(",");
    let mut capped = scene.judge(&judge.url(), &metrics, "capped");
    expect(3, capped.args(["--max-calls", "20"]));
    let first = bodies(&judge.prompts());
    assert_eq!(first.len(), 20, "the cap is used up");
    let pending = ended(&scene, "capped", "PENDING");
    assert!(pending > 0);
    assert_eq!(
        pending + ended(&scene, "capped", "SUCCESS"),
        TRACES * SEVEN.len()
    );
    for (key, row) in scores(&scene.at("capped")) {
        let judged = row.status == "SUCCESS";
        assert_eq!(
            (row.score.is_some(), row.raw.is_some()),
            (judged, judged),
            "{key:?}"
        );
        assert!(
            judged || row.reason.contains("--max-calls"),
            "{}",
            row.reason
        );
    }

    // Another night with the same cap goes on where this one stopped, and the last one comes to the end.
    let mut again = scene.judge(&judge.url(), &metrics, "again");
    expect(3, again.args(["--max-calls", "20"]));
    assert_eq!(judge.prompt_count(), 40);
    assert!(ended(&scene, "again", "PENDING") < pending);
    expect(0, &mut scene.judge(&judge.url(), &metrics, "rest"));
    let all = bodies(&judge.prompts());
    assert_eq!(all.len(), TRACES * SHARED_CALLS);
    let distinct: HashSet<String> = all.into_iter().collect();
    assert_eq!(
        distinct.len(),
        TRACES * SHARED_CALLS,
        "a prompt was paid twice"
    );

    scene.forget_answers();
    expect(0, &mut scene.judge(&judge.url(), &metrics, "whole"));
    assert_same_tables(&scene.at("rest"), &scene.at("whole"));
}

#[test]
fn a_cap_of_no_call_sends_nothing() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(counted);
    for cap in ["--max-calls", "--max-tokens", "--max-cost"] {
        let mut command = scene.judge(&judge.url(), "confidence", cap);
        expect(3, command.args([cap, "0", "--price", PRICE]));
        assert_eq!(ended(&scene, cap, "PENDING"), 2);
    }
    assert_eq!(judge.asked().len(), 0);
}

/// Attempts that fail count: they were sent.
#[test]
fn failed_attempts_count_against_the_cap_on_calls() {
    let scene = Scene::new(&traces(4));
    let judge = ScriptedJudge::start(|asked| match asked.attempt {
        0 => Answer::status(503, &[], "try again"),
        _ => counted(asked),
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    command.args(["--max-calls", "5", "--judge-concurrency", "1"]);
    expect(3, &mut command);
    assert_eq!(judge.prompt_count(), 5);
    assert_eq!(summary(&scene.at("run"))["judge"]["calls"]["sent"], 5);
    // Two calls each for two traces; the third may not be tried a second time.
    assert_eq!(ended(&scene, "run", "SUCCESS"), 2);
    assert_eq!(ended(&scene, "run", "PENDING"), 2);
}

/// Runs under a cap with calls one by one and side by side; returns how many answers were paid.
fn paid_under(cap: &[&str], concurrency: &str) -> u64 {
    const TRACES: usize = 40;
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(counted);
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    command.args(["--price", PRICE, "--judge-max-output", "100"]);
    expect(
        3,
        command.args(["--judge-concurrency", concurrency]).args(cap),
    );
    let paid = judge.prompt_count() as u64;
    assert_eq!(ended(&scene, "run", "SUCCESS") as u64, paid);
    assert_eq!(ended(&scene, "run", "PENDING") as u64, TRACES as u64 - paid);
    // The accounts are those of the server.
    let spend = summary(&scene.at("run"))["judge"]["spend"][0].clone();
    assert_eq!(spend["metric"], "confidence");
    assert_eq!(
        (&spend["attempts"], &spend["answered"]),
        (&paid.into(), &paid.into())
    );
    assert_eq!(spend["prompt_tokens"], paid * PROMPT);
    assert_eq!(spend["completion_tokens"], paid * COMPLETION);
    let cost = spend["cost"].as_f64().unwrap();
    assert!((cost - paid as f64 * COST).abs() < 1e-9, "{cost}");
    paid
}

#[test]
fn a_cap_on_tokens_is_never_passed() {
    for concurrency in ["1", "8"] {
        let paid = paid_under(&["--max-tokens", "20000"], concurrency);
        let tokens = paid * (PROMPT + COMPLETION);
        assert!(
            paid >= 3 && tokens <= 20_000,
            "{tokens} tokens in {paid} calls"
        );
        // A call only waits for room for itself: that of a few answers stays free, however many calls go at once.
        assert!(paid >= 18, "{paid} calls at {concurrency}");
    }
}

#[test]
fn a_cap_on_money_is_never_passed() {
    for concurrency in ["1", "8"] {
        let paid = paid_under(&["--max-cost", "2"], concurrency);
        let cost = paid as f64 * COST;
        assert!(paid >= 3 && cost <= 2.0, "{cost} dollars for {paid} calls");
        assert!(paid >= 15, "{paid} calls at {concurrency}");
    }
}

/// What calls under way have set aside comes back: with a cap that holds what they use and once what one could use beyond, nothing
/// is left over.
#[test]
fn a_cap_that_suffices_one_after_the_other_suffices_side_by_side() {
    const TRACES: usize = 40;
    let most = TRACES as u64 * (PROMPT + COMPLETION) + 6000;
    for concurrency in ["1", "16"] {
        let scene = Scene::new(&traces(TRACES));
        let judge = ScriptedJudge::start(|asked| {
            let reply: Reply = reply_to(asked, 0.75).into();
            let pause = Duration::from_millis(20);
            Answer::later(pause, reply.usage(PROMPT, COMPLETION, 0))
        });
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        command.args(["--judge-max-output", "100"]);
        command.args(["--judge-concurrency", concurrency]);
        expect(0, command.args(["--max-tokens", &most.to_string()]));
        assert_eq!(judge.prompt_count(), TRACES);
    }
}

#[test]
fn a_cap_on_money_needs_a_price() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(counted);
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    let ran = expect(2, command.args(["--max-cost", "5"]));
    assert!(
        ran.stderr.contains("--price") && ran.stderr.contains("openai/test"),
        "{ran:?}"
    );
    // A price for one of two models is not enough.
    let mut command = scene.judge(&judge.url(), "confidence,plan_quality", "run");
    command.args(["--max-cost", "5", "--price", PRICE]);
    let ran = expect(2, command.args(["--judge-model", "confidence=openai/dear"]));
    assert!(ran.stderr.contains("openai/dear"), "{ran:?}");
    assert_eq!(judge.asked().len(), 0);
    assert!(!scene.at("run").exists());
}
