use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::suite::evalset::criterion::MismatchKind;

fn criterion(value: Value) -> JsonCriterion {
    JsonCriterion::read(&value, "json").unwrap()
}

fn kind(of: Value, actual: Value, expected: Value) -> Option<MismatchKind> {
    let comparison = criterion(of).compare(&actual, &expected);
    comparison.err().map(|mismatch| mismatch.kind)
}

const DIFFERS: Option<MismatchKind> = Some(MismatchKind::Differs);
const CONFIG: Option<MismatchKind> = Some(MismatchKind::Config);

#[test]
fn an_ignore_tree_stops_at_arrays() {
    let tree = json!({"ignoreTree": {"list": {"time": true}, "time": true}});
    let (a, b) = (
        json!({"list": [{"time": 1}]}),
        json!({"list": [{"time": 2}]}),
    );
    assert_eq!(kind(tree.clone(), a, b), DIFFERS);
    assert_eq!(
        kind(tree, json!([{"time": 1}]), json!([{"time": 2}])),
        DIFFERS
    );
}

#[test]
fn leaves_other_than_true_ignore_nothing() {
    for leaf in [
        json!(false),
        json!(1),
        json!("true"),
        json!(null),
        json!({}),
    ] {
        let tree = json!({"ignoreTree": {"a": leaf}});
        assert_eq!(
            kind(tree.clone(), json!({"a": 1}), json!({"a": 2})),
            DIFFERS
        );
        assert_eq!(kind(tree, json!({"a": 1}), json!({"a": 1})), None);
    }
}

#[test]
fn an_only_tree_compares_what_it_names() {
    let only = json!({"onlyTree": {"a": true, "b": false, "c": {}}});
    let full = json!({"a": {"x": 1}, "b": 1, "c": 2});
    assert_eq!(
        kind(only.clone(), full.clone(), json!({"a": {"x": 1}, "c": 2})),
        None
    );
    // What is no object is compared whole under a tree.
    assert_eq!(
        kind(only.clone(), full.clone(), json!({"a": {"x": 1}, "c": 3})),
        DIFFERS
    );
    assert_eq!(
        kind(only.clone(), full.clone(), json!({"a": {"x": 2}, "c": 2})),
        DIFFERS
    );
    assert_eq!(kind(only.clone(), full, json!({"a": {"x": 1}})), DIFFERS);
    assert_eq!(
        kind(only.clone(), json!({"b": 1}), json!({"b": 1})),
        DIFFERS
    );
    assert_eq!(kind(only.clone(), json!(3), json!(3)), None);
    assert_eq!(kind(only.clone(), json!([3]), json!([4])), DIFFERS);
    assert_eq!(kind(only, json!({}), json!(4)), DIFFERS);
    let unclear = json!({"onlyTree": {"a": "yes"}});
    assert_eq!(
        kind(unclear.clone(), json!({"a": 1}), json!({"a": 1})),
        CONFIG
    );
    assert_eq!(kind(unclear, json!(1), json!(1)), None);
    // An empty tree is none.
    assert_eq!(
        kind(json!({"onlyTree": {}}), json!({"a": 1}), json!({"a": 2})),
        DIFFERS
    );
}

#[test]
fn two_trees_are_a_matter_of_the_criterion_even_if_nothing_is_compared() {
    let both = json!({"onlyTree": {"a": true}, "ignoreTree": {"b": true}, "matchStrategy": "skip"});
    assert_eq!(kind(both, json!(1), json!(1)), CONFIG);
    let one = json!({"onlyTree": {}, "ignoreTree": {"b": true}});
    assert_eq!(kind(one, json!({"b": 1}), json!({})), None);
}

#[test]
fn large_integers_are_doubles() {
    let zero = json!({"numberTolerance": 0});
    let (a, b) = (
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992_u64),
    );
    assert_eq!(kind(zero.clone(), a, b), None);
    assert_eq!(
        kind(zero.clone(), json!(u64::MAX), json!(1.8446744073709552e19)),
        None
    );
    assert_eq!(kind(zero, json!(-0.0), json!(0)), None);
    assert_eq!(kind(json!({}), json!(1e15), json!(1.000001e15)), DIFFERS);
}

#[test]
fn valid_asks_for_one_value_in_a_text() {
    let valid = json!({"valid": true, "matchStrategy": "skip"});
    assert_eq!(kind(valid.clone(), json!("plain"), json!(null)), DIFFERS);
    assert_eq!(kind(valid.clone(), json!("[1] 2"), json!(null)), DIFFERS);
    assert_eq!(kind(valid.clone(), json!("[1]"), json!(null)), None);
    assert_eq!(kind(valid, json!({"a": 1}), json!(null)), None);
}

#[test]
fn texts_with_skip_are_not_read() {
    let skip = criterion(json!({"matchStrategy": "skip"}));
    assert!(skip.compare_texts("no JSON", "").is_ok());
    let valid = criterion(json!({"matchStrategy": "skip", "valid": true}));
    assert!(valid.compare_texts("no JSON", "").is_err());
    assert!(valid.compare_texts("1 2", "").is_err());
    assert!(valid.compare_texts(" {} ", "").is_ok());
    // Nobody is asked to keep to more than the criterion says.
    assert!(criterion(json!({})).compare_texts("1 2", "1").is_ok());
    assert!(
        criterion(json!({"valid": true}))
            .compare_texts("1 2", "1")
            .is_err()
    );
    assert!(
        criterion(json!({"valid": true}))
            .compare_texts("1", "1 2")
            .is_ok()
    );
    // A string in the text is no text to be read again.
    assert!(
        criterion(json!({"valid": true}))
            .compare_texts("\"a\"", "\"a\"")
            .is_ok()
    );
}

#[test]
fn a_function_replaces_everything_but_ignore() {
    let mut criterion = criterion(json!({"matchStrategy": "x", "valid": true}));
    criterion.compare = Some(JsonFunction::of_values(|a, b| {
        Ok(a.is_string() == b.is_string())
    }));
    assert!(criterion.compare(&json!("a"), &json!("b")).is_ok());
    assert!(criterion.compare(&json!("a"), &json!(1)).is_err());
    criterion.ignore = true;
    assert!(criterion.compare(&json!("a"), &json!(1)).is_ok());
}

#[test]
fn reasons_say_where() {
    let (a, b) = (json!({"a": [1, {"b": "x"}]}), json!({"a": [1, {"b": "y"}]}));
    let reason = criterion(json!({})).compare(&a, &b).unwrap_err().reason;
    assert_eq!(reason, r#"at $.a[1].b: "x" is not "y""#);
}

#[test]
fn wrong_types_in_a_criterion_are_faults() {
    for bad in [
        json!({"ignore": 1}),
        json!({"ignoreTree": []}),
        json!({"onlyTree": true}),
        json!({"numberTolerance": "0"}),
        json!({"matchStrategy": 3}),
        json!({"valid": "true"}),
        json!("exact"),
    ] {
        assert!(JsonCriterion::read(&bad, "json").is_err(), "{bad}");
    }
    assert!(JsonCriterion::read(&json!({"more": 1, "ignoreTree": null}), "json").is_ok());
}

/// An array in an array, and so on, around a value.
fn nested(levels: usize, inner: Value) -> Value {
    (0..levels).fold(inner, |inner, level| match level % 2 {
        0 => Value::Array(vec![inner]),
        _ => Value::Object(Map::from_iter([("k".to_owned(), inner)])),
    })
}

/// Takes a deep value apart, which dropping it would do on the stack.
fn take_apart(mut value: Value) {
    loop {
        value = match value {
            Value::Array(mut items) => items.pop().unwrap_or_default(),
            Value::Object(mut members) => members.remove("k").unwrap_or_default(),
            _ => return,
        };
    }
}

#[test]
fn values_of_any_depth_are_compared() {
    let values = [nested(200_000, json!(1)), nested(200_000, json!(2))];
    let plain = criterion(json!({}));
    let [one, two] = &values;
    assert!(plain.compare(one, one).is_ok());
    let reason = plain.compare(one, two).unwrap_err().reason;
    assert!(reason.len() < 200, "{reason}");
    let prints = values.each_ref().map(|value| plain.print_of_actual(value));
    assert!(plain.fits(&prints[0], &prints[0]));
    assert!(!plain.fits(&prints[0], &prints[1]));
    let schema = criterion(json!({"schema": {"type": ["array", "object"]}}));
    assert!(schema.compare(one, one).is_err());
    values.into_iter().for_each(take_apart);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        (0..4_u8).prop_map(|n| Value::from(f64::from(n) * 0.6)),
        "[ab]{0,1}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[ab]", inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![4 => Just(json!(true)), 2 => Just(json!(false)), 1 => Just(json!(1))];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop::collection::vec(("[ab]", inner), 0..3)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    })
    .prop_filter("a tree is an object", Value::is_object)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Prints say what comparing the values says.
    #[test]
    fn prints_agree_with_comparisons(
        a in any_value(),
        b in any_value(),
        tree in any_tree(),
        which in 0..3,
        tolerance in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.7)), Just(Some(-1.0))],
    ) {
        let mut criterion = JsonCriterion { tolerance, ..JsonCriterion::default() };
        let Value::Object(tree) = tree else { return Ok(()) };
        match which {
            0 => {}
            1 => criterion.ignore_tree = tree,
            _ => criterion.only_tree = tree,
        }
        for (a, b) in [(&a, &b), (&a, &a), (&b, &a)] {
            let fits = criterion.fits(&criterion.print_of_actual(a), &criterion.print_of_expected(b));
            prop_assert_eq!(fits, criterion.compare(a, b).is_ok(), "{} {}", a, b);
        }
    }
}
