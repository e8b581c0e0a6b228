//! Whole evaluations, through the program with a scripted judge and a scripted agent, against recorded result files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{assert_json_close, golden_path, program};

fn json_of(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// All scenarios.
fn scenarios() -> Vec<PathBuf> {
    let folder = golden_path("evalset/files/authored");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    assert!(!found.is_empty(), "{} has no scenario", folder.display());
    found
}

/// A judge that replies as a scenario says: the question is told by a text that only its turn has, a sample by how often
/// it was asked before.
fn judge(scenario: &Value) -> ScriptedJudge {
    let replies = scenario["judgeReplies"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let asked: Mutex<HashMap<String, usize>> = Mutex::default();
    ScriptedJudge::start(move |question| {
        let told = |reply: &&Value| {
            question
                .user
                .contains(reply["promptContains"].as_str().unwrap())
        };
        let found: Vec<&Value> = replies.iter().filter(told).collect();
        let mut asked = asked.lock().unwrap();
        let before = asked.entry(question.user.clone()).or_default();
        let reply = found
            .get(*before)
            .unwrap_or_else(|| panic!("not scripted: {}", question.user));
        *before += 1;
        match reply["reply"].as_str().unwrap().strip_prefix("!error:") {
            Some(error) => Answer::status(400, &[], error),
            None => Answer::reply(reply["reply"].as_str().unwrap()),
        }
    })
}

/// A command that does what a scenario says of the agent: what the user says tells the turn.
fn agent(said: &Value, folder: &Path) -> Option<String> {
    let scripts = said["runner"].as_array()?;
    let mut shell = "while read -r line; do case \"$line\" in\n".to_owned();
    for (at, script) in scripts.iter().enumerate() {
        let events = match script["run_error"].as_str() {
            Some(error) => vec![json!({"type": "error", "message": error})],
            None => script["events"].as_array().unwrap().clone(),
        };
        let end = json!({"type": "end"});
        let lines = events
            .iter()
            .chain([&end])
            .map(|event| format!("{event}\n"));
        let file = folder.join(format!("turn-{at}.jsonl"));
        std::fs::write(&file, lines.collect::<String>()).unwrap();
        let user = script["user"].to_string();
        assert!(!user.contains('\''), "{user}");
        shell += &format!(
            "*'\"message\":{{\"role\":\"user\",\"content\":{user}'*) cat {};;\n",
            file.display()
        );
    }
    shell += "*) echo \"not scripted: $line\" >&2; exit 9;;\nesac; done\n";
    let file = folder.join("agent.sh");
    std::fs::write(&file, shell).unwrap();
    Some(format!("command:sh {}", file.display()))
}

fn run(scenario: &Path, said: &Value, judge: &ScriptedJudge, out: &Path) -> std::process::Output {
    let (app, set) = (
        said["app"].as_str().unwrap(),
        said["evalSetId"].as_str().unwrap(),
    );
    let runs = said["numRuns"].to_string();
    let mut command = program();
    command
        .args(["suite", "run"])
        .arg(scenario)
        .arg("--out")
        .arg(out);
    command.args(["--app", app, "--set", set, "--runs", &runs]);
    // Samples of a turn are equal questions: one at a time, so that each gets its own reply.
    command.args(["--judge-concurrency", "1", "--judge-tries", "1"]);
    command.arg("--ledger").arg(out.with_extension("ledger"));
    if let Some(agent) = agent(said, out.parent().unwrap()) {
        command.args(["--runner", &agent]);
    }
    command
        .env("NM_JUDGE_MODEL", "judge-1")
        .env("NM_JUDGE_URL", judge.url())
        .env("NM_JUDGE_KEY", "k");
    command.output().unwrap()
}

/// A result without what changes from run to run, and with `present` for texts whose wording is free.
fn comparable(mut result: Value, url: &str) -> Value {
    fn walk(value: &mut Value, url: &str, free: bool) {
        match value {
            Value::Object(members) => {
                let judged = members
                    .get("metricName")
                    .and_then(Value::as_str)
                    .map(|name| !name.starts_with("llm_"));
                for (name, value) in members.iter_mut() {
                    match (name.as_str(), &*value) {
                        ("evalSetResultId" | "evalSetResultName" | "sessionId", _) => {
                            *value = json!("<id>")
                        }
                        ("creationTimestamp", _) => *value = json!(0),
                        ("errorMessage", _) => *value = json!("present"),
                        ("reason", Value::String(_)) if free => *value = json!("present"),
                        ("baseURL", Value::String(said)) if said == url => {
                            *value = json!("https://judge.test/v1");
                        }
                        _ => walk(value, url, judged.unwrap_or(free)),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, url, free)),
            _ => {}
        }
    }
    walk(&mut result, url, false);
    result
}

#[test]
fn golden_evalset_scenarios_give_the_recorded_results() {
    for scenario in scenarios() {
        let said = json_of(&scenario.join("scenario.json"));
        let what = scenario.display().to_string();
        let (judge, folder) = (judge(&said), tempfile::tempdir().unwrap());
        let out = folder.path().join("results");
        let ran = run(&scenario, &said, &judge, &out);
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        let code = match said["overallStatus"].as_str().unwrap() {
            "passed" => 0,
            "failed" => 1,
            _ => 3,
        };
        assert_eq!(ran.status.code(), Some(code), "{what}: {stderr}");
        let app = out.join(said["app"].as_str().unwrap());
        let written = std::fs::read_dir(&app)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let results: Vec<PathBuf> = written
            .filter(|path| path.to_string_lossy().ends_with(".evalset_result.json"))
            .collect();
        let [result] = &results[..] else {
            panic!("{what}: {results:?}")
        };
        let text = std::fs::read_to_string(result).unwrap();
        assert!(text.ends_with("}\n") && !text.contains("apiKey"), "{what}");
        let expected = json_of(&scenario.join("expected.evalset_result.json"));
        let got = comparable(serde_json::from_str(&text).unwrap(), &judge.url());
        assert_json_close(&got, &comparable(expected, ""), 1e-9, &[], &what);
        let asked = judge.prompt_count() as u64;
        assert_eq!(asked, said["judgeCalls"].as_u64().unwrap(), "{what}");
        // What was answered once costs nothing again.
        let again = run(&scenario, &said, &judge, &folder.path().join("results"));
        assert_eq!(again.status.code(), Some(code), "{what}");
        assert_eq!(judge.prompt_count() as u64, asked, "{what}");
    }
}
