//! `nightmill runs retry` of runs that judged tables of turns.

use std::process::Command;

use serde_json::{Value, json};

use super::retry::{Mendable, denied, manifest};
use super::scene::expect;
use super::scene_of_turns::{FOUND, Scene, script, turns_of};
use super::tables::{Table, assert_same_tables};
use crate::scripted_judge::{Answer, Asked};
use crate::support::{program, summary};

/// Five conversations, of which `s-5` failed by itself, and a draft.
fn scene() -> Scene {
    let cases = [
        json!({"session_id": "s-1", "test_case": "order", "expected_outcomes": [FOUND]}),
        json!({"session_id": "s-4", "status": "draft"}),
        json!({"session_id": "s-5", "error": "timeout"}),
    ];
    Scene::new(
        &turns_of(&["s-1", "s-2", "s-3", "s-4", "s-5", "s-6"]),
        &cases,
    )
}

/// The judge denies itself to `s-1` and says nothing of use about `s-2`.
fn broken(asked: &Asked) -> Option<Answer> {
    match session_of(asked).as_str() {
        "s-1" => Some(denied()),
        "s-2" => Some(Answer::reply("Nice talk.")),
        _ => None,
    }
}

fn session_of(asked: &Asked) -> String {
    let at = asked.user.find("s-").expect("a prompt without session");
    asked.user[at..at + 3].to_owned()
}

fn sessions_of(asked: &[Asked]) -> Vec<String> {
    let mut sessions: Vec<String> = asked.iter().map(session_of).collect();
    sessions.sort();
    sessions
}

fn retry(scene: &Scene, old: &str, new: &str) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command.args(["runs", "retry"]).arg(scene.at(old));
    command.arg("--out").arg(scene.at(new));
    command
}

#[test]
fn only_what_the_judge_failed_is_asked_again() {
    let scene = scene();
    let judge = Mendable::start(broken, script);
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "turns.jsonl", "first"));
    judge.mend();

    // Without the ledger, those that have a score would be paid again.
    let asked = judge.asked_by(|| {
        let mut lost = retry(&scene, "first", "second");
        let ran = expect(2, lost.arg("--ledger").arg(scene.at("other.db")));
        assert!(ran.stderr.contains("2 conversations"), "{ran:?}");
    });
    assert!(asked.is_empty() && !scene.at("second").exists());

    let asked = judge.asked_by(|| {
        let ran = expect(3, &mut retry(&scene, "first", "second"));
        let words = "Retry: first: asking again for 2 conversations";
        assert!(ran.stdout.contains(words), "{ran:?}");
    });
    assert_eq!(sessions_of(&asked), ["s-1", "s-2"]);
    let statuses = Table::of(&scene.at("second"), "judge_verdicts").texts("status");
    let expected = ["SUCCESS", "SUCCESS", "SUCCESS", "FAILED", "SUCCESS"];
    assert_eq!(statuses, expected.map(|status| Some(status.to_owned())));

    let asked = judge.asked_by(|| {
        let mut whole = scene.judge(&url, "turns.jsonl", "whole");
        expect(3, whole.args(["--judge-rounds", "2"]));
    });
    assert!(asked.is_empty());
    assert_same_tables(&scene.at("second"), &scene.at("whole"));
    assert_eq!(
        summary(&scene.at("second"))["judge"]["conversations"],
        summary(&scene.at("whole"))["judge"]["conversations"]
    );
    let told = manifest(&scene.at("second"));
    assert_eq!(told["name"], "Retry: first");
    assert_eq!(told["judge"]["filters"], json!({"retry_of": "first"}));

    // What is left failed without a judge.
    let asked = judge.asked_by(|| {
        let ran = expect(0, &mut retry(&scene, "second", "third"));
        assert!(ran.stdout.contains("1 score failed without one"), "{ran:?}");
    });
    assert!(asked.is_empty() && !scene.at("third").exists());
}

/// The retry is made from another folder than the run, of the same choice of conversations.
#[test]
fn the_request_is_kept_whole() {
    let draft = json!({"session_id": "s-4", "status": "draft"});
    let scene = Scene::new(
        &turns_of(&["s-1", "s-2", "s-3", "s-4", "s-5", "s-6"]),
        &[draft],
    );
    let settings =
        "judge_temperature = \"0.5\"\njudge_sample = \"0.7\"\n[threshold]\nconversation = 0.9\n";
    std::fs::write(scene.at("nightmill.toml"), settings).unwrap();
    let judge = Mendable::start(|_| Some(denied()), script);
    let mut first = program();
    first.current_dir(scene.folder());
    first.env("NO_PROXY", "127.0.0.1");
    first.args(["conversations", "turns.jsonl", "--cases", "cases.jsonl"]);
    first.args(["--all-statuses", "--ledger", "ledger.db", "--out", "first"]);
    first.args(["--judge", "openai/test", "--judge-url", &judge.judge.url()]);
    expect(3, &mut first);
    std::fs::remove_file(scene.at("nightmill.toml")).unwrap();
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "second"));
    });
    assert_eq!(asked.len(), 4, "0.7 of six");
    for asked in &asked {
        assert_eq!(asked.json()["temperature"], 0.5);
    }
    let [first, second] =
        ["first", "second"].map(|run| Table::of(&scene.at(run), "judge_verdicts"));
    assert_eq!(first.texts("session_id"), second.texts("session_id"));
    let passed: Vec<bool> = second.flags("passed").into_iter().flatten().collect();
    assert_eq!(passed, [false; 4]);
    let kept = manifest(&scene.at("second"))["request"]["tables"].clone();
    assert_eq!(kept["all_statuses"], true);
    assert_eq!(kept["cases"].as_array().map(Vec::len), Some(1));
}

#[test]
fn other_turns_or_cases_are_refused() {
    let scene = scene();
    let judge = Mendable::start(broken, script);
    expect(
        3,
        &mut scene.judge(&judge.judge.url(), "turns.jsonl", "first"),
    );
    judge.mend();
    for file in ["turns.jsonl", "cases.jsonl"] {
        let path = scene.at(file);
        let kept = std::fs::read(&path).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        std::fs::write(&path, [&kept[..], b"\n"].concat()).unwrap();
        let asked = judge.asked_by(|| {
            let ran = expect(2, &mut retry(&scene, "first", "second"));
            assert!(ran.stderr.contains(file), "{ran:?}");
        });
        assert!(asked.is_empty());
        std::fs::write(&path, &kept).unwrap();
        let restored = std::fs::File::options().write(true).open(&path).unwrap();
        restored.set_modified(metadata.modified().unwrap()).unwrap();
    }
    // A manifest of a version that kept no request says what to do.
    let path = scene.at("first/manifest.json");
    let mut old: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    old.as_object_mut().unwrap().remove("request");
    std::fs::write(&path, old.to_string()).unwrap();
    let refused = expect(2, &mut retry(&scene, "first", "second"));
    assert!(refused.stderr.contains("--judge-rounds"), "{refused:?}");
}
