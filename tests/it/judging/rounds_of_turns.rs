//! Conversations from tables that are asked, or read, more than once.

use serde_json::json;

use super::scene::expect;
use super::scene_of_turns::{Scene, script, turns, turns_of};
use super::tables::{Table, score};
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::summary;

/// The policy counts failed calls of trace metrics: one that is set for other commands changes nothing, and a conversation is
/// asked up to five times.
#[test]
fn a_conversation_is_asked_again_under_both_policies() {
    for policy in ["production", "compat"] {
        let scene = Scene::new(&turns_of(&["s"]), &[]);
        let judge = ScriptedJudge::start(|asked| match asked.attempt {
            0 => Answer::status(500, &[], "tired"),
            _ => script(asked),
        });
        let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
        expect(0, command.env("NIGHTMILL_JUDGE_POLICY", policy));
        assert_eq!(judge.prompt_count(), 2, "{policy}");
    }
}

#[test]
fn an_unusable_verdict_is_asked_for_again_in_the_next_round() {
    let scene = Scene::new(&turns_of(&["s"]), &[]);
    let judge = ScriptedJudge::start(|asked| match asked.number {
        0 => Answer::reply("no verdict"),
        _ => script(asked),
    });
    let ask = |code: i32, rounds: &str| {
        let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
        expect(
            code,
            command.args(["--overwrite", "--judge-rounds", rounds]),
        );
        judge.prompt_count()
    };
    assert_eq!(ask(3, "1"), 1);
    assert_eq!(ask(3, "1"), 1);
    assert_eq!(ask(0, "2"), 2);
}

#[test]
fn batches_bring_the_same_tables() {
    let scene = Scene::new(&turns_of(&["s", "t"]), &[]);
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "batched");
    expect(
        0,
        command.args(["--batch", "--batch-wait", "1", "--batch-poll", "0.02"]),
    );
    assert_eq!(judge.batches().len(), 1);
    assert!(judge.prompts().iter().all(|a| a.custom_id.is_some()));
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        let _ = std::fs::remove_file(scene.at(name));
    }
    expect(0, &mut scene.judge(&judge.url(), "turns.jsonl", "direct"));
    let [batched, direct] =
        ["batched", "direct"].map(|run| score(&scene.at(run), "s", "conversation").raw);
    assert!(batched.is_some() && batched == direct);
}

/// Batches make a run read its tables more than once.
#[test]
fn a_turn_in_doubt_counts_once_however_often_it_is_read() {
    let mut rows = turns_of(&["s", "t"]);
    let mut other = turns("t")[0].clone();
    other["content"] = json!("something else");
    rows.push(other);
    let scene = Scene::new(&rows, &[]);
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
    expect(
        3,
        command.args(["--batch", "--batch-wait", "1", "--batch-poll", "0.02"]),
    );
    assert_eq!(judge.batches().len(), 1);
    assert_eq!(summary(&scene.at("run"))["quarantined"], 1);
    let quarantine = Table::of(&scene.at("run"), "quarantine");
    assert_eq!(quarantine.numbers("first_row"), [Some(8.0)]);
}
