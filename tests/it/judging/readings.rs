//! How often a judged run reads its input: small columns once, texts once, and beside that the rows that judges see.

use std::path::Path;

use serde_json::json;

use super::retry::verdict;
use super::scene::{Scene, expect, reply_to, stage, traces};
use super::tables::{Table, targets};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::program;

const ROWS: usize = 900;
/// Rows that are looked at before: 64 for texts that look like JSON, 64 for cells that are documents.
const FIRST_LOOK: usize = 128;

fn script(asked: &Asked) -> Answer {
    match stage(asked) {
        "confidence_score" => Answer::reply(reply_to(asked, 0.75)),
        _ => verdict(asked),
    }
}

/// A number of the line that says how many rows were decoded.
fn number(log: &str, name: &str) -> usize {
    let line = log.lines().find(|line| line.contains("rows decoded"));
    let line = line.unwrap_or_else(|| panic!("no such line: {log}"));
    let value = line.split_once(&format!(" {name}=")).unwrap().1;
    let digits = value.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// A run with everything that looks at traces before they are scored: targets, a condition, traces and conversations.
fn run(scene: &Scene, judge: &ScriptedJudge, file: &Path, out: &str) {
    scene.forget_answers();
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command.arg("score").arg(file).arg("-v");
    command.args(["--metrics", "confidence,loop_detection,conversation"]);
    command.args(["--judge", "openai/test", "--judge-url", &judge.url()]);
    command.args(["--target", "session", "--sample", "0.5"]);
    command.args(["--judge-where", "loop_detection < 2"]);
    command.args(["--judge-sample", "0.05", "--no-report"]);
    command.arg("--ledger").arg(scene.at("ledger.db"));
    command.arg("--out").arg(scene.at(out));
    let ran = expect(0, &mut command);
    let judged = targets(&scene.at(out), "confidence").len();
    let sessions = Table::of(&scene.at(out), "judge_verdicts").numbers("traces");
    let of_sessions: f64 = sessions.into_iter().flatten().sum();
    // Half of 300 sessions of three traces, and a twentieth of those.
    assert_eq!((judged, of_sessions), (22, 21.0));
    assert_eq!(number(&ran.stderr, "rows"), ROWS);
    assert_eq!(number(&ran.stderr, "scored"), ROWS + FIRST_LOOK);
    let looked_up = ROWS + judged + of_sessions as usize;
    assert_eq!(number(&ran.stderr, "looked_up"), looked_up);
}

#[test]
fn a_judged_run_reads_its_input_twice_whatever_the_format() {
    let mut traces = traces(ROWS);
    for (case, trace) in traces.iter_mut().enumerate() {
        // The traces of a session lie far apart.
        trace["session_id"] = json!(format!("s-{:03}", case % 300));
    }
    let scene = Scene::new(&traces);
    let judge = ScriptedJudge::start(script);
    run(&scene, &judge, &scene.at("traces.jsonl"), "of-lines");
    let lines = scene.at("traces.jsonl");
    let parquet = scene.at("traces.parquet");
    let query = format!("SELECT * FROM '{}'", lines.display());
    expect(0, program().args(["sql", &query, "--out"]).arg(&parquet));
    run(&scene, &judge, &parquet, "of-parquet");
    for table in ["traces", "scores", "sessions"] {
        let bytes = |out: &str| {
            std::fs::read(scene.at(out).join(table).join("part-00000.parquet")).unwrap()
        };
        // The same tables, whatever the format.
        assert!(bytes("of-lines") == bytes("of-parquet"), "{table}");
    }
}
