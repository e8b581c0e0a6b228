//! How fast are judged rows when the judge costs no time? 10,000 traces, one metric, against a server of this process that
//! answers at once; and with the answers in the ledger.
//!
//! `cargo bench --bench judge [-- TRACES]`
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench is for people, and a failed one is a panic"
)]

use std::io::Write;
use std::process::Command;
use std::time::Instant;

#[path = "../tests/it/scripted_judge.rs"]
mod scripted_judge;

use scripted_judge::{Answer, ScriptedJudge};

fn main() {
    let given = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok());
    let traces: usize = given.unwrap_or(10_000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("traces.jsonl");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
    for trace in 0..traces {
        let line = serde_json::json!({
            "trace_id": format!("trace-{trace}"),
            "session_id": format!("session-{}", trace / 5),
            "started_at": format!("2026-01-01T{:02}:{:02}:{:02}Z", trace / 3600 % 24, trace / 60 % 60, trace % 60),
            "input": format!("Where is order {trace}?"),
            "output": format!("Order {trace} leaves today."),
            "spans": [{"span_id": "1", "kind": "TOOL", "name": "find_order", "input": {"id": trace}, "output": {"state": "packed"}}],
        });
        writeln!(out, "{line}").unwrap();
    }
    out.into_inner().unwrap();
    let judge = ScriptedJudge::start(|_| Answer::reply(r#"{"confidence": 0.9, "reason": "sure"}"#));
    judge.keep_requests(false);
    for (name, run) in [("asked", "first"), ("from the ledger", "second")] {
        let started = Instant::now();
        let mut program = Command::new(env!("CARGO_BIN_EXE_nightmill"));
        program
            .arg("score")
            .arg(&file)
            .args(["--metrics", "confidence", "--judge", "openai/test"]);
        program.args([
            "--no-report",
            "--judge-concurrency",
            "32",
            "--judge-url",
            &judge.url(),
        ]);
        program.arg("--ledger").arg(folder.path().join("ledger.db"));
        program
            .arg("--out")
            .arg(folder.path().join(run))
            .env("NIGHTMILL_NO_CACHE", "1");
        let ended = program.output().unwrap();
        let seconds = started.elapsed().as_secs_f64();
        assert!(
            ended.status.success(),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        println!(
            "{traces} traces, {name}: {seconds:.1} s, {:.0} traces/s, whole runs with the server on the same cores",
            traces as f64 / seconds
        );
    }
}
