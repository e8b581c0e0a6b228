use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::*;

type Seen = Arc<Mutex<Vec<String>>>;
/// What a component answers, by the context and its own name.
type Answer = fn(&HookContext, &'static str) -> HookAnswer;

/// Writes down what it sees, and leaves a value of its name, or fails.
struct Noting {
    name: &'static str,
    seen: Seen,
    answer: Answer,
}

impl Noting {
    fn note(&self, point: &str, context: &HookContext) -> HookAnswer {
        let values = Value::Object(context.values().clone());
        let line = format!("{} {point} {values}", self.name);
        self.seen.lock().unwrap().push(line);
        (self.answer)(context, self.name)
    }
}

impl EvalHooks for Noting {
    fn before_inference_set(
        &self,
        context: &HookContext,
        request: &mut InferenceRequest,
    ) -> HookAnswer {
        request.case_ids.push(self.name.to_owned());
        self.note("before set", context)
    }

    fn before_inference_case(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        eval_id: &str,
        session_id: &str,
    ) -> HookAnswer {
        let cases = request.case_ids.join(",");
        self.note(
            &format!("before case {eval_id} {session_id} of {cases}"),
            context,
        )
    }

    fn after_inference_set(
        &self,
        context: &HookContext,
        _: &InferenceRequest,
        ended: &Ended<'_, [InferenceResult]>,
    ) -> HookAnswer {
        self.note(&format!("after set {:?}", ended.error), context)
    }
}

/// Implements nothing.
struct Idle;

impl EvalHooks for Idle {}

fn leaves(context: &HookContext, name: &'static str) -> HookAnswer {
    Ok(Some(context.with(name, json!(1))))
}

fn registry(components: &[(&'static str, Answer)]) -> (HookRegistry, Seen) {
    let seen = Seen::default();
    let mut registry = HookRegistry::default();
    for (name, answer) in components {
        let noting = Noting {
            name,
            seen: seen.clone(),
            answer: *answer,
        };
        registry.register(*name, Arc::new(noting));
        registry.register("idle", Arc::new(Idle));
    }
    (registry, seen)
}

#[test]
fn hooks_are_called_in_order_and_see_what_those_before_them_left() {
    let (registry, seen) = registry(&[("a", leaves), ("b", |_, _| Ok(None)), ("c", leaves)]);
    let mut request = InferenceRequest::default();
    let set = registry
        .before_inference_set(HookContext::default(), &mut request)
        .unwrap();
    assert_eq!(request.case_ids, ["a", "b", "c"]);
    let case = registry
        .before_inference_case(set.clone(), &request, "x", "s")
        .unwrap();
    assert_eq!(case.get("c"), Some(&json!(1)));
    let ended = Ended {
        result: None,
        error: Some("lost"),
        started: SystemTime::now(),
        took: Duration::ZERO,
    };
    registry.after_inference_set(set, &request, &ended).unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            r#"a before set {}"#,
            r#"b before set {"a":1}"#,
            r#"c before set {"a":1}"#,
            r#"a before case x s of a,b,c {"a":1,"c":1}"#,
            r#"b before case x s of a,b,c {"a":1,"c":1}"#,
            r#"c before case x s of a,b,c {"a":1,"c":1}"#,
            r#"a after set Some("lost") {"a":1,"c":1}"#,
            r#"b after set Some("lost") {"a":1,"c":1}"#,
            r#"c after set Some("lost") {"a":1,"c":1}"#,
        ]
    );
}

#[test]
fn a_context_of_ones_own_takes_the_place_of_the_others() {
    let (registry, _) = registry(&[
        ("a", leaves),
        ("b", |_, name| {
            Ok(Some(HookContext::default().with(name, json!("mine"))))
        }),
    ]);
    let mut request = InferenceRequest::default();
    let context = registry
        .before_inference_set(HookContext::default(), &mut request)
        .unwrap();
    assert_eq!(
        Value::Object(context.values().clone()),
        json!({"b": "mine"})
    );
}

#[test]
fn an_error_stops_the_point_and_names_point_index_and_component() {
    let (registry, seen) =
        registry(&[("a", leaves), ("b", |_, _| Err("no".into())), ("c", leaves)]);
    let mut request = InferenceRequest::default();
    let error = registry
        .before_inference_set(HookContext::default(), &mut request)
        .unwrap_err();
    assert_eq!(error.to_string(), "hook 2 `b` at before_inference_set: no");
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn a_panic_is_an_error() {
    let panics: [Answer; 2] = [
        |_, _| panic!("out of cheese"),
        |_, name| panic!("out of {name}"),
    ];
    for (panics, words) in panics.into_iter().zip(["out of cheese", "out of b"]) {
        let (registry, _) = registry(&[("b", panics)]);
        let error = registry
            .before_inference_case(
                HookContext::default(),
                &InferenceRequest::default(),
                "x",
                "s",
            )
            .unwrap_err();
        assert_eq!(
            (error.index, error.point),
            (0, HookPoint::BeforeInferenceCase)
        );
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(error.problem, HookProblem::Panicked(_)));
    }
}

#[test]
fn case_hooks_may_be_called_from_several_threads() {
    let (registry, seen) = registry(&[("a", leaves)]);
    let request = InferenceRequest::default();
    std::thread::scope(|scope| {
        for case in 0..8 {
            let (registry, request) = (&registry, &request);
            scope.spawn(move || {
                let context = HookContext::default().with("case", json!(case));
                let left = registry
                    .before_inference_case(context, request, "x", "s")
                    .unwrap();
                assert_eq!(left.get("case"), Some(&json!(case)));
            });
        }
    });
    assert_eq!(seen.lock().unwrap().len(), 8);
}
