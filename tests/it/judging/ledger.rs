//! What is answered by the ledger, and what is refused before anything is asked.

use super::scene::{SEVEN, SHARED_CALLS, Scene, expect, reply_to, traces};
use super::tables::{assert_same_tables, scores};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::{program, summary};

fn script(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

#[test]
fn a_second_run_asks_nothing_and_gives_the_same_tables() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(script);
    let url = judge.url();
    expect(
        0,
        &mut scene.judge(&url, super::scene::ALL_BUT_CONVERSATIONS, "first"),
    );
    assert_eq!(judge.prompt_count(), 3 * SHARED_CALLS);
    let requests = judge.asked().len();

    expect(
        0,
        &mut scene.judge(&url, super::scene::ALL_BUT_CONVERSATIONS, "second"),
    );
    assert_eq!(judge.asked().len(), requests, "the server was asked again");
    assert_same_tables(&scene.at("first"), &scene.at("second"));
    let calls = summary(&scene.at("second"))["judge"]["calls"].clone();
    assert_eq!(calls["sent"], 0);
    assert!(calls["from_ledger"].as_u64().unwrap() >= 39, "{calls}");

    // Replaying needs neither server nor key nor network.
    drop(judge);
    let mut replay = scene.judge(&url, super::scene::ALL_BUT_CONVERSATIONS, "replayed");
    expect(0, replay.args(["--replay", "--offline"]));
    assert_same_tables(&scene.at("first"), &scene.at("replayed"));
}

#[test]
fn another_model_temperature_or_reply_size_is_another_question() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let count = |out: &str, more: &[&str]| {
        let before = judge.prompt_count();
        let mut command = scene.judge(&judge.url(), "confidence", out);
        expect(0, command.args(more));
        judge.prompt_count() - before
    };
    assert_eq!(count("a", &[]), 1);
    assert_eq!(count("b", &["--judge-temperature", "0"]), 1);
    assert_eq!(count("c", &["--judge-max-output", "100"]), 1);
    assert_eq!(count("d", &["--judge-model", "confidence=openai/other"]), 1);
    assert_eq!(count("e", &[]), 0);
    assert_eq!(count("f", &["--judge-model", "confidence=openai/other"]), 0);
    let models: Vec<String> = judge.prompts().into_iter().map(|a| a.model).collect();
    assert_eq!(models, ["test", "test", "test", "other"]);
    assert_eq!(judge.prompts()[1].json()["temperature"], 0.0);
    assert_eq!(judge.prompts()[2].json()["max_tokens"], 100);

    // Models that reason refuse a temperature, and know the limit by another name.
    assert_eq!(
        count("g", &["--judge-model", "confidence=openai/gpt-5.4"]),
        1
    );
    assert_eq!(count("h", &["--judge-temperature", "none"]), 1);
    for asked in &judge.prompts()[4..] {
        assert!(asked.json().get("temperature").is_none());
    }
    assert_eq!(judge.prompts()[4].json()["max_completion_tokens"], 4096);
}

#[test]
fn replaying_an_empty_ledger_leaves_every_score_pending() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    std::fs::write(scene.at("ledger.db"), "").unwrap();
    let mut replay = scene.judge(&judge.url(), &SEVEN.join(","), "run");
    expect(3, replay.arg("--replay"));
    assert_eq!(judge.asked().len(), 0);
    let rows = scores(&scene.at("run"));
    assert_eq!(rows.len(), 2 * SEVEN.len());
    for (key, row) in rows {
        assert_eq!(row.status, "PENDING", "{key:?}");
        assert_eq!((row.score, row.raw, row.passed), (None, None, None));
        assert!(row.reason.contains("ledger"), "{}", row.reason);
    }
    let summary = summary(&scene.at("run"));
    assert_eq!(summary["pending_signals"], 2 * SEVEN.len());
    assert_eq!(summary["judge"]["calls"]["sent"], 0);
    for metric in summary["judge"]["metrics"].as_array().unwrap() {
        assert_eq!(
            (&metric["pending"], &metric["judged"]),
            (&2.into(), &0.into())
        );
    }
}

/// As on read-only media: what SQLite keeps beside its file can't be made.
#[test]
fn a_ledger_that_cannot_be_written_is_replayed_and_planned_with() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let url = judge.url();
    expect(0, &mut scene.judge(&url, "confidence", "run"));
    std::os::unix::fs::symlink("/nowhere/at-all", scene.at("ledger.db-shm")).unwrap();
    let before = std::fs::read(scene.at("ledger.db")).unwrap();
    let mut replay = scene.judge(&url, "confidence", "replayed");
    expect(0, replay.arg("--replay"));
    assert_same_tables(&scene.at("run"), &scene.at("replayed"));
    let mut plan = program();
    plan.arg("plan").arg(scene.at("traces.jsonl"));
    plan.args(["--metrics", "confidence", "--judge", "openai/test"]);
    plan.args(["--judge-url", &url, "--json", "--ledger"]);
    let planned = expect(0, plan.arg(scene.at("ledger.db")));
    let planned: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!(planned["total"]["known"], 2, "{planned}");
    // Whoever asks must be able to keep the answers.
    expect(2, &mut scene.judge(&url, "confidence", "asked"));
    assert_eq!(judge.prompt_count(), 2);
    assert_eq!(std::fs::read(scene.at("ledger.db")).unwrap(), before);
}

#[test]
fn replaying_a_ledger_that_is_not_there_makes_none() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    let mut replay = scene.judge(&judge.url(), "confidence", "run");
    let ran = expect(2, replay.arg("--replay"));
    let path = scene.at("ledger.db").display().to_string();
    assert!(
        ran.stderr.contains(&path) && ran.stderr.contains("--ledger"),
        "{ran:?}"
    );
    assert!(!scene.at("ledger.db").exists() && !scene.at("run").exists());
    assert_eq!(judge.asked().len(), 0);
}

#[test]
fn offline_refuses_judged_metrics_before_anything_is_read() {
    let scene = Scene::new(&[]);
    // Not even the path of the traces is looked at.
    std::fs::remove_file(scene.at("traces.jsonl")).unwrap();
    let judge = ScriptedJudge::start(script);
    for metrics in [
        "confidence",
        "coherence,plan_quality",
        super::scene::ALL_BUT_CONVERSATIONS,
    ] {
        let mut command = scene.judge(&judge.url(), metrics, "run");
        let ran = expect(2, command.arg("--offline"));
        assert!(ran.stderr.contains("--offline"), "{ran:?}");
        assert!(!ran.stderr.contains("traces.jsonl"), "{ran:?}");
    }
    assert_eq!(crate::support::entries(scene.folder()), [""; 0]);
    assert_eq!(judge.asked().len(), 0);
}

#[test]
fn without_a_judged_metric_nobody_is_asked() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let metrics = "coherence,agent_reliability";
    let mut named = scene.score(metrics, "run");
    named.env("NIGHTMILL_JUDGE", "openai/test");
    named.env("NIGHTMILL_JUDGE_URL", judge.url());
    named.env("NIGHTMILL_LEDGER", scene.at("ledger.db"));
    expect(0, &mut named);
    expect(0, scene.score("coherence", "offline").arg("--offline"));
    assert_eq!(judge.asked().len(), 0);
    assert!(!scene.at("ledger.db").exists());
    assert!(summary(&scene.at("run")).get("judge").is_none());
    // Nor by default: judged metrics are never among those that a run takes by itself.
    let mut default = crate::support::program();
    default.arg("score").arg(scene.at("traces.jsonl"));
    default
        .args(["--no-report", "--out"])
        .arg(scene.at("default"));
    default.env("NIGHTMILL_JUDGE", "openai/test");
    default.env("NIGHTMILL_JUDGE_URL", judge.url());
    expect(0, &mut default);
    assert_eq!(judge.asked().len(), 0);
    // Flags are meant for this run.
    let ran = expect(2, &mut scene.judge(&judge.url(), metrics, "refused"));
    assert!(ran.stderr.contains("--judge: no metric"), "{ran:?}");
}

#[test]
fn a_missing_model_or_key_stops_the_run_by_name() {
    let scene = Scene::new(&traces(1));
    let ran = expect(2, &mut scene.score("confidence", "run"));
    assert!(ran.stderr.contains("--judge"), "{ran:?}");
    let mut keyless = scene.score("confidence", "run");
    let ran = expect(2, keyless.args(["--judge", "openai/test"]));
    assert!(ran.stderr.contains("OPENAI_API_KEY"), "{ran:?}");
    let mut empty = scene.score("confidence", "run");
    empty.env("OPENAI_API_KEY", " ");
    let ran = expect(2, empty.args(["--judge", "openai/test"]));
    assert!(ran.stderr.contains("OPENAI_API_KEY"), "{ran:?}");
    let mut other = scene.score("confidence", "run");
    other.env("OPENAI_API_KEY", "sk-of-another-provider");
    other.env_remove("ANTHROPIC_API_KEY");
    let ran = expect(2, other.args(["--judge", "anthropic/test"]));
    assert!(ran.stderr.contains("ANTHROPIC_API_KEY"), "{ran:?}");
    assert_eq!(crate::support::entries(scene.folder()), ["traces.jsonl"]);
}

#[test]
fn a_ledger_is_a_file_whatever_it_is_called() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(script);
    for (at, name) in [":memory:", "file:ledger.db?mode=memory"]
        .into_iter()
        .enumerate()
    {
        for out in ["first", "second"] {
            let mut command = program();
            command
                .env_remove("OPENAI_API_KEY")
                .env("NO_PROXY", "127.0.0.1");
            command.current_dir(scene.folder());
            command.args([
                "score",
                "traces.jsonl",
                "--no-report",
                "--metrics",
                "confidence",
            ]);
            command.args(["--judge", "openai/test", "--judge-url", &judge.url()]);
            command.args(["--ledger", name, "--out", &format!("{out}-{at}")]);
            expect(0, &mut command);
            assert_eq!(judge.prompt_count(), at + 1, "{name}, {out}");
        }
        assert!(std::fs::metadata(scene.at(name)).unwrap().len() > 0);
    }
}

/// A byte of a reply that changes on disk: the reply is not used, and the question is asked again.
#[test]
fn a_reply_that_changed_on_disk_is_asked_again() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(script);
    let url = judge.url();
    expect(0, &mut scene.judge(&url, "confidence", "first"));
    assert_eq!(judge.prompt_count(), 3);
    let mut ledger = std::fs::read(scene.at("ledger.db")).unwrap();
    let found = ledger.windows(4).position(|bytes| bytes == b"0.75");
    ledger[found.expect("a reply with its score") + 2] = b'3';
    std::fs::write(scene.at("ledger.db"), ledger).unwrap();

    let ran = expect(
        3,
        scene.judge(&url, "confidence", "replayed").arg("--replay"),
    );
    assert!(ran.stderr.contains("damaged"), "{ran:?}");
    let ran = expect(0, &mut scene.judge(&url, "confidence", "again"));
    assert_eq!(judge.prompt_count(), 4, "{ran:?}");
    assert_same_tables(&scene.at("first"), &scene.at("again"));
    let ran = expect(0, &mut scene.judge(&url, "confidence", "last"));
    assert!(
        judge.prompt_count() == 4 && !ran.stderr.contains("damaged"),
        "{ran:?}"
    );
}

/// A ledger of the version before checks gets them when it is opened to be written.
#[test]
fn answers_of_an_older_ledger_get_their_check() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(script);
    let url = judge.url();
    expect(0, &mut scene.judge(&url, "confidence", "first"));
    let older = rusqlite::Connection::open(scene.at("ledger.db")).unwrap();
    older
        .execute_batch("ALTER TABLE calls DROP COLUMN checked_by; PRAGMA user_version = 4;")
        .unwrap();
    drop(older);
    expect(0, &mut scene.judge(&url, "confidence", "second"));
    assert_eq!(judge.prompt_count(), 2, "an old answer was not used");
    let renewed = rusqlite::Connection::open(scene.at("ledger.db")).unwrap();
    let unchecked: i64 = renewed
        .query_row(
            "SELECT count(*) FROM calls WHERE checked_by IS NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(unchecked, 0);
}
