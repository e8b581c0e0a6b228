//! `json_schema` of the tool: how alike two documents are, value by value.

use std::borrow::Cow;

use crate::metric::comparison::{JsonTree, JsonValue};

/// What the tool has in place of a shape: how alike the values are, 0 to 1. Objects are the mean over the expected
/// keys, arrays the mean over the longer length, and all else is equal or not.
pub(super) fn likeness(actual: &JsonTree, expected: &JsonTree) -> f64 {
    likeness_of(actual, actual.root(), expected, expected.root())
}

fn likeness_of(a_tree: &JsonTree, a: &JsonValue, e_tree: &JsonTree, e: &JsonValue) -> f64 {
    use JsonValue::{Bool, List, Null, Number, Text};
    let equal = |same: bool| if same { 1.0 } else { 0.0 };
    match (a, e) {
        (Null, Null) => 1.0,
        (Bool(a), Bool(e)) => equal(a == e),
        (Number(a), Number(e)) => equal(a == e),
        (Text(a), Text(e)) => equal(a_tree.text(a) == e_tree.text(e)),
        (List(a), List(e)) => {
            let (a, e) = (a_tree.items(a), e_tree.items(e));
            let pairs = a.iter().zip(e);
            let alike = pairs.map(|(a, e)| likeness_of(a_tree, a, e_tree, e)).sum();
            mean(alike, a.len().max(e.len()))
        }
        _ => {
            let (Some(a), Some(e)) = (a_tree.fields(a), e_tree.fields(e)) else {
                return 0.0;
            };
            let index = a.index();
            let of_key = |(at, (key, e)): (usize, (Cow<'_, str>, &JsonValue))| {
                let a = index.get(&key, at);
                a.map_or(0.0, |a| likeness_of(a_tree, a, e_tree, e))
            };
            mean(e.iter().enumerate().map(of_key).sum(), e.len())
        }
    }
}

/// The mean of so many; 1 where there are none.
fn mean(sum: f64, count: usize) -> f64 {
    match count {
        0 => 1.0,
        count => sum / count as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_of_values() {
        for (actual, expected, alike) in [
            ("[1, 2]", "[1, 3, 4, 5]", 0.25),
            ("[]", "[]", 1.0),
            ("[]", "[1]", 0.0),
            ("{\"a\": 1, \"c\": 2}", "{\"a\": 1, \"b\": 2}", 0.5),
            ("[1]", "{}", 1.0),
            ("{\"a\": \" x\"}", "{\"a\": \"x\"}", 0.0),
            ("null", "{}", 0.0),
            ("null", "null", 1.0),
            ("1.0", "1", 1.0),
            ("1", "true", 0.0),
        ] {
            let (mut a, mut e) = (JsonTree::default(), JsonTree::default());
            assert!(a.read(actual) && e.read(expected));
            assert_eq!(likeness(&a, &e), alike, "{actual} {expected}");
        }
    }
}
