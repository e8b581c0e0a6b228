use std::time::Instant;

use serde_json::json;

use super::*;
use crate::suite::evalset::hooks::{EvaluateRequest, HookError, HookRegistry, InferenceRequest};

const SOON: Duration = Duration::from_secs(20);

/// Hooks of a script that answers each line, `$line`, by one line.
fn answering(answer: &str) -> HookRegistry {
    registry(&format!("while read -r line; do {answer}; done"), SOON)
}

fn registry(script: &str, timeout: Duration) -> HookRegistry {
    let mut registry = HookRegistry::default();
    registry.register("mine", hooks_of_command(script, timeout).unwrap());
    registry
}

fn before_case(registry: &HookRegistry, context: HookContext) -> Result<HookContext, HookError> {
    let request = InferenceRequest {
        run: 1,
        ..InferenceRequest::default()
    };
    registry.before_inference_case(context, &request, "c", "s")
}

fn error(registry: &HookRegistry) -> String {
    let error = before_case(registry, HookContext::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("hook 0 `mine` at before_inference_case: "),
        "{error}"
    );
    error
}

#[test]
fn an_empty_answer_changes_nothing() {
    let registry = answering("echo '{}'");
    let context = HookContext::default().with("a", json!(1));
    for _ in 0..3 {
        assert_eq!(before_case(&registry, context.clone()).unwrap(), context);
    }
}

#[test]
fn values_are_added_to_the_context_which_the_program_sees() {
    // The line itself becomes a value.
    let registry = answering(r#"printf '{"context":{"seen":%s,"b":2}}\n' "$line""#);
    let context = HookContext::default()
        .with("a", json!(1))
        .with("b", json!(1));
    let left = before_case(&registry, context).unwrap();
    let seen = json!({"point": "before_inference_case", "run": 1, "app": "", "set": "", "evalId": "c",
        "sessionId": "s", "context": {"a": 1, "b": 1}});
    assert_eq!(
        Value::Object(left.values().clone()),
        json!({"a": 1, "b": 2, "seen": seen})
    );
}

#[test]
fn an_error_is_told_and_the_program_goes_on() {
    let registry = answering(r#"echo '{"error":"not today"}'"#);
    for _ in 0..2 {
        assert!(error(&registry).ends_with(": not today"));
    }
}

#[test]
fn requests_are_changed_before_a_set_alone() {
    let ids = r#"echo '{"request":{"evalCaseIds":["x","y"]}}'"#;
    let registry = answering(ids);
    let mut request = InferenceRequest::default();
    registry
        .before_inference_set(HookContext::default(), &mut request)
        .unwrap();
    assert_eq!(request.case_ids, ["x", "y"]);
    assert!(error(&registry).contains("nothing can be changed"));

    let metric = |name: &str| EvalMetric {
        name: name.into(),
        ..EvalMetric::default()
    };
    let mut request = EvaluateRequest {
        metrics: vec![metric("a"), metric("b"), metric("c")],
        ..EvaluateRequest::default()
    };
    let registry = answering(r#"echo '{"request":{"metrics":["c","a"]}}'"#);
    registry
        .before_evaluate_set(HookContext::default(), &mut request)
        .unwrap();
    assert_eq!(request.metrics, [metric("c"), metric("a")]);
    let error =
        registry.before_evaluate_set(HookContext::default(), &mut EvaluateRequest::default());
    assert!(error.unwrap_err().to_string().contains("no metric `c`"));
    let error =
        registry.before_inference_set(HookContext::default(), &mut InferenceRequest::default());
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("`metrics` can't be changed")
    );
}

#[test]
fn what_is_no_answer_is_quoted() {
    for (answer, reason) in [
        ("hello", "no JSON"),
        ("[]", "no object"),
        (r#"{"eror":"x"}"#, "`eror`"),
        (r#"{"context":[]}"#, "must be an object"),
        (r#"{"error":3}"#, "must be a text"),
    ] {
        let error = error(&answering(&format!("echo '{answer}'")));
        assert!(
            error.contains(reason) && error.contains(&format!("{answer:?}")),
            "{error}"
        );
    }
}

#[test]
fn a_program_that_breaks_down_fails_all_later_points() {
    let registry = registry("read -r line; echo oops >&2; exit 5", SOON);
    let first = error(&registry);
    assert!(
        first.contains("exit status: 5") && first.contains("oops"),
        "{first}"
    );
    assert!(error(&registry).contains("earlier point"));
}

#[test]
fn a_silent_program_is_killed_after_its_time() {
    let registry = registry("sleep 1000", Duration::from_millis(200));
    let started = Instant::now();
    assert!(error(&registry).contains("0.2 s"));
    assert!(started.elapsed() < SOON);
}

#[test]
fn lines_that_nobody_asked_for_are_an_error() {
    let registry = registry("echo '{}'; read -r line; echo '{}'; read -r line", SOON);
    std::thread::sleep(Duration::from_millis(500));
    assert!(error(&registry).contains("before it was asked"));
}

#[test]
fn answers_go_to_their_points_from_several_threads() {
    let registry = answering(r#"printf '{"context":{"seen":%s}}\n' "$line""#);
    std::thread::scope(|scope| {
        for case in 0..8 {
            let registry = &registry;
            scope.spawn(move || {
                let context = HookContext::default().with("case", json!(case));
                let left = before_case(registry, context).unwrap();
                assert_eq!(left.get("seen").unwrap()["context"]["case"], json!(case));
            });
        }
    });
}
