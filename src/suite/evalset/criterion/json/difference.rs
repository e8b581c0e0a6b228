//! The first difference of two values.

use serde_json::{Map, Value};

use super::{Part, Tree};
use crate::suite::evalset::criterion::{Comparison, Mismatch, shown, shown_value};

/// Where a value lies in the one around it.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// A container inside another.
struct Place<'a> {
    around: Option<usize>,
    step: Step<'a>,
}

/// Two containers of one kind that wait for their comparison.
enum Pair<'a> {
    Objects(&'a Map<String, Value>, &'a Map<String, Value>, Tree<'a>),
    Arrays(&'a [Value], &'a [Value]),
}

struct Search<'a> {
    tolerance: f64,
    /// Of all containers met.
    places: Vec<Place<'a>>,
    waiting: Vec<(Pair<'a>, Option<usize>)>,
}

/// Compares two values of any depth: what is still to do waits in a list, not on the stack.
pub(super) fn compare(
    actual: &Value,
    expected: &Value,
    tree: Tree<'_>,
    tolerance: f64,
) -> Comparison {
    let mut search = Search {
        tolerance,
        places: Vec::new(),
        waiting: Vec::new(),
    };
    match pair(actual, expected, tree, tolerance)? {
        Some(pair) => search.waiting.push((pair, None)),
        None => return Ok(()),
    }
    while let Some((pair, place)) = search.waiting.pop() {
        match pair {
            Pair::Objects(actual, expected, tree) => {
                search.objects(actual, expected, tree, place)?;
            }
            Pair::Arrays(actual, expected) => search.arrays(actual, expected, place)?,
        }
    }
    Ok(())
}

impl<'a> Search<'a> {
    fn objects(
        &mut self,
        actual: &'a Map<String, Value>,
        expected: &'a Map<String, Value>,
        tree: Tree<'a>,
        place: Option<usize>,
    ) -> Comparison {
        // A tree of what alone is compared asks for keys that neither object need have.
        let asked = match tree {
            Tree::Only(tree) => Some(tree.keys()),
            Tree::All | Tree::Ignore(_) => None,
        };
        let additional = expected.keys().filter(|key| !actual.contains_key(*key));
        let own = actual.keys().chain(additional);
        let (asked, own) = match asked {
            Some(asked) => (Some(asked), None),
            None => (None, Some(own)),
        };
        for key in asked.into_iter().flatten().chain(own.into_iter().flatten()) {
            let tree = match tree.part(key) {
                Part::Left => continue,
                Part::Compared(tree) => tree,
                Part::Unclear => {
                    let reason = format!(
                        "`onlyTree` must have true, false or an object at {}",
                        shown(key)
                    );
                    return Err(Mismatch::config(reason));
                }
            };
            let (actual, expected) = match (actual.get(key), expected.get(key)) {
                (Some(actual), Some(expected)) => (actual, expected),
                (found, _) => {
                    let side = if found.is_some() {
                        "expected"
                    } else {
                        "actual"
                    };
                    let reason = format!("key {} is missing in the {side} value", shown(key));
                    return Err(self.at(place, Mismatch::differs(reason)));
                }
            };
            self.inner(actual, expected, tree, place, Step::Key(key))?;
        }
        Ok(())
    }

    fn arrays(
        &mut self,
        actual: &'a [Value],
        expected: &'a [Value],
        place: Option<usize>,
    ) -> Comparison {
        if actual.len() != expected.len() {
            let reason = format!(
                "the array has length {}, expected {}",
                actual.len(),
                expected.len()
            );
            return Err(self.at(place, Mismatch::differs(reason)));
        }
        for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            self.inner(actual, expected, Tree::All, place, Step::Index(index))?;
        }
        Ok(())
    }

    fn inner(
        &mut self,
        actual: &'a Value,
        expected: &'a Value,
        tree: Tree<'a>,
        around: Option<usize>,
        step: Step<'a>,
    ) -> Comparison {
        match pair(actual, expected, tree, self.tolerance) {
            Ok(None) => Ok(()),
            Ok(Some(pair)) => {
                self.waiting.push((pair, Some(self.places.len())));
                self.places.push(Place { around, step });
                Ok(())
            }
            Err(mismatch) => {
                let place = Some(self.places.len());
                self.places.push(Place { around, step });
                Err(self.at(place, mismatch))
            }
        }
    }

    /// The mismatch with the path to where it is; of a long path the last steps.
    fn at(&self, mut place: Option<usize>, mismatch: Mismatch) -> Mismatch {
        let mut steps = Vec::new();
        while let Some(inner) = place.and_then(|index| self.places.get(index)) {
            if steps.len() == 8 {
                steps.push("…".to_owned());
                break;
            }
            steps.push(match inner.step {
                Step::Key(key) => format!(".{}", shown(key).trim_matches('"')),
                Step::Index(index) => format!("[{index}]"),
            });
            place = inner.around;
        }
        match steps.is_empty() {
            true => mismatch,
            false => {
                let path: String = steps.into_iter().rev().collect();
                mismatch.in_part(&format!("at ${path}"))
            }
        }
    }
}

/// Two containers of one kind are to be compared further; anything else is decided here.
fn pair<'a>(
    actual: &'a Value,
    expected: &'a Value,
    tree: Tree<'a>,
    tolerance: f64,
) -> Result<Option<Pair<'a>>, Mismatch> {
    let equal = match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            return Ok(Some(Pair::Objects(actual, expected, tree)));
        }
        (Value::Array(actual), Value::Array(expected)) => {
            return Ok(Some(Pair::Arrays(actual, expected)));
        }
        (Value::Null, Value::Null) => true,
        (Value::Bool(actual), Value::Bool(expected)) => actual == expected,
        (Value::String(actual), Value::String(expected)) => actual == expected,
        // As doubles: integers beyond 2^53 lose their last digits, as in trpc-agent-go.
        (Value::Number(actual), Value::Number(expected)) => {
            match (actual.as_f64(), expected.as_f64()) {
                (Some(actual), Some(expected)) => (actual - expected).abs() <= tolerance,
                _ => false,
            }
        }
        _ => false,
    };
    match equal {
        true => Ok(None),
        false => Err(Mismatch::differs(format!(
            "{} is not {}",
            shown_value(actual),
            shown_value(expected)
        ))),
    }
}
