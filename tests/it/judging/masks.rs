//! What is a secret, and what is none: replies are read whole, and of URLs and headers only what is no key is written.

use std::path::Path;

use serde_json::{Value, json};

use super::scene::{Scene, expect, id, reply_to, traces};
use super::tables::score;
use super::{scene_of_turns, scene_of_turns::turns_of};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};

fn manifest(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Panics if one of these texts is in a file below the scene's folder, but for the file `except`.
#[track_caller]
fn assert_nowhere(scene: &Scene, texts: &[&str], except: &str) {
    let mut files = 0;
    for entry in walkdir::WalkDir::new(scene.folder()) {
        let path = entry.unwrap().into_path();
        if !path.is_file() || path.ends_with(except) {
            continue;
        }
        files += 1;
        let bytes = std::fs::read(&path).unwrap();
        for text in texts {
            let found = bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            assert!(!found, "{text} is in {}", path.display());
        }
    }
    assert!(files >= 4, "only {files} files were looked at");
}

/// Replies of the ledger, as they are kept.
fn replies(scene: &Scene) -> Vec<String> {
    let ledger = rusqlite::Connection::open(scene.at("ledger.db")).unwrap();
    let mut statement = ledger.prepare("SELECT reply FROM calls").unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn titles_are_no_secrets_and_words_that_are_users_stay_words() {
    const REASON: &str = "the customer asked support for a refund with confidence";
    let scene = Scene::new(&traces(1));
    let judge =
        ScriptedJudge::start(|_| Answer::reply(json!({"confidence": 0.75, "reason": REASON})));
    let url = judge.url().replacen("://", "://refund:${P}@", 1);
    let mut command = scene.judge(&url, "confidence", "run");
    command.env("P", "a-pass-word-1");
    let headers = "x-title=customer support confidence,HTTP-Referer=https://example.com/asked";
    expect(0, command.args(["--judge-headers", headers]));
    let row = score(&scene.at("run"), &id(0), "confidence");
    assert_eq!((row.raw, row.reason.as_str()), (Some(0.75), REASON));
    // They are kept, so that a retry need not be told them again.
    let settings = manifest(&scene.at("run"))["request"]["settings"].clone();
    assert_eq!(
        settings["judge_headers"][0],
        "x-title=customer support confidence"
    );
    let masked = url.replacen("refund", "[secret]", 1);
    assert_eq!(settings["judge_url"], masked);
}

/// A key that is a word of the reply's form too.
#[test]
fn a_reply_with_a_secret_reads_as_the_same_verdict() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|_| {
        Answer::reply(json!({"confidence": 0.75, "reason": "paid by confidence"}))
    });
    for out in ["first", "second"] {
        let mut command = scene.judge(&judge.url(), "confidence", out);
        expect(0, command.env("OPENAI_API_KEY", "confidence"));
        let row = score(&scene.at(out), &id(0), "confidence");
        assert_eq!(
            (row.raw, row.reason.as_str()),
            (Some(0.75), "paid by [secret]")
        );
    }
    assert_eq!(judge.prompt_count(), 1, "asked again");
    assert!(
        replies(&scene)[0].contains("\"confidence\""),
        "{:?}",
        replies(&scene)
    );
}

#[test]
fn a_user_called_like_a_metric_judges_conversations() {
    let scene = scene_of_turns::Scene::new(&turns_of(&["s-1"]), &[]);
    let judge = ScriptedJudge::start(scene_of_turns::script);
    let url = judge.url().replacen("://", "://justification:x@", 1);
    let mut command = scene.judge(&url, "turns.jsonl", "run");
    expect(
        0,
        command.args([
            "--judge-headers",
            "x-title=tool_routing instruction_following",
        ]),
    );
    let row = score(&scene.at("run"), "s-1", "conversation");
    assert_eq!(row.score, Some(0.8), "{}", row.reason);
}

/// Repeats everything that it was sent, in an error and in a reply.
fn echo(asked: &Asked) -> Answer {
    let headers = asked.headers.iter().map(|(n, v)| format!("{n}: {v}"));
    let said = format!("{} {}", asked.path, headers.collect::<Vec<_>>().join(" "));
    match super::scene::case_of(asked) {
        0 => Answer::status(400, &[], &json!({"error": {"message": said}}).to_string()),
        _ => {
            let mut reply = reply_to(asked, 0.5);
            reply["reason"] = json!(said);
            Answer::reply(reply)
        }
    }
}

#[test]
fn secrets_of_urls_are_masked_whatever_their_length() {
    for (user, path, query, shown_user, shown_query) in [
        ("bob:pw12@", "", "", "[secret]:[secret]@", ""),
        ("bob:${P}@", "", "", "[secret]:[secret]@", ""),
        ("", "", "?api-key=zyx12", "", "?api-key=[secret]"),
        ("", "", "?canaryKEY99", "", "?[secret]"),
        (
            "",
            "",
            "?api-key=canary KEY99&version=2",
            "",
            "?api-key=[secret]&version=2",
        ),
        ("", "/${P}", "", "", ""),
        ("bob:s3cretpassw0rd@", "", "", "[secret]:[secret]@", ""),
    ] {
        let scene = Scene::new(&traces(2));
        let judge = ScriptedJudge::start(echo);
        let host = format!("127.0.0.1:{}", judge.port());
        let url = format!("http://{user}{host}{path}/v1{query}");
        let mut command = scene.judge(&url, "confidence", "run");
        let ran = expect(3, command.env("P", "xy98").args(["-vv"]));
        let secrets = [
            "pw12",
            "xy98",
            "zyx12",
            "canaryKEY99",
            "KEY99",
            "s3cretpassw0rd",
            "Ym9iOnMzY3JldHBhc3N3MHJk",
        ];
        for secret in secrets {
            assert!(!ran.stderr.contains(secret), "{secret}: {}", ran.stderr);
        }
        assert_nowhere(&scene, &secrets, "traces.jsonl");
        let masked_path = path.replace("${P}", "[secret]");
        let shown = format!("http://{shown_user}{host}{masked_path}/v1{shown_query}");
        let manifest = manifest(&scene.at("run"));
        assert_eq!(manifest["judge"]["url"], shown.as_str());
        // The setting keeps the placeholder, and is the same otherwise.
        let kept = manifest["request"]["settings"]["judge_url"]
            .as_str()
            .unwrap();
        assert_eq!(kept.replace("${P}", "[secret]"), shown);
    }
}

#[test]
fn urls_that_could_be_misread_are_refused_and_not_shown() {
    let scene = Scene::new(&traces(1));
    for url in [
        "http://u:sk-can/123456@127.0.0.1:9/v1",
        "http://u:sk-can?123456@127.0.0.1:9/v1",
        "http://u:12/123456@127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1#123456",
    ] {
        let ran = expect(2, &mut scene.judge(url, "confidence", "run"));
        assert!(ran.stderr.contains("--judge-url"), "{ran:?}");
        assert!(
            !ran.stderr.contains("123456") && !ran.stderr.contains("sk-can"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_key_is_found_in_every_writing() {
    const KEY: &str = "sk\"can\\12345";
    let scene = Scene::new(&traces(2));
    std::fs::write(scene.at("key"), KEY).unwrap();
    let judge = ScriptedJudge::start(echo);
    let mut command = scene.judge(&judge.url(), "confidence", "run");
    command.arg("--judge-key-file").arg(scene.at("key"));
    let ran = expect(3, command.arg("-vv"));
    assert!(!ran.stderr.contains("can\\"), "{}", ran.stderr);
    let row = score(&scene.at("run"), &id(1), "confidence");
    assert!(row.reason.contains("Bearer [secret]"), "{}", row.reason);
    assert_eq!(row.raw, Some(0.5));
    assert_nowhere(&scene, &["sk\"can", "sk\\\"can", "can\\"], "key");
}

#[test]
fn messages_about_headers_and_files_show_no_keys() {
    let scene = Scene::new(&traces(1));
    let refused = |more: &[&str], toml: Option<&str>, variable: Option<&str>| {
        let mut command = scene.judge("http://127.0.0.1:9/v1", "confidence", "run");
        if let Some(text) = toml {
            let file = scene.at("nightmill.toml");
            std::fs::write(&file, text).unwrap();
            command.arg("--config").arg(file);
        }
        if let Some(text) = variable {
            command.env("NIGHTMILL_JUDGE_HEADERS", text);
        }
        let ran = expect(2, command.args(more));
        assert!(!ran.stderr.contains("sk-can"), "{ran:?}");
        ran.stderr
    };
    let header = "Authorization: Bearer sk-can-123456";
    let said = refused(&["--judge-headers", header], None, None);
    assert!(said.contains("NAME=VALUE"), "{said}");
    refused(&["--judge-headers", "x-key=a,sk-can-123456"], None, None);
    refused(&[], None, Some(header));
    refused(
        &[],
        Some(&format!("judge_headers = [\"{header}\"]\n")),
        None,
    );
    let said = refused(
        &[],
        Some("threads = 2\njudge_headers = \"x-key=sk-can-123456\n"),
        None,
    );
    assert!(said.contains("line 2"), "{said}");
    for twice in [
        ["--judge-headers", "a=1,A=2"],
        ["--judge-only", "name=a,name=b"],
        ["--price", "openai/test=1:2,openai/test=3:4"],
    ] {
        let said = refused(&twice, None, None);
        assert!(said.contains("twice") || said.contains("before"), "{said}");
    }
    let mut plan = crate::support::program();
    plan.arg("plan").arg(scene.at("traces.jsonl"));
    plan.args(["--metrics", "confidence", "--judge", ""]);
    let ran = expect(2, &mut plan);
    assert!(ran.stderr.contains("--judge"), "{ran:?}");
}
