//! Base URLs with users and queries, and headers of the user's own: what is sent, and what is the same endpoint.

use std::process::Command;

use super::providers::{ANTHROPIC, GEMINI, GOOD, OPENAI};
use super::scene::{Scene, expect, reply_to, traces};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::summary;

fn script(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

const KEY: &str = "sk-of-the-environment";

/// `confidence` of the scene's traces at this URL, with a key in the environment.
fn command(scene: &Scene, url: &str, out: &str) -> Command {
    let mut command = scene.judge(url, "confidence", out);
    command.env("OPENAI_API_KEY", KEY);
    command
}

/// A URL of the judge with something between scheme and host.
fn with_user(judge: &ScriptedJudge, user: &str, after: &str) -> String {
    let url = format!("{}{after}", judge.url());
    url.replacen("://", &format!("://{user}@"), 1)
}

/// All headers of this name.
fn headers<'a>(asked: &'a Asked, name: &str) -> Vec<&'a str> {
    let all = asked.headers.iter();
    let found = all.filter(|(n, _)| n == name);
    found.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn a_query_stays_behind_the_path() {
    const QUERY: &str = "?api-version=2024-06-01";
    for (slash, with) in [("", QUERY), ("/", QUERY), ("/", "")] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(script);
        let url = format!("{}{slash}{with}", judge.url());
        expect(0, &mut command(&scene, &url, "run"));
        let asked = judge.prompts();
        assert_eq!(asked[0].path, format!("/v1/chat/completions{with}"));
    }
    for (wire, path) in [
        (ANTHROPIC, "/v1/messages"),
        (GEMINI, "/v1beta/models/gemini-test:generateContent"),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| Answer::reply(GOOD));
        let mut known = wire.command(&scene, &judge, "known");
        expect(0, &mut known);
        let mut command = wire.command_at(&scene, &judge, QUERY, "run");
        expect(0, &mut command);
        let asked = judge.prompts();
        assert_eq!(asked[1].path, format!("{path}{QUERY}"));
        // Nothing else differs.
        assert_eq!(asked[0].path, path);
        assert_eq!(asked[1].body, asked[0].body);
        let sent = |asked: &Asked| {
            let mut headers = asked.headers.clone();
            headers.sort();
            headers
        };
        assert_eq!(sent(&asked[1]), sent(&asked[0]));
    }
}

#[test]
fn batches_keep_the_query_too() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let url = format!("{}?api-version=1&k=abc12", judge.url());
    let mut command = command(&scene, &url, "run");
    command.args(["--judge-headers", "AUTHORIZATION=Bearer own-12345"]);
    expect(
        0,
        command.args(["--batch", "--batch-wait", "1", "--batch-poll", "0.02"]),
    );
    let asked = judge.asked();
    let requests: Vec<&Asked> = asked.iter().filter(|a| a.custom_id.is_none()).collect();
    assert!(requests.len() >= 4, "{}", requests.len());
    for asked in requests {
        assert!(asked.path.starts_with("/v1/files") || asked.path.starts_with("/v1/batches"));
        assert!(
            asked.path.ends_with("?api-version=1&k=abc12"),
            "{}",
            asked.path
        );
        assert_eq!(headers(asked, "authorization"), ["Bearer own-12345"]);
    }
}

#[test]
fn the_users_own_authorization_replaces_the_key() {
    // Base64 of `bob:s3cretpassw0rd`.
    let of_url = "Basic Ym9iOnMzY3JldHBhc3N3MHJk";
    for (user, header, sent) in [
        (
            None,
            Some("authorization=Bearer other12345"),
            "Bearer other12345",
        ),
        (Some("bob:s3cretpassw0rd"), None, of_url),
        (
            Some("bob:s3cretpassw0rd"),
            Some("Authorization=Bearer other12345"),
            "Bearer other12345",
        ),
        (None, Some("x-title=night"), "Bearer sk-of-the-environment"),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(script);
        let url = user.map_or_else(|| judge.url(), |user| with_user(&judge, user, ""));
        let mut command = command(&scene, &url, "run");
        if let Some(header) = header {
            command.args(["--judge-headers", header]);
        }
        expect(0, &mut command);
        assert_eq!(headers(&judge.prompts()[0], "authorization"), [sent]);
    }
    // The provider's own endpoint needs no other key then.
    let scene = Scene::new(&traces(1));
    let mut own = scene.score("confidence", "run");
    own.args(["--judge", "openai/test", "--judge-tries", "1"]);
    own.args(["--judge-headers", "authorization=Bearer other12345"]);
    let nowhere = "http://127.0.0.1:9";
    own.env("HTTPS_PROXY", nowhere).env("https_proxy", nowhere);
    let ran = expect(3, &mut own);
    assert!(!ran.stderr.contains("provider_not_configured"), "{ran:?}");
}

#[test]
fn every_provider_takes_its_key_from_the_users_header() {
    for (wire, name) in [
        (ANTHROPIC, "X-Api-Key"),
        (GEMINI, "X-Goog-Api-Key"),
        (OPENAI, "Authorization"),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| Answer::reply(GOOD));
        let mut command = wire.command(&scene, &judge, "run");
        let header = format!("{name}=own-key-123");
        expect(0, command.args(["--judge-headers", &header]));
        let asked = judge.prompts();
        assert_eq!(headers(&asked[0], &name.to_lowercase()), ["own-key-123"]);
    }
}

/// Another password or key in the URL, none at all, or another user, finds the same answers; another place does not.
#[test]
fn secrets_of_the_url_decide_no_answer() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let sent = |url: &str, out: &str| {
        expect(0, &mut command(&scene, url, out));
        summary(&scene.at(out))["judge"]["calls"]["sent"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(sent(&judge.url(), "plain"), 1);
    assert_eq!(sent(&with_user(&judge, "bob:first-pw", ""), "first"), 0);
    assert_eq!(sent(&with_user(&judge, "ann:second-pw", ""), "second"), 0);
    assert_eq!(
        sent(&with_user(&judge, "bob:first-pw", "?k=key-one"), "third"),
        1
    );
    assert_eq!(sent(&format!("{}?k=key-two", judge.url()), "fourth"), 0);
    assert_eq!(sent(&format!("{}?api-version=1", judge.url()), "fifth"), 1);
    assert_eq!(sent(&format!("{}?api-version=2", judge.url()), "sixth"), 1);
    assert_eq!(sent(&format!("{}/v1/v1", judge.root()), "seventh"), 1);
    assert_eq!(judge.prompt_count(), 5);
}
