//! Several runs on one ledger at the same time: each question is put once, whatever becomes of the run that puts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scene::{Running, SEVEN, SHARED_CALLS, Scene, expect, id, reply_to, traces};
use super::tables::{assert_same_tables, score};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge, wait_until};
use crate::support::{entries, summary};

const MINUTE: Duration = Duration::from_secs(60);

/// A judge that takes as long as it likes to answer the first question.
struct SlowAtFirst {
    judge: ScriptedJudge,
    hurry: Arc<AtomicBool>,
}

impl SlowAtFirst {
    fn start(first: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let hurry = Arc::new(AtomicBool::new(false));
        let judge = {
            let hurry = Arc::clone(&hurry);
            ScriptedJudge::start(move |asked| match hurry.load(Ordering::SeqCst) {
                true => Answer::reply(reply_to(asked, 0.75)),
                false => first(asked),
            })
        };
        Self { judge, hurry }
    }

    fn hurry(&self) {
        self.hurry.store(true, Ordering::SeqCst);
    }

    fn has_asked(&self, count: usize) -> bool {
        wait_until(Duration::from_secs(30), || {
            self.judge.prompt_count() >= count
        })
    }
}

/// Files that say that a run is alive.
fn signs_of_life(scene: &Scene) -> usize {
    let names = entries(scene.folder());
    names.iter().filter(|name| name.contains(".run-")).count()
}

/// Runs under construction.
fn hidden_runs(scene: &Scene) -> usize {
    let names = entries(scene.folder());
    names
        .iter()
        .filter(|name| name.contains("-partial-"))
        .count()
}

#[test]
fn runs_at_once_put_each_question_once() {
    let scene = Scene::new(&traces(6));
    let judge = ScriptedJudge::start(|asked| {
        Answer::later(Duration::from_millis(20), reply_to(asked, 0.75))
    });
    let runs = ["a", "b", "c"];
    let mut running = runs.map(|out| {
        let mut command = scene.judge(&judge.url(), &SEVEN.join(","), out);
        Running::start(&mut command)
    });
    for run in &mut running {
        assert_eq!(run.wait(), Some(0));
    }
    assert_eq!(judge.prompt_count(), 6 * SHARED_CALLS);
    let sent = runs.map(|out| summary(&scene.at(out))["judge"]["calls"]["sent"].as_u64());
    assert_eq!(
        sent.into_iter().flatten().sum::<u64>(),
        6 * SHARED_CALLS as u64
    );
    assert_same_tables(&scene.at("a"), &scene.at("b"));
    assert_same_tables(&scene.at("a"), &scene.at("c"));
    assert_eq!(signs_of_life(&scene), 0, "{:?}", entries(scene.folder()));
    expect(0, &mut scene.judge(&judge.url(), &SEVEN.join(","), "d"));
    assert_eq!(judge.prompt_count(), 6 * SHARED_CALLS);
}

#[test]
fn what_a_killed_run_was_asking_is_asked_by_the_run_that_waits_for_it() {
    let scene = Scene::new(&traces(1));
    let slow = SlowAtFirst::start(|asked| Answer::later(MINUTE, reply_to(asked, 0.25)));
    let url = slow.judge.url();
    let mut killed = Running::start(&mut scene.judge(&url, "confidence", "killed"));
    assert!(slow.has_asked(1));
    let mut waiting = Running::start(&mut scene.judge(&url, "confidence", "run"));
    assert!(wait_until(Duration::from_secs(30), || hidden_runs(&scene) == 2));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(slow.judge.prompt_count(), 1, "asked at the same time");
    assert!(waiting.goes_on());
    slow.hurry();
    killed.kill();
    assert_eq!(waiting.wait(), Some(0));
    assert_eq!(slow.judge.prompt_count(), 2);
    assert_eq!(
        score(&scene.at("run"), &id(0), "confidence").raw,
        Some(0.75)
    );
    assert_eq!(signs_of_life(&scene), 0, "{:?}", entries(scene.folder()));
}

#[test]
fn a_failure_of_one_run_is_no_verdict_on_another() {
    let scene = Scene::new(&traces(1));
    let slow = SlowAtFirst::start(|_| {
        std::thread::sleep(Duration::from_millis(800));
        Answer::status(400, &[], "not today")
    });
    let url = slow.judge.url();
    let mut failing = Running::start(&mut scene.judge(&url, "confidence", "failing"));
    assert!(slow.has_asked(1));
    slow.hurry();
    let mut waiting = Running::start(&mut scene.judge(&url, "confidence", "run"));
    assert_eq!(failing.wait(), Some(3));
    assert_eq!(waiting.wait(), Some(0));
    assert_eq!(slow.judge.prompt_count(), 2);
}

/// A run that is held back by its own limits holds up no other.
#[test]
fn a_run_that_waits_for_its_turn_claims_nothing() {
    let scene = Scene::new(&traces(12));
    let judge = ScriptedJudge::start(|asked| Answer::reply(reply_to(asked, 0.75)));
    let mut slow = scene.judge(&judge.url(), "confidence", "slow");
    let mut slow = Running::start(slow.args(["--requests-per-minute", "2"]));
    assert!(wait_until(Duration::from_secs(30), || judge.prompt_count() == 2));
    std::thread::sleep(Duration::from_millis(300));
    expect(0, &mut scene.judge(&judge.url(), "confidence", "run"));
    assert_eq!(judge.prompt_count(), 12);
    assert!(slow.goes_on());
}

/// A batch waits for what other runs are asking, if it may wait at all.
#[test]
fn a_batch_that_waits_takes_what_another_run_is_answered() {
    let scene = Scene::new(&traces(2));
    let slow =
        SlowAtFirst::start(|asked| Answer::later(Duration::from_secs(2), reply_to(asked, 0.75)));
    let url = slow.judge.url();
    let mut direct = Running::start(&mut scene.judge(&url, "confidence", "direct"));
    assert!(slow.has_asked(2));
    let mut batch = scene.judge(&url, "confidence", "batch");
    expect(
        0,
        batch.args(["--batch", "--batch-wait", "1", "--batch-poll", "0.05"]),
    );
    assert_eq!(direct.wait(), Some(0));
    assert_eq!(
        (slow.judge.uploads().len(), slow.judge.prompt_count()),
        (0, 2)
    );
    assert_same_tables(&scene.at("direct"), &scene.at("batch"));
}

#[test]
fn a_batch_leaves_out_what_is_being_asked() {
    let scene = Scene::new(&traces(1));
    let slow = SlowAtFirst::start(|asked| {
        Answer::later(Duration::from_millis(1500), reply_to(asked, 0.75))
    });
    let url = slow.judge.url();
    let mut direct = Running::start(&mut scene.judge(&url, "confidence", "direct"));
    assert!(slow.has_asked(1));
    let mut batch = scene.judge(&url, "confidence", "batch");
    expect(3, batch.args(["--batch", "--overwrite"]));
    assert_eq!(slow.judge.uploads().len(), 0, "asked twice");
    assert_eq!(direct.wait(), Some(0));
    expect(0, &mut batch);
    assert_eq!(
        (slow.judge.uploads().len(), slow.judge.prompt_count()),
        (0, 1)
    );
    assert_same_tables(&scene.at("direct"), &scene.at("batch"));
}
