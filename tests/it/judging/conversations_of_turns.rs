//! Conversations from tables of turns and cases: what is asked, what comes out, and what bad rows do.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema};
use serde_json::{Value, json};

use super::scene::expect;
use super::scene_of_turns::{EMPHASIS, FOUND, OFFERED, Scene, script, turns, turns_of};
use super::tables::{Table, assert_same_tables, score};
use crate::scripted_judge::ScriptedJudge;
use crate::support::{nightmill, summary, write_parquet};

fn texts(table: &Table, column: &str) -> Vec<String> {
    let texts = table.texts(column);
    texts.into_iter().map(Option::unwrap_or_default).collect()
}

/// The figures of a run, of which there is one row.
fn figure(run: &Path, name: &str) -> Option<f64> {
    let figures = Table::of(run, "run_summary").numbers(name);
    assert_eq!(figures.len(), 1);
    figures[0]
}

#[test]
fn expected_outcomes_decide_the_case_and_what_cannot_be_judged_is_asked_of_nobody() {
    let cases = [
        json!({"session_id": "s-1", "test_case": "order", "expected_outcomes": [FOUND],
            "name": "Where is it?", "difficulty": "hard", "tags": ["order", "calm"]}),
        // The older form of outcomes.
        json!({"session_id": "s-2", "test_case": "order", "repetition_index": 1,
            "expected_outcomes": {"then": OFFERED}}),
        json!({"session_id": "s-4", "status": "draft"}),
        json!({"session_id": "s-5", "error": "timeout", "agent_cost_usd": 0.5,
            "platform_cost_usd": 0.25, "agent_token_usage": {"prompt_tokens": 7}}),
        json!({"session_id": "s-6"}),
    ];
    let scene = Scene::new(&turns_of(&["s-3", "s-1", "s-5", "s-2", "s-4"]), &cases);
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
    let ran = expect(3, command.arg("--json"));
    let run = scene.at("run");

    // One call each for s-1, s-2 and s-3; the outcomes of s-2 are statements.
    let prompts = judge.prompts();
    assert_eq!(prompts.len(), 3);
    let of = |session: &str| prompts.iter().find(|asked| asked.user.contains(session));
    assert!(
        of("s-2")
            .unwrap()
            .user
            .contains(&format!("then: {OFFERED}"))
    );
    assert!(of("s-1").unwrap().user.contains("look_up"));
    let schema = of("s-3").unwrap().schema.clone().unwrap();
    assert!(schema["properties"].get("expected_outcomes").is_none());

    let verdicts = Table::of(&run, "judge_verdicts");
    assert_eq!(
        texts(&verdicts, "session_id"),
        ["s-1", "s-2", "s-3", "s-5", "s-6"]
    );
    assert_eq!(
        texts(&verdicts, "test_case"),
        ["order", "order", "s-3", "s-5", "s-6"]
    );
    assert_eq!(
        verdicts.numbers("repetition_index"),
        [0.0, 1.0, 0.0, 0.0, 0.0].map(Some)
    );
    assert_eq!(
        verdicts.numbers("overall_score"),
        [Some(80.0), Some(80.0), Some(80.0), None, None]
    );
    assert_eq!(
        verdicts.flags("passed"),
        [Some(true), Some(true), Some(true), None, None]
    );
    assert_eq!(
        verdicts.flags("case_passed"),
        [true, false, true, false, false].map(Some)
    );
    assert_eq!(verdicts.numbers("agent_latency_p50_ms")[0], Some(800.0));
    assert_eq!(verdicts.numbers("traces")[0], None);
    let reasons = texts(&verdicts, "reason");
    assert!(reasons[3].contains("timeout"), "{}", reasons[3]);
    let only = |row: usize, text: &str| -> Vec<Option<String>> {
        let at = |found: usize| (found == row).then(|| text.to_owned());
        (0..5).map(at).collect()
    };
    assert_eq!(verdicts.texts("name"), only(0, "Where is it?"));
    assert_eq!(verdicts.texts("difficulty"), only(0, "hard"));
    assert_eq!(verdicts.texts("error"), only(3, "timeout"));
    let usage = only(3, r#"{"prompt_tokens":7}"#);
    assert_eq!(verdicts.texts("agent_token_usage"), usage);
    let tags = verdicts.lists("tags");
    let first = vec!["order".to_owned(), "calm".to_owned()];
    assert_eq!(tags, [Some(first), None, None, None, None]);
    let asked: Vec<bool> = verdicts
        .texts("request_hash")
        .iter()
        .map(Option::is_some)
        .collect();
    assert_eq!(asked, [true, true, true, false, false]);
    let outcomes = Table::of(&run, "judge_outcomes");
    assert_eq!(texts(&outcomes, "session_id"), ["s-1", "s-2"]);
    assert_eq!(texts(&outcomes, "statement"), [FOUND, OFFERED]);
    assert_eq!(outcomes.flags("passed"), [Some(true), Some(false)]);
    assert_eq!(score(&run, "s-1", "conversation").score, Some(0.8));
    assert_eq!(score(&run, "s-6", "conversation").status, "FAILED");

    for (name, value) in [
        ("total_executions", 5.0),
        ("unique_test_case_count", 4.0),
        ("passed_count", 2.0),
        ("failed_count", 2.0),
        ("error_count", 1.0),
        ("total_estimated_cost_usd", 0.75),
        ("avg_overall_score", 80.0),
    ] {
        assert_eq!(figure(&run, name), Some(value), "{name}");
    }
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed, summary(&run));
    let tables = &printed["judge"]["conversations"]["tables"];
    assert_eq!(
        (&tables["turn_rows"], &tables["case_rows"]),
        (&json!(20), &json!(5))
    );
    assert_eq!(
        (&tables["not_active"], &tables["without_case"]),
        (&json!(1), &json!(1))
    );

    // Drafts too, if that is asked for: s-4 is the only new question.
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "all");
    expect(3, command.arg("--all-statuses"));
    assert_eq!(judge.prompt_count(), 4);

    // The runs are runs like any other.
    let path = run.display().to_string();
    let listed = nightmill(["runs", "list", &path, "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["command"], "conversations");
    assert_eq!(
        (&listed[0]["judged"], &listed[0]["failed"]),
        (&json!(3), &json!(2))
    );
    let shown = nightmill(["runs", "summary", &path, "--target", "session"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("conversation"), "{shown:?}");

    // What is read back from the tables are the figures that the run told.
    let path = path.as_str();
    let figures = nightmill([
        "runs",
        "summary",
        path,
        "--target",
        "conversation",
        "--json",
    ]);
    let figures: Value = serde_json::from_str(&figures.stdout).unwrap();
    let told = &printed["judge"]["conversations"]["run"];
    assert_eq!(&figures[0]["figures"], told);
    let same = nightmill(["runs", "comparison", path, path, "--json"]);
    let same: Value = serde_json::from_str(&same.stdout).unwrap();
    let aggregate = &same["conversations"]["aggregate"];
    assert_eq!(
        (&aggregate["errors"], &aggregate["cost_delta_usd"]),
        (&json!(1), &json!(0.0))
    );
}

#[test]
fn an_emphasis_reaches_the_judge_and_changes_the_overall_score() {
    let cases = [
        json!({"session_id": "s-1", "evaluation_criteria_override": format!("  {EMPHASIS}\n")}),
        json!({"session_id": "s-2", "evaluation_criteria_override": "  "}),
    ];
    let scene = Scene::new(&turns_of(&["s-1", "s-2"]), &cases);
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
    let ran = expect(0, &mut command);
    assert!(
        ran.stdout.contains("2 conversations of 2 test cases"),
        "{ran:?}"
    );
    let verdicts = Table::of(&scene.at("run"), "judge_verdicts");
    assert_eq!(verdicts.numbers("overall_score"), [Some(40.0), Some(80.0)]);
    assert_eq!(verdicts.flags("case_passed"), [Some(false), Some(true)]);
    // The system message is the same for all cases.
    let prompts = judge.prompts();
    assert_eq!(prompts[0].system, prompts[1].system);
    // The bar and the gate are those of `score`; the same answers are judged anew.
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "low");
    command.args(["--threshold", "conversation=0.4"]);
    let ran = expect(1, command.args(["--fail-under", "conversation=0.7"]));
    assert!(ran.stdout.contains("gate FAILED"), "{ran:?}");
    let verdicts = Table::of(&scene.at("low"), "judge_verdicts");
    assert_eq!(verdicts.flags("passed"), [Some(true), Some(true)]);
    assert_eq!(judge.prompt_count(), 2);
}

#[test]
fn a_comparison_sees_a_changed_prompt_and_tools_of_the_agent() {
    let case = |session: &str, prompt: &str, tool: &str| {
        json!({"session_id": session, "agent_system_prompt": prompt,
            "agent_tools": [{"function": {"name": tool}}]})
    };
    let run = |scene: &Scene, judge: &ScriptedJudge, out: &str| {
        expect(0, &mut scene.judge(&judge.url(), "turns.jsonl", out));
    };
    let turns = turns_of(&["s-1", "s-2"]);
    let judge = ScriptedJudge::start(script);
    let old = Scene::new(
        &turns,
        &["s-1", "s-2"].map(|s| case(s, "Be brief.", "find")),
    );
    run(&old, &judge, "run");
    let new = Scene::new(
        &turns,
        &["s-1", "s-2"].map(|s| case(s, "Be kind.", "look_up")),
    );
    run(&new, &judge, "run");
    // One agent is not known where its conversations differ.
    let mixed = [
        case("s-1", "Be brief.", "find"),
        case("s-2", "Be kind.", "find"),
    ];
    let mixed = Scene::new(&turns, &mixed);
    run(&mixed, &judge, "run");
    let compared = |other: &Scene, json: bool| {
        let mut command = crate::support::program();
        command.args(["runs", "comparison"]);
        command.arg(old.at("run")).arg(other.at("run"));
        if json {
            command.arg("--json");
        }
        expect(0, &mut command).stdout
    };
    let found: Value = serde_json::from_str(&compared(&new, true)).unwrap();
    let differences = &found["conversations"]["differences"];
    let diff = differences["prompt"]["diff"].as_str().unwrap();
    assert!(
        diff.contains("-Be brief.") && diff.contains("+Be kind."),
        "{diff}"
    );
    assert_eq!(differences["tools"]["added"], json!(["look_up"]));
    assert_eq!(differences["tools"]["removed"], json!(["find"]));
    let shown = compared(&new, false);
    assert!(
        shown.contains("system prompt differs: 1 line added, 1 removed")
            && shown.contains("tools of the agent added: look_up"),
        "{shown}"
    );
    let found: Value = serde_json::from_str(&compared(&mixed, true)).unwrap();
    let differences = &found["conversations"]["differences"];
    assert_eq!(differences["prompt"], Value::Null);
    assert_eq!(differences["tools"]["added"], json!([]));
}

#[test]
fn bad_rows_are_set_aside_and_their_transcripts_are_not_judged() {
    let mut rows = turns_of(&["s-1", "s-2", "s-3", "s-4"]);
    rows[5]["role"] = json!("agent");
    rows.push(json!("{oops"));
    rows.push(json!({"turn_index": 0, "role": "user", "content": "whose?"}));
    // Twice the same is once; twice something else is a question.
    rows.push(turns("s-3")[0].clone());
    let mut other = turns("s-4")[0].clone();
    other["content"] = json!("something else");
    rows.push(other);
    rows.extend(turns("s-5"));
    let cases = [
        json!({"session_id": "s-1"}),
        json!({"session_id": "s-5", "status": "live"}),
    ];
    let scene = Scene::new(&rows, &cases);
    let judge = ScriptedJudge::start(script);
    let ran = expect(3, &mut scene.judge(&judge.url(), "turns.jsonl", "run"));
    assert!(ran.stdout.contains("quarantined"), "{ran:?}");
    assert_eq!(judge.prompt_count(), 2);

    let run = scene.at("run");
    let quarantine = Table::of(&run, "quarantine");
    assert_eq!(
        quarantine.numbers("first_row"),
        [1.0, 5.0, 16.0, 17.0, 19.0].map(Some)
    );
    assert_eq!(
        texts(&quarantine, "column"),
        ["status", "role", "", "session_id", "turn_index"]
    );
    let codes = texts(&quarantine, "code");
    assert_eq!(codes[2], "invalid_json");
    assert!(
        codes.iter().filter(|code| *code == "invalid_value").count() == 4,
        "{codes:?}"
    );
    let summary = summary(&run);
    assert_eq!(
        (&summary["quarantined"], &summary["merged_duplicates"]),
        (&json!(5), &json!(1))
    );

    let verdicts = Table::of(&run, "judge_verdicts");
    let statuses: Vec<String> = texts(&verdicts, "status");
    assert_eq!(
        statuses,
        ["SUCCESS", "FAILED", "SUCCESS", "FAILED", "FAILED"]
    );
    let reasons = texts(&verdicts, "reason");
    for (at, words) in [(1, "`agent`"), (3, "another turn 0"), (4, "`live`")] {
        assert!(reasons[at].contains(words), "{}", reasons[at]);
    }
}

#[test]
fn a_capped_run_ends_with_3_and_a_later_one_asks_only_the_rest() {
    let scene = Scene::new(&turns_of(&["s-1", "s-2", "s-3"]), &[]);
    let judge = ScriptedJudge::start(script);
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "capped");
    let ran = expect(3, command.args(["--max-calls", "1"]));
    assert!(ran.stdout.contains("2 pending"), "{ran:?}");
    assert_eq!(judge.prompt_count(), 1);
    let verdicts = Table::of(&scene.at("capped"), "judge_verdicts");
    let pending = verdicts
        .flags("case_passed")
        .into_iter()
        .filter(Option::is_none);
    assert_eq!(pending.count(), 2);

    expect(0, &mut scene.judge(&judge.url(), "turns.jsonl", "rest"));
    assert_eq!(judge.prompt_count(), 3);
    let mut replay = scene.judge(&judge.url(), "turns.jsonl", "replayed");
    expect(0, replay.args(["--replay", "--offline"]));
    assert_eq!(judge.prompt_count(), 3);
    assert_same_tables(&scene.at("rest"), &scene.at("replayed"));

    // A sample is a share of the transcripts; another run of it is the same one.
    let mut command = scene.judge(&judge.url(), "turns.jsonl", "sampled");
    expect(0, command.args(["--judge-sample", "0.4", "--replay"]));
    let verdicts = Table::of(&scene.at("sampled"), "judge_verdicts");
    assert_eq!(verdicts.texts("session_id").len(), 1);
}

/// The table of turns as Parquet in the types that a transcript store has.
fn parquet_of(rows: &[Value], path: &Path) {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let call = Fields::from(vec![text("id"), text("name"), text("arguments")]);
    let calls = Field::new_list_field(DataType::Struct(call), true);
    let schema = Arc::new(Schema::new(vec![
        text("session_id"),
        Field::new("turn_index", DataType::Int32, false),
        text("role"),
        text("content"),
        Field::new("tool_calls", DataType::List(Arc::new(calls)), true),
        text("tool_call_id"),
        Field::new("latency_ms", DataType::Int64, true),
    ]));
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let batches = arrow::json::ReaderBuilder::new(schema).build(lines.as_bytes());
    let batches: Vec<_> = batches.unwrap().map(Result::unwrap).collect();
    write_parquet(path, &batches, 5);
}

#[test]
fn parquet_in_any_order_of_rows_asks_what_json_lines_ask() {
    let sessions: Vec<String> = (0..12).map(|at| format!("s-{at:02}")).collect();
    let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
    let rows = turns_of(&sessions);
    let scene = Scene::new(
        &rows,
        &[json!({"session_id": "s-03", "expected_outcomes": [FOUND]})],
    );
    // Turn by turn instead of session by session, and backwards.
    let mut mixed = rows.clone();
    mixed.sort_by_key(|row| std::cmp::Reverse(row["turn_index"].as_i64()));
    parquet_of(&mixed, &scene.at("mixed.parquet"));
    scene.write("mixed.jsonl", &mixed);
    let judge = ScriptedJudge::start(script);
    expect(0, &mut scene.judge(&judge.url(), "turns.jsonl", "lines"));
    assert_eq!(judge.prompt_count(), sessions.len());
    for (turns, out) in [("mixed.parquet", "parquet"), ("mixed.jsonl", "mixed")] {
        expect(0, &mut scene.judge(&judge.url(), turns, out));
        assert_eq!(
            judge.prompt_count(),
            sessions.len(),
            "{turns} asked something else"
        );
        assert_same_tables(&scene.at("lines"), &scene.at(out));
    }
}

#[test]
fn wrong_tables_and_idle_flags_are_refused_before_anything_is_asked() {
    let scene = Scene::new(
        &[json!({"session_id": "s", "index": 0, "role": "user", "content": "x"})],
        &[],
    );
    let judge = ScriptedJudge::start(script);
    let ran = expect(2, &mut scene.judge(&judge.url(), "turns.jsonl", "run"));
    assert!(ran.stderr.contains("turn_index"), "{ran:?}");
    scene.write("turns.jsonl", &turns("s"));
    for (flag, value) in [
        ("--judge-where", "coherence < 1"),
        ("--judge-policy", "compat"),
        ("--metrics", "coherence"),
        ("--threshold", "coherence=0.5"),
    ] {
        let mut command = scene.judge(&judge.url(), "turns.jsonl", "run");
        let ran = expect(2, command.args([flag, value]));
        assert!(ran.stderr.contains(flag), "{ran:?}");
    }
    assert_eq!(judge.asked().len(), 0);
    assert!(!scene.at("run").exists());
}
