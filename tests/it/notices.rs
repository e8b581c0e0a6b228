//! `--notify`: what is posted of a run to a local server, when, and what of it stands nowhere.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, Asked, Body, ScriptedJudge};
use crate::support::{Ran, program};

/// In every address and in every text of a trace: neither may be seen again.
const CANARY: &str = "canary7f3a90d1c5";
/// Of the texts of traces.
const TEXT: &str = "walrus-of-the-texts";

/// Traces of three sessions, one of them in trouble and with a name that is a trap.
struct Scene(tempfile::TempDir);

const TRAP: &str = "<!channel> & \u{7}*x*";

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = String::new();
        let mut row = |session: &str, turn: usize, output: &str, error: Value| {
            let call = json!({"kind": "TOOL", "name": "look", "input": "7", "error": error});
            let trace = json!({"trace_id": format!("{session}-{turn}"), "session_id": session,
                "started_at": format!("2026-01-01T00:0{turn}:00Z"), "input": format!("Where is {TEXT}?"),
                "output": format!("{output} {TEXT}"), "spans": [call]});
            lines.push_str(&format!("{trace}\n"));
        };
        for session in ["good-1", "good-2"] {
            row(session, 0, "It is on its way.", Value::Null);
            row(session, 1, "You are welcome.", Value::Null);
        }
        for turn in 0..3 {
            row(TRAP, turn, "I could not find it.", json!("no such parcel"));
        }
        std::fs::write(folder.path().join("traces.jsonl"), lines).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn score(&self, out: &str, more: &[&str]) -> Command {
        let mut command = program();
        command.env("NO_PROXY", "127.0.0.1");
        command.arg("score").arg(self.at("traces.jsonl"));
        command.args(["--metrics", "loop_detection,agent_reliability,attention"]);
        command.arg("--out").arg(self.at(out)).args(more);
        command
    }
}

/// A program that ended so, and showed nothing of the address.
#[track_caller]
fn ended(code: i32, command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!all.contains(CANARY), "{all}");
    ran
}

fn server(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> ScriptedJudge {
    let server = ScriptedJudge::start(|_| panic!("no model is asked"));
    server.interfere(move |asked| Some(script(asked)));
    server
}

fn taken(_: &Asked) -> Answer {
    // Slack answers so, and it is no JSON.
    Answer::Status(200, Vec::new(), "ok".into())
}

fn hook(server: &ScriptedJudge) -> String {
    format!("{}/services/T0/{CANARY}", server.root())
}

/// The only notice that a server was sent.
#[track_caller]
fn only(server: &ScriptedJudge) -> Asked {
    let mut asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let one = asked.remove(0);
    assert_eq!(one.method, "POST");
    assert_eq!(one.path, format!("/services/T0/{CANARY}"));
    let body = match &one.body {
        Body::Json(value) => value.to_string(),
        Body::Raw(bytes) => String::from_utf8(bytes.clone()).unwrap(),
    };
    assert!(!body.contains(TEXT), "a text of a trace: {body}");
    one
}

#[test]
fn every_format_says_how_a_run_ended_and_where_to_begin() {
    let scene = Scene::new();
    let all = server(taken);
    ended(0, &mut scene.score("run", &["--notify", &hook(&all)]));
    let notice = only(&all);
    let told = notice.json();
    assert_eq!(told["run"], "run");
    assert_eq!(
        (&told["exit_code"], &told["outcome"]),
        (&json!(0), &json!("done"))
    );
    assert_eq!(
        (&told["counts"]["traces"], &told["counts"]["sessions"]),
        (&json!(7), &json!(3))
    );
    assert_eq!(told["first"][0]["session_id"], TRAP);
    assert!(!told["first"][0]["why"].as_str().unwrap().is_empty());
    assert_eq!(told["first"][0]["link"], Value::Null);
    let report = scene.at("run/report.html").display().to_string();
    assert_eq!(told["report"], report);

    let slack = server(taken);
    let flags = [
        "--notify",
        &hook(&slack),
        "--notify-format",
        "slack",
        "--notify-link",
    ];
    let mut gated = scene.score("run2", &flags);
    gated.args([
        "https://reports.example/{run}/",
        "--fail-under",
        "agent_reliability=1",
    ]);
    ended(1, &mut gated);
    let notice = only(&slack);
    let text = notice.json()["text"].as_str().unwrap();
    assert!(
        text.starts_with("*run2*: a gate failed: mean agent_reliability "),
        "{text}"
    );
    let first = "1. <https://reports.example/run2/report.html#session=%3C%21channel%3E%20%26%20%07%2Ax%2A|\
                 &lt;!channel&gt; &amp; \u{fffd}*x*>: ";
    assert!(text.contains(first), "{text}");
    assert!(
        text.ends_with("report: <https://reports.example/run2/report.html|report.html>"),
        "{text}"
    );

    let plain = server(taken);
    let flags = [
        "--notify",
        &hook(&plain),
        "--notify-format",
        "plain",
        "--no-report",
    ];
    ended(0, &mut scene.score("run3", &flags));
    let notice = only(&plain);
    assert!(
        notice
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    let Body::Raw(body) = &notice.body else {
        panic!("{notice:?}");
    };
    let text = String::from_utf8_lossy(body);
    assert!(
        text.starts_with("run3: done\n7 traces in 3 sessions\nfirst to look at:\n1. "),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("results: {}", scene.at("run3").display())),
        "{text}"
    );
}

#[test]
fn it_is_posted_once_and_again_only_where_it_was_not_taken() {
    let scene = Scene::new();
    let tired = server(|asked| match asked.attempt {
        0 => Answer::Status(500, Vec::new(), format!("no {CANARY} now")),
        1 => Answer::Status(429, vec![("retry-after".into(), "0".into())], String::new()),
        _ => Answer::Status(200, Vec::new(), "ok".into()),
    });
    ended(
        0,
        scene.score("run", &["--notify", &hook(&tired)]).arg("-vv"),
    );
    assert_eq!(tired.asked().len(), 3);
    // An answer that is lost may be one to a notice that arrived.
    let lost = server(|_| Answer::EndBeforeAnswer);
    let ran = ended(0, &mut scene.score("run2", &["--notify", &hook(&lost)]));
    assert!(
        ran.stderr.contains("nobody was told") && ran.stderr.contains("arrived or not"),
        "{ran:?}"
    );
    assert_eq!(lost.asked().len(), 1);
    let refusing = server(|_| Answer::Status(404, Vec::new(), format!("no_service {CANARY}")));
    let ran = ended(0, &mut scene.score("run3", &["--notify", &hook(&refusing)]));
    assert!(ran.stderr.contains("status 404: no_service"), "{ran:?}");
    assert_eq!(refusing.asked().len(), 1);
    // A second run to the same place is another one, and fails.
    let again = server(taken);
    ended(2, &mut scene.score("run", &["--notify", &hook(&again)]));
    let notice = only(&again);
    let outcome = notice.json()["outcome"].as_str().unwrap();
    assert!(
        outcome.starts_with("the run failed: ") && outcome.contains("run"),
        "{outcome}"
    );
}

#[test]
fn a_server_that_is_away_costs_a_warning_and_no_run() {
    let scene = Scene::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{address}/{CANARY}");
    let ran = ended(
        1,
        &mut scene.score(
            "run",
            &["--notify", &url, "--fail-under", "agent_reliability=1"],
        ),
    );
    let host = format!("http://{address} does not take it");
    assert!(
        ran.stderr.contains("nobody was told") && ran.stderr.contains(&host),
        "{ran:?}"
    );
    assert!(scene.at("run/manifest.json").exists());
}

#[test]
fn nobody_is_told_offline_nor_of_what_they_need_not_know() {
    let scene = Scene::new();
    let nobody = server(taken);
    let url = hook(&nobody);
    let ran = ended(2, &mut scene.score("run", &["--notify", &url, "--offline"]));
    assert!(ran.stderr.contains("--offline: --notify"), "{ran:?}");
    assert!(!scene.at("run").exists());
    ended(
        2,
        scene
            .score("run", &["--offline"])
            .env("NIGHTMILL_NOTIFY", &url),
    );
    ended(
        0,
        scene
            .score("run", &["--offline", "--notify", "none"])
            .env("NIGHTMILL_NOTIFY", &url),
    );
    ended(
        0,
        &mut scene.score("run2", &["--notify", &url, "--notify-when", "problem"]),
    );
    let ran = ended(2, &mut scene.score("run3", &["--notify-when", "problem"]));
    assert!(
        ran.stderr.contains("--notify-when: nobody is told"),
        "{ran:?}"
    );
    let mut plan = program();
    plan.arg("plan")
        .arg(scene.at("traces.jsonl"))
        .args(["--notify", &url]);
    let ran = ended(2, &mut plan);
    assert!(
        ran.stderr.contains("--notify: a plan makes no run"),
        "{ran:?}"
    );
    assert!(nobody.asked().is_empty());
    ended(
        2,
        &mut scene.score("run2", &["--notify", &url, "--notify-when", "problem"]),
    );
    only(&nobody);
}

#[test]
fn the_address_is_in_no_file_and_a_variable_may_hold_it() {
    let scene = Scene::new();
    let server = server(taken);
    let mut command = scene.score("run", &["--notify", "${HOOK_OF_TEST}", "-vv"]);
    ended(0, command.env("HOOK_OF_TEST", hook(&server)));
    only(&server);
    ended(
        0,
        scene
            .score("run2", &["--buckets", "2"])
            .env("NIGHTMILL_NOTIFY", hook(&server)),
    );
    assert_eq!(server.asked().len(), 2);
    let refused = ended(
        2,
        &mut scene.score("run4", &["--notify", "${NO_SUCH_HOOK_OF_TEST}"]),
    );
    assert!(
        refused.stderr.contains("`NO_SUCH_HOOK_OF_TEST` is not set"),
        "{refused:?}"
    );
    let mut files = 0;
    for entry in walkdir::WalkDir::new(scene.0.path()) {
        let path = entry.unwrap().into_path();
        if path.is_file() {
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
            assert!(!found, "the address is in {}", path.display());
        }
    }
    assert!(files > 10, "{files}");
}

#[test]
fn runs_of_a_monitor_are_told_of_by_its_name() {
    let scene = Scene::new();
    let server = server(taken);
    let monitor = |code: i32, args: &[&str]| {
        let mut command = program();
        command
            .env("NO_PROXY", "127.0.0.1")
            .env("HOOK_OF_TEST", hook(&server));
        command
            .arg("monitor")
            .arg("--monitors")
            .arg(scene.at("monitors"))
            .args(args);
        ended(code, &mut command)
    };
    let traces = scene.at("traces.jsonl").display().to_string();
    let out = scene.at("runs").display().to_string();
    let add = |set: &str, code: i32| {
        let args = [
            "add",
            "night",
            &traces,
            "--target",
            "session",
            "--metrics",
            "agent_reliability",
            "--cadence",
            "daily",
            "--out",
            &out,
            "--set",
            set,
        ];
        monitor(code, &args)
    };
    let refused = add(&format!("notify={}", hook(&server)), 2);
    assert!(refused.stderr.contains("write ${NAME}"), "{refused:?}");
    add("notify=${HOOK_OF_TEST}", 0);
    monitor(0, &["trigger", "night"]);
    let notice = only(&server);
    let run = notice.json()["run"].as_str().unwrap();
    assert!(run.starts_with("[Monitor] night ("), "{run}");
    // Whom to tell is nothing that makes files new.
    monitor(0, &["set", "night", "--set", "notify-when=problem"]);
    let ticked = monitor(0, &["tick", "--now", "2099-01-01T00:00:00Z"]);
    assert!(ticked.stdout.contains("skipped_unchanged"), "{ticked:?}");
    std::fs::remove_file(scene.at("traces.jsonl")).unwrap();
    monitor(3, &["tick", "--now", "2099-02-01T00:00:00Z"]);
    let asked = server.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let outcome = asked[1].json()["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("the run failed: "), "{outcome}");
}

#[test]
fn texts_are_told_where_they_are_asked_for_and_nowhere_else() {
    let scene = Scene::new();
    for (format, line) in [
        ("plain", format!("   output: I could not find it. {TEXT}")),
        ("slack", format!("   output: I could not find it. {TEXT}")),
        ("json", String::new()),
    ] {
        let server = server(taken);
        let url = hook(&server);
        let flags = [
            "--notify",
            &url,
            "--notify-format",
            format,
            "--notify-texts",
            "--overwrite",
        ];
        ended(0, &mut scene.score("run", &flags));
        let asked = server.asked();
        let body = match &asked[0].body {
            Body::Json(value) => value.clone(),
            Body::Raw(bytes) => Value::String(String::from_utf8(bytes.clone()).unwrap()),
        };
        if format == "json" {
            let texts = &body["first"][0]["texts"];
            assert_eq!(texts["input"], format!("Where is {TEXT}?"), "{body}");
            assert_eq!(texts["output"], format!("I could not find it. {TEXT}"));
            continue;
        }
        let text = body.as_str().or(body["text"].as_str()).unwrap();
        assert!(text.lines().any(|told| told == line), "{text}");
    }
    let server = server(taken);
    let url = hook(&server);
    for (flags, expected) in [
        (&["--notify-texts"][..], "--notify-texts: nobody is told"),
        (
            &["--notify", &url, "--notify-texts", "--no-report"],
            "--no-report",
        ),
        (
            &["--notify", "none", "--notify-texts"],
            "--notify-texts: nobody is told",
        ),
    ] {
        let ran = ended(2, &mut scene.score("other", flags));
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}
