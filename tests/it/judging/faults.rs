//! Faults of endpoints and networks: waited out where that helps, else one trace's failure and never a score.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::scene::{SEVEN, Scene, case_of, expect, id, reply_to, stage, traces};
use super::tables::{Table, assert_same_tables, score, scores};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::summary;

fn good(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

/// Judges one trace by one metric with this script and expects its score after so many requests, all alike.
#[track_caller]
fn recovers(
    requests: usize,
    more: &[&str],
    script: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> Vec<Asked> {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    expect(0, scene.judge(&judge.url(), "confidence", "run").args(more));
    let asked = judge.prompts();
    assert_eq!(asked.len(), requests);
    assert!(
        asked
            .iter()
            .all(|a| a.body == asked[0].body && a.has_response_format)
    );
    assert_eq!(
        score(&scene.at("run"), &id(0), "confidence").raw,
        Some(0.75)
    );
    let calls = summary(&scene.at("run"))["judge"]["calls"].clone();
    assert_eq!(
        (&calls["sent"], &calls["answered"]),
        (&requests.into(), &1.into())
    );
    asked
}

fn between(asked: &[Asked], first: usize) -> Duration {
    asked[first + 1].at.duration_since(asked[first].at)
}

#[test]
fn retry_after_is_honoured() {
    let asked = recovers(2, &[], |asked| match asked.attempt {
        0 => Answer::status(429, &[("Retry-After", "2")], "slow down"),
        _ => good(asked),
    });
    // The first wait of the program's own is at most a second.
    assert!(between(&asked, 0) >= Duration::from_secs(2));

    let asked = recovers(2, &[], |asked| match asked.attempt {
        0 => Answer::status(503, &[("retry-after-ms", "1600")], "overloaded"),
        _ => good(asked),
    });
    assert!(between(&asked, 0) >= Duration::from_millis(1600));
}

#[test]
fn errors_of_the_server_are_retried_with_growing_waits() {
    let asked = recovers(3, &[], |asked| match asked.attempt {
        0 => Answer::status(500, &[], "oops"),
        1 => Answer::status(503, &[], "overloaded"),
        _ => good(asked),
    });
    assert!(between(&asked, 0) >= Duration::from_millis(500));
    assert!(between(&asked, 1) >= Duration::from_millis(1000));
}

#[test]
fn a_server_that_hangs_is_given_up_in_time() {
    let asked = recovers(2, &["--judge-timeout", "1"], |asked| match asked.attempt {
        0 => Answer::Hang,
        _ => good(asked),
    });
    let waited = between(&asked, 0);
    assert!(
        waited >= Duration::from_secs(1) && waited < Duration::from_secs(8),
        "{waited:?}"
    );
}

/// An answer that dribbles in is late too: the limit is on the whole answer, not on its first byte.
#[test]
fn an_answer_that_dribbles_in_is_given_up_in_time() {
    recovers(2, &["--judge-timeout", "1"], |asked| match asked.attempt {
        0 => Answer::SlowBytes(Duration::from_millis(40), reply_to(asked, 0.1).into()),
        _ => good(asked),
    });
}

/// Every trace meets another fault at its first try.
#[test]
fn broken_connections_and_garbage_are_retried() {
    fn fault(case: usize) -> Answer {
        match case {
            0 => Answer::CloseBeforeAnswer,
            1 => Answer::EndBeforeAnswer,
            2 => Answer::CloseMidBody,
            3 => Answer::Garbage(b"\xff\xfe<html>bad gateway</html>".to_vec()),
            4 => Answer::Garbage(b"".to_vec()),
            5 => Answer::Status(
                200,
                vec![("content-type".into(), "text/html".into())],
                "<html>".into(),
            ),
            _ => Answer::status(408, &[], "too slow"),
        }
    }
    const TRACES: usize = 7;
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(|asked| match asked.attempt {
        0 => fault(case_of(asked)),
        _ => good(asked),
    });
    expect(0, &mut scene.judge(&judge.url(), "confidence", "run"));
    for case in 0..TRACES {
        let tries = judge
            .prompts()
            .iter()
            .filter(|a| case_of(a) == case)
            .count();
        assert_eq!(tries, 2, "case {case}");
        let row = score(&scene.at("run"), &id(case), "confidence");
        assert_eq!(row.raw, Some(0.75), "case {case}");
    }
    // What was sent is in the accounts, answered or not.
    let spend = summary(&scene.at("run"))["judge"]["spend"][0].clone();
    assert_eq!(
        (&spend["attempts"], &spend["answered"]),
        (&14.into(), &7.into())
    );
}

/// A fault that stays: so many tries, then the trace fails with its reason. No score is made up.
#[test]
fn a_fault_that_stays_fails_the_trace_with_its_reason() {
    for (answer, word, tries) in [
        (
            Answer::status(500, &[], "boom in room 5"),
            "boom in room 5",
            2,
        ),
        (Answer::CloseBeforeAnswer, "connection", 2),
        (Answer::Garbage(b"{}{".to_vec()), "JSON", 2),
        (
            Answer::status(400, &[], "no such model: test"),
            "no such model",
            1,
        ),
        // Nobody waits a whole day for one answer.
        (
            Answer::status(429, &[("retry-after", "86400")], "quota"),
            "quota",
            1,
        ),
    ] {
        let scene = Scene::new(&traces(2));
        let judge = ScriptedJudge::start(move |_| answer.clone());
        let started = Instant::now();
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        expect(3, command.args(["--judge-tries", "2"]));
        assert!(started.elapsed() < Duration::from_secs(8), "{word}");
        assert_eq!(judge.prompt_count(), 2 * tries, "{word}");
        for case in 0..2 {
            let row = score(&scene.at("run"), &id(case), "confidence");
            assert_eq!(row.status, "FAILED", "{word}");
            assert_eq!(
                (row.score, row.raw, row.passed),
                (None, None, None),
                "{word}"
            );
            assert!(row.reason.contains(word), "{word}: {}", row.reason);
        }
        let summary = summary(&scene.at("run"));
        assert_eq!(summary["failed_signals"], 2);
        assert_eq!(summary["judge"]["calls"]["failed"], 2);
    }
}

/// Status 200 and no message: the error that stands in its place counts, else it is no answer. None of it is kept.
#[test]
fn a_body_without_a_message_is_no_answer() {
    let bodies = [
        r#"{"error": {"code": 502, "message": "the upstream is away"}}"#,
        r#"{"error": {"code": 429, "message": "slow down"}, "choices": []}"#,
        r#"{"choices": [{"error": {"code": 502, "message": "it broke off"}, "finish_reason": "error",
            "message": {"role": "assistant", "content": "{"confidence": 0.1}"}}]}"#,
        r#"{"choices": [{"message": {"role": "assistant", "content": ""}}]}"#,
        r#"{"choices": []}"#,
        "[1,2]",
        "null",
    ];
    for body in bodies {
        let asked = recovers(2, &[], move |asked| match asked.attempt {
            0 => Answer::Garbage(body.as_bytes().to_vec()),
            _ => good(asked),
        });
        assert!(between(&asked, 0) >= Duration::from_millis(500), "{body}");
    }
    for (body, code, words, tries) in [
        (bodies[0], "server_error", "the upstream is away", 2),
        (bodies[4], "garbled_answer", "no message", 2),
        (
            r#"{"error": {"code": 400, "message": "no such thing"}}"#,
            "refused",
            "no such thing",
            1,
        ),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(move |asked| match asked.attempt < tries {
            true => Answer::Garbage(body.as_bytes().to_vec()),
            false => good(asked),
        });
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        expect(3, command.args(["--judge-tries", "2"]));
        assert_eq!(judge.prompt_count(), tries, "{body}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.status, "FAILED", "{body}");
        let reason = &row.reason;
        assert!(reason.contains(code) && reason.contains(words), "{reason}");
        let spend = summary(&scene.at("run"))["judge"]["spend"][0].clone();
        assert_eq!(spend["answered"], 0, "{body}");
        expect(0, &mut scene.judge(&judge.url(), "confidence", "again"));
    }
}

/// A provider that takes five requests in any second and says when to come again: everything is answered in the end, and what is
/// turned away is little.
#[test]
fn a_rate_limit_that_says_when_to_come_again_fails_nothing() {
    const TRACES: usize = 31;
    let scene = Scene::new(&traces(TRACES));
    let taken: Mutex<Vec<Instant>> = Mutex::default();
    let judge = ScriptedJudge::start(move |asked| {
        let mut taken = taken.lock().unwrap();
        taken.retain(|at| at.elapsed() < Duration::from_secs(1));
        if taken.len() >= 5 {
            return Answer::status(429, &[("Retry-After", "1")], "slow down");
        }
        taken.push(Instant::now());
        good(asked)
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(0, command.args(["--judge-concurrency", "16"]));
    let asked = judge.prompt_count();
    assert!(asked <= 3 * TRACES, "{asked} requests");
}

/// While the endpoint asks for a wait, no other call leaves; afterwards they do not come all at once.
#[test]
fn a_wait_that_one_call_is_told_holds_for_all() {
    const TRACES: usize = 12;
    let wait = Duration::from_secs(1);
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(|asked| match asked.number {
        0 | 1 => Answer::status(429, &[("Retry-After", "1")], "slow down"),
        // Others come while the first one is under way.
        _ => Answer::later(Duration::from_millis(100), reply_to(asked, 0.75)),
    });
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    expect(0, command.args(["--judge-concurrency", "2"]));
    let asked = judge.prompts();
    assert_eq!(asked.len(), TRACES + 2);
    let quiet = asked[2].at.duration_since(asked[0].at);
    assert!(quiet >= wait, "{quiet:?}");
    // The first one goes alone.
    assert!(between(&asked, 2) >= Duration::from_millis(90));
}

/// A failure is not kept: the next run asks again, and only for what failed.
#[test]
fn failed_traces_are_asked_again_by_the_next_run() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(|asked| match (case_of(asked), asked.attempt) {
        (1, 0) => Answer::status(400, &[], "not this one"),
        _ => good(asked),
    });
    expect(3, &mut scene.judge(&judge.url(), "confidence", "first"));
    let before = judge.prompt_count();
    assert_eq!(before, 3);
    expect(0, &mut scene.judge(&judge.url(), "confidence", "second"));
    let asked: Vec<usize> = judge.prompts()[before..].iter().map(case_of).collect();
    assert_eq!(asked, [1]);
    let row = score(&scene.at("second"), &id(1), "confidence");
    assert_eq!(row.raw, Some(0.75));
}

#[test]
fn one_trace_that_always_fails_spoils_no_other_and_its_session_says_what_it_lacks() {
    const BAD: usize = 1;
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(|asked| match case_of(asked) {
        BAD => Answer::status(500, &[], "this one never works"),
        _ => good(asked),
    });
    let mut command = scene.judge(&judge.url(), super::scene::ALL_BUT_CONVERSATIONS, "run");
    command.args(["--judge-tries", "1"]);
    expect(
        3,
        command.args(["--weights", "coherence=0,loop_detection=0"]),
    );
    let run = scene.at("run");
    let rows = scores(&run);
    for case in 0..3 {
        for metric in SEVEN {
            let row = &rows[&(id(case), metric.to_owned())];
            let raw = match metric {
                "argument_correctness" => 2.0 / 3.0,
                _ => 0.75,
            };
            if case == BAD {
                assert_eq!(
                    (row.status.as_str(), row.score, row.raw),
                    ("FAILED", None, None)
                );
                assert_eq!((row.passed, row.threshold), (None, None));
                assert!(
                    row.reason.contains("this one never works"),
                    "{}",
                    row.reason
                );
            } else {
                assert_eq!(
                    (row.status.as_str(), row.raw),
                    ("SUCCESS", Some(raw)),
                    "{metric}"
                );
            }
        }
    }
    let table = Table::of(&run, "traces");
    let statuses = ["SUCCESS", "FAILED", "SUCCESS"].map(|s| Some(s.to_owned()));
    assert_eq!(table.texts("status"), statuses);
    assert_eq!(table.numbers("confidence"), [Some(0.75), None, Some(0.75)]);
    assert_eq!(
        table.numbers("plan_quality"),
        [Some(0.75), None, Some(0.75)]
    );
    // The session lacks confidence and tool_correctness of one trace, and is scored from the others alone.
    let sessions = Table::of(&run, "sessions");
    assert_eq!(sessions.numbers("missing_signals"), [Some(2.0)]);
    assert_eq!(sessions.numbers("traces"), [Some(3.0)]);
    let evaluated = sessions.numbers("agent_consistency_evaluated_traces");
    assert_eq!(evaluated, [Some(2.0)]);
    // Risks 0.25; uncertainty (1 + 0.8 · 0.25) · 0.25 = 0.3 in both traces.
    assert_eq!(sessions.numbers("agent_reliability"), [Some(0.75)]);
    assert_eq!(sessions.numbers("agent_consistency"), [Some(0.7)]);
    let summary = summary(&run);
    assert_eq!(summary["failed_signals"], SEVEN.len());
    for metric in summary["judge"]["metrics"].as_array().unwrap() {
        assert_eq!(
            (&metric["judged"], &metric["failed"]),
            (&2.into(), &1.into())
        );
    }
}

/// A stage that fails takes down its own metric and those that share it; the others are scored.
#[test]
fn a_failed_stage_fails_the_metrics_that_need_it_and_no_other() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|asked| match stage(asked) {
        "extract_plan" => Answer::status(400, &[], "not this one"),
        _ => good(asked),
    });
    expect(3, &mut scene.judge(&judge.url(), &SEVEN.join(","), "run"));
    for metric in SEVEN {
        let row = score(&scene.at("run"), &id(0), metric);
        let failed = ["plan_adherence", "plan_quality"].contains(&metric);
        assert_eq!(
            row.status,
            if failed { "FAILED" } else { "SUCCESS" },
            "{metric}"
        );
        assert_eq!(row.raw.is_none(), failed, "{metric}");
    }
}

/// Refuses reply formats, as servers without structured output do.
fn plain_only(asked: &Asked) -> Answer {
    match asked.has_response_format {
        true => Answer::status(
            400,
            &[],
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        ),
        false => Answer::reply("{\"confidence\": 0.75, \"reason\": null}"),
    }
}

#[test]
fn an_endpoint_that_knows_no_schema_is_asked_in_plain_words() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(plain_only);
    expect(0, &mut scene.judge(&judge.url(), "confidence", "run"));
    let asked = judge.prompts();
    let forms: Vec<bool> = asked.iter().map(|a| a.has_response_format).collect();
    assert_eq!(forms, [true, false]);
    assert_eq!(asked[0].user, asked[1].user);
    assert!(asked[1].user.contains("`confidence`"), "{}", asked[1].user);
    let row = score(&scene.at("run"), &id(0), "confidence");
    assert_eq!((row.raw, row.reason.as_str()), (Some(0.75), ""));
}

/// The ledger has the answer, however it was asked for.
#[test]
fn an_endpoint_that_knows_no_schema_is_not_asked_again() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(plain_only);
    let url = judge.url();
    expect(0, &mut scene.judge(&url, "confidence", "run"));
    drop(judge);
    let mut replay = scene.judge(&url, "confidence", "replayed");
    expect(0, replay.arg("--replay"));
    assert_same_tables(&scene.at("run"), &scene.at("replayed"));
}
