//! What the tests of judged metrics stand on: traces, a script that knows every stage, and the program's command line.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::scripted_judge::Asked;
use crate::support::{Ran, program};

/// Every metric but the one that judges whole conversations.
pub const ALL_BUT_CONVERSATIONS: &str = "coherence,loop_detection,task_completion,tool_correctness,argument_correctness,step_efficiency,confidence,plan_adherence,plan_quality,agent_reliability,agent_consistency";

/// Metrics that ask a judge about a trace.
pub(super) const SEVEN: [&str; 7] = [
    "task_completion",
    "tool_correctness",
    "argument_correctness",
    "step_efficiency",
    "confidence",
    "plan_adherence",
    "plan_quality",
];

/// Questions of the seven metrics for one trace, shared ones counted once.
pub(super) const SHARED_CALLS: usize = 13;

/// The id of the trace of a case.
pub(super) fn id(case: usize) -> String {
    format!("t-{case:03}")
}

/// The word by which a prompt shows its case; every reply of [`reply_to`] hands it on to the next stage.
pub(super) fn word(case: usize) -> String {
    format!("case-{case:03}")
}

/// The case that a request is about.
#[track_caller]
pub(super) fn case_of(asked: &Asked) -> usize {
    let at = asked.user.find("case-").expect("a prompt without case");
    asked.user[at + 5..at + 8].parse().unwrap()
}

/// A trace with a tool span, all in one session unless the caller changes that.
pub(super) fn trace(case: usize) -> Value {
    let word = word(case);
    json!({
        "trace_id": id(case),
        "session_id": "s",
        "started_at": format!("2026-01-01T00:{:02}:{:02}Z", case / 60, case % 60),
        "name": "support",
        "input": format!("{word}: where is order {case}?"),
        "output": format!("Order {case} of {word} left the house on day {case}."),
        "spans": [{
            "span_id": format!("span-{case}"),
            "name": "look_up",
            "kind": "TOOL",
            "input": {"order": case},
            "output": {"state": "sent"},
        }],
    })
}

pub(super) fn traces(count: usize) -> Vec<Value> {
    (0..count).map(trace).collect()
}

/// The stage that a request with a reply format is for: the name of its prompt.
pub(super) fn stage(asked: &Asked) -> &str {
    asked.json()["response_format"]["json_schema"]["name"]
        .as_str()
        .unwrap_or_default()
}

/// A correct reply to a request with a reply format; `score` is asked where the stage gives one.
#[track_caller]
pub(super) fn reply_to(asked: &Asked, score: f64) -> Value {
    let word = word(case_of(asked));
    let reason = format!("{word} {}", stage(asked));
    match stage(asked) {
        "task_completion_extract" => {
            json!({"task": format!("{word} task"), "outcome": format!("{word} outcome")})
        }
        "task_completion_score" => json!({"verdict": score, "reason": reason}),
        "tool_correctness_extract" => json!({
            "user_input": word,
            "tools_called": [{"name": "look_up", "parameters": "{\"order\": 7}"}],
            "available_tools": [{"name": "look_up", "description": null}],
        }),
        "argument_correctness_extract" => {
            let call =
                json!({"name": "look_up", "parameters": "{\"order\": 7}", "reasoning": null});
            json!({"user_input": word, "tool_calls": [call, call, call]})
        }
        "argument_correctness_verdicts" => json!({"verdicts": [
            {"verdict": "yes", "reason": null},
            {"verdict": "no", "reason": "another order"},
            {"verdict": "yes", "reason": null},
        ]}),
        "argument_correctness_reason" => json!({"reason": reason}),
        "extract_task" => json!({"task": format!("{word} task")}),
        "extract_plan" => json!({"plan": [format!("{word} first"), "then"]}),
        "confidence_score" => json!({"confidence": score, "reason": reason}),
        "tool_correctness_score"
        | "step_efficiency_score"
        | "plan_adherence_score"
        | "plan_quality_score" => json!({"score": score, "reason": reason}),
        other => panic!("no stage `{other}` is known"),
    }
}

/// A folder of its own with a file of traces, a ledger and room for runs.
pub(super) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(super) fn new(traces: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = traces.iter().map(|trace| format!("{trace}\n")).collect();
        std::fs::write(folder.path().join("traces.jsonl"), lines).unwrap();
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `score` of the traces by these metrics into the folder `out`, without judge.
    pub(super) fn score(&self, metrics: &str, out: &str) -> Command {
        let mut command = program();
        // Neither a key nor a proxy of the machine that tests.
        command.env_remove("OPENAI_API_KEY");
        command.env("NO_PROXY", "127.0.0.1");
        command.arg("score").arg(self.at("traces.jsonl"));
        command.args(["--no-report", "--metrics", metrics]);
        // Where nobody asks a judge, the flag would be idle.
        let judged = SEVEN.iter().chain(&["conversation", "all"]);
        if judged
            .clone()
            .any(|name| metrics.split(',').any(|metric| metric == *name))
        {
            command.arg("--ledger").arg(self.at("ledger.db"));
        }
        command.arg("--out").arg(self.at(out));
        command
    }

    /// The same with the judge at `url`.
    pub(super) fn judge(&self, url: &str, metrics: &str, out: &str) -> Command {
        let mut command = self.score(metrics, out);
        command.args(["--judge", "openai/test", "--judge-url", url]);
        command
    }

    pub(super) fn forget_answers(&self) {
        for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
            let _ = std::fs::remove_file(self.at(name));
        }
    }
}

/// Runs a command to its end. A panic of the program is never the right answer.
#[track_caller]
pub(super) fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(ran.code.is_some() && ran.code != Some(101), "{ran:?}");
    ran
}

/// Runs a command and holds its exit code.
#[track_caller]
pub(super) fn expect(code: i32, command: &mut Command) -> Ran {
    let ran = run(command);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran
}

/// The bodies of requests, to compare which questions were put.
pub(super) fn bodies(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|asked| asked.json().to_string()).collect()
}

/// A program that runs beside the test; killed at the latest when the test ends, however it ends.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Without a chance to tidy up.
    pub(super) fn kill(&mut self) {
        // On Unix this is SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(super) fn goes_on(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// The exit code.
    pub(super) fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
