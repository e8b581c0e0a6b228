//! What of a value decides whether it matches another: a digest of all but the numbers, and the numbers.
//!
//! Thousands of tool calls are compared each with each; by prints that costs a glance a pair, however large the values.

use serde_json::Value;

use super::{Part, Tree};

/// How a value looks to a criterion.
#[derive(Clone, Debug)]
pub(in crate::suite::evalset::criterion) enum Print {
    /// It matches every value that matches anything.
    Anything,
    /// It matches nothing.
    Nothing,
    /// It matches what has the same digest and numbers within the tolerance.
    Value {
        /// Of types, keys, strings and flags. Equal digests are equal values but for their numbers: nobody can make two
        /// values with one BLAKE3 digest.
        digest: blake3::Hash,
        numbers: Numbers,
    },
}

/// The numbers of a value, in the order of the sorted keys.
#[derive(Clone, Debug)]
pub(in crate::suite::evalset::criterion) struct Numbers {
    all: Vec<f64>,
    digest: blake3::Hash,
    sum: f64,
    /// The sum without signs.
    magnitude: f64,
}

/// What is still to be added to a print.
enum Todo<'a> {
    Key(&'a str),
    Value(&'a Value, Tree<'a>),
}

impl Print {
    /// Of values of any depth: what is still to do waits in a list, not on the stack.
    pub(super) fn of(value: &Value, tree: Tree<'_>) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut numbers = Vec::new();
        let mut todo = vec![Todo::Value(value, tree)];
        while let Some(next) = todo.pop() {
            match next {
                Todo::Key(key) => add_text(&mut hasher, key),
                Todo::Value(Value::String(text), _) => add_text(&mut hasher, text),
                Todo::Value(Value::Null, _) => {
                    hasher.update(b"n");
                }
                Todo::Value(Value::Bool(flag), _) => {
                    hasher.update(if *flag { b"t" } else { b"f" });
                }
                Todo::Value(Value::Number(number), _) => {
                    hasher.update(b"#");
                    match number.as_f64() {
                        Some(number) => numbers.push(number),
                        None => return Self::Nothing,
                    }
                }
                Todo::Value(Value::Array(items), _) => {
                    hasher.update(b"[");
                    hasher.update(&items.len().to_le_bytes());
                    let items = items.iter().rev();
                    todo.extend(items.map(|item| Todo::Value(item, Tree::All)));
                }
                Todo::Value(Value::Object(members), tree) => {
                    let mut keys: Vec<&str> = match tree {
                        Tree::Only(tree) => tree.keys().map(String::as_str).collect(),
                        Tree::All | Tree::Ignore(_) => members.keys().map(String::as_str).collect(),
                    };
                    keys.sort_unstable();
                    let mut compared = 0_usize;
                    for key in keys.into_iter().rev() {
                        let tree = match tree.part(key) {
                            Part::Left => continue,
                            Part::Unclear => return Self::Nothing,
                            Part::Compared(tree) => tree,
                        };
                        let Some(value) = members.get(key) else {
                            return Self::Nothing;
                        };
                        compared += 1;
                        todo.push(Todo::Value(value, tree));
                        todo.push(Todo::Key(key));
                    }
                    hasher.update(b"{");
                    hasher.update(&compared.to_le_bytes());
                }
            }
        }
        Self::Value {
            digest: hasher.finalize(),
            numbers: Numbers::of(numbers),
        }
    }

    pub(super) fn fits(&self, other: &Self, tolerance: f64) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::Anything, _) | (_, Self::Anything) => true,
            (
                Self::Value { digest, numbers },
                Self::Value {
                    digest: other_digest,
                    numbers: other_numbers,
                },
            ) => digest == other_digest && numbers.fit(other_numbers, tolerance),
        }
    }
}

/// Its length first, so that no two sequences of texts run into one.
fn add_text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(b"s");
    hasher.update(&text.len().to_le_bytes());
    hasher.update(text.as_bytes());
}

impl Numbers {
    fn of(all: Vec<f64>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for number in &all {
            hasher.update(&number.to_le_bytes());
        }
        Self {
            digest: hasher.finalize(),
            sum: all.iter().sum(),
            magnitude: all.iter().map(|number| number.abs()).sum(),
            all,
        }
    }

    /// Whether no two numbers in one place differ by more.
    fn fit(&self, other: &Self, tolerance: f64) -> bool {
        if self.all.len() != other.all.len() {
            return false;
        }
        if self.digest == other.digest {
            return self.all.is_empty() || tolerance >= 0.0;
        }
        // Most that do not fit are told apart by their sums, which may be off by the rounding of each addition. Sums
        // that are no numbers tell nothing.
        let count = self.all.len() as f64;
        let rounding = 4.0 * count * f64::EPSILON * (self.magnitude + other.magnitude);
        if (self.sum - other.sum).abs() > count * tolerance + rounding {
            return false;
        }
        // In pieces without an early end, which the compiler turns into vector instructions.
        let mut pieces = self.all.chunks(32).zip(other.all.chunks(32));
        pieces.all(|(numbers, others)| {
            let pairs = numbers.iter().zip(others);
            pairs.fold(true, |all, (a, b)| all & ((a - b).abs() <= tolerance))
        })
    }
}
