//! Deep factuality and judged tone: asked once, kept in the ledger, and what counts where nobody answers.

use serde_json::{Value, json};

use super::scene::{Scene, case, judge_at, prompt_of, usual};
use crate::scripted_judge::{Answer, ScriptedJudge};

const EXPECTED: &str = "The answer is seven, and it is red.";
const ACTUAL: &str = "It is seven and blue.";

fn cases() -> [Value; 2] {
    ["a", "b"].map(|id| {
        case(
            id,
            EXPECTED,
            Some(&format!("{ACTUAL} Says {id}.")),
            &["factuality", "tone"],
        )
    })
}

fn config(primary: Value, fallback: Option<Value>) -> Value {
    let mut judge = json!({"primary": primary});
    if let Some(fallback) = fallback {
        judge["fallback"] = fallback;
    }
    json!({
        "metrics": {"factuality": {"claim_extraction_depth": "deep"}, "tone": {"sub_dimensions": {"verbosity": false}}},
        "quality_gates": {"suite_score_minimum": 0.0, "max_low_confidence_ratio": 1.0, "max_failed_test_cases": 9},
        "judge": judge,
    })
}

fn result<'r>(record: &'r Value, case: usize, metric: &str) -> &'r Value {
    &record["test_case_results"][case]["metric_results"][metric]
}

fn results(record: &Value) -> Vec<&Value> {
    let cases = record["test_case_results"].as_array().unwrap().iter();
    cases.map(|of| &of["metric_results"]).collect()
}

#[test]
fn a_judge_is_asked_once_and_never_again() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    let price = ["--price", "openai/m=1:2"];
    let ran = scene.run_json(&price, 0);
    assert_eq!(judge.prompt_count(), 4);
    let judging = &ran["suites"][0]["judging"];
    assert_eq!(
        (judging["questions"].as_u64(), judging["sent"].as_u64()),
        (Some(4), Some(4))
    );
    assert!(
        (judging["cost"].as_f64().unwrap() - 0.008).abs() < 1e-12,
        "{judging}"
    );
    let record = scene.last_record("one");
    assert_eq!(
        (&record["judge_provider"], &record["judge_model"]),
        (&json!("openai"), &json!("m"))
    );
    let claims = result(&record, 0, "factuality");
    assert_eq!(claims["evaluation_type"], "llm_judged");
    assert_eq!(
        (claims["score"].as_f64(), claims["confidence"].as_f64()),
        (Some(0.5), Some(0.9))
    );
    assert!((claims["token_cost"].as_f64().unwrap() - 0.2).abs() < 1e-12);
    assert_eq!(claims["details"][0]["check"], "claim.2");
    let tone = result(&record, 1, "tone");
    assert_eq!(
        tone["score"].as_f64().map(|of| (of * 1e9).round() / 1e9),
        Some(0.8)
    );
    assert_eq!(tone["details"].as_array().unwrap().len(), 4);
    // What is shown and what is asked: the expected text is the reference, and only what counts is asked about.
    let asked = judge.prompts();
    let of_claims = asked
        .iter()
        .find(|of| prompt_of(of) == "regression_claims")
        .unwrap();
    assert!(of_claims.user.contains(EXPECTED) && of_claims.user.contains("question of"));
    assert_eq!(of_claims.json()["temperature"], 0.1);
    let of_tone = asked
        .iter()
        .find(|of| prompt_of(of) == "regression_tone")
        .unwrap();
    assert!(!of_tone.user.contains("verbosity") && of_tone.user.contains("formality"));

    let again = scene.run_json(&price, 0);
    assert_eq!(judge.prompt_count(), 4);
    let judging = &again["suites"][0]["judging"];
    assert_eq!(
        (judging["known"].as_u64(), judging["sent"].as_u64()),
        (Some(4), Some(0))
    );
    assert_eq!(judging["cost"], 0.0);
    // What a judgement cost does not hang on who paid for it.
    assert_eq!(results(&scene.last_record("one")), results(&record));
    // The ledger alone says the same.
    drop(judge);
    let replayed = scene.run_json(&["--price", "openai/m=1:2", "--replay"], 0);
    assert_eq!(replayed["overall_score"], again["overall_score"]);
    assert_eq!(results(&scene.last_record("one")), results(&record));
}

#[test]
fn a_cost_that_is_not_known_is_none() {
    let judge = ScriptedJudge::start(usual);
    let mut config = config(judge_at(&judge, "m"), None);
    config["nfr_gates"] = json!({"max_cost_usd": 100});
    let scene = Scene::new(config, &[&cases()]);
    let ran = scene.run_json(&[], 1);
    let record = scene.last_record("one");
    assert_eq!(result(&record, 0, "tone")["token_cost"], Value::Null);
    assert_eq!(
        record["quality_gates"]["gates"]["nfr.cost"]["passed"],
        false
    );
    assert_eq!(ran["suites"][0]["judging"]["cost"], Value::Null);
}

#[test]
fn the_fallback_judge_stands_in_and_then_nobody() {
    let key = "sk-canary-0123456789";
    let failing =
        ScriptedJudge::start(move |_| Answer::status(500, &[], &format!("broken, says {key}")));
    let second = ScriptedJudge::start(usual);
    let config_of = |second: Value| config(judge_at(&failing, "m"), Some(second));
    let scene = Scene::new(config_of(judge_at(&second, "n")), &[&cases()]);
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains("4 of 4 results are judged by the fallback judge"),
        "{ran:?}"
    );
    assert_eq!(second.prompt_count(), 4);
    let record = scene.last_record("one");
    let claims = result(&record, 0, "factuality");
    assert_eq!(
        (claims["evaluation_type"].as_str(), claims["score"].as_f64()),
        (Some("llm_judged"), Some(0.5))
    );
    assert!(
        claims["explanation"]
            .as_str()
            .unwrap()
            .contains("fallback openai/n"),
        "{claims}"
    );
    assert!(failing.prompt_count() >= 4);

    // Both fail: what can be computed counts, with the confidence of a guess.
    let nobody = ScriptedJudge::start(|_| Answer::status(500, &[], "away"));
    let scene = Scene::new(config_of(judge_at(&nobody, "n")), &[&cases()]);
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains("4 of 4 results that a judge was asked for are computed instead"),
        "{ran:?}"
    );
    let record = scene.last_record("one");
    for (metric, confidence) in [("factuality", 0.5), ("tone", 0.7)] {
        let found = result(&record, 0, metric);
        assert_eq!(found["evaluation_type"], "deterministic");
        assert_eq!(found["confidence"].as_f64(), Some(confidence));
        assert_eq!(found["token_cost"], 0.0);
        let said = found["explanation"].as_str().unwrap();
        assert!(
            said.contains("Not judged: ") && said.contains("away"),
            "{said}"
        );
    }
    assert_eq!(record["judge_model"], Value::Null);
    for file in scene.record_files() {
        assert!(!std::fs::read_to_string(file).unwrap().contains(key));
    }
}

#[test]
fn a_reply_that_cannot_be_used_is_paid_and_computed() {
    let judge = ScriptedJudge::start(|_| {
        let reply: crate::scripted_judge::Reply = "no JSON".into();
        Answer::reply(reply.usage(1000, 500, 0))
    });
    let second = ScriptedJudge::start(usual);
    let scene = Scene::new(
        config(judge_at(&judge, "m"), Some(judge_at(&second, "n"))),
        &[&cases()],
    );
    assert_eq!(scene.run(&["--price", "openai/m=1:2"]).code, Some(0));
    let record = scene.last_record("one");
    let claims = result(&record, 0, "factuality");
    assert_eq!(
        (
            claims["confidence"].as_f64(),
            claims["evaluation_type"].as_str()
        ),
        (Some(0.5), Some("deterministic"))
    );
    assert!(
        (claims["token_cost"].as_f64().unwrap() - 0.2).abs() < 1e-12,
        "{claims}"
    );
    assert_eq!(second.prompt_count(), 0);
    // A further round asks again.
    let before = judge.prompt_count();
    scene.run(&["--price", "openai/m=1:2", "--judge-rounds", "2"]);
    assert_eq!(judge.prompt_count(), before + 4);
}

#[test]
fn an_endpoint_without_reply_forms_is_asked_in_plain_words() {
    let judge = ScriptedJudge::start(|asked| match asked.has_response_format {
        true => Answer::status(400, &[], "response_format is not supported"),
        false => Answer::reply(
            json!({"claims": [{"claim": "x", "verdict": "supported"}], "dimensions": {}, "overall": 1}),
        ),
    });
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    let ran = scene.run_json(&[], 0);
    assert_eq!(ran["overall_score"], 1.0, "{ran}");
}

#[test]
fn nobody_is_asked_offline_and_one_line_says_so() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    for flag in ["--offline", "--no-judge"] {
        let ran = scene.run(&[flag]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.stdout.contains(&format!("no judge is asked ({flag})")),
            "{ran:?}"
        );
        let record = scene.last_record("one");
        let confidences =
            ["factuality", "tone"].map(|of| result(&record, 0, of)["confidence"].as_f64());
        assert_eq!(confidences, [Some(0.5), Some(0.7)]);
    }
    assert_eq!(judge.prompt_count(), 0);
    // Scores on two scales are not to be compared in silence.
    let ran = scene.run(&[]);
    assert!(ran.stdout.contains("on two scales"), "{ran:?}");
}

#[test]
fn a_key_that_is_missing_is_found_before_anything_is_asked() {
    for (provider, variable) in [("openai", "OPENAI_API_KEY"), ("groq", "GROQ_API_KEY")] {
        let entry = json!({"provider": provider, "model": "m"});
        let scene = Scene::new(config(entry, None), &[&cases()]);
        let mut command = scene.command(&["run", ".", "--no-report"]);
        command.env_remove(variable);
        let ran = super::scene::ran(&mut command);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(variable), "{ran:?}");
        assert_eq!(scene.record_files().len(), 0);
        let offline = scene.run(&["--offline"]);
        assert_eq!(offline.code, Some(0), "{offline:?}");
    }
}

#[test]
fn what_waits_for_a_judge_is_no_result_and_no_baseline() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    let ran = scene.run(&["--max-calls", "1", "--junit", "j.xml"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains("not evaluated as a whole") && ran.stdout.contains("--max-calls"),
        "{ran:?}"
    );
    assert_eq!(scene.last_record("one")["status"], "errored");
    assert!(
        std::fs::read_to_string(scene.path("j.xml"))
            .unwrap()
            .contains("errors=\"1\"")
    );
    // The next run goes on, and is compared with nothing.
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(judge.prompt_count(), 4);
    assert_eq!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        Value::Null
    );
    let replay = Scene::new(config(judge_at(&judge, "other"), None), &[&cases()]);
    std::fs::copy(scene.path("ledger.db"), replay.path("ledger.db")).unwrap();
    assert_eq!(replay.run(&["--replay"]).code, Some(3));
}

#[test]
fn the_user_may_name_another_judge() {
    let judge = ScriptedJudge::start(usual);
    let entry = json!({"provider": "anthropic", "model": "claude-x"});
    let scene = Scene::new(config(entry, None), &[&cases()]);
    let (url, further) = (
        judge.url(),
        ["--judge", "openai/m", "--judge-model", "tone=openai/n"],
    );
    let args: Vec<&str> = ["--judge-url", &url]
        .iter()
        .chain(&further)
        .copied()
        .collect();
    let ran = scene.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let asked = judge.prompts();
    let models = |prompt: &str| -> Vec<String> {
        let of = asked.iter().filter(|of| prompt_of(of) == prompt);
        of.map(|of| of.model.clone()).collect()
    };
    assert_eq!(models("regression_claims"), ["m", "m"]);
    assert_eq!(models("regression_tone"), ["n", "n"]);
    let wrong = scene.run(&["--judge-model", "format=openai/n"]);
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("--judge-model format"),
        "{wrong:?}"
    );
    let idle = Scene::new(json!({}), &[&[super::scene::echo("a", true)]]);
    let idle = idle.run(&["--judge", "openai/m"]);
    assert!(
        idle.code == Some(2) && idle.stderr.contains("no metric"),
        "{idle:?}"
    );
}

#[test]
fn the_price_is_told_before_the_first_call() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    let plan = || {
        let ran = scene.suite(&["run", ".", "--dry-run", "--json", "--price", "openai/m=1:2"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    let before = plan();
    let text = scene.suite(&["run", ".", "--dry-run"]);
    assert!(
        text.stdout.contains("factuality") && text.stdout.contains("no price"),
        "{text:?}"
    );
    assert_eq!(
        (
            before["cases"].as_u64(),
            before["total"]["questions"].as_u64()
        ),
        (Some(2), Some(4))
    );
    assert_eq!(before["total"]["known"], 0);
    let (cost, most) = (
        before["total"]["cost"].as_f64().unwrap(),
        before["total"]["most_cost"].as_f64().unwrap(),
    );
    assert!(0.0 < cost && cost < most, "{before}");
    assert_eq!(judge.prompt_count(), 0);
    assert!(!scene.records().exists() && !scene.path("ledger.db").exists());
    assert_eq!(scene.run(&[]).code, Some(0));
    let after = plan();
    assert_eq!(
        (
            after["total"]["known"].as_u64(),
            after["total"]["cost"].as_f64()
        ),
        (Some(4), Some(0.0))
    );
    let nobody = scene.suite(&["run", ".", "--dry-run", "--no-judge"]);
    assert!(
        nobody.stdout.contains("the run costs nothing"),
        "{nobody:?}"
    );
    // A whole command may be counted as it stands: nothing is written.
    let whole = ["run", ".", "--dry-run", "--junit", "x", "--out", "o"];
    assert_eq!(scene.suite(&whole).code, Some(0));
    assert!(!scene.path("x").exists() && !scene.path("o").exists());
}

#[test]
fn a_batch_takes_the_place_of_calls() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    // Without waiting, nothing is evaluated yet.
    let ran = scene.run(&["--batch"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(scene.last_record("one")["status"], "errored");
    let ran = scene.run(&["--batch", "--batch-wait", "1", "--batch-poll", "0.02"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(judge.batches().len(), 1);
    let record = scene.last_record("one");
    let claims = result(&record, 0, "factuality");
    assert_eq!(
        (claims["evaluation_type"].as_str(), claims["score"].as_f64()),
        (Some("llm_judged"), Some(0.5))
    );
}

#[test]
fn what_else_changed_since_the_baseline_is_said() {
    let judge = ScriptedJudge::start(usual);
    let scene = Scene::new(config(judge_at(&judge, "m"), None), &[&cases()]);
    assert_eq!(scene.run(&[]).code, Some(0));
    let same = scene.run(&[]);
    assert!(
        !same.stdout.contains(" then, and by ") && !same.stdout.contains("another configuration")
    );
    let url = judge.url();
    let other = scene.run(&["--judge", "openai/n", "--judge-url", &url]);
    assert!(
        other
            .stdout
            .contains("by openai/m then, and by openai/n now"),
        "{other:?}"
    );
    let tool = scene.run(&["--compat", "tool"]);
    assert!(tool.stdout.contains("another configuration"), "{tool:?}");
    let nameless = scene.run(&["--judge-url", &url, "--judge-model", "claims=openai/x"]);
    assert_eq!(nameless.code, Some(2), "{nameless:?}");
}
