//! The deadline of a run: no call is begun after it, and what is left over is done by a later run.

use std::time::{Duration, Instant};

use super::scene::{Scene, expect, id, reply_to, traces};
use super::tables::{score, scores};
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::summary;

#[test]
fn after_the_deadline_no_call_is_begun_and_a_later_run_goes_on() {
    const TRACES: usize = 12;
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(|asked| {
        Answer::later(Duration::from_millis(1200), reply_to(asked, 0.75))
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    command.args(["--judge-concurrency", "2", "--judge-deadline", "3"]);
    expect(3, &mut command);
    let sent = judge.prompt_count();
    assert!((1..=8).contains(&sent), "{sent} calls");
    let rows = scores(&scene.at("run"));
    let judged = rows.values().filter(|row| row.status == "SUCCESS").count();
    // What was under way came to its end.
    assert_eq!(judged, sent);
    for row in rows.values().filter(|row| row.status != "SUCCESS") {
        assert_eq!(row.status, "PENDING");
        assert!(row.reason.contains("--judge-deadline"), "{}", row.reason);
    }
    let recorded = std::fs::read_to_string(scene.at("run").join("manifest.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    assert!(
        recorded.to_string().contains("\"judge_deadline\":\"3\""),
        "{recorded}"
    );
    expect(0, &mut scene.judge(&judge.url(), "confidence", "rest"));
    assert_eq!(judge.prompt_count(), TRACES);
}

#[test]
fn no_wait_begins_that_would_end_after_the_deadline() {
    let waits = [("retry-after", "60")];
    for (status, headers) in [(429, &waits[..]), (500, &[][..])] {
        let scene = Scene::new(&traces(1));
        let headers = headers.to_vec();
        let judge = ScriptedJudge::start(move |_| Answer::status(status, &headers, "not now"));
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        let started = Instant::now();
        // Waits of the program's own are at least half a second, one second and two.
        expect(3, command.args(["--judge-deadline", "2"]));
        assert!(started.elapsed() < Duration::from_secs(10), "{status}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.status, "PENDING", "{status}");
        assert!(row.reason.contains("--judge-deadline"), "{}", row.reason);
        let sent = summary(&scene.at("run"))["judge"]["calls"]["sent"].clone();
        assert_eq!(sent, judge.prompt_count(), "{status}");
        assert!(judge.prompt_count() <= 3, "{status}");
    }
}

#[test]
fn a_deadline_of_nothing_still_reads_the_ledger() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| Answer::reply(reply_to(asked, 0.75)));
    let mut late = scene.judge(&judge.url(), "confidence", "late");
    expect(3, late.args(["--judge-deadline", "0"]));
    assert_eq!(judge.prompt_count(), 0);
    expect(0, &mut scene.judge(&judge.url(), "confidence", "run"));
    let mut known = scene.judge(&judge.url(), "confidence", "known");
    expect(0, known.args(["--judge-deadline", "0"]));
}
