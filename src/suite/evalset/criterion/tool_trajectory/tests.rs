use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::suite::evalset::criterion::{JsonFunction, JsonStrategy};

fn turn(tools: Vec<Option<ToolUse>>) -> Invocation {
    Invocation {
        tools,
        ..Invocation::default()
    }
}

fn call(name: &str, arguments: Value) -> Option<ToolUse> {
    Some(ToolUse {
        name: name.to_owned(),
        arguments,
        ..ToolUse::default()
    })
}

fn read(criterion: Value) -> ToolTrajectoryCriterion {
    ToolTrajectoryCriterion::read(&criterion, "toolTrajectory").unwrap()
}

fn kind(
    criterion: &ToolTrajectoryCriterion,
    actual: Vec<Option<ToolUse>>,
    expected: Vec<Option<ToolUse>>,
) -> Option<MismatchKind> {
    let comparison = criterion.compare(Some(&turn(actual)), Some(&turn(expected)));
    comparison.err().map(|mismatch| mismatch.kind)
}

const TOOLS: Option<MismatchKind> = Some(MismatchKind::Tools);

#[test]
fn the_strategy_of_the_actual_name_comes_first() {
    let criterion = read(json!({"toolStrategy": {
        "a": {"arguments": {}},
        "b": {},
    }}));
    let (a, b) = (call("a", json!(1)), call("b", json!(2)));
    assert_eq!(kind(&criterion, vec![b.clone()], vec![a.clone()]), None);
    assert_eq!(kind(&criterion, vec![a.clone()], vec![b]), TOOLS);
    // Names are not compared by a strategy that does not say so.
    assert_eq!(kind(&criterion, vec![call("x", json!(1))], vec![a]), None);
}

#[test]
fn a_null_strategy_is_absent_and_a_null_call_fits_nothing() {
    let criterion = read(json!({"toolStrategy": {"a": null}, "defaultStrategy": {}}));
    assert_eq!(
        kind(
            &criterion,
            vec![call("a", json!(1))],
            vec![call("b", json!(2))]
        ),
        None
    );
    assert_eq!(kind(&criterion, vec![None], vec![None]), TOOLS);
    assert_eq!(
        kind(&criterion, vec![None], vec![call("b", json!(2))]),
        TOOLS
    );
}

#[test]
fn old_names_are_read() {
    let old =
        read(json!({"defaultStrategy": {"response": {"ignore": true}}, "orderInsensitive": false}));
    assert!(old.order_sensitive);
    assert!(old.default_strategy.unwrap().result.unwrap().ignore);
    assert!(!read(json!({"orderInsensitive": true})).order_sensitive);
    assert!(!read(json!({"orderInsensitive": false, "orderSensitive": false})).order_sensitive);
    let both = json!({"result": {"matchStrategy": "skip"}, "response": {"ignore": true}});
    let both = ToolStrategy::read(&both, "s").unwrap().result.unwrap();
    assert_eq!((both.ignore, both.strategy), (false, JsonStrategy::Skip));
}

#[test]
fn faults_name_the_path() {
    let criterion = json!({"toolStrategy": {"t": {"result": {"numberTolerance": "x"}}}});
    let fault = ToolTrajectoryCriterion::read(&criterion, "criterion.toolTrajectory").unwrap_err();
    assert_eq!(
        fault.path,
        "criterion.toolTrajectory.toolStrategy.t.result.numberTolerance"
    );
}

#[test]
fn tolerances_need_a_largest_matching() {
    // 0.0 fits 0.5 only if 1.0 does not take it.
    let criterion = read(json!({"defaultStrategy": {"arguments": {"numberTolerance": 0.6}}}));
    let calls = |numbers: [f64; 3]| numbers.map(|n| call("t", json!(n))).to_vec();
    assert_eq!(
        kind(&criterion, calls([1.0, 0.5, 1.5]), calls([1.0, 1.5, 0.0])),
        None
    );
    assert_eq!(
        kind(&criterion, calls([1.0, 1.5, 2.0]), calls([1.0, 1.5, 0.0])),
        TOOLS
    );
}

#[test]
fn functions_are_asked_for_each_pair() {
    let same_parity = JsonFunction::of_values(|a, b| {
        Ok(a.as_i64()
            .zip(b.as_i64())
            .is_some_and(|(a, b)| (a - b) % 2 == 0))
    });
    let criterion = ToolTrajectoryCriterion {
        default_strategy: Some(ToolStrategy {
            arguments: Some(JsonCriterion {
                compare: Some(same_parity),
                ..JsonCriterion::default()
            }),
            ..ToolStrategy::default()
        }),
        ..ToolTrajectoryCriterion::default()
    };
    let calls = |numbers: [i64; 2]| numbers.map(|n| call("t", json!(n))).to_vec();
    assert_eq!(kind(&criterion, calls([1, 2]), calls([4, 3])), None);
    assert_eq!(kind(&criterion, calls([1, 2]), calls([3, 5])), TOOLS);
}

#[test]
fn a_function_of_turns_is_asked_before_anything_else() {
    let criterion = ToolTrajectoryCriterion {
        compare: Some(InvocationFunction::of_turns(|a, e| {
            Ok(a.is_none() && e.is_none())
        })),
        ..ToolTrajectoryCriterion::default()
    };
    assert!(criterion.compare(None, None).is_ok());
    assert!(criterion.compare(Some(&turn(Vec::new())), None).is_err());
}

#[test]
fn reasons_name_the_calls() {
    let criterion = ToolTrajectoryCriterion::default();
    let (actual, expected) = (
        turn(vec![call("t", json!({"a": 1}))]),
        turn(vec![call("t", json!({"a": 2}))]),
    );
    let reason = criterion
        .compare(Some(&actual), Some(&expected))
        .unwrap_err()
        .reason;
    assert_eq!(
        reason,
        r#"expected tool calls without partner: "t" with id "": arguments: at $.a: 1 is not 2"#
    );
}

/// A thousand calls of one tool with large arguments whose last number differs.
fn alike(count: usize, first: usize) -> Vec<Option<ToolUse>> {
    (first..first + count)
        .map(|n| {
            let mut numbers = vec![0; 60];
            numbers.push(n);
            call(
                "t",
                json!({"a": {"b": {"list": numbers, "text": "the same"}}}),
            )
        })
        .collect()
}

#[test]
fn a_thousand_calls_are_compared_soon() {
    let criterion = ToolTrajectoryCriterion::default();
    let begin = std::time::Instant::now();
    let mut actual = alike(1000, 0);
    actual.reverse();
    assert_eq!(kind(&criterion, actual.clone(), alike(1000, 0)), None);
    assert_eq!(kind(&criterion, actual, alike(1000, 1)), TOOLS);
    let equal = vec![call("t", json!({"a": 1})); 1000];
    assert_eq!(kind(&criterion, equal.clone(), equal), None);
    let names: Vec<_> = (0..1000)
        .map(|n| call(&format!("tool{n}"), json!(n)))
        .collect();
    let patterns = read(json!({"defaultStrategy": {"name": {"matchStrategy": "regex"}}}));
    let mut expected: Vec<_> = (0..1000)
        .map(|n| call(&format!("^tool{n}$"), json!(n)))
        .collect();
    expected.reverse();
    assert_eq!(kind(&patterns, names, expected), None);
    // Debug builds on busy machines take several times the second that this may take.
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}

#[test]
fn very_many_calls_are_refused_where_their_order_is_free() {
    let many = vec![call("t", json!(1)); 10_000];
    let mut criterion = ToolTrajectoryCriterion::default();
    assert_eq!(kind(&criterion, many.clone(), many.clone()), TOOLS);
    criterion.order_sensitive = true;
    assert_eq!(kind(&criterion, many.clone(), many), None);
}

fn any_calls() -> impl Strategy<Value = Vec<Option<ToolUse>>> {
    let one = prop_oneof![
        9 => ("[ab]", 0..3_u8).prop_map(|(name, n)| call(&name, json!(f64::from(n) * 0.5))),
        1 => Just(None),
    ];
    prop::collection::vec(one, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Where order is free, another order changes nothing.
    #[test]
    fn order_is_free(
        (actual, shuffled) in any_calls().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        (expected, other) in any_calls().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        subset in any::<bool>(),
        tolerance in prop::sample::select(vec![0.0, 0.5]),
    ) {
        let criterion = read(json!({
            "subsetMatching": subset,
            "defaultStrategy": {"name": {}, "arguments": {"numberTolerance": tolerance}},
        }));
        let one = kind(&criterion, actual, expected);
        prop_assert_eq!(one, kind(&criterion, shuffled, other));
    }

    /// What matches in order matches in any order.
    #[test]
    fn order_is_a_restriction(actual in any_calls(), expected in any_calls()) {
        let mut criterion = read(json!({"subsetMatching": true, "orderSensitive": true}));
        let in_order = kind(&criterion, actual.clone(), expected.clone());
        criterion.order_sensitive = false;
        if in_order.is_none() {
            prop_assert_eq!(kind(&criterion, actual, expected), None);
        }
    }
}
