//! Metrics of evaluation sets that trpc-agent-go does not have, or has since lately, through the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{Ran, nightmill, program, root};

/// A turn with a final response, if it has one, and calls of these tools.
fn turn(response: Option<&str>, tools: &[&str]) -> Value {
    let tools = tools.iter().map(|name| json!({"name": name}));
    let mut turn = json!({"invocationId": "t", "userContent": {"role": "user", "content": "Where is my order?"},
        "tools": tools.collect::<Value>()});
    if let Some(response) = response {
        turn["finalResponse"] = json!({"role": "assistant", "content": response});
    }
    turn
}

/// A case of trace mode: what was done, and what was expected.
fn case(id: &str, actual: Value, expected: Value) -> Value {
    json!({"evalId": id, "evalMode": "trace", "actualConversation": [actual], "conversation": [expected],
        "sessionInput": {"appName": "shop", "userId": "u"}})
}

/// A folder with one application, `shop`, and its set `s`.
struct Suite(tempfile::TempDir);

impl Suite {
    fn of(cases: &Value, metrics: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = folder.path().join("shop");
        std::fs::create_dir(&app).unwrap();
        let set = json!({"evalSetId": "s", "evalCases": cases});
        std::fs::write(app.join("s.evalset.json"), set.to_string()).unwrap();
        std::fs::write(app.join("s.metrics.json"), metrics.to_string()).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, out: &str, further: &[&str]) -> std::process::Command {
        let mut command = program();
        command
            .args(["suite", "run", "--no-report"])
            .arg(self.path());
        command.arg("--out").arg(self.path().join(out));
        command.args(further);
        command
    }

    /// What a run came to, with its result file; a folder of its own for each run.
    fn run(&self, out: &str, further: &[&str]) -> (Ran, Value) {
        let output = self.command(out, further).output().unwrap();
        let ran = Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let entries = std::fs::read_dir(self.path().join(out).join("shop"));
        let mut files = entries.into_iter().flatten().map(|e| e.unwrap().path());
        let result = files.find(|file| file.to_string_lossy().ends_with(".evalset_result.json"));
        let result = result.map_or(Value::Null, |file| json_of(&file));
        (ran, result)
    }
}

fn json_of(path: &PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn outcome(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

/// The text of a result without what is made anew in each run.
fn lasting(mut result: Value) -> String {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match name.as_str() {
                        "evalSetResultId" | "evalSetResultName" | "sessionId"
                        | "creationTimestamp" => *value = Value::Null,
                        _ => walk(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut result);
    result.to_string()
}

/// The score of a metric over the turns of a case.
fn score(result: &Value, case: usize, metric: &str) -> f64 {
    let metrics = result["evalCaseResults"][case]["overallEvalMetricResults"].as_array();
    let found = metrics.unwrap().iter().find(|m| m["metricName"] == metric);
    found.unwrap()["score"].as_f64().unwrap_or_default()
}

fn semantic(min_cosine: f64) -> Value {
    json!({"metricName": "final_response_semantic_avg_score", "threshold": 1,
        "criterion": {"semantic": {"minCosine": min_cosine}}})
}

const ARRIVES: &str = "Your parcel will arrive on Monday.";
const ARRIVES_TOO: &str = "Your package is going to arrive on Monday.";
const OTHER: &str = "We do not sell shoes in that size.";

#[test]
fn metrics_of_the_description_give_what_it_works_out() {
    let text = std::fs::read_to_string(root().join("src/suite/evalset/README.md")).unwrap();
    let (_, rest) = text.split_once("```json\n").unwrap();
    let (metrics, _) = rest.split_once("```").unwrap();
    let metrics: Value = serde_json::from_str(metrics).unwrap();
    let cases = json!([
        case(
            "a",
            turn(Some(ARRIVES_TOO), &["pay", "search", "mail"]),
            turn(Some(ARRIVES), &["search", "pay", "mail"])
        ),
        case(
            "b",
            turn(Some(OTHER), &["search", "mail", "ping", "pong"]),
            turn(Some(ARRIVES), &["search", "pay", "mail"])
        ),
    ]);
    let suite = Suite::of(&cases, &metrics);
    let (ran, result) = suite.run("one", &["--json", "--precision", "f32", "--threads", "1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    close(
        score(&result, 0, "tool_trajectory_partial_score"),
        5.0 / 6.0,
    );
    close(score(&result, 1, "tool_trajectory_partial_score"), 0.5);
    close(score(&result, 0, "final_response_semantic_avg_score"), 1.0);
    close(score(&result, 1, "final_response_semantic_avg_score"), 0.0);
    let notes = outcome(&ran)["notes"].to_string();
    assert!(
        notes.contains("all-MiniLM-L6-v2, computed at f32"),
        "{notes}"
    );
    // Neither a second run nor more threads change a byte but ids and times.
    for (out, threads) in [("two", "1"), ("three", "2")] {
        // With somebody looking on, metrics are found anew by their names.
        let events = suite
            .path()
            .join(format!("{out}.events"))
            .display()
            .to_string();
        let mut further = vec!["--json", "--precision", "f32", "--threads", threads];
        further.extend(["--events", &events]);
        let (_, again) = suite.run(out, &further);
        assert_eq!(lasting(again), lasting(result.clone()));
    }
}

#[test]
fn a_model_is_opened_only_where_meanings_are_compared() {
    let cases = json!([case(
        "a",
        turn(Some(ARRIVES), &[]),
        turn(Some(ARRIVES_TOO), &[])
    )]);
    let partial = json!({"metricName": "tool_trajectory_partial_score", "threshold": 1});
    let without = Suite::of(&cases, &json!([partial]));
    let mut command = without.command("out", &[]);
    let ran = command.env("NIGHTMILL_MODEL", "/none").output().unwrap();
    assert_eq!(ran.status.code(), Some(0));
    let (ran, _) = without.run("other", &["--model", "/none"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("--model: no metric of this set embeds"),
        "{ran:?}"
    );
    let with = Suite::of(&cases, &json!([partial, semantic(0.5)]));
    let (ran, _) = with.run("out", &["--model", "/none"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("/none"), "{ran:?}");
}

#[test]
fn a_turn_without_expected_response_is_not_evaluated() {
    let cases = json!([case("a", turn(Some(ARRIVES), &[]), turn(None, &[]))]);
    let suite = Suite::of(&cases, &json!([semantic(0.5)]));
    let (ran, result) = suite.run("out", &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(result["summary"]["overallStatus"], "not_evaluated");
    let wrong = Suite::of(&cases, &json!([semantic(80.0)]));
    let (ran, result) = wrong.run("out", &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = result["evalCaseResults"][0]["errorMessage"]
        .as_str()
        .unwrap();
    assert!(said.contains("minCosine"), "{said}");
}

fn judged(name: &str, evaluator: &str, url: &str, judge: Value) -> Value {
    let mut judge = judge;
    judge["judgeModel"] =
        json!({"providerName": "openai", "modelName": "m", "baseURL": url, "apiKey": "k"});
    json!({"metricName": name, "evaluatorName": evaluator, "threshold": 1, "criterion": {"llmJudge": judge}})
}

#[test]
fn flaky_cases_are_told_with_intervals() {
    // Of the questions about the flaky case every third is answered with no.
    let asked = AtomicUsize::new(0);
    let judge = ScriptedJudge::start(move |question| {
        let flaky = question.user.contains(OTHER);
        let label = match flaky && asked.fetch_add(1, Ordering::SeqCst) % 3 == 1 {
            true => "invalid",
            false => "valid",
        };
        Answer::reply(format!(
            "reasoning: so it is\nis_the_agent_response_valid: {label}"
        ))
    });
    let cases = json!([
        case("steady", turn(Some(ARRIVES), &[]), turn(Some(ARRIVES), &[])),
        case("flaky", turn(Some(OTHER), &[]), turn(Some(OTHER), &[])),
    ]);
    let metric = judged("llm_final_response", "", &judge.url(), json!({}));
    let suite = Suite::of(&cases, &json!([metric]));
    let ledger = suite.path().join("ledger").display().to_string();
    let common = [
        "--runs",
        "3",
        "--judge-concurrency",
        "1",
        "--ledger",
        &ledger,
    ];
    let with = |further: &[&'static str]| [&common[..], further].concat();
    let (ran, result) = suite.run("one", &with(&["--json", "--pass-k", "2"]));
    let found = outcome(&ran)["flakiness"].clone();
    assert_eq!(
        (&found["runs"], &found["k"], &found["flaky"]),
        (&json!(3), &json!(2), &json!(1))
    );
    let flaky = &found["cases"][1];
    assert_eq!(
        (&flaky["id"], &flaky["passed"], &flaky["of"]),
        (&json!("flaky"), &json!(2), &json!(3))
    );
    let figure = |of: &Value, name: &str| of[name]["value"].as_f64().unwrap();
    assert!(
        (figure(flaky, "pass_hat_k") - 4.0 / 9.0).abs() < 1e-12,
        "{flaky}"
    );
    assert_eq!(figure(flaky, "pass_at_k"), 1.0);
    assert!(
        (figure(&found["mean"], "pass_hat_k") - 13.0 / 18.0).abs() < 1e-12,
        "{found}"
    );
    assert_eq!(found["whole_runs"]["passed"], 2);
    // Older versions of trpc-agent-go get the file that they know.
    assert_eq!(result["summary"].get("flakiness"), None);
    let (_, latest) = suite.run(
        "two",
        &with(&["--result-format", "latest", "--pass-k", "2"]),
    );
    assert_eq!(latest["summary"]["flakiness"], found);
    let (ran, _) = suite.run("three", &with(&[]));
    for line in [
        "flakiness over 3 runs",
        "flaky: flaky passed in 2 of 3 runs: pass^3 0.2963",
    ] {
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
    let (ran, _) = suite.run("four", &with(&["--pass-k", "4"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--pass-k 4"), "{ran:?}");
    assert_eq!(judge.prompt_count(), 6);
}

#[test]
fn copies_of_a_run_say_nothing_of_flakiness() {
    let cases = json!([case("a", turn(None, &["x"]), turn(None, &["x"]))]);
    let partial = json!({"metricName": "tool_trajectory_partial_score", "threshold": 1});
    let suite = Suite::of(&cases, &json!([partial]));
    let further = ["--json", "--runs", "3", "--result-format", "latest"];
    let (ran, result) = suite.run("out", &further);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = outcome(&ran);
    assert_eq!(found["flakiness"], Value::Null);
    assert!(
        found["notes"].to_string().contains("copies of one"),
        "{found}"
    );
    assert_eq!(result["summary"].get("flakiness"), None);
}

#[test]
fn a_judge_is_asked_in_the_words_of_the_metrics_file() {
    let judge = ScriptedJudge::start(|question| {
        Answer::reply(match question.user.as_str() {
            "Is «Your parcel will arrive on Monday.» an answer to «Where is my order?»? polite" => {
                r#"{"category": "mostly", "reason": "it says when"}"#
            }
            other => panic!("{other}"),
        })
    });
    let bindings = json!([
        {"templateVariable": "a", "source": {"scope": "actual", "field": "finalResponse"}},
        {"templateVariable": "q", "source": {"scope": "actual", "field": "userContent"}},
        {"templateVariable": "r", "source": {"scope": "metric", "field": "rubrics", "path": "$[0].content.text"}},
    ]);
    let words = "Is «{{a}}» an answer to «{{q}}»? {{ r }}";
    let template = |prompt: &str| {
        json!({"rubrics": [{"id": "1", "content": {"text": "polite"}}], "template": {"prompt": prompt,
            "variableBindings": bindings, "responseScorerName": "categorical", "responseScorerOptions":
                {"categories": [{"label": "fully", "score": 1}, {"label": "mostly", "score": 0.75}]}}})
    };
    let cases = json!([case(
        "a",
        turn(Some(ARRIVES), &[]),
        turn(Some(ARRIVES), &[])
    )]);
    let name = "llm_judge_template";
    let mut metric = judged("answers", name, &judge.url(), template(words));
    metric["threshold"] = json!(0.7);
    let suite = Suite::of(&cases, &json!([metric]));
    let ledger = suite.path().join("ledger").display().to_string();
    let further = ["--ledger", &ledger, "--result-format", "latest"];
    let planned = |known: u64| {
        let (ran, _) = suite.run("planned", &["--ledger", &ledger, "--dry-run", "--json"]);
        let questions = &outcome(&ran)["metrics"][0];
        assert_eq!(questions["metric"], "answers", "{ran:?}");
        assert_eq!(
            (&questions["questions"], &questions["known"]),
            (&json!(1), &json!(known)),
            "{ran:?}"
        );
    };
    planned(0);
    let (ran, result) = suite.run("one", &further);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(score(&result, 0, "answers"), 0.75);
    let found = &result["evalCaseResults"][0];
    let of_turn = &found["evalMetricResultPerInvocation"][0]["evalMetricResults"][0];
    let prompt = |metric: &Value| metric["criterion"]["llmJudge"]["template"]["prompt"].clone();
    assert_eq!(prompt(of_turn), judge.prompts()[0].user);
    assert_eq!(prompt(&found["overallEvalMetricResults"][0]), words);
    assert_eq!(
        of_turn["details"]["value"],
        json!({"kind": "categorical", "categorical": "mostly"})
    );
    assert_eq!(of_turn["details"]["reason"], "it says when");
    // The ledger knows the answer.
    planned(1);
    let (_, again) = suite.run("two", &further);
    assert_eq!(lasting(again), lasting(result));
    assert_eq!(judge.prompt_count(), 1);
    // A placeholder that nothing is bound to fails the case, and nobody is asked.
    let unbound = judged("answers", name, &judge.url(), template("{{a}} {{b}}"));
    let unbound = Suite::of(&cases, &json!([unbound]));
    let (ran, result) = unbound.run("out", &["--ledger", &ledger]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = result["evalCaseResults"][0]["errorMessage"]
        .as_str()
        .unwrap();
    assert!(said.contains("bound to: b"), "{said}");
    assert_eq!(judge.prompt_count(), 1);
}

#[test]
fn an_evaluator_that_is_not_here_is_named() {
    let cases = json!([case(
        "a",
        turn(Some(ARRIVES), &["x"]),
        turn(Some(ARRIVES), &["x"])
    )]);
    let partial = json!({"metricName": "tool_trajectory_partial_score", "threshold": 1});
    let pairwise = judged(
        "llm_verifier_pairwise",
        "",
        "http://127.0.0.1:9/v1",
        json!({}),
    );
    let suite = Suite::of(&cases, &json!([partial, pairwise]));
    let (ran, _) = suite.run("out", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = "no evaluator is known for the metric `llm_verifier_pairwise`: it is left out";
    assert!(ran.stdout.contains(said), "{ran:?}");
    let (ran, _) = suite.run("strict", &["--strict-metrics"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn of_several_cases_of_one_id_the_first_says_what_is_expected() {
    let exact = json!({"metricName": "final_response_avg_score", "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}}});
    let cases = json!([
        case("a", turn(Some(ARRIVES), &[]), turn(Some(ARRIVES), &[])),
        case("a", turn(Some(OTHER), &[]), turn(Some(OTHER), &[])),
    ]);
    let suite = Suite::of(&cases, &json!([exact]));
    let (ran, result) = suite.run("out", &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("several cases are called `a`"),
        "{ran:?}"
    );
    let found = |case: usize| &result["evalCaseResults"][case]["finalEvalStatus"];
    assert_eq!((found(0), found(1)), (&json!("passed"), &json!("failed")));
    let inferences = suite.path().join("inferences").display().to_string();
    let path = suite.path().display().to_string();
    let ran = nightmill(["suite", "infer", &path, "--out", &inferences]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("kept by id"), "{ran:?}");
    let second = &result["evalCaseResults"][1]["evalMetricResultPerInvocation"][0];
    assert_eq!(
        second["actualInvocation"]["finalResponse"]["content"],
        OTHER
    );
    assert_eq!(
        second["expectedInvocation"]["finalResponse"]["content"],
        ARRIVES
    );
}
