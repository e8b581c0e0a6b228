//! The canary: a key that the judge's server repeats at every chance, and that must be in nothing that is written.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::scene::{Scene, case_of, expect, id, reply_to, stage, traces};
use super::tables::score;
use crate::scripted_judge::{Answer, Asked, Reply, ScriptedJudge};

pub(super) const CANARY: &str = "sk-canary-7f3a90d1c5e24b68";
/// Enough of it to be no accident.
pub(super) const BEGIN: &str = "sk-canary-7f3a";

/// Where the server sees the key.
#[track_caller]
fn seen(asked: &Asked) -> &'static str {
    let bearer = format!("Bearer {CANARY}");
    match (asked.header("authorization"), asked.header("x-gateway-key")) {
        (Some(key), _) if key == bearer => CANARY,
        (_, Some(CANARY)) => CANARY,
        _ => panic!("the key did not arrive: {:?}", asked.headers),
    }
}

/// Repeats the key in error bodies, headers and replies.
fn echo(asked: &Asked) -> Answer {
    let key = seen(asked);
    match (case_of(asked), stage(asked)) {
        (0, _) if asked.attempt == 0 => {
            Answer::status(500, &[("x-key", key)], &format!("key {key} is tired"))
        }
        (1, _) => Answer::status(400, &[], &format!("not with this key: {key}")),
        (2, _) if asked.attempt == 0 => Answer::Garbage(format!("<p>{key}").into_bytes()),
        (3, _) if asked.has_response_format => Answer::reply(format!("My key is {key}.")),
        (3, _) => Answer::reply(json!({"confidence": 0.5, "reason": key})),
        _ => {
            let mut reply = reply_to(asked, 0.5);
            reply["reason"] = json!(format!("I was paid by {key}"));
            Answer::reply(reply)
        }
    }
}

/// Panics if the key, or the beginning of it, is in a file below `folder`, names included.
#[track_caller]
pub(super) fn assert_no_key_below(folder: &Path, except: &[&Path]) {
    let mut files = 0;
    for entry in walkdir::WalkDir::new(folder) {
        let path = entry.unwrap().into_path();
        let name = path.to_string_lossy().into_owned();
        assert!(!name.contains(BEGIN), "{name}");
        if !path.is_file() || except.contains(&path.as_path()) {
            continue;
        }
        files += 1;
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes
            .windows(BEGIN.len())
            .position(|w| w == BEGIN.as_bytes());
        if let Some(at) = found {
            let end = (at + 60).min(bytes.len());
            let around = bytes[at.saturating_sub(60)..end].escape_ascii();
            panic!("the key is in {name}: …{around}…");
        }
    }
    assert!(files >= 6, "only {files} files were looked at");
}

const TRACES: usize = 6;

/// Judges by a server that repeats the key, and logs as much as there is to log.
#[track_caller]
fn judge_with(scene: &Scene, judge: &ScriptedJudge, command: &mut Command) {
    let ran = expect(3, command.arg("-vv"));
    assert!(!ran.stdout.contains(BEGIN), "{}", ran.stdout);
    assert!(!ran.stderr.contains(BEGIN), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("trying again"),
        "nothing was logged: {ran:?}"
    );
    // Two tries of cases 0 and 2, a repair turn of case 3.
    assert_eq!(judge.prompt_count(), TRACES + 3);
    for (case, status) in [(1, "FAILED"), (3, "SUCCESS"), (4, "SUCCESS")] {
        let row = score(&scene.at("run"), &id(case), "confidence");
        assert_eq!(row.status, status, "case {case}: {}", row.reason);
        assert!(row.reason.contains("[secret]"), "{}", row.reason);
    }
}

/// With the report, so that every kind of file is looked at.
fn command(scene: &Scene, url: &str) -> Command {
    let mut command = crate::support::program();
    command
        .env_remove("OPENAI_API_KEY")
        .env("NO_PROXY", "127.0.0.1");
    command.arg("score").arg(scene.at("traces.jsonl"));
    command.args(["--metrics", "confidence,agent_reliability"]);
    command.args(["--judge", "openai/test", "--judge-url", url, "--json"]);
    command.arg("--ledger").arg(scene.at("ledger.db"));
    command.arg("--out").arg(scene.at("run"));
    command
}

#[test]
fn a_key_of_the_environment_is_written_nowhere() {
    let scene = Scene::new(&traces(TRACES));
    let judge = ScriptedJudge::start(echo);
    let mut command = command(&scene, &judge.url());
    judge_with(&scene, &judge, command.env("OPENAI_API_KEY", CANARY));
    assert_no_key_below(scene.folder(), &[]);
}

#[test]
fn a_key_of_a_file_is_written_nowhere() {
    let scene = Scene::new(&traces(TRACES));
    let file = scene.at("key");
    std::fs::write(&file, format!("{CANARY}\n")).unwrap();
    let judge = ScriptedJudge::start(echo);
    let mut command = command(&scene, &judge.url());
    judge_with(&scene, &judge, command.arg("--judge-key-file").arg(&file));
    assert_no_key_below(scene.folder(), &[&file]);
}

#[test]
fn a_key_of_a_header_is_written_nowhere() {
    let scene = Scene::new(&traces(TRACES));
    let config = scene.at("nightmill.toml");
    let text = "[judge_headers]\nx-gateway-key = \"${CANARY}\"\n";
    std::fs::write(&config, text).unwrap();
    let judge = ScriptedJudge::start(echo);
    let mut command = command(&scene, &judge.url());
    command.env("CANARY", CANARY).arg("--config").arg(&config);
    judge_with(&scene, &judge, &mut command);
    let asked = judge.prompts();
    assert!(
        asked
            .iter()
            .all(|a| a.header("x-gateway-key") == Some(CANARY))
    );
    assert_no_key_below(scene.folder(), &[]);
}

/// Long messages are cut; the cut must not lay a part of the key open. Whatever the length, it goes through a key here.
#[test]
fn a_message_that_is_cut_inside_the_key_shows_nothing_of_it() {
    let scene = Scene::new(&traces(4));
    let judge = ScriptedJudge::start(|asked| {
        let keys = format!("{} ", seen(asked)).repeat(60);
        let before = "-".repeat(7 * case_of(asked));
        Answer::status(400, &[], &format!("{before}{keys}"))
    });
    let mut command = command(&scene, &judge.url());
    command.env("OPENAI_API_KEY", CANARY);
    let ran = expect(3, command.arg("-vv"));
    assert!(
        !ran.stdout.contains(BEGIN) && !ran.stderr.contains(BEGIN),
        "{ran:?}"
    );
    for case in 0..4 {
        let row = score(&scene.at("run"), &id(case), "confidence");
        assert!(row.reason.contains("[secret]"), "{}", row.reason);
        assert!(row.reason.len() < 2000, "{} bytes", row.reason.len());
    }
    assert_no_key_below(scene.folder(), &[]);
}

/// The model that a server names is its text like any other.
#[test]
fn a_key_in_the_name_of_the_model_is_written_nowhere() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|asked| {
        let reply: Reply = reply_to(asked, 0.5).into();
        Answer::Reply(reply.model(&format!("test-{}", seen(asked))))
    });
    let mut command = command(&scene, &judge.url());
    expect(0, command.env("OPENAI_API_KEY", CANARY).arg("-vv"));
    assert_no_key_below(scene.folder(), &[]);
}

/// Some gateways take their key in the path.
#[test]
fn a_key_in_the_url_is_written_nowhere() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| {
        assert!(asked.path.contains(CANARY), "{}", asked.path);
        match case_of(asked) {
            0 => Answer::reply(reply_to(asked, 0.5)),
            _ => Answer::CloseBeforeAnswer,
        }
    });
    let url = format!("{}/${{CANARY}}/v1", judge.root());
    let mut command = command(&scene, &url);
    command.env("CANARY", CANARY).args(["--judge-tries", "1"]);
    let ran = expect(3, command.arg("-vv"));
    assert!(
        !ran.stdout.contains(BEGIN) && !ran.stderr.contains(BEGIN),
        "{ran:?}"
    );
    assert_eq!(judge.prompt_count(), 2);
    assert_no_key_below(scene.folder(), &[]);
}

/// Messages about wrong settings name the setting, not its value.
#[test]
fn refused_settings_do_not_show_keys() {
    let scene = Scene::new(&traces(1));
    let empty = scene.at("empty");
    std::fs::write(&empty, " \n").unwrap();
    let url = "http://127.0.0.1:9/v1";
    let refused = |more: &[&str]| {
        let mut command = command(&scene, url);
        command.env("CANARY", CANARY);
        let ran = expect(2, command.args(more).arg("-vv"));
        assert!(!ran.stderr.contains(BEGIN), "{ran:?}");
        ran.stderr
    };
    let header = refused(&["--judge-headers", "k=${CANARY} ${NO_SUCH_VARIABLE}"]);
    assert!(header.contains("NO_SUCH_VARIABLE"), "{header}");
    let open = refused(&["--judge-headers", "k=${CANARY} ${CANARY"]);
    assert!(open.contains("judge-headers"), "{open}");
    let file = refused(&["--judge-key-file", &empty.display().to_string()]);
    assert!(file.contains("empty"), "{file}");
    let missing = refused(&["--judge-key-file", "/nonexistent/key"]);
    assert!(missing.contains("/nonexistent/key"), "{missing}");
    assert!(!scene.at("run").exists());
}
