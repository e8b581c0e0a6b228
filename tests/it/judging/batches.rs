//! Batches: submitted tonight, collected tomorrow, paid once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::scene::{SEVEN, SHARED_CALLS, Scene, case_of, expect, reply_to, stage, traces};
use super::tables::{assert_same_tables, scores};
use crate::scripted_judge::{Answer, Asked, BatchEnd, BatchPlan, ScriptedJudge, wait_until};
use crate::support::{Ran, program, summary};

fn script(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

/// `score --batch` into the folder `out`.
fn batch(scene: &Scene, judge: &ScriptedJudge, metrics: &str, out: &str) -> Command {
    let mut command = scene.judge(&judge.url(), metrics, out);
    command.args(["--batch", "--overwrite"]);
    command
}

/// The same, waiting until everything is there.
fn batch_to_the_end(scene: &Scene, judge: &ScriptedJudge, metrics: &str, out: &str) -> Command {
    let mut command = batch(scene, judge, metrics, out);
    command.args(["--batch-wait", "1", "--batch-poll", "0.02"]);
    command
}

fn judge_command(scene: &Scene, judge: &ScriptedJudge, flags: &[&str]) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command
        .arg("judge")
        .arg("--ledger")
        .arg(scene.at("ledger.db"));
    command.args(["--judge-url", &judge.url()]).args(flags);
    command
}

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

/// How often each line was run, over all batches.
fn lines_run(judge: &ScriptedJudge) -> Vec<usize> {
    let mut cases = std::collections::BTreeMap::new();
    for asked in judge.prompts() {
        assert!(asked.custom_id.is_some(), "asked without a batch");
        *cases
            .entry((case_of(&asked), stage(&asked).to_owned()))
            .or_insert(0) += 1;
    }
    cases.into_values().collect()
}

#[track_caller]
fn count(run: &Path, status: &str) -> usize {
    let rows = scores(run);
    rows.values().filter(|row| row.status == status).count()
}

#[test]
fn nights_of_batches_come_to_what_one_run_of_calls_comes_to() {
    const METRICS: &str = "task_completion,confidence";
    let scene = Scene::new(&traces(4));
    let judge = ScriptedJudge::start(script);
    // The first night submits the first stages: of both metrics and of every trace.
    let ran = expect(3, &mut batch(&scene, &judge, METRICS, "run"));
    assert!(
        ran.stdout.contains("1 submitted with 8 questions"),
        "{ran:?}"
    );
    assert_eq!(judge.prompt_count(), 0, "asked before the batch ran");
    assert_eq!(count(&scene.at("run"), "PENDING"), 8);
    let seen = judge.batches();
    assert_eq!((seen.len(), seen[0].lines), (1, 8));
    let row = &scores(&scene.at("run"))[&("t-000".to_owned(), "confidence".to_owned())];
    assert!(row.reason.contains("judge --collect"), "{}", row.reason);

    // A run that does not batch leaves the questions to the batch.
    let mut direct = scene.judge(&judge.url(), METRICS, "run");
    expect(3, direct.arg("--overwrite"));
    assert_eq!(judge.prompt_count(), 0, "paid twice");

    // Validating, in progress, completed.
    let listed = json_of(&expect(0, &mut judge_command(&scene, &judge, &["--json"])));
    assert_eq!(
        (&listed["waiting"], &listed["batches"][0]["requests"]),
        (&json!(8), &json!(8))
    );
    for _ in 0..2 {
        let ran = expect(3, &mut judge_command(&scene, &judge, &["--collect"]));
        assert!(ran.stdout.contains(&seen[0].id), "{ran:?}");
    }
    let ran = expect(
        0,
        &mut judge_command(&scene, &judge, &["--collect", "--json"]),
    );
    let collected = json_of(&ran)["collected"].clone();
    assert_eq!(
        (&collected["answered"], &collected["failed"]),
        (&json!(8), &json!(0))
    );
    expect(0, &mut judge_command(&scene, &judge, &["--collect"]));

    // The second night submits what the first one made possible, the third one has it all.
    expect(3, &mut batch(&scene, &judge, METRICS, "run"));
    assert_eq!(judge.batches()[1].lines, 4);
    assert_eq!(count(&scene.at("run"), "SUCCESS"), 4);
    expect(0, &mut batch_to_the_end(&scene, &judge, METRICS, "run"));
    assert_eq!((judge.batches().len(), lines_run(&judge)), (2, vec![1; 12]));

    scene.forget_answers();
    expect(0, &mut scene.judge(&judge.url(), METRICS, "direct"));
    assert_same_tables(&scene.at("run"), &scene.at("direct"));
}

#[test]
fn one_run_that_waits_goes_through_all_stages() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(script);
    let metrics = SEVEN.join(",");
    expect(0, &mut batch_to_the_end(&scene, &judge, &metrics, "run"));
    assert_eq!(lines_run(&judge), vec![1; 3 * SHARED_CALLS]);
    // No metric has more than three stages, and shared ones are there when the others are asked.
    assert!(judge.batches().len() <= 3, "{:?}", judge.batches());
    let batches = summary(&scene.at("run"))["judge"]["batches"].clone();
    assert_eq!(batches["requests"], 3 * SHARED_CALLS);
    assert_eq!(
        (&batches["waiting"], &batches["open"]),
        (&json!(0), &json!(0))
    );
    let spend = summary(&scene.at("run"))["judge"]["spend"].clone();
    let tokens: u64 = spend
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["prompt_tokens"].as_u64().unwrap())
        .sum();
    assert!(tokens > 0, "{spend}");

    scene.forget_answers();
    expect(0, &mut scene.judge(&judge.url(), &metrics, "direct"));
    assert_same_tables(&scene.at("run"), &scene.at("direct"));
}

#[test]
fn files_keep_to_their_limits() {
    let scene = Scene::new(&traces(10));
    let judge = ScriptedJudge::start(script);
    let mut command = batch(&scene, &judge, "confidence", "run");
    expect(3, command.args(["--batch-size", "4"]));
    let lines: Vec<usize> = judge.batches().iter().map(|b| b.lines).collect();
    assert_eq!(lines, [4, 4, 2]);

    let largest = judge.uploads().iter().map(Vec::len).max().unwrap();
    scene.forget_answers();
    let limit = (largest / 2).to_string();
    let mut command = batch(&scene, &judge, "confidence", "run");
    expect(3, command.args(["--batch-bytes", &limit]));
    let uploads = judge.uploads();
    assert!(uploads.len() > 6, "{}", uploads.len());
    assert!(uploads[3..].iter().all(|file| file.len() <= largest / 2));
}

#[test]
fn a_question_longer_than_a_file_is_named_and_holds_up_no_other() {
    let mut rows = traces(3);
    rows[1]["output"] = Value::from(format!("case-001 {}", "long ".repeat(4000)));
    let scene = Scene::new(&rows);
    let judge = ScriptedJudge::start(script);
    let mut command = batch(&scene, &judge, "confidence", "run");
    let ran = expect(2, command.args(["--batch-bytes", "15000"]));
    let lines: usize = judge.batches().iter().map(|b| b.lines).sum();
    assert_eq!(lines, 2, "{ran:?}");
    assert!(ran.stderr.contains("`confidence`"), "{ran:?}");
    let (_, needed) = ran.stderr.split_once("--batch-bytes ").unwrap();
    let needed: String = needed.chars().take_while(char::is_ascii_digit).collect();
    assert!(!scene.at("run").exists());

    // Exactly what is asked for is enough, and the others are not asked again.
    let mut command = batch_to_the_end(&scene, &judge, "confidence", "run");
    expect(0, command.args(["--batch-bytes", &needed]));
    let lines: usize = judge.batches().iter().map(|b| b.lines).sum();
    assert_eq!(lines, 3);
    let largest = judge.uploads().iter().map(Vec::len).max().unwrap();
    assert_eq!(largest.to_string(), needed);
}

#[test]
fn models_have_batches_of_their_own() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let mut command = batch(&scene, &judge, "confidence,plan_quality", "run");
    expect(
        3,
        command.args(["--judge-model", "confidence=openai/other"]),
    );
    assert_eq!(judge.batches().len(), 2);
    for file in judge.uploads() {
        let models: std::collections::BTreeSet<String> = String::from_utf8(file)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"]["model"].to_string())
            .collect();
        assert_eq!(models.len(), 1);
    }
}

#[test]
fn an_expired_batch_keeps_what_it_has_and_the_rest_is_submitted_again() {
    let scene = Scene::new(&traces(6));
    let judge = ScriptedJudge::start(script);
    judge.plan_batches(|number| BatchPlan {
        end: match number {
            0 => BatchEnd::Expired {
                answered: 2,
                silent: 1,
            },
            _ => BatchEnd::Completed,
        },
        stray_lines: vec!["{\"no\": \"result\"}".into(), "not JSON".into()],
        ..BatchPlan::default()
    });
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    let lines: Vec<usize> = judge.batches().iter().map(|b| b.lines).collect();
    assert_eq!(lines, [6, 4]);
    assert_eq!(lines_run(&judge), vec![1; 6]);
    let batches = summary(&scene.at("run"))["judge"]["batches"].clone();
    assert_eq!(
        (&batches["answered"], &batches["again"]),
        (&json!(6), &json!(4))
    );
}

#[test]
fn a_refused_batch_fails_its_questions_once_and_the_next_run_asks_again() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    judge.plan_batches(|number| BatchPlan {
        end: match number {
            0 => BatchEnd::Failed {
                code: "billing_hard_limit_reached".into(),
                message: "no money left".into(),
                line: None,
            },
            _ => BatchEnd::Completed,
        },
        ..BatchPlan::default()
    });
    expect(
        3,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!(judge.batches().len(), 1, "submitted again in the same run");
    let rows = scores(&scene.at("run"));
    assert!(
        rows.values()
            .all(|row| row.status == "FAILED" && row.score.is_none())
    );
    assert!(
        rows.values()
            .all(|row| row.reason.contains("no money left"))
    );

    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!(count(&scene.at("run"), "SUCCESS"), 2);
}

#[test]
fn failed_lines_fail_their_rows_and_lines_that_failed_for_a_time_come_again() {
    let scene = Scene::new(&traces(4));
    let judge = ScriptedJudge::start(|asked| match (case_of(asked), asked.attempt) {
        (0, _) => Answer::status(400, &[], "this question is not to be answered"),
        (1, 0) => Answer::status(500, &[], "tired"),
        (2, _) => Answer::status(500, &[], "always tired"),
        _ => script(asked),
    });
    let mut command = batch_to_the_end(&scene, &judge, "confidence", "run");
    expect(3, command.args(["--judge-tries", "3"]));
    let rows = scores(&scene.at("run"));
    let row = |case: usize| &rows[&(super::scene::id(case), "confidence".to_owned())];
    assert!(row(0).reason.contains("not to be answered"), "{:?}", row(0));
    assert!(row(2).reason.contains("always tired"), "{:?}", row(2));
    let status: Vec<&str> = (0..4).map(|case| row(case).status.as_str()).collect();
    assert_eq!(status, ["FAILED", "SUCCESS", "FAILED", "SUCCESS"]);
    let lines: Vec<usize> = judge.batches().iter().map(|b| b.lines).collect();
    assert_eq!(lines, [4, 2, 1]);
}

#[test]
fn a_refused_reply_format_is_asked_for_in_words_in_the_next_batch() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| match asked.has_response_format {
        true => Answer::status(400, &[], "response_format is not supported"),
        false => Answer::reply(json!({"confidence": 0.5, "reason": "as asked"})),
    });
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    let lines: Vec<usize> = judge.batches().iter().map(|b| b.lines).collect();
    assert_eq!(lines, [2, 2]);
}

#[test]
fn a_run_that_is_killed_while_it_waits_has_lost_nothing() {
    let scene = Scene::new(&traces(5));
    let judge = ScriptedJudge::start(script);
    judge.plan_batches(|_| BatchPlan {
        in_progress: 30,
        ..BatchPlan::default()
    });
    let mut waiting = batch_to_the_end(&scene, &judge, "confidence", "run");
    let mut waiting = waiting.stdout(Stdio::null()).spawn().unwrap();
    let polled = || judge.batches().first().is_some_and(|b| b.polls > 2);
    let in_time = wait_until(Duration::from_secs(30), polled);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert!(in_time);
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!((judge.batches().len(), lines_run(&judge)), (1, vec![1; 5]));
}

/// Between the provider's creation of a batch and the ledger's note of it there is a moment.
#[test]
fn a_batch_whose_creation_was_not_noted_is_found_by_its_key() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(script);
    expect(3, &mut batch(&scene, &judge, "confidence", "run"));
    let change = |sql: &str| {
        let ledger = rusqlite::Connection::open(scene.at("ledger.db")).unwrap();
        ledger.execute_batch(sql).unwrap();
    };
    change("UPDATE batches SET id = NULL, status = 'creating'");
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!((judge.batches().len(), lines_run(&judge)), (1, vec![1; 3]));

    // One that was never created frees its questions.
    scene.forget_answers();
    expect(3, &mut batch(&scene, &judge, "confidence", "run"));
    change("UPDATE batches SET id = NULL, key = 'k'; UPDATE batch_requests SET batch = 'k'");
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!(judge.batches().len(), 3);
}

#[test]
fn endpoints_that_stumble_are_asked_again() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let requests = AtomicUsize::new(0);
    judge.interfere(move |_| {
        // An upload, a creation, looks and a download.
        let stumbles = matches!(requests.fetch_add(1, Ordering::SeqCst), 0 | 2 | 5 | 7 | 9);
        stumbles.then(|| Answer::status(503, &[], "one moment"))
    });
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!((judge.batches().len(), lines_run(&judge)), (1, vec![1; 2]));
}

/// A batch endpoint that asks for a wait gets it, as one for single calls does.
#[test]
fn an_endpoint_for_batches_that_asks_for_a_wait_gets_it() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let turned_away = Arc::new(Mutex::new(Vec::<Instant>::new()));
    let seen = Arc::clone(&turned_away);
    judge.interfere(move |_| {
        let mut seen = seen.lock().unwrap();
        seen.push(Instant::now());
        let waits = [("retry-after", "3")];
        (seen.len() == 1).then(|| Answer::status(429, &waits, "slow down"))
    });
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    let seen = turned_away.lock().unwrap();
    // Its own first wait would be a second at most.
    let waited = seen[1].duration_since(seen[0]);
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
}

#[test]
fn a_batch_that_is_lost_is_named_and_can_be_given_up() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    expect(3, &mut batch(&scene, &judge, "confidence", "run"));
    judge.interfere(|asked| {
        let lost = asked.route().ends_with("batch_0000");
        lost.then(|| Answer::status(404, &[], "no such batch"))
    });
    for mut command in [
        batch(&scene, &judge, "confidence", "run"),
        judge_command(&scene, &judge, &["--collect"]),
    ] {
        let ran = expect(2, &mut command);
        assert!(ran.stderr.contains("--forget batch_0000"), "{ran:?}");
    }
    let ran = expect(
        2,
        &mut judge_command(&scene, &judge, &["--forget", "batch_9"]),
    );
    assert!(ran.stderr.contains("batch_9"), "{ran:?}");
    expect(
        0,
        &mut judge_command(&scene, &judge, &["--forget", "batch_0000"]),
    );
    expect(
        0,
        &mut batch_to_the_end(&scene, &judge, "confidence", "run"),
    );
    assert_eq!((judge.batches().len(), lines_run(&judge)), (2, vec![1; 2]));
}

/// What is no file of results takes nothing from anybody: it is fetched again.
#[test]
fn results_that_are_not_whole_leave_the_batch_open() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(script);
    judge.plan_batches(|_| BatchPlan {
        validating: 0,
        in_progress: 0,
        ..BatchPlan::default()
    });
    expect(3, &mut batch(&scene, &judge, "confidence", "run"));
    judge.interfere(|asked| {
        let page = Answer::Garbage(b"<html>busy</html>".to_vec());
        asked.route().ends_with("content").then_some(page)
    });
    let ran = expect(2, &mut judge_command(&scene, &judge, &["--collect"]));
    assert!(ran.stderr.contains("0 results of 3"), "{ran:?}");
    judge.interfere(|_| None);
    expect(0, &mut batch(&scene, &judge, "confidence", "run"));
    assert_eq!((judge.batches().len(), lines_run(&judge)), (1, vec![1; 3]));
}

#[test]
fn what_a_blocked_reply_cost_counts_against_the_cap() {
    let scene = Scene::new(&traces(12));
    let judge = ScriptedJudge::start(|asked| {
        let reply = crate::scripted_judge::Reply::from(reply_to(asked, 0.5));
        Answer::Reply(reply.finish(crate::scripted_judge::Finish::ContentFilter))
    });
    let mut command = batch_to_the_end(&scene, &judge, "confidence", "run");
    command.args(["--price", "openai/test=0:1000", "--judge-max-output", "20"]);
    expect(3, command.args(["--max-cost", "0.1"]));
    let summary = summary(&scene.at("run"));
    let cost = summary["judge"]["spend"][0]["cost"].as_f64().unwrap();
    assert!(cost > 0.0 && cost <= 0.1, "{cost}");
    assert_eq!(count(&scene.at("run"), "SUCCESS"), 0);
}

#[test]
fn an_endpoint_without_batches_stops_the_run_with_a_word() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    judge.interfere(|_| Some(Answer::status(404, &[], "no such page")));
    let ran = expect(2, &mut batch(&scene, &judge, "confidence", "run"));
    assert!(
        ran.stderr.contains("uploading a batch file at http://"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("no such page"), "{ran:?}");
    assert!(!scene.at("run").exists());
}

#[test]
fn caps_hold_for_batches_and_prices_are_those_of_batches() {
    let scene = Scene::new(&traces(6));
    let judge = ScriptedJudge::start(script);
    let mut command = batch_to_the_end(&scene, &judge, "confidence", "run");
    expect(3, command.args(["--max-calls", "4"]));
    assert_eq!(judge.batches()[0].lines, 4);
    assert_eq!(count(&scene.at("run"), "SUCCESS"), 4);
    assert_eq!(count(&scene.at("run"), "PENDING"), 2);

    let cost = |flags: &[&str], out: &str| {
        scene.forget_answers();
        let mut command = scene.score("confidence", out);
        command.args(["--judge-url", &judge.url(), "--judge", "openai/gpt-4o"]);
        expect(0, command.args(flags));
        summary(&scene.at(out))["judge"]["spend"][0]["cost"]
            .as_f64()
            .unwrap()
    };
    let direct = cost(&[], "direct");
    let half = cost(
        &["--batch", "--batch-wait", "1", "--batch-poll", "0.02"],
        "batch",
    );
    assert!(
        direct > 0.0 && (half * 2.0 - direct).abs() < 1e-12,
        "{half} {direct}"
    );
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_sent() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let refused = |flags: &[&str], word: &str| {
        let mut command = scene.judge(&judge.url(), "confidence", "run");
        let ran = expect(2, command.args(flags));
        assert!(ran.stderr.contains(word), "{ran:?}");
    };
    refused(&["--batch", "--replay"], "--replay");
    refused(&["--batch-wait", "3"], "--batch");
    refused(&["--batch", "--batch-size", "0"], "--batch-size");
    refused(&["--batch", "--batch-size", "50001"], "--batch-size");
    let mut command = scene.score("confidence", "run");
    command.args(["--judge", "anthropic/claude-haiku-4-5", "--batch"]);
    command.env("ANTHROPIC_API_KEY", "k");
    let ran = expect(2, &mut command);
    assert!(ran.stderr.contains("--batch"), "{ran:?}");
    assert_eq!(judge.asked().len(), 0);
    // Refused runs made a ledger; elsewhere there is none.
    let elsewhere = Scene::new(&[]);
    let ran = expect(2, &mut judge_command(&elsewhere, &judge, &["--collect"]));
    assert!(ran.stderr.contains("--ledger"), "{ran:?}");
    assert!(!elsewhere.at("ledger.db").exists());
}

#[test]
fn collecting_without_a_key_names_the_variable_and_no_model() {
    let scene = Scene::new(&[]);
    std::fs::write(scene.at("ledger.db"), "").unwrap();
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    let ledger = scene.at("ledger.db");
    command.args(["judge", "--collect", "--ledger"]).arg(ledger);
    let ran = expect(2, &mut command);
    for word in ["OPENAI_API_KEY", "--judge-key-file"] {
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    assert!(!ran.stderr.contains("openai/"), "{ran:?}");
}

#[test]
fn the_key_opens_batches_and_stands_in_no_file() {
    const KEY: &str = "sk-canary-of-batches-51c9";
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| match case_of(asked) {
        0 => Answer::status(400, &[], &format!("the key {KEY} may not")),
        _ => Answer::reply(json!({"confidence": 0.5, "reason": KEY})),
    });
    let mut command = batch_to_the_end(&scene, &judge, "confidence", "run");
    let ran = expect(3, command.env("OPENAI_API_KEY", KEY));
    let bearer = format!("Bearer {KEY}");
    assert!(
        judge
            .asked()
            .iter()
            .all(|a| a.header("authorization") == Some(bearer.as_str()))
    );
    assert!(!format!("{ran:?}").contains(KEY));
    for entry in walkdir::WalkDir::new(scene.folder()) {
        let path = entry.unwrap().into_path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}
