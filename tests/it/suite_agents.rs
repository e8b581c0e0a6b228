//! Agents under evaluation through the program: commands and chat endpoints, hooks, events, evaluators of one's own, and
//! inferences that are scored later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, ScriptedJudge, wait_until};
use crate::support::{Ran, nightmill, program};

/// A folder with an application `shop`, its set `s` of these cases of the default mode, and an agent.
struct Shop(tempfile::TempDir);

/// Two turns whose answers are expected to echo the user.
fn case(id: &str) -> Value {
    let turn = |place: u32| {
        json!({"invocationId": format!("{id}-{place}"),
            "userContent": {"role": "user", "content": format!("{id} {place}")},
            "finalResponse": {"role": "assistant", "content": format!("you said {id} {place}")}})
    };
    json!({"evalId": id, "conversation": [turn(1), turn(2)],
        "sessionInput": {"appName": "shop", "userId": "u", "state": {"plan": "gold"}}})
}

impl Shop {
    fn new(cases: &[Value], metrics: &Value) -> Self {
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

    /// A shell script there, as a command.
    fn script(&self, name: &str, text: &str) -> String {
        let file = self.path().join(name);
        std::fs::write(&file, text).unwrap();
        format!("sh {}", file.display())
    }

    /// An agent that echoes what the user says, and runs `before` first for each turn. The line is in `$line`, what the
    /// user said in `$said`.
    fn echo(&self, before: &str) -> String {
        let script = format!(
            r#"while read -r line; do
said=$(printf '%s' "$line" | sed 's/.*"message":{{"role":"user","content":"\([^"]*\)".*/\1/')
{before}
echo "{{\"type\":\"final\",\"message\":{{\"role\":\"assistant\",\"content\":\"you said $said\"}}}}"
echo '{{"type":"end"}}'
done
"#
        );
        format!("command:{}", self.script("agent.sh", &script))
    }

    fn run(&self, further: &[&str]) -> Ran {
        let (path, out) = (self.text(""), self.text("out"));
        let args = ["suite", "run", &path, "--out", &out, "--no-report"];
        nightmill(args.iter().chain(further))
    }

    fn infer(&self, out: &str, further: &[&str]) -> Ran {
        let path = self.text("");
        let args = ["suite", "infer", &path, "--out", out];
        nightmill(args.iter().chain(further))
    }

    fn text(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// The results, from the oldest to the newest.
    fn results(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(self.path().join("out/shop")).unwrap();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| path.to_string_lossy().ends_with(".evalset_result.json"));
        found.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
        let read =
            |path: &PathBuf| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        found.iter().map(read).collect()
    }

    fn result(&self) -> Value {
        self.results().pop().unwrap()
    }
}

fn exact() -> Value {
    json!([{"metricName": "final_response_avg_score", "threshold": 1, "criterion": {"finalResponse": {"text": {}}}}])
}

fn statuses(result: &Value) -> Vec<(String, String, i64)> {
    let cases = result["evalCaseResults"].as_array().unwrap().iter();
    let status = |case: &Value| {
        (
            case["evalId"].as_str().unwrap().to_owned(),
            case["finalEvalStatus"].as_str().unwrap().to_owned(),
            case["runId"].as_i64().unwrap(),
        )
    };
    cases.map(status).collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_case_whose_agent_fails_is_recorded_and_the_others_go_on() {
    let cases: Vec<Value> = ["a", "b", "c", "d"].into_iter().map(case).collect();
    let shop = Shop::new(&cases, &exact());
    let agent = shop.echo(r#"case "$said" in "b 2") echo "out of ideas" >&2; exit 3;; esac"#);
    let ran = shop.run(&["--runner", &agent, "--runs", "2", "--cases-at-once", "3"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let result = shop.result();
    let expected: Vec<(String, String, i64)> = [1, 2]
        .into_iter()
        .flat_map(|run| {
            let cases = [
                ("a", "passed"),
                ("b", "failed"),
                ("c", "passed"),
                ("d", "passed"),
            ];
            cases.map(|(id, status)| (id.to_owned(), status.to_owned(), run))
        })
        .collect();
    assert_eq!(statuses(&result), expected);
    let broken = &result["evalCaseResults"][1];
    let why = broken["errorMessage"].as_str().unwrap();
    for part in ["`b`", "turn 2", "exit status: 3", "out of ideas"] {
        assert!(why.contains(part), "{why}");
    }
    assert!(broken["overallEvalMetricResults"].is_null(), "{broken}");
    // Each case and run has a session of its own.
    let cases = result["evalCaseResults"].as_array().unwrap().iter();
    let sessions: std::collections::BTreeSet<&str> = cases
        .map(|case| case["sessionId"].as_str().unwrap())
        .collect();
    assert_eq!(sessions.len(), 8);
}

#[test]
fn without_a_runner_cases_of_the_default_mode_fail_with_words() {
    let shop = Shop::new(&[case("a")], &exact());
    let ran = shop.run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let why = shop.result()["evalCaseResults"][0]["errorMessage"].clone();
    assert!(why.as_str().unwrap().contains("--runner"), "{why}");
}

#[test]
fn flags_of_agents_that_have_no_effect_are_refused() {
    let shop = Shop::new(&[case("a")], &exact());
    let agent = shop.echo("");
    for (flags, told) in [
        (
            vec!["--runner-timeout", "3"],
            "--runner-timeout has no effect",
        ),
        (
            vec!["--cases-at-once", "3"],
            "--cases-at-once has no effect",
        ),
        (vec!["--runner-model", "m"], "--runner-model has no effect"),
        (
            vec!["--runner", &agent, "--tool-command", "cat"],
            "--tool-command has no effect",
        ),
        (
            vec!["--runner", "openai", "--runner-reuse"],
            "--runner-reuse has no effect",
        ),
        (vec!["--runner", "openai"], "--runner-model"),
        (
            vec!["--runner", "telepathy"],
            "expected none, openai or command:CMD",
        ),
        (vec!["--runner", "command: "], "no command"),
        (
            vec!["--runner", "openai", "--runner-model", "m", "--offline"],
            "--offline",
        ),
        (vec!["--hook", "cat"], "expected NAME=COMMAND"),
        (vec!["--hook-timeout", "3"], "--hook"),
        (vec!["--evaluator", "=cat"], "expected NAME=COMMAND"),
        (
            vec!["--evaluator", "mistyped=cat"],
            "no metric of the set names this evaluator",
        ),
        (vec!["--cases", "zzz"], "no case of this name"),
        (vec!["--inferences", "x", "--runs", "2"], "--runs"),
    ] {
        let ran = shop.run(&flags);
        assert_eq!(ran.code, Some(2), "{flags:?}: {ran:?}");
        assert!(ran.stderr.contains(told), "{flags:?}: {ran:?}");
    }
    assert!(!shop.path().join("out").exists());
}

#[test]
fn a_chat_endpoint_is_an_agent_with_a_memory() {
    let mut case = case("a");
    case["contextMessages"] = json!([{"role": "system", "content": "Echo."}]);
    let shop = Shop::new(&[case], &exact());
    let model = ScriptedJudge::start(|asked| {
        let (_, said) = asked.turns.last().unwrap();
        Answer::reply(format!("you said {said}"))
    });
    std::fs::write(shop.path().join("key"), "sk-secret-of-agent").unwrap();
    std::fs::write(
        shop.path().join("body.json"),
        r#"{"temperature": 0, "stream": true}"#,
    )
    .unwrap();
    let (key, body, url) = (shop.text("key"), shop.text("body.json"), model.url());
    let flags = [
        "--runner",
        "openai",
        "--runner-model",
        "small",
        "--runner-url",
        &url,
        "--runner-key-file",
        &key,
        "--runner-body",
        &body,
    ];
    let ran = shop.run(&flags);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let asked = model.asked();
    assert_eq!(asked.len(), 2);
    let body = asked[1].json();
    let roles: Vec<&str> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(
        (&body["temperature"], &body["model"]),
        (&json!(0), &json!("small"))
    );
    let written = shop.result().to_string() + &ran.stdout + &ran.stderr;
    assert!(!written.contains("sk-secret-of-agent"), "{written}");
}

#[test]
fn events_tell_every_stage_in_order() {
    let shop = Shop::new(&[case("a"), case("b")], &exact());
    let (agent, events) = (shop.echo(""), shop.text("events.jsonl"));
    let ran = shop.run(&["--runner", &agent, "--runs", "2", "--events", &events]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = lines(Path::new(&events));
    let of_run = |run: u64| -> Vec<String> {
        let lines = told.iter().filter(|line| line["run"] == run);
        let shown = lines.map(|line| match line["evalId"].as_str() {
            Some(id) => format!("{} {id}", line["point"].as_str().unwrap()),
            None => line["point"].as_str().unwrap().to_owned(),
        });
        shown.collect()
    };
    for run in [1, 2] {
        let mut shown = of_run(run);
        // Cases are computed at the same time.
        shown[7..9].sort();
        assert_eq!(
            shown,
            [
                "before_inference_set",
                "before_inference_case a",
                "after_inference_case a",
                "before_inference_case b",
                "after_inference_case b",
                "after_inference_set",
                "before_evaluate_set",
                "before_evaluate_case a",
                "before_evaluate_case b",
                "after_evaluate_case a",
                "after_evaluate_case b",
                "after_evaluate_set",
            ]
        );
    }
    let last = told.last().unwrap();
    assert_eq!(
        (&last["status"], &last["app"]),
        (&json!("passed"), &json!("shop"))
    );
    // On standard output there are events alone.
    let ran = shop.run(&["--runner", &agent, "--events", "-"]);
    let events: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 12);
    assert!(ran.stderr.contains("final_response_avg_score"), "{ran:?}");
    let full = shop.run(&["--runner", &agent, "--events", "/dev/full"]);
    assert_eq!(full.code, Some(2), "{full:?}");
    assert!(full.stderr.contains("/dev/full"), "{full:?}");
}

#[test]
fn hooks_fail_cases_stop_runs_and_change_what_comes_next() {
    let shop = Shop::new(&[case("a"), case("b")], &exact());
    let agent = shop.echo("");
    let hook = |answers: &str| {
        let script = format!(
            "while read -r line; do case \"$line\" in\n{answers}\n*) echo '{{}}';; esac; done\n"
        );
        format!("mine={}", shop.script("hook.sh", &script))
    };
    let fails = hook(r#"*'"before_inference_case"'*'"evalId":"b"'*) echo '{"error":"not b"}';;"#);
    let ran = shop.run(&["--runner", &agent, "--hook", &fails]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let result = shop.result();
    assert_eq!(statuses(&result)[0].1, "passed");
    let why = result["evalCaseResults"][1]["errorMessage"]
        .as_str()
        .unwrap();
    for part in ["before_inference_case", "hook 0 `mine`", "not b"] {
        assert!(why.contains(part), "{why}");
    }
    let before = shop.results().len();
    let stops = hook(r#"*'"after_evaluate_case"'*) echo '{"error":"enough"}';;"#);
    let events = shop.text("events.jsonl");
    let ran = shop.run(&["--runner", &agent, "--hook", &stops, "--events", &events]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("enough") && ran.stderr.contains("after_evaluate_case"),
        "{ran:?}"
    );
    assert_eq!(shop.results().len(), before);
    let last = lines(Path::new(&events)).pop().unwrap();
    assert_eq!(
        (&last["point"], &last["status"]),
        (&json!("after_evaluate_set"), &json!("failed"))
    );
    let narrows = hook(
        r#"*'"before_inference_set"'*) echo '{"request":{"evalCaseIds":["b"]},"context":{"k":1}}';;
*'"before_evaluate_set"'*'"context":{"k":1}'*) echo '{"request":{"metrics":[]}}';;"#,
    );
    let ran = shop.run(&["--runner", &agent, "--hook", &narrows]);
    // Nothing was evaluated.
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(
        statuses(&shop.result()),
        [("b".to_owned(), "not_evaluated".to_owned(), 1)]
    );
}

#[test]
fn an_evaluator_of_ones_own_scores_and_replaces() {
    let metrics = json!([{"metricName": "shortness", "threshold": 0.5},
        {"metricName": "final_response_avg_score", "threshold": 1, "criterion": {"finalResponse": {"text": {}}}}]);
    let shop = Shop::new(&[case("a")], &metrics);
    let agent = shop.echo("");
    let half = shop.script(
        "half.sh",
        r#"cat > /dev/null; echo '{"overallScore":0.25,"perInvocationResults":[{"score":0.5},{"score":0,"details":{"reason":"too long"}}]}'"#,
    );
    let (own, other) = (
        format!("shortness={half}"),
        format!("final_response_avg_score={half}"),
    );
    let ran = shop.run(&[
        "--runner",
        &agent,
        "--evaluator",
        &own,
        "--evaluator",
        &other,
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("too long"), "{ran:?}");
    let result = shop.result();
    let metrics = &result["evalCaseResults"][0]["overallEvalMetricResults"];
    for metric in metrics.as_array().unwrap() {
        assert_eq!(
            (&metric["score"], &metric["evalStatus"]),
            (&json!(0.25), &json!("failed"))
        );
    }
    let broken = format!("shortness={}", shop.script("broken.sh", "echo no"));
    let ran = shop.run(&["--runner", &agent, "--evaluator", &broken]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let why = shop.result()["evalCaseResults"][0]["errorMessage"].to_string();
    assert!(
        why.contains("shortness") && why.contains("no JSON"),
        "{why}"
    );
}

#[test]
fn inferences_are_scored_later_as_at_once() {
    let cases: Vec<Value> = ["a", "b", "c"].into_iter().map(case).collect();
    let shop = Shop::new(&cases, &exact());
    let agent = shop.echo(r#"case "$said" in "b 1") said=wrong;; "c 1") exit 1;; esac"#);
    let file = shop.text("done.jsonl");
    let inferred = shop.infer(&file, &["--runner", &agent, "--runs", "2"]);
    assert_eq!(inferred.code, Some(3), "{inferred:?}");
    assert!(
        inferred.stdout.contains("2 failed; first: c"),
        "{inferred:?}"
    );
    assert_eq!(lines(Path::new(&file)).len(), 6);
    let later = shop.run(&["--inferences", &file]);
    let at_once = shop.run(&["--runner", &agent, "--runs", "2"]);
    assert_eq!((later.code, at_once.code), (Some(1), Some(1)), "{later:?}");
    let plain = |mut result: Value| {
        let cases = result["evalCaseResults"].as_array_mut().unwrap();
        for case in cases {
            case.as_object_mut().unwrap().remove("sessionId");
            let turns = case["evalMetricResultPerInvocation"].as_array_mut();
            for turn in turns.into_iter().flatten() {
                turn["actualInvocation"]["invocationId"] = json!("");
            }
        }
        (result["evalCaseResults"].take(), result["summary"].take())
    };
    let [first, second] = <[Value; 2]>::try_from(shop.results()).unwrap().map(plain);
    assert_eq!(first, second);
    // Inferences of another set are none of this one.
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("\"evalSetId\":\"s\"", "\"evalSetId\":\"t\"");
    std::fs::write(&file, text).unwrap();
    let ran = shop.run(&["--inferences", &file]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the set `t`"), "{ran:?}");
    for (text, told) in [
        (
            "{\"run\":0,\"evalCaseId\":\"a\"}\n",
            "line 1: run: expected a whole number from 1 to 1000",
        ),
        ("\n[1]\n", "line 2"),
        (
            "{\"evalCaseId\":\"a\",\"inferences\":[{\"tools\":3}]}\n",
            "tools",
        ),
        ("", "no inferences"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran = shop.run(&["--inferences", &file]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{told}: {ran:?}");
    }
}

#[test]
fn inferences_of_something_else_are_no_answers() {
    let shop = Shop::new(&[case("a")], &exact());
    let (agent, file) = (shop.echo(""), shop.text("done.jsonl"));
    assert_eq!(shop.infer(&file, &["--runner", &agent]).code, Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    let line: Value = serde_json::from_str(&text).unwrap();
    let with = |name: &str, value: Value| {
        let mut line = line.clone();
        line[name] = value;
        format!("{line}\n")
    };
    for (text, told) in [
        (with("Outcome", json!("failed")), "Outcome"),
        (text.clone() + &text, "there already"),
        (with("run", json!(2)), "none of pass 1"),
        (with("run", json!(3_000_000)), "from 1 to 1000"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran = shop.run(&["--inferences", &file]);
        assert_eq!(ran.code, Some(2), "{told}: {ran:?}");
        assert!(ran.stderr.contains(told), "{told}: {ran:?}");
    }
    // Whatever the status says, an error is no answer; letters may be of another case.
    for failed in [
        with("errorMessage", json!("crashed")),
        text.replace("passed", "failed").replace("status", "Status"),
    ] {
        std::fs::write(&file, failed).unwrap();
        let ran = shop.run(&["--inferences", &file]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
    }
    // The case asks something else now.
    std::fs::write(&file, &text).unwrap();
    assert_eq!(shop.run(&["--inferences", &file]).code, Some(0));
    let set = shop.path().join("shop/s.evalset.json");
    let asks = std::fs::read_to_string(&set).unwrap();
    std::fs::write(&set, asks.replace("\"gold\"", "\"silver\"")).unwrap();
    let ran = shop.run(&["--inferences", &file]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("something else now"), "{ran:?}");
    // Files of the set are no place for what is written.
    let set = set.display().to_string();
    let before = std::fs::read(&set).unwrap();
    for ran in [
        shop.infer(&set, &["--runner", &agent, "--overwrite"]),
        shop.run(&["--runner", &agent, "--events", &set]),
        shop.infer("/dev/null", &["--runner", &agent, "--overwrite"]),
    ] {
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    assert_eq!(std::fs::read(&set).unwrap(), before);
}

#[test]
fn what_was_inferred_before_a_kill_is_not_asked_again() {
    let cases: Vec<Value> = ["a", "b", "c"].into_iter().map(case).collect();
    let shop = Shop::new(&cases, &exact());
    let (log, stuck) = (shop.text("asked"), shop.path().join("stuck"));
    std::fs::write(&stuck, "").unwrap();
    // Stands still at the third case for as long as the file is there.
    let agent = shop.echo(&format!(
        "echo \"$said\" >> {log}\ncase \"$said\" in c*) while [ -e {} ]; do sleep 0.02; done;; esac",
        stuck.display()
    ));
    let file = shop.path().join("done.jsonl");
    let mut child = program()
        .args([
            "suite",
            "infer",
            &shop.text(""),
            "--out",
            &file.display().to_string(),
        ])
        .args(["--runner", &agent])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let asked = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(Duration::from_secs(30), || asked().contains("c 1")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!file.exists());
    let partial = shop.path().join("done.jsonl.partial");
    assert_eq!(lines(&partial).len(), 2);
    // As if the kill had torn a line, and one before it another, which the run after that has ended.
    let whole = std::fs::read_to_string(&partial).unwrap();
    let torn = format!("{{\"run\":1,\"evalSe\n{whole}{{\"run\":1,\"evalCa");
    std::fs::write(&partial, torn).unwrap();
    std::fs::remove_file(&stuck).unwrap();
    std::fs::write(&log, "").unwrap();
    let ran = shop.infer(&file.display().to_string(), &["--runner", &agent]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains("2 cases taken from a run that was broken off"),
        "{ran:?}"
    );
    let again: std::collections::BTreeSet<String> = asked().lines().map(str::to_owned).collect();
    assert_eq!(again.into_iter().collect::<Vec<_>>(), ["c 1", "c 2"]);
    let ids: Vec<Value> = lines(&file)
        .iter()
        .map(|line| line["evalCaseId"].clone())
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(!partial.exists());
    let scored = shop.run(&["--inferences", &file.display().to_string()]);
    assert_eq!(scored.code, Some(0), "{scored:?}");
}

#[test]
fn an_interrupted_run_leaves_no_command_behind() {
    let shop = Shop::new(&[case("a")], &exact());
    let pid = shop.path().join("pid");
    let agent = shop.script(
        "agent.sh",
        &format!(
            "sleep 300 & echo $! > {0}.part; mv {0}.part {0}; wait",
            pid.display()
        ),
    );
    let mut child = program()
        .args([
            "suite",
            "run",
            &shop.text(""),
            "--out",
            &shop.text("out"),
            "--no-report",
        ])
        .args(["--runner", &format!("command:{agent}")])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(30), || pid.exists()));
    let kill = format!("kill -TERM {}", child.id());
    let killed = std::process::Command::new("sh")
        .args(["-c", &kill])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let sleeper = std::fs::read_to_string(&pid).unwrap();
    let state = format!("/proc/{}/stat", sleeper.trim());
    let is_over = || std::fs::read_to_string(&state).map_or(true, |state| state.contains(") Z "));
    assert!(wait_until(Duration::from_secs(10), is_over));
}

#[test]
fn turns_are_rows_of_a_table_too() {
    let shop = Shop::new(&[case("a"), case("b")], &exact());
    let agent = shop.echo(r#"case "$said" in "b 2") said=wrong;; esac"#);
    let ran = shop.run(&["--runner", &agent]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let table = ran.stdout.lines().find_map(|line| {
        line.split_whitespace()
            .find(|word| word.ends_with(".turns.parquet"))
    });
    let table = table.unwrap_or_else(|| panic!("{ran:?}")).to_owned();
    let query = format!(
        "select \"case\", turn, metric, score, status, threshold, app, \"set\", run from '{table}' order by 1, 2"
    );
    let rows = nightmill(["sql", "--format", "json", &query]);
    assert_eq!(rows.code, Some(0), "{rows:?}");
    let rows = rows.stdout.lines();
    let rows: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
    let scores: Vec<(&str, i64, f64, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["case"].as_str().unwrap(),
                row["turn"].as_i64().unwrap(),
                row["score"].as_f64().unwrap(),
                row["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        scores,
        [
            ("a", 1, 1.0, "passed"),
            ("a", 2, 1.0, "passed"),
            ("b", 1, 1.0, "passed"),
            ("b", 2, 0.0, "failed")
        ]
    );
}

#[test]
fn a_plan_says_the_price_and_sends_nothing() {
    let judge = ScriptedJudge::start(|_| {
        Answer::reply("reasoning: same\nis_the_agent_response_valid: valid")
    });
    let metrics = json!([{"metricName": "llm_final_response", "threshold": 1, "criterion": {"llmJudge": {"judgeModel": {
        "providerName": "openai", "modelName": "m", "baseURL": judge.url(), "apiKey": "k", "numSamples": 3}}}}]);
    let shop = Shop::new(&[case("a"), case("b")], &metrics);
    let (agent, ledger, file) = (shop.echo(""), shop.text("ledger"), shop.text("done.jsonl"));
    assert_eq!(shop.infer(&file, &["--runner", &agent]).code, Some(0));
    let plan = |further: &[&str]| -> Value {
        let path = shop.text("");
        let args = [
            "suite",
            "run",
            &path,
            "--dry-run",
            "--ledger",
            &ledger,
            "--price",
            "openai/m=1:2",
            "--json",
        ];
        let ran = nightmill(args.iter().chain(further));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let before = plan(&["--inferences", &file]);
    // 2 cases, 2 turns, 3 samples.
    assert_eq!(
        (&before["total"]["questions"], &before["total"]["known"]),
        (&json!(12), &json!(0))
    );
    assert!(before["total"]["cost"].as_f64().unwrap() > 0.0, "{before}");
    let guessed = plan(&["--runner", &agent]);
    assert_eq!(guessed["total"]["questions"], 12);
    let stranger = plan(&["--inferences", &file, "--price", "m=1:2"]);
    assert!(
        stranger["notes"].to_string().contains("--price m"),
        "{stranger}"
    );
    assert!(
        guessed["notes"].to_string().contains("expected answers"),
        "{guessed}"
    );
    assert_eq!(judge.prompt_count(), 0);
    assert!(!shop.path().join("out").exists());
    let ran = shop.run(&["--inferences", &file, "--ledger", &ledger]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(judge.prompt_count(), 12);
    let after = plan(&["--inferences", &file]);
    assert_eq!(
        (&after["total"]["known"], &after["total"]["cost"]),
        (&json!(12), &json!(0.0))
    );
}
