//! Answers without an end, or far too large: cut at the limit, and the row says so.

use super::scene::{Scene, case_of, expect, id, reply_to, traces};
use super::tables::score;
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::summary;

#[test]
fn an_answer_without_end_is_cut_and_fails_its_row_alone() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(|asked| match case_of(asked) {
        // White space may stand before JSON, as much as there is of it.
        0 => Answer::Endless(" ".repeat(64 << 10)),
        // One piece of known length.
        1 => Answer::Garbage(vec![b' '; 17 << 20]),
        _ => Answer::reply(reply_to(asked, 0.75)),
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(3, command.args(["--judge-timeout", "100"]));
    // It is no fault that passes: each was asked once.
    assert_eq!(judge.prompt_count(), 3);
    for case in 0..2 {
        let row = score(&scene.at("run"), &id(case), "confidence");
        assert_eq!((row.status.as_str(), row.score), ("FAILED", None));
        for word in ["answer_too_large", "longer than 16 MiB"] {
            assert!(row.reason.contains(word), "{}", row.reason);
        }
    }
    let row = score(&scene.at("run"), &id(2), "confidence");
    assert_eq!(row.raw, Some(0.75));
    let calls = summary(&scene.at("run"))["judge"]["calls"].clone();
    assert_eq!(
        (&calls["failed"], &calls["answered"]),
        (&2.into(), &1.into())
    );
}

/// Of an error only the beginning is read; its status is what counts.
#[test]
fn a_large_error_is_told_by_its_beginning() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|_| {
        let body = format!("not this one{}", "!".repeat(4 << 20));
        Answer::Status(400, Vec::new(), body)
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(3, &mut command);
    let row = score(&scene.at("run"), &id(0), "confidence");
    assert!(row.reason.contains("not this one!"), "{}", row.reason);
    assert!(row.reason.len() < 1000, "{}", row.reason.len());
}
