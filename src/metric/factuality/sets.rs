//! Arrays of plain values as sets of their texts.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::metric::comparison::{JsonTree, JsonValue};

/// Sets of up to so many values are compared value by value, without their texts.
const SMALL: usize = 16;

/// Plain values with different texts, each where it comes first.
pub(super) fn distinct<'t>(tree: &'t JsonTree, items: &'t [JsonValue]) -> Vec<&'t JsonValue> {
    let mut kept: Vec<&JsonValue> = Vec::with_capacity(items.len());
    if items.len() <= SMALL {
        for item in items {
            if !kept
                .iter()
                .any(|other| have_same_text((tree, item), (tree, other)))
            {
                kept.push(item);
            }
        }
        return kept;
    }
    let mut seen = HashSet::with_capacity(items.len());
    kept.extend(items.iter().filter(|item| seen.insert(tree.shown(item))));
    kept
}

/// The values of a set that another does not have.
pub(super) fn difference<'t>(
    (tree, these): (&'t JsonTree, &[&'t JsonValue]),
    (other_tree, those): (&'t JsonTree, &[&'t JsonValue]),
) -> Vec<&'t JsonValue> {
    let these = these.iter().copied();
    if these.len().max(those.len()) <= SMALL {
        let is_there = |item: &JsonValue| {
            let mut those = those.iter();
            those.any(|other| have_same_text((tree, item), (other_tree, other)))
        };
        return these.filter(|item| !is_there(item)).collect();
    }
    let those: HashSet<Cow<'_, str>> = those.iter().map(|other| other_tree.shown(other)).collect();
    these
        .filter(|item| !those.contains(&tree.shown(item)))
        .collect()
}

/// Whether plain values are the same as texts.
fn have_same_text(
    (a_tree, a): (&JsonTree, &JsonValue),
    (b_tree, b): (&JsonTree, &JsonValue),
) -> bool {
    use JsonValue::{Bool, Null, Number, Text};
    match (a, b) {
        (Text(a), Text(b)) => a_tree.text(a) == b_tree.text(b),
        // Different numbers have different texts, but for the sign of zero.
        (Number(a), Number(b)) => a == b,
        (Bool(a), Bool(b)) => a == b,
        (Null, Null) => true,
        (Text(a), _) => a_tree.text(a) == b_tree.shown(b),
        (_, Text(b)) => a_tree.shown(a) == b_tree.text(b),
        _ => false,
    }
}
