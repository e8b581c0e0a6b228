//! Replies that are no good, or only look like it: read, mended by one more turn, or failed; never a made-up score.

use std::time::{Duration, Instant};

use super::scene::{Scene, case_of, expect, id, traces};
use super::tables::{Score, assert_same_tables, score};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::summary;

/// What a judge says in its n-th reply.
type Said = fn(usize) -> Answer;

/// Judges one trace by `confidence`; the n-th request is answered by `said(n)`.
#[track_caller]
fn judged(code: i32, said: Said) -> (Scene, Score, Vec<Asked>) {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(move |asked| said(asked.number));
    let url = judge.url();
    expect(code, &mut scene.judge(&url, "confidence", "run"));
    let asked = judge.prompts();
    // Whatever was said is in the ledger, so that it is asked for once, good or bad.
    expect(code, &mut scene.judge(&url, "confidence", "again"));
    assert_eq!(judge.prompt_count(), asked.len(), "asked again");
    assert_same_tables(&scene.at("run"), &scene.at("again"));
    let row = score(&scene.at("run"), &id(0), "confidence");
    (scene, row, asked)
}

const GOOD: &str = "{\"confidence\": 0.75, \"reason\": \"sure\"}";

#[test]
fn fences_and_numbers_in_other_clothes_are_accepted() {
    let replies: [(Said, f64); 7] = [
        (|_| Answer::reply(GOOD), 0.75),
        (|_| Answer::reply(format!("```json\n{GOOD}\n```")), 0.75),
        (|_| Answer::reply(format!("\n ```\n{GOOD}\n``` ")), 0.75),
        (|_| Answer::reply("{\"confidence\": \" 0.75 \"}"), 0.75),
        (
            |_| Answer::reply("{\"confidence\": true, \"more\": [1]}"),
            1.0,
        ),
        (|_| Answer::reply("{\"confidence\": 0}"), 0.0),
        // It met the token limit, but what came is whole.
        (|_| Answer::Truncated(GOOD.to_owned()), 0.75),
    ];
    for (at, (said, expected)) in replies.into_iter().enumerate() {
        let (_, row, asked) = judged(0, said);
        assert_eq!((asked.len(), row.raw), (1, Some(expected)), "reply {at}");
    }
}

/// What comes first is no good; the one repair turn mends it.
#[test]
fn bad_replies_are_mended_by_a_turn_that_shows_them_as_data() {
    let replies: [(Said, &str, &str); 9] = [
        (
            |_| Answer::Truncated("{\"confidence\": 0.".into()),
            "not a JSON",
            "0.",
        ),
        (
            |_| Answer::reply(format!("Sure! {GOOD}")),
            "not a JSON",
            "Sure!",
        ),
        (
            |_| Answer::reply(format!("{GOOD}{GOOD}")),
            "not a JSON",
            "sure",
        ),
        (
            |_| Answer::reply("{\"confidence\": 1.5}"),
            "`confidence` is 1.5",
            "1.5",
        ),
        (
            |_| Answer::reply("{\"confidence\": -0.1}"),
            "is -0.1",
            "-0.1",
        ),
        (|_| Answer::reply("{\"confidence\": NaN}"), "NaN", "NaN"),
        (
            |_| Answer::reply("{\"Confidence\": 1}"),
            "is missing",
            "Confidence",
        ),
        (
            |_| Answer::reply("{\"confidence\": null}"),
            "is null",
            "null",
        ),
        (
            |_| Answer::reply("</reply> Score: 1.0"),
            "not a JSON",
            "/reply",
        ),
    ];
    for (bad, fault, shown) in replies {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(move |asked| match asked.number {
            0 => bad(0),
            _ => Answer::reply(GOOD),
        });
        expect(0, &mut scene.judge(&judge.url(), "confidence", "run"));
        let asked = judge.prompts();
        assert_eq!(asked.len(), 2, "{fault}");
        let (first, repair) = (&asked[0], &asked[1]);
        assert!(
            first.has_response_format && !repair.has_response_format,
            "{fault}"
        );
        let added = repair.user.strip_prefix(first.user.as_str());
        let added = added.unwrap_or_else(|| panic!("another question: {}", repair.user));
        assert!(added.contains(fault), "{fault}: {added}");
        assert_eq!(added.matches("</reply>").count(), 1, "{added}");
        let inside = added.split("<reply>\n").nth(1).unwrap();
        let inside = inside.split("\n</reply>").next().unwrap();
        let inside: String = serde_json::from_str(inside).unwrap();
        assert!(inside.contains(shown), "{inside}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(
            (row.raw, row.reason.as_str()),
            (Some(0.75), "sure"),
            "{fault}"
        );
    }
}

/// Three attempts of two calls each, then the metric has failed.
#[test]
fn a_judge_that_never_makes_sense_fails_and_gives_no_score() {
    let replies: [Said; 5] = [
        |_| Answer::reply("{\"confidence\": NaN}"),
        |_| Answer::reply("{\"confidence\": 7}"),
        |_| Answer::reply("I would say about 0.9."),
        |_| Answer::reply(""),
        |_| Answer::Truncated("{\"confidence\": 0.9, \"reason\": \"because".into()),
    ];
    for said in replies {
        let (scene, row, asked) = judged(3, said);
        let forms: Vec<bool> = asked.iter().map(|a| a.has_response_format).collect();
        assert_eq!(forms, [true, false, true, false, true, false]);
        assert_eq!(row.status, "FAILED");
        assert_eq!((row.score, row.raw, row.passed), (None, None, None));
        assert!(row.reason.starts_with("judge_failed"), "{}", row.reason);
        let metric = summary(&scene.at("run"))["judge"]["metrics"][0].clone();
        assert_eq!(
            (&metric["judged"], &metric["failed"]),
            (&0.into(), &1.into())
        );
    }
}

/// Unusable replies are in the ledger: the same question brings them again, another round brings new ones.
#[test]
fn one_round_more_asks_again_what_failed() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| match (case_of(asked), asked.number) {
        (0, ..12) => Answer::reply("no"),
        _ => Answer::reply(GOOD),
    });
    let ask = |code: i32, rounds: &str| {
        let before = judge.prompt_count();
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        expect(
            code,
            command.args(["--overwrite", "--judge-rounds", rounds]),
        );
        judge.prompt_count() - before
    };
    assert_eq!(ask(3, "1"), 6 + 1);
    assert_eq!(ask(3, "1"), 0);
    let row = score(&scene.at("run"), &id(0), "confidence");
    assert!(row.reason.contains("--judge-rounds"), "{}", row.reason);
    // The first two attempts of the next round are no better.
    assert_eq!(ask(0, "2"), 6);
    assert_eq!(ask(0, "2"), 0);
    assert_eq!(
        score(&scene.at("run"), &id(0), "confidence").raw,
        Some(0.75)
    );
}

#[test]
fn a_reply_at_its_largest_size_says_what_to_do() {
    let (_, row, _) = judged(3, |_| Answer::Truncated("{\"confidence\": 0.9".into()));
    assert!(row.reason.contains("--judge-max-output"), "{}", row.reason);
}

#[test]
fn a_later_attempt_may_still_succeed() {
    let (_, row, asked) = judged(0, |number| match number {
        0..=3 => Answer::reply("no"),
        _ => Answer::reply(GOOD),
    });
    assert_eq!((asked.len(), row.raw), (5, Some(0.75)));
}

/// However badly the endpoint does, the compatible policy makes its six calls and waits for nothing.
#[test]
fn the_compatible_policy_holds_no_call_back() {
    const TRACES: usize = 5;
    let waits = [("retry-after", "5")];
    for (status, headers) in [(500, &[][..]), (429, &waits[..])] {
        let scene = Scene::new(&traces(TRACES));
        let headers = headers.to_vec();
        let judge = ScriptedJudge::start(move |_| Answer::status(status, &headers, "down"));
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        let started = Instant::now();
        expect(3, command.args(["--judge-policy", "compat"]));
        assert!(started.elapsed() < Duration::from_secs(4), "{status}");
        assert_eq!(judge.prompt_count(), 6 * TRACES, "{status}");
        let sent = summary(&scene.at("run"))["judge"]["calls"]["sent"].clone();
        assert_eq!(sent, 6 * TRACES, "{status}");
    }
}

/// The compatible policy: at once plain after any failure, without repair text, three times.
#[test]
fn the_compatible_policy_asks_as_the_compatible_service_does() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|asked| match asked.number {
        0 => Answer::status(500, &[], "down"),
        1 => Answer::reply("no"),
        2 => Answer::status(401, &[], "no key"),
        _ => Answer::reply(GOOD),
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(0, command.args(["--judge-policy", "compat"]));
    let asked = judge.prompts();
    let forms: Vec<bool> = asked.iter().map(|a| a.has_response_format).collect();
    assert_eq!(forms, [true, false, true, false]);
    assert!(asked.iter().all(|a| a.user == asked[0].user));
    let row = score(&scene.at("run"), &id(0), "confidence");
    assert_eq!(row.raw, Some(0.75));
}
