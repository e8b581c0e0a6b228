//! What judging tables of turns would ask and cost, before anything is sent.

use std::process::Command;

use serde_json::{Value, json};

use super::scene::expect;
use super::scene_of_turns::{Scene, script, turns_of};
use super::tables::Table;
use crate::scripted_judge::ScriptedJudge;
use crate::support::{entries, program};

/// Dollars for a million tokens of questions and of replies.
const PRICE: [&str; 2] = ["--price", "openai/test=1:2"];

#[track_caller]
fn json_of(command: &mut Command) -> Value {
    serde_json::from_str(&expect(0, command.arg("--json")).stdout).unwrap()
}

fn dry_run(scene: &Scene, url: &str) -> Command {
    let mut command = scene.conversations(url, "turns.jsonl");
    command.arg("--dry-run").args(PRICE);
    command
}

#[test]
fn calls_tokens_and_money_are_shown_and_nothing_is_sent() {
    let mut rows = turns_of(&["s-1", "s-2", "s-3", "s-4", "s-5"]);
    rows[17]["role"] = json!("agent");
    let cases = [
        json!({"session_id": "s-1"}),
        json!({"session_id": "s-3", "error": "timeout"}),
        json!({"session_id": "s-4", "status": "draft"}),
    ];
    let scene = Scene::new(&rows, &cases);
    let judge = ScriptedJudge::start(script);
    let before = entries(scene.folder());
    let plan = json_of(&mut dry_run(&scene, &judge.url()));
    assert_eq!(judge.asked().len(), 0);
    assert_eq!(entries(scene.folder()), before, "neither run nor ledger");

    let total = &plan["total"];
    assert_eq!((&plan["rows"], &total["calls"]), (&json!(23), &json!(2)));
    assert_eq!(total["known"], 0);
    assert_eq!(total["reply_tokens"], 2 * 4 * 200);
    let count = |name: &str| total[name].as_f64().unwrap();
    let dollars = (count("prompt_tokens") + 2.0 * count("reply_tokens")) / 1e6;
    assert!((count("cost") - dollars).abs() < 1e-12, "{total}");
    let tables = &plan["tables"];
    for (name, expected) in [
        ("conversations", 4),
        ("not_asked", 2),
        ("turn_rows", 20),
        ("case_rows", 3),
        ("not_active", 1),
        ("without_case", 1),
        ("quarantined", 1),
    ] {
        assert_eq!(tables[name], expected, "{name}: {tables}");
    }
    let text = expect(0, &mut dry_run(&scene, &judge.url())).stdout;
    for words in [
        "2 of 4 conversations would be judged, from 20 rows of turns and 3 of cases; nothing was sent",
        "1 row quarantined: invalid_value",
        "2 conversations would fail without a call",
        "1 conversation left out: its case is a draft",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }

    // The run asks as often as was planned, and then the ledger knows it all.
    expect(3, &mut scene.judge(&judge.url(), "turns.jsonl", "run"));
    assert_eq!(judge.prompt_count(), 2);
    let after = json_of(&mut dry_run(&scene, &judge.url()));
    assert_eq!(after["total"]["known"], 2);
    assert_eq!(after["total"]["prompt_tokens"], total["prompt_tokens"]);
    assert_eq!(after["total"]["cost"], 0.0);
    assert_eq!(judge.prompt_count(), 2);
}

#[test]
fn a_table_of_turns_costs_what_the_same_session_of_traces_costs() {
    let said = |turn_index: usize, role: &str, content: &str| json!({"session_id": "s", "turn_index": turn_index, "role": role, "content": content});
    let scene = Scene::new(
        &[
            said(0, "user", "Where is order 7?"),
            said(1, "assistant", "It left the house."),
        ],
        &[],
    );
    let trace = json!({"trace_id": "t", "session_id": "s", "started_at": "2026-01-01T00:00:00Z",
        "input": "Where is order 7?", "output": "It left the house."});
    scene.write("traces.jsonl", &[trace]);
    let judge = ScriptedJudge::start(script);
    expect(0, &mut scene.judge(&judge.url(), "turns.jsonl", "run"));
    let of_turns = json_of(&mut dry_run(&scene, &judge.url()));
    let mut command = program();
    command
        .arg("plan")
        .arg(scene.at("traces.jsonl"))
        .args(PRICE);
    command.args(["--metrics", "conversation", "--judge", "openai/test"]);
    command.args(["--judge-url", &judge.url()]);
    command.arg("--ledger").arg(scene.at("ledger.db"));
    let of_traces = json_of(&mut command);
    assert!(of_traces.get("tables").is_none());
    for figure in [
        "name",
        "model",
        "calls",
        "known",
        "prompt_tokens",
        "reply_tokens",
        "cost",
    ] {
        let [turns, traces] = [&of_turns, &of_traces].map(|plan| &plan["metrics"][0][figure]);
        assert_eq!(turns, traces, "{figure}");
        assert!(!turns.is_null(), "{figure}");
    }
    // The ledger has the answer to both: they are one question.
    assert_eq!(of_traces["total"]["known"], 1);
}

#[test]
fn a_plan_is_written_a_row_a_conversation() {
    let cases = [
        json!({"session_id": "s-1", "test_case": "order", "repetition_index": 2}),
        json!({"session_id": "s-3", "error": "timeout"}),
    ];
    let scene = Scene::new(&turns_of(&["s-1", "s-2", "s-3"]), &cases);
    let judge = ScriptedJudge::start(script);
    let written = |code: i32, out: &str, more: &[&str]| {
        let mut command = dry_run(&scene, &judge.url());
        let ran = expect(code, command.arg("--out").arg(scene.at(out)).args(more));
        assert_eq!(judge.asked().len(), 0);
        ran
    };
    let ran = written(0, "plan", &[]);
    assert!(ran.stdout.contains("tables: "), "{ran:?}");
    let plan: Value =
        serde_json::from_slice(&std::fs::read(scene.at("plan/summary.json")).unwrap()).unwrap();
    assert_eq!(plan, json_of(&mut dry_run(&scene, &judge.url())));
    let table = Table::of(&scene.at("plan"), "judge_plan");
    let some = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
    assert_eq!(table.texts("session_id"), some(["s-1", "s-2", "s-3"]));
    assert_eq!(table.texts("test_case"), some(["order", "s-2", "s-3"]));
    assert_eq!(
        table.numbers("repetition_index"),
        [Some(2.0), Some(0.0), Some(0.0)]
    );
    let why = table.texts("not_asked");
    assert_eq!((&why[0], &why[1]), (&None, &None));
    assert!(why[2].as_ref().unwrap().contains("timeout"), "{why:?}");
    for (column, total) in [
        ("prompt_tokens", "prompt_tokens"),
        ("reply_tokens", "reply_tokens"),
        ("cost_usd", "cost"),
    ] {
        let found = table.numbers(column);
        assert_eq!(found[2], None);
        let sum: f64 = found.into_iter().flatten().sum();
        let total = plan["total"][total].as_f64().unwrap();
        assert!((sum - total).abs() < 1e-12, "{column}");
    }
    assert_eq!(table.flags("known"), [Some(false), Some(false), None]);
    let readme = std::fs::read_to_string(crate::support::root().join("src/run/README.md")).unwrap();
    for column in table.names() {
        assert!(readme.contains(&format!("`{column}`")), "{column}");
    }

    // A plan replaces a plan and no run; a list of runs passes over it.
    written(2, "plan", &[]);
    written(0, "plan", &["--overwrite"]);
    expect(3, &mut scene.judge(&judge.url(), "turns.jsonl", "run"));
    let mut onto_run = dry_run(&scene, &judge.url());
    let refused = expect(
        2,
        onto_run
            .arg("--overwrite")
            .arg("--out")
            .arg(scene.at("run")),
    );
    assert!(refused.stderr.contains("judge_plan"), "{refused:?}");
    let hashes = Table::of(&scene.at("run"), "judge_verdicts").texts("request_hash");
    assert_eq!(hashes, table.texts("request_hash"));
    let mut runs = program();
    let listed = expect(0, runs.args(["runs", "list"]).arg(scene.folder()));
    assert!(
        listed.stdout.contains("run") && !listed.stdout.contains("plan"),
        "{listed:?}"
    );
}

#[test]
fn a_run_needs_a_place_and_a_plan_needs_none() {
    let scene = Scene::new(&turns_of(&["s"]), &[]);
    let judge = ScriptedJudge::start(script);
    let mut nowhere = scene.conversations(&judge.url(), "turns.jsonl");
    let refused = expect(2, &mut nowhere);
    assert!(refused.stderr.contains("--out"), "{refused:?}");
    let mut idle = dry_run(&scene, &judge.url());
    let refused = expect(2, idle.args(["--metrics", "coherence"]));
    assert!(refused.stderr.contains("--metrics"), "{refused:?}");
    let mut keyless = program();
    keyless.arg("conversations").arg(scene.at("turns.jsonl"));
    keyless.args(["--dry-run", "--judge", "openai/gpt-4o-mini"]);
    keyless.env_remove("OPENAI_API_KEY");
    keyless.env("XDG_DATA_HOME", scene.folder());
    let ran = expect(0, &mut keyless);
    assert!(ran.stdout.contains("nothing was sent"), "{ran:?}");
    assert_eq!(judge.asked().len(), 0);
}
