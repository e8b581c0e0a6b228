//! What the tests of conversations from tables stand on: turns, a judge's script, and the program's command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, Asked};
use crate::support::program;

pub(super) const FOUND: &str = "the order was found";
pub(super) const OFFERED: &str = "a refund was offered";
pub(super) const EMPHASIS: &str = "weigh the tone twice";

/// A score of 2 where the case has an emphasis, else of 4; one outcome is met, the other is not.
pub(super) fn script(asked: &Asked) -> Answer {
    let score = if asked.user.contains(EMPHASIS) { 2 } else { 4 };
    let schema = asked.schema.as_ref().expect("a request without schema");
    let mut reply = serde_json::Map::new();
    for name in schema["properties"].as_object().unwrap().keys() {
        let block = match name.as_str() {
            "expected_outcomes" => [(FOUND, true), (OFFERED, false)]
                .into_iter()
                .filter(|(statement, _)| asked.user.contains(statement))
                .map(|(statement, passed)| {
                    json!({"statement": statement, "passed": passed, "justification": "turn 3"})
                })
                .collect(),
            _ => json!({"score": score, "justification": "j", "failure_code": null, "turns": [3]}),
        };
        reply.insert(name.clone(), block);
    }
    Answer::reply(Value::Object(reply))
}

/// A transcript of four turns with a tool call; every session has words of its own.
pub(super) fn turns(session: &str) -> Vec<Value> {
    let call = json!([{"id": "c0", "name": "look_up", "arguments": "{\"order\": 7}"}]);
    vec![
        json!({"session_id": session, "turn_index": 0, "role": "user",
            "content": format!("{session}: where is my order?")}),
        json!({"session_id": session, "turn_index": 1, "role": "assistant", "content": null,
            "tool_calls": call}),
        json!({"session_id": session, "turn_index": 2, "role": "tool", "tool_call_id": "c0",
            "content": format!("{{\"sent to\": \"{session}\"}}")}),
        json!({"session_id": session, "turn_index": 3, "role": "assistant",
            "content": format!("{session}: it was sent."), "latency_ms": 800}),
    ]
}

pub(super) fn turns_of(sessions: &[&str]) -> Vec<Value> {
    sessions.iter().flat_map(|session| turns(session)).collect()
}

/// A folder with tables, a ledger and room for runs.
pub(super) struct Scene(tempfile::TempDir);

impl Scene {
    pub(super) fn new(turns: &[Value], cases: &[Value]) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        scene.write("turns.jsonl", turns);
        scene.write("cases.jsonl", cases);
        scene
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, name: &str, rows: &[Value]) {
        // A row that is a text stands for a line that is no JSON.
        let line = |row: &Value| row.as_str().map_or_else(|| row.to_string(), str::to_owned);
        let lines: Vec<String> = rows.iter().map(line).collect();
        std::fs::write(self.at(name), lines.join("\n")).unwrap();
    }

    /// `conversations` of these turns, with the cases, into the folder `out`.
    pub(super) fn judge(&self, url: &str, turns: &str, out: &str) -> Command {
        let mut command = self.conversations(url, turns);
        command.arg("--out").arg(self.at(out));
        command
    }

    /// The same without a place for the run.
    pub(super) fn conversations(&self, url: &str, turns: &str) -> Command {
        let mut command = program();
        // Neither a key nor a proxy of the machine that tests.
        command.env_remove("OPENAI_API_KEY");
        command.env("NO_PROXY", "127.0.0.1");
        command.arg("conversations").arg(self.at(turns));
        command.arg("--cases").arg(self.at("cases.jsonl"));
        command.args(["--judge", "openai/test", "--judge-url", url]);
        command.arg("--ledger").arg(self.at("ledger.db"));
        command
    }
}
