use serde_json::{Value, json};

use super::*;
use crate::suite::evalset::environment::Environment;
use crate::suite::evalset::model::{EvalMetric, Invocation, Message, Rubric};

fn template(value: Value) -> JudgeTemplate {
    let metric = json!({"metricName": "m", "criterion": {"llmJudge": {"template": value}}});
    let metric = EvalMetric::from_json(metric, &Environment::of(|_| None)).unwrap();
    metric.rules.judge.unwrap().template.unwrap()
}

fn message(text: &str) -> Option<Message> {
    Some(Message {
        content: text.to_owned(),
        ..Message::default()
    })
}

fn actual() -> Invocation {
    let trace = json!({"steps": [
        {"nodeId": "n", "input": {"text": "first"}},
        {"NodeID": "n", "Input": {"Text": "in {{answer}}"}, "output": {"text": " "}, "tools": [{"name": "search"}]},
        {"nodeId": "other", "skills": {}}]});
    Invocation {
        user_content: message("Where?"),
        final_response: message(r#"{"city": "Paris", "of": [1, {"a": null}]}"#),
        rest: serde_json::Map::from_iter([("executionTrace".to_owned(), trace)]),
        ..Invocation::default()
    }
}

fn asked(
    actual: &Invocation,
    expected: Option<&str>,
    template: &JudgeTemplate,
) -> Result<String, String> {
    let expected = Invocation {
        final_response: expected.and_then(message),
        ..Invocation::default()
    };
    let rubrics = [Rubric {
        id: "r".into(),
        text: Some("polite".into()),
        ..Rubric::default()
    }];
    let turn = AskedTurn {
        actual,
        expected: &expected,
        rubrics: &rubrics,
    };
    question(&turn, Some(template))
}

/// What one binding comes to.
fn bound(source: Value) -> Result<String, String> {
    let template = template(json!({"prompt": "{{x}}", "responseScorerName": "boolean",
        "variableBindings": [{"templateVariable": " x ", "source": source}]}));
    asked(&actual(), Some("Rome"), &template)
}

#[test]
fn placeholders_are_filled_once() {
    let template = template(json!({
        "prompt": "{{ q }}|{{answer}}|{{missing?}}|{{not a name}}|{{\"x\"}}|{{}}|{q}|{{q}}}|{{open",
        "responseScorerName": "single_score",
        "variableBindings": [
            {"templateVariable": "q", "source": {"scope": "actual", "field": "userContent"}},
            {"templateVariable": "answer", "source": {"scope": "actual", "field": "traceStepInput",
                "selector": {"nodeID": "n"}}}]}));
    assert_eq!(
        asked(&actual(), None, &template).unwrap(),
        "Where?|in {{answer}}||{{not a name}}|{{\"x\"}}|{{}}|{q}|Where?}|{{open"
    );
}

#[test]
fn each_source_has_its_value() {
    let of = |scope: &str, field: &str, node: &str, path: &str| {
        bound(json!({"scope": scope, "field": field, "selector": {"nodeID": node}, "path": path}))
    };
    assert_eq!(of("actual", "userContent", "", "").unwrap(), "Where?");
    assert_eq!(of("expected", "finalResponse", "", "").unwrap(), "Rome");
    assert_eq!(
        of("actual", "finalResponse", "", "$.city").unwrap(),
        "Paris"
    );
    assert_eq!(
        of("actual", "finalResponse", "", "$.of[1]").unwrap(),
        r#"{"a":null}"#
    );
    assert_eq!(
        of("actual", "traceStepTools", "n", "$[0].name").unwrap(),
        "search"
    );
    assert_eq!(of("actual", "traceStepSkills", "n", "").unwrap(), "[]");
    assert_eq!(
        of("metric", "rubrics", "", "").unwrap(),
        r#"[{"id":"r","content":{"text":"polite"}}]"#
    );
    assert_eq!(
        of("metric", "rubrics", "", "$[0].content.text").unwrap(),
        "polite"
    );
    for (scope, field, node, path, why) in [
        ("actual", "userContent", "", "$", "is JSON"),
        ("actual", "rubrics", "", "", "no source"),
        ("expected", "userContent", "", "", "no source"),
        ("actual", "traceStepInput", "", "", "nodeID"),
        ("actual", "traceStepInput", "none", "", "no step"),
        ("actual", "traceStepOutput", "n", "", "no output"),
        ("actual", "traceStepSkills", "other", "", "no list"),
        ("actual", "finalResponse", "", "$.town", "leads nowhere"),
    ] {
        let problem = of(scope, field, node, path).unwrap_err();
        assert!(
            problem.contains(why) && problem.contains("`x`"),
            "{problem}"
        );
    }
}

#[test]
fn what_is_not_there_fails_the_case() {
    let bare = Invocation::default();
    for (source, why) in [
        (
            json!({"scope": "expected", "field": "finalResponse"}),
            "no expected final response",
        ),
        (
            json!({"scope": "actual", "field": "traceStepInput", "selector": {"nodeID": "n"}}),
            "no execution trace",
        ),
    ] {
        let template = template(
            json!({"prompt": "no placeholder", "responseScorerName": "boolean",
            "variableBindings": [{"templateVariable": "x", "source": source}]}),
        );
        let problem = asked(&bare, None, &template).unwrap_err();
        assert!(problem.contains(why), "{problem}");
    }
}

#[test]
fn a_template_that_can_not_be_used_says_why() {
    let source = json!({"scope": "actual", "field": "userContent"});
    let x = json!({"templateVariable": "x", "source": source});
    let good = json!({"prompt": "{{x}}", "responseScorerName": "boolean", "variableBindings": [x]});
    assert_eq!(
        asked(&actual(), None, &template(good.clone())),
        Ok("Where?".to_owned())
    );
    for (member, value, why) in [
        ("prompt", json!(" "), "no `prompt`"),
        (
            "prompt",
            json!("{{x}} {{y}} {{z}} {{y}}"),
            "bound to: y, z;",
        ),
        ("responseScorerName", json!("stars"), "`stars`"),
        ("responseScorerName", json!(""), "choose one of"),
        ("responseScorerName", json!("categorical"), "categories"),
        ("structuredOutputName", json!("mine"), "`mine`"),
        ("sampleAggregatorName", json!("mean"), "majority_vote"),
        ("invocationAggregatorName", json!("sum"), "average"),
        ("variableBindings", json!([x, x]), "bound twice"),
        ("variableBindings", json!([x, null]), "null"),
        (
            "variableBindings",
            json!([{"source": source}]),
            "no `templateVariable`",
        ),
        (
            "variableBindings",
            json!([{"templateVariable": "x"}]),
            "no `source`",
        ),
    ] {
        let mut wrong = good.clone();
        wrong[member] = value;
        let problem = asked(&actual(), None, &template(wrong)).unwrap_err();
        assert!(problem.contains(why), "{problem}");
    }
    for (categories, why) in [
        (json!([{"label": "a", "score": 2}]), "worth 2"),
        (json!([{"label": "a"}, {"label": "a"}]), "twice"),
        (json!([{"score": 1}]), "no `label`"),
        (json!([null]), "null"),
    ] {
        let mut wrong = good.clone();
        wrong["responseScorerName"] = json!("categorical");
        wrong["responseScorerOptions"] = json!({"categories": categories});
        let problem = asked(&actual(), None, &template(wrong)).unwrap_err();
        assert!(problem.contains(why), "{problem}");
    }
}

#[test]
fn replies_are_read_in_the_form_that_is_named() {
    let score = |scorer: &str, reply: &str, rubrics: &[&str]| {
        let template = template(
            json!({"responseScorerName": scorer, "responseScorerOptions":
            {"categories": [{"label": "good", "score": 0.75}]}}),
        );
        let rubrics: Vec<String> = rubrics.iter().map(|id| (*id).to_owned()).collect();
        let reading = Reading {
            rubrics: &rubrics,
            template: Some(&template),
        };
        read(reply, &reading).map(|read| read.score)
    };
    assert_eq!(
        score("single_score", r#"{"score": 0.5, "reason": ""}"#, &["r"]),
        Ok(0.5)
    );
    assert_eq!(
        score("boolean", r#"{"passed": true, "reason": ""}"#, &[]),
        Ok(1.0)
    );
    assert_eq!(
        score("categorical", r#"{"category": "good", "reason": ""}"#, &[]),
        Ok(0.75)
    );
    assert!(score("categorical", r#"{"category": "fair", "reason": ""}"#, &[]).is_err());
    let one = r#"{"rubricScores": [{"id": "r", "score": 1, "reason": ""}]}"#;
    assert_eq!(score("rubric_scores", one, &["r"]), Ok(1.0));
    assert_eq!(score("rubric_scores", one, &[]), Ok(1.0));
    assert!(score("rubric_scores", one, &["r", "s"]).is_err());
    let blocks = "ID: r\nRubric: x\nEvidence: e\nReason: y\nVerdict: yes";
    assert!(score("rubric_scores", blocks, &["r"]).is_err());
}
