//! What the tests of regression suites stand on: a folder with a configuration and its suites.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::{Ran, program};

/// A configuration in a folder of its own.
pub(super) struct Scene {
    pub folder: tempfile::TempDir,
    config: Value,
}

/// A case that expects `expected` and got `actual`.
pub(super) fn case(id: &str, expected: &str, actual: Option<&str>, metrics: &[&str]) -> Value {
    json!({
        "id": id, "description": format!("about {id}"), "input": format!("question of {id}"),
        "expected_output": expected, "actual_output": actual, "metrics": metrics,
    })
}

/// A case whose output is as expected, or another text.
pub(super) fn echo(id: &str, same: bool) -> Value {
    let expected = format!("the answer to {id} is seven");
    let other = "something else altogether";
    let actual = if same { expected.as_str() } else { other };
    case(id, &expected, Some(actual), &["factuality", "regression"])
}

/// A suite as a YAML file holds it; JSON is YAML.
pub(super) fn suite(name: &str, cases: &[Value]) -> Value {
    json!({
        "name": name, "version": "1.0", "description": "a suite", "interaction_type": "single_turn", "tags": [],
        "author": "somebody", "created_at": "2026-06-01", "updated_at": "2026-06-01", "test_cases": cases,
    })
}

/// The entry of a judge that is asked at `url`.
pub(super) fn judge_at(judge: &ScriptedJudge, model: &str) -> Value {
    json!({"provider": "openai", "model": model, "local_endpoint": judge.url(), "retry_attempts": 0})
}

impl Scene {
    /// A configuration with these further keys, and one suite for each list of cases: `one`, `two`, …
    pub fn new(further: Value, suites: &[&[Value]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = ["one", "two", "three"].iter().take(suites.len());
        let sets: Vec<Value> = names
            .clone()
            .map(|name| json!({"path": format!("{name}.yaml"), "alias": format!("alias-{name}")}))
            .collect();
        let mut config = json!({"project": {"name": "p", "version": "1.0"}, "golden_sets": sets});
        for (key, value) in further.as_object().unwrap() {
            config[key] = value.clone();
        }
        let scene = Self { folder, config };
        scene.write("regtrace.config.yaml", &scene.config);
        for (name, cases) in names.zip(suites) {
            scene.cases(name, cases);
        }
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, value: &Value) {
        std::fs::write(self.path(name), value.to_string()).unwrap();
    }

    /// Writes the cases of a suite.
    pub fn cases(&self, name: &str, cases: &[Value]) {
        self.write(&format!("{name}.yaml"), &suite(name, cases));
    }

    /// `nightmill suite` with these arguments, in the folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.current_dir(self.folder.path());
        for name in [
            "CI",
            "GITHUB_ACTIONS",
            "GITLAB_CI",
            "CIRCLECI",
            "GITHUB_HEAD_REF",
        ] {
            command.env_remove(name);
        }
        command
            .env_remove("OPENAI_API_KEY")
            .env("NIGHTMILL_BRANCH", "main")
            .env("NIGHTMILL_LEDGER", self.path("ledger.db"));
        command.arg("suite").args(args);
        command
    }

    pub fn suite(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    /// `nightmill suite run` of the configuration, without a page.
    pub fn run(&self, further: &[&str]) -> Ran {
        let args: Vec<&str> = ["run", ".", "--no-report"]
            .iter()
            .chain(further)
            .copied()
            .collect();
        self.suite(&args)
    }

    /// The same, and what it prints as JSON.
    #[track_caller]
    pub fn run_json(&self, further: &[&str], code: i32) -> Value {
        let args: Vec<&str> = further.iter().chain(&["--json"]).copied().collect();
        let ran = self.run(&args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
    }

    /// The folder of records.
    pub fn records(&self) -> PathBuf {
        self.path(".nightmill/suite-runs")
    }

    /// The files of records, oldest first.
    pub fn record_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.records()).into_iter().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("run_") && name.ends_with(".json")
        });
        files.sort_by_key(|path| json_of(path)["timestamp"].as_str().unwrap().to_owned());
        files
    }

    /// The newest record of a suite.
    #[track_caller]
    pub fn last_record(&self, suite: &str) -> Value {
        let files = self.record_files();
        let records = files.iter().rev().map(|path| json_of(path));
        let mut of_suite = records.filter(|of| of["golden_set_name"] == suite);
        of_suite
            .next()
            .unwrap_or_else(|| panic!("no record of {suite}"))
    }
}

/// Runs a command. A panic is never the right answer.
#[track_caller]
pub(super) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(
        ran.code.is_some() && ran.code != Some(101),
        "the program died: {ran:?}"
    );
    ran
}

pub(super) fn json_of(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The prompt that a question is made from.
pub(super) fn prompt_of(asked: &Asked) -> String {
    let name = &asked.json()["response_format"]["json_schema"]["name"];
    name.as_str().unwrap_or_default().to_owned()
}

/// A judge that supports one claim of two, and finds every tone as wanted at 0.8.
pub(super) fn usual(asked: &Asked) -> Answer {
    let reply = match prompt_of(asked).as_str() {
        "regression_claims" => json!({
            "claims": [
                {"claim": "It is seven.", "verdict": "supported", "evidence": "seven"},
                {"claim": "It is blue.", "verdict": "contradicted", "evidence": "it is red"},
            ],
            "confidence": 0.9, "explanation": "One is wrong.",
        }),
        "regression_tone" => {
            let names = asked.json()["response_format"]["json_schema"]["schema"]["properties"]
                ["dimensions"]["required"]
                .clone();
            let names = names.as_array().unwrap().iter();
            let dimensions: Value = names
                .map(|name| (name.as_str().unwrap().to_owned(), json!(0.8)))
                .collect::<serde_json::Map<_, _>>()
                .into();
            json!({"dimensions": dimensions, "overall": 0.1, "confidence": 0.7, "explanation": "Close."})
        }
        other => panic!("not a question of regression suites: {other}"),
    };
    let reply: crate::scripted_judge::Reply = reply.into();
    Answer::reply(reply.usage(1000, 500, 0))
}
