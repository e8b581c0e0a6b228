//! Judged conversations of finished runs: their figures, two runs side by side, and what a judge makes of it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};

use super::scene::{Scene, case_of, expect, trace};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::program;

/// A verdict that gives every metric asked for this score.
pub fn verdict_of(asked: &Asked, score: u8) -> Value {
    let schema = asked.schema.as_ref().expect("a request without schema");
    let metrics = schema["properties"].as_object().unwrap().keys();
    let block = json!({
        "score": score,
        "justification": "as the transcript shows",
        "failure_code": if score < 3 { json!("wrong_answer") } else { Value::Null },
        "turns": [0],
    });
    metrics.map(|id| (id.clone(), block.clone())).collect()
}

/// One session of one trace, which took a second.
fn session(case: usize) -> Value {
    let mut trace = trace(case);
    trace["session_id"] = json!(format!("s-{case}"));
    trace["ended_at"] = json!(format!("2026-01-01T00:00:{:02}Z", case + 1));
    trace
}

fn judge_giving(scores: &'static [u8]) -> ScriptedJudge {
    ScriptedJudge::start(|asked| Answer::reply(verdict_of(asked, scores[case_of(asked)])))
}

/// Three sessions in the run `old`; in the run `new` the first is worse, and there is a fourth.
pub(super) fn two_runs() -> Scene {
    let sessions: Vec<Value> = (0..3).map(session).collect();
    let scene = Scene::new(&sessions);
    let more = scene.at("more.jsonl");
    std::fs::write(&more, format!("{}\n", session(3))).unwrap();
    let old = judge_giving(&[4, 4, 2]);
    expect(0, &mut scene.judge(&old.url(), "conversation", "old"));
    let new = judge_giving(&[2, 4, 2, 4]);
    let mut command = scene.judge(&new.url(), "conversation", "new");
    expect(0, command.arg(&more));
    scene
}

pub(super) fn runs(scene: &Scene, args: &[&str]) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command.current_dir(scene.folder()).arg("runs").args(args);
    command
}

#[track_caller]
pub(super) fn json_of(code: i32, command: &mut Command) -> Value {
    serde_json::from_str(&expect(code, command.arg("--json")).stdout).unwrap()
}

#[test]
fn the_figures_of_a_run_are_shown_by_metric_tier_and_case() {
    let scene = two_runs();
    let summary = ["summary", "old", "new", "--target", "conversation"];
    let shown = json_of(0, &mut runs(&scene, &summary));
    assert_eq!(shown.as_array().unwrap().len(), 2);
    let old = &shown[0];
    assert_eq!(old["run"]["name"], "old");
    assert_eq!(old["model"], "openai/test");
    assert_eq!(old["figures"]["passed_count"], 2);
    assert_eq!(old["figures"]["latency_avg_ms"], 1000.0);
    assert_eq!(old["figures"]["cases_passed"], false);
    assert_eq!(old["metrics"].as_array().unwrap().len(), 8);
    assert_eq!(old["metrics"][0]["metric"], "tool_routing");
    assert_eq!(old["metrics"][0]["failed_count"], 1);
    let code = &old["metrics"][0]["failure_codes"][0];
    assert_eq!(code, &json!({"code": "wrong_answer", "count": 1}));
    let tiers: Vec<&Value> = old["tiers"].as_array().unwrap().iter().collect();
    let counts: Vec<&Value> = tiers.iter().map(|tier| &tier["count"]).collect();
    assert_eq!(counts, [9, 6, 6, 3]);
    let case = &old["cases"][2];
    assert_eq!(
        (
            &case["test_case"],
            &case["passed_count"],
            &case["average_score"]
        ),
        (&json!("s-2"), &json!(0), &json!(40.0))
    );
    // The same numbers as the run itself gave.
    let told = crate::support::summary(&scene.at("old"));
    let told = &told["judge"]["conversations"];
    for part in ["metrics", "tiers"] {
        assert_eq!(old[part], told[part], "{part}");
    }
    assert_eq!(old["figures"], told["run"]);

    let text = expect(0, &mut runs(&scene, &summary)).stdout;
    for words in ["2 passed, 1 failed", "misses 100", "wrong_answer 1", "s-2"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let later = json_of(0, runs(&scene, &summary).args(["--from", "2999-01-01"]));
    assert_eq!(later, json!([]));
    let both = runs(&scene, &summary)
        .args(["--metric", "conversation"])
        .output();
    assert_eq!(both.unwrap().status.code(), Some(2));
}

#[test]
fn a_worse_run_is_a_regression_and_a_better_one_is_not() {
    let scene = two_runs();
    let compare = ["comparison", "old", "new"];
    let shown = json_of(1, &mut runs(&scene, &compare));
    let found = &shown["conversations"];
    assert_eq!(found["regression_detected"], true);
    assert_eq!(found["reasons"], json!(["pass_rate", "avg_score"]));
    let aggregate = &found["aggregate"];
    // Two of three against two of four, 200 points of three against 240 of four.
    assert_eq!(aggregate["pass_rate_delta"], -0.1667);
    assert_eq!(aggregate["avg_score_delta"], -6.6667);
    assert_eq!(aggregate["latency_avg_delta_ms"], 0.0);
    assert_eq!(aggregate["cost_delta_usd"], Value::Null);
    for (count, expected) in [
        ("regressions", 1),
        ("improvements", 0),
        ("unchanged", 2),
        ("errors", 0),
    ] {
        assert_eq!(aggregate[count], expected, "{count}");
    }
    assert_eq!(aggregate["per_metric"].as_array().unwrap().len(), 8);
    for metric in aggregate["per_metric"].as_array().unwrap() {
        assert_eq!(metric["baseline_avg"], 3.3333, "{metric}");
        assert_eq!(metric["delta"], -0.6666, "{metric}");
    }
    let case = &found["cases"][0];
    assert_eq!(case["test_case"], "s-0");
    assert_eq!(case["status"], "regression");
    assert_eq!(case["score_delta"], -40.0);
    assert_eq!(case["latency_delta_ms"], 0.0);
    assert_eq!(case["metric_deltas"][0]["delta"], -2.0);
    assert_eq!(found["cases"].as_array().unwrap().len(), 3);
    assert_eq!(found["baseline_only"], json!([]));
    assert_eq!(found["candidate_only"], json!(["s-3"]));
    assert_eq!(found["baseline"]["figures"]["passed_count"], 2);
    assert_eq!(found["candidate"]["figures"]["pass_rate"], 0.5);
    // The judges stood at two addresses; that is said, and is no other configuration.
    assert_eq!(found["judge_changes"].as_array().unwrap().len(), 1);
    assert_eq!(found["judge_changes"][0]["name"], "url");
    let notes = found["differences"]["infrastructure_notes"].to_string();
    assert!(notes.contains("url"), "{notes}");
    let warnings = found["differences"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");

    let text = expect(1, &mut runs(&scene, &compare)).stdout;
    for words in [
        "regression: the pass rate fell",
        "1 worse, 0 better, 2 unchanged",
        "tool_routing -2",
        "only in the candidate: s-3",
        "warning: ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }

    let lenient = ["--max-pass-rate-drop", "0.2", "--max-avg-score-drop", "7"];
    expect(0, runs(&scene, &compare).args(lenient));
    let back = ["comparison", "new", "old"];
    expect(0, &mut runs(&scene, &back));
    expect(1, runs(&scene, &back).arg("--hold-bars"));
    let same = json_of(0, &mut runs(&scene, &["comparison", "old", "old"]));
    let same = &same["conversations"];
    assert_eq!(same["aggregate"]["unchanged"], 3);
    assert_eq!(same["judge_changes"], json!([]));
    assert_eq!(same["differences"]["warnings"], json!([]));
    // With a metric it is what it was: the latest score of each session.
    let latest = [&compare[..], &["--metric", "conversation"]].concat();
    let latest = json_of(0, &mut runs(&scene, &latest));
    assert_eq!(latest["total"], 4);
}

#[test]
fn a_change_of_the_bar_is_a_warning() {
    let sessions: Vec<Value> = (0..2).map(session).collect();
    let scene = Scene::new(&sessions);
    let judge = judge_giving(&[4, 4]);
    expect(0, &mut scene.judge(&judge.url(), "conversation", "old"));
    let mut stricter = scene.judge(&judge.url(), "conversation", "new");
    expect(0, stricter.args(["--threshold", "conversation=0.9"]));
    let shown = json_of(1, &mut runs(&scene, &["comparison", "old", "new"]));
    let found = &shown["conversations"];
    assert_eq!(found["reasons"], json!(["pass_rate"]));
    let change = json!({"name": "pass_threshold", "baseline": 75.0, "candidate": 90.0});
    assert_eq!(found["judge_changes"], json!([change]));
    let warnings = found["differences"]["warnings"].to_string();
    assert!(warnings.contains("configuration version"), "{warnings}");
}

#[test]
fn runs_that_cannot_be_compared_are_named() {
    let scene = two_runs();
    expect(0, &mut scene.score("coherence", "plain"));
    let folder = scene.folder().display().to_string();
    for (args, words) in [
        (vec!["old"], "--metric"),
        (vec!["old", "new", "plain"], "--metric"),
        (vec!["old", "plain"], "--metrics conversation"),
        (vec!["old", &folder], "one run directory"),
        (vec!["old", "new", "--from", "2026-01-01"], "--from"),
        (vec!["old", "new", "--order", "descending"], "--metric"),
        (vec!["old", "new", "--max-avg-score-drop", "x"], "from 0"),
        (vec!["old", "new", "--explain"], "--judge"),
        (
            vec![
                "old",
                "new",
                "--explain",
                "--offline",
                "--judge",
                "openai/x",
            ],
            "--explain asks a judge",
        ),
    ] {
        let refused = expect(2, runs(&scene, &["comparison"]).args(&args));
        assert!(refused.stderr.contains(words), "{args:?}: {refused:?}");
    }
    std::fs::write(
        scene.at("new/judge_metric_scores/part-00000.parquet"),
        "PAR1",
    )
    .unwrap();
    let damaged = expect(2, &mut runs(&scene, &["comparison", "old", "new"]));
    let words = "judge_metric_scores/part-00000.parquet";
    assert!(damaged.stderr.contains(words), "{damaged:?}");
}

/// Answers the two questions of `--explain`; nothing in a prompt has a schema there.
fn explaining(asked: &Asked) -> Answer {
    assert!(!asked.has_response_format, "{asked:?}");
    Answer::reply(match asked.user.contains("You explain why") {
        true => json!({
            "analysis": [
                {"metric": "tool_routing", "direction": "regressed", "likely_cause": "a tool is gone", "confidence": "low", "reasoning": "r"},
                {"metric": "tool_routing", "direction": "sideways"},
            ],
            "infrastructure_notes": ["another address"],
            "summary": "One case fell.",
        }),
        false => {
            assert!(asked.user.contains("a tool is gone"), "{}", asked.user);
            json!({"suggestions": [
                {"target": "system_prompt", "title": "Say when", "description": "d", "priority": "high"},
            ], "summary": "Little to do."})
        }
    })
}

#[test]
fn a_judge_explains_what_moved_once() {
    let scene = two_runs();
    let judge = ScriptedJudge::start(explaining);
    let ask = |runs_named: [&str; 2], more: &[&str]| {
        let mut command = runs(&scene, &["comparison"]);
        command
            .args(runs_named)
            .args(["--explain", "--ledger", "why.db"]);
        command.args(["--judge", "openai/test", "--judge-url", &judge.url()]);
        command.args(more);
        command
    };
    expect(2, &mut ask(["old", "new"], &["--offline"]));
    assert_eq!(judge.prompt_count(), 0);
    let shown = json_of(1, &mut ask(["old", "new"], &[]));
    assert_eq!(judge.prompt_count(), 2);
    let explanation = &shown["explanation"];
    let causes = explanation["causes"]["analysis"].as_array().unwrap();
    assert_eq!(causes.len(), 1, "a malformed cause is passed over");
    assert_eq!(causes[0]["likely_cause"], "a tool is gone");
    let suggestions = &explanation["suggestions"]["suggestions"];
    assert_eq!(suggestions[0]["target"], "system_prompt");
    assert_eq!(explanation["calls"]["answered"], 2);
    assert_eq!(explanation["spend"][0]["attempts"], 2);
    for asked in judge.prompts() {
        assert!(asked.user.contains("\"s-0\""), "the worst case is shown");
    }

    // The ledger answers from now on, offline too.
    let replayed = ask(["old", "new"], &["--offline", "--replay"]).output();
    let text = String::from_utf8(replayed.unwrap().stdout).unwrap();
    assert!(text.contains("a tool is gone") && text.contains("Say when"));
    let same = json_of(0, &mut ask(["old", "old"], &[]));
    assert!(same.as_object().unwrap().contains_key("explanation"));
    assert_eq!(same["explanation"], Value::Null);
    assert_eq!(judge.prompt_count(), 2);

    // A cap leaves questions open, which is said.
    let capped = json_of(3, &mut ask(["new", "old"], &["--max-calls", "0"]));
    let unanswered = &capped["explanation"]["unanswered"];
    assert_eq!(unanswered.as_array().unwrap().len(), 2);
    assert!(unanswered[0].as_str().unwrap().contains("--max-calls"));
    assert_eq!(judge.prompt_count(), 2);
}

fn draft(folder: &Path, url: &str, more: &[&str]) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command.current_dir(folder);
    command.args(["metrics", "draft", "Does it greet?", "--ledger", "draft.db"]);
    command.args(["--judge", "openai/test", "--judge-url", url]);
    command.args(more);
    command
}

#[test]
fn a_drafted_metric_can_be_put_into_the_judges_file() {
    static REPLIES: AtomicUsize = AtomicUsize::new(0);
    let judge = ScriptedJudge::start(|asked| {
        assert!(asked.user.contains("Does it greet?"), "{}", asked.user);
        // The first reply takes a name that is taken.
        let name = ["tool_routing", "greeting"][REPLIES.fetch_add(1, SeqCst)];
        let rubric = "Measures: whether it greets.\n5 - says \"hello\"\n0 - does not";
        let reply =
            json!({"name": name, "tier": "delivery", "score_type": "scored", "rubric": rubric});
        Answer::reply(format!("```json\n{reply}\n```"))
    });
    let folder = tempfile::tempdir().unwrap();
    let offline = expect(2, &mut draft(folder.path(), &judge.url(), &["--offline"]));
    assert!(offline.stderr.contains("--offline"), "{offline:?}");
    let capped = ["--max-calls", "0"];
    let capped = expect(2, &mut draft(folder.path(), &judge.url(), &capped));
    assert!(capped.stderr.contains("--max-calls"), "{capped:?}");
    assert_eq!(judge.prompt_count(), 0);

    // It is asked at once: nothing is left for a batch that nobody would submit.
    let drafted = expect(0, &mut draft(folder.path(), &judge.url(), &["--batch"]));
    assert!(
        drafted.stderr.contains("--batch has no effect"),
        "{drafted:?}"
    );
    assert_eq!(judge.prompt_count(), 2);
    let file = folder.path().join("judge.toml");
    std::fs::write(&file, &drafted.stdout).unwrap();
    let mut listed = program();
    listed.args(["metrics", "--judge", "--json", "--judge-config"]);
    let listed: Value = serde_json::from_str(&expect(0, listed.arg(&file)).stdout).unwrap();
    assert_eq!(listed["count"], 10);
    assert_eq!(listed["data"][9]["name"], "greeting");
    assert_eq!(listed["data"][9]["description"], "Whether it greets.");

    let again = json_of(0, &mut draft(folder.path(), &judge.url(), &["--replay"]));
    assert_eq!(again["name"], "greeting");
    assert_eq!(judge.prompt_count(), 2, "the ledger has both replies");
}
