//! Killed runs and limits by the minute: real processes, real time.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::scene::{Running, SHARED_CALLS, Scene, bodies, expect, reply_to, traces};
use super::tables::assert_same_tables;
use crate::scripted_judge::{Answer, ScriptedJudge, wait_until};
use crate::support::entries;

fn hidden(scene: &Scene) -> Vec<String> {
    let mut names = entries(scene.folder());
    names.retain(|name| name.starts_with('.'));
    names
}

#[test]
fn a_killed_run_pays_nothing_twice_and_ends_as_if_nothing_had_happened() {
    const TRACES: usize = 5;
    /// How long the server takes, and what surely suffices to write an answer that came.
    const DELAY: Duration = Duration::from_millis(100);
    const MARGIN: Duration = Duration::from_millis(400);
    let scene = Scene::new(&traces(TRACES));
    let slow = Arc::new(AtomicBool::new(true));
    let judge = {
        let slow = Arc::clone(&slow);
        ScriptedJudge::start(move |asked| {
            let reply = reply_to(asked, 0.75);
            match slow.load(Ordering::SeqCst) {
                true => Answer::later(DELAY, reply),
                false => Answer::reply(reply),
            }
        })
    };
    let mut killed = scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run");
    let mut killed = Running::start(killed.args(["--judge-concurrency", "4"]));
    // The run is in its middle when the kill comes: two thirds of its questions are put.
    let enough = TRACES * SHARED_CALLS * 2 / 3;
    assert!(wait_until(Duration::from_secs(30), || judge.prompt_count() >= enough));
    let end = Instant::now();
    killed.kill();
    assert!(!scene.at("run").exists());
    // The run, and its record.
    assert_eq!(hidden(&scene).len(), 2, "{:?}", entries(scene.folder()));
    let before = judge.prompts();
    let answered: HashSet<String> = before
        .iter()
        .filter(|asked| asked.at + DELAY + MARGIN < end)
        .map(|asked| asked.json().to_string())
        .collect();
    assert!(answered.len() >= 10, "only {} answers", answered.len());
    assert!(before.len() < TRACES * SHARED_CALLS, "it was through");

    slow.store(false, Ordering::SeqCst);
    expect(
        0,
        &mut scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run"),
    );
    assert_eq!(hidden(&scene), [""; 0]);
    let after = bodies(&judge.prompts()[before.len()..]);
    let twice = after.iter().filter(|body| answered.contains(*body)).count();
    assert_eq!(twice, 0, "answers were paid twice");
    // At most what was under way was lost.
    let all = before.len() + after.len();
    let lost = all - TRACES * SHARED_CALLS;
    assert!(lost <= before.len() - answered.len(), "{lost} lost");

    scene.forget_answers();
    expect(
        0,
        &mut scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "whole"),
    );
    assert_same_tables(&scene.at("run"), &scene.at("whole"));
}

/// Kills at any moment, the first ones before a question is put, until a run comes to its end.
#[test]
fn kills_at_any_moment_lose_at_most_what_was_under_way() {
    const TRACES: usize = 4;
    const CONCURRENCY: usize = 2;
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(|asked| {
        Answer::later(Duration::from_millis(15), reply_to(asked, 0.75))
    });
    let concurrency = CONCURRENCY.to_string();
    let mut kills = 0;
    for (at, wanted) in [0, 1, 9, 22, 37].into_iter().enumerate() {
        let mut command = scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run");
        command.args(["--judge-concurrency", &concurrency]);
        let mut running = Running::start(&mut command);
        let reached = || judge.prompt_count() >= wanted;
        assert!(wait_until(Duration::from_secs(20), reached), "kill {at}");
        running.kill();
        kills += 1;
        assert!(!scene.at("run").exists(), "kill {at} came too late");
    }
    expect(
        0,
        &mut scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run"),
    );
    assert_eq!(hidden(&scene), [""; 0]);
    let lost = judge.prompt_count() - TRACES * SHARED_CALLS;
    // A call that was answered a moment before the kill may not be written yet.
    assert!(
        lost <= kills * 2 * CONCURRENCY,
        "{lost} calls were put again"
    );
    scene.forget_answers();
    expect(
        0,
        &mut scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "whole"),
    );
    assert_same_tables(&scene.at("run"), &scene.at("whole"));
}

#[test]
fn a_limit_on_requests_holds_the_next_one_back() {
    let scene = Scene::new(&traces(8));
    let judge = ScriptedJudge::start(|asked| Answer::reply(reply_to(asked, 0.75)));
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    let mut running = Running::start(command.args(["--requests-per-minute", "5"]));
    assert!(wait_until(Duration::from_secs(20), || judge.prompt_count() >= 5));
    std::thread::sleep(Duration::from_secs(2));
    let asked = judge.prompts();
    assert_eq!(asked.len(), 5);
    let took = asked[4].at.duration_since(asked[0].at);
    assert!(
        took < Duration::from_secs(1),
        "the first five took {took:?}"
    );
    assert!(running.goes_on(), "the run has ended");
    running.kill();
}

/// Tokens are counted as a quarter of the prompt's bytes and the largest reply: here some 1,000 a call.
#[test]
fn a_limit_on_tokens_holds_the_next_one_back() {
    let scene = Scene::new(&traces(8));
    let judge = ScriptedJudge::start(|asked| Answer::reply(reply_to(asked, 0.75)));
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    command.args(["--tokens-per-minute", "10000"]);
    let mut running = Running::start(command.args(["--judge-max-output", "2500"]));
    assert!(wait_until(Duration::from_secs(20), || judge.prompt_count() >= 2));
    std::thread::sleep(Duration::from_secs(2));
    // Three replies of 2,500 tokens fit besides their prompts, a fourth does not.
    let asked = judge.prompts();
    assert!((2..=3).contains(&asked.len()), "{} calls", asked.len());
    running.kill();

    let scene = Scene::new(&traces(1));
    let before = judge.prompt_count();
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(3, command.args(["--tokens-per-minute", "1000"]));
    assert_eq!(judge.prompt_count(), before, "larger than a whole minute");
}

/// A call is under way for at least as long as the server waits: of so many and one calls, no two ends may lie closer.
#[test]
fn no_more_calls_are_under_way_than_allowed() {
    const DELAY: Duration = Duration::from_millis(30);
    for allowed in [1, 3] {
        let scene = Scene::new(&traces(4));
        let judge = ScriptedJudge::start(|asked| Answer::later(DELAY, reply_to(asked, 0.75)));
        let mut command = scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run");
        expect(
            0,
            command.args(["--judge-concurrency", &allowed.to_string()]),
        );
        assert!(judge.most_at_once() >= allowed, "the allowance is not used");
        let mut arrivals: Vec<Instant> = judge.prompts().iter().map(|a| a.at).collect();
        arrivals.sort_unstable();
        for group in arrivals.windows(allowed + 1) {
            let apart = group[allowed].duration_since(group[0]);
            assert!(apart >= DELAY, "{} calls within {apart:?}", allowed + 1);
        }
    }
}
