//! Two JSON documents, leaf by leaf.

use std::fmt::Write as _;

use super::sets::{difference, distinct};
use crate::metric::checked::{Detail, MOST_SHOWN_UNITS, cut};
use crate::metric::comparison::{
    Compat, Fields, JsonTree, JsonValue, Workspace, strip_fences, trim,
};

/// Numbers that are no farther from each other than this are equal.
const TOLERANCE: f64 = 0.01;
/// Text of a value of which a reader sees 80 units; one unit is at most three bytes.
const ENOUGH_BYTES: usize = 3 * MOST_SHOWN_UNITS + 3;

/// What comparing two documents came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Leaves of the expected document that the output has too.
    pub matched: usize,
    /// All leaves of the expected document. A value that the output lacks is one, whatever its size.
    pub expected_leaves: usize,
    /// Values that only the output has.
    pub extra: usize,
    /// How many differences there are.
    pub mismatch_count: usize,
    /// The first of them, in the order in which they were met.
    pub mismatches: Vec<Mismatch>,
}

/// A difference between two documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where, as in `$.lines[1].sku`. Keys are as they are, dots included.
    pub path: String,
    /// `missing`, `extra`, `wrong` or `type_mismatch`.
    pub kind: &'static str,
    /// The expected value, cut as details show it; none where there is nothing to show.
    pub expected: Option<String>,
    /// The value of the output, likewise.
    pub actual: Option<String>,
}

impl Structure {
    /// Matched leaves of all that are expected or extra, 0 to 1; 1 where there is nothing.
    pub fn score(&self) -> f64 {
        match self.expected_leaves + self.extra {
            0 => 1.0,
            all => self.matched as f64 / all as f64,
        }
    }
}

impl Mismatch {
    /// The mismatch as a failed check.
    pub(super) fn detail(self) -> Detail {
        Detail {
            check: format!("json_path.{}", self.path),
            passed: false,
            kind: Some(self.kind),
            expected: self.expected,
            actual: self.actual,
            message: None,
        }
    }
}

/// Compares two texts as JSON, each after a code fence around it is gone, and lists up to `most` differences. None if
/// one of them is no JSON. The tool compares strings without white space at their ends.
pub fn compare_json(
    actual: &str,
    expected: &str,
    most: usize,
    compat: Compat,
    workspace: &mut Workspace,
) -> Option<Structure> {
    let Workspace {
        actual_json,
        expected_json,
        ..
    } = workspace;
    let both = actual_json.read(strip_fences(actual)) && expected_json.read(strip_fences(expected));
    both.then(|| compare_trees(actual_json, expected_json, most, compat))
}

/// The same for documents that were read.
pub(super) fn compare_trees(
    actual: &JsonTree,
    expected: &JsonTree,
    most: usize,
    compat: Compat,
) -> Structure {
    let mut comparison = Comparison {
        actual,
        expected,
        compat,
        most,
        path: String::from("$"),
        found: Structure::default(),
    };
    comparison.compare(actual.root(), expected.root());
    comparison.found
}

struct Comparison<'t> {
    actual: &'t JsonTree,
    expected: &'t JsonTree,
    compat: Compat,
    most: usize,
    /// Of the values at hand.
    path: String,
    found: Structure,
}

impl<'t> Comparison<'t> {
    /// Goes no deeper than documents may be nested.
    fn compare(&mut self, actual: &'t JsonValue, expected: &'t JsonValue) {
        use JsonValue::{Bool, List, Null, Number, Object, Text};
        match (actual, expected) {
            (Null, Null) => self.leaf(true, "wrong", actual, expected),
            (Null, List(_) | Object(_)) | (List(_) | Object(_), Null) => {
                self.leaf(false, "wrong", actual, expected);
            }
            (Bool(a), Bool(e)) => self.leaf(a == e, "wrong", actual, expected),
            (Number(a), Number(e)) => {
                // The difference of infinities is no number.
                self.leaf((a - e).abs() <= TOLERANCE, "wrong", actual, expected);
            }
            (Text(a), Text(e)) => {
                let (a, e) = (self.actual.text(a), self.expected.text(e));
                let same = match self.compat {
                    Compat::Document => a == e,
                    Compat::Tool => trim(a) == trim(e),
                };
                self.leaf(same, "wrong", actual, expected);
            }
            (List(a), List(e)) => {
                let (a, e) = (self.actual.items(a), self.expected.items(e));
                let is_container = |item: &JsonValue| matches!(item, List(_) | Object(_));
                match a.iter().chain(e).any(is_container) {
                    true => self.compare_items(a, e),
                    false => self.compare_sets(a, e),
                }
            }
            (List(_) | Object(_), List(_) | Object(_)) => {
                let fields = (self.actual.fields(actual), self.expected.fields(expected));
                if let (Some(a), Some(e)) = fields {
                    self.compare_fields(a, e);
                }
            }
            _ => self.leaf(false, "type_mismatch", actual, expected),
        }
    }

    fn leaf(&mut self, same: bool, kind: &'static str, actual: &JsonValue, expected: &JsonValue) {
        self.found.expected_leaves += 1;
        if same {
            self.found.matched += 1;
        } else {
            let shown = |tree: &JsonTree, value: &JsonValue| match value {
                JsonValue::List(_) | JsonValue::Object(_) => {
                    cut(&tree.compact(value, ENOUGH_BYTES))
                }
                plain => cut(&tree.shown(plain)),
            };
            let (a, e) = (self.actual, self.expected);
            self.differ(kind, || (shown(a, actual), shown(e, expected)));
        }
    }

    fn extra(&mut self, value: &JsonValue) {
        self.found.extra += 1;
        let tree = self.actual;
        self.differ("extra", || (cut(&tree.compact(value, ENOUGH_BYTES)), None));
    }

    fn missing(&mut self, value: &JsonValue) {
        self.found.expected_leaves += 1;
        let tree = self.expected;
        self.differ("missing", || {
            (None, cut(&tree.compact(value, ENOUGH_BYTES)))
        });
    }

    /// Counts a difference, and lists it with the texts of output and expected value if there is room.
    fn differ(
        &mut self,
        kind: &'static str,
        texts: impl FnOnce() -> (Option<String>, Option<String>),
    ) {
        self.found.mismatch_count += 1;
        if self.lists() {
            let (actual, expected) = texts();
            self.found.mismatches.push(Mismatch {
                path: self.path.clone(),
                kind,
                expected,
                actual,
            });
        }
    }

    /// Whether there is room for another difference, so that its path matters.
    fn lists(&self) -> bool {
        self.found.mismatches.len() < self.most
    }

    fn compare_items(&mut self, actual: &'t [JsonValue], expected: &'t [JsonValue]) {
        let outer = self.path.len();
        for at in 0..actual.len().max(expected.len()) {
            if self.lists() {
                // A String takes whatever is written.
                let _ = write!(self.path, "[{at}]");
            }
            match (actual.get(at), expected.get(at)) {
                (Some(a), Some(e)) => self.compare(a, e),
                (Some(a), None) => self.extra(a),
                (None, Some(e)) => self.missing(e),
                (None, None) => {}
            }
            self.path.truncate(outer);
        }
    }

    /// Arrays of plain values are sets of their texts: `1` and `"1"` are the same.
    fn compare_sets(&mut self, actual: &'t [JsonValue], expected: &'t [JsonValue]) {
        if actual.is_empty() && expected.is_empty() {
            self.found.expected_leaves += 1;
            self.found.matched += 1;
            return;
        }
        let (actual, expected) = (
            distinct(self.actual, actual),
            distinct(self.expected, expected),
        );
        let (extra, missing) = (
            difference((self.actual, &actual), (self.expected, &expected)),
            difference((self.expected, &expected), (self.actual, &actual)),
        );
        self.found.expected_leaves += expected.len();
        self.found.matched += expected.len() - missing.len();
        self.found.extra += extra.len();
        let (actual, expected) = (self.actual, self.expected);
        for item in extra {
            self.differ("extra", || (cut(&actual.shown(item)), None));
        }
        for item in missing {
            self.differ("missing", || (None, cut(&expected.shown(item))));
        }
    }

    fn compare_fields(&mut self, actual: Fields<'t>, expected: Fields<'t>) {
        if expected.len() == 0 {
            self.found.expected_leaves += 1;
            self.found.matched += 1;
        }
        let (in_actual, in_expected) = (actual.index(), expected.index());
        for (at, (key, a)) in actual.iter().enumerate() {
            self.inside(&key, |this| match in_expected.get(&key, at) {
                Some(e) => this.compare(a, e),
                None => this.extra(a),
            });
        }
        for (at, (key, e)) in expected.iter().enumerate() {
            if in_actual.get(&key, at).is_none() {
                self.inside(&key, |this| this.missing(e));
            }
        }
    }

    fn inside(&mut self, key: &str, step: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        if self.lists() {
            self.path.push('.');
            self.path.push_str(key);
        }
        step(self);
        self.path.truncate(outer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(actual: &str, expected: &str, most: usize) -> Structure {
        let mut workspace = Workspace::default();
        compare_json(actual, expected, most, Compat::Document, &mut workspace).unwrap()
    }

    fn counts(actual: &str, expected: &str) -> (usize, usize, usize, usize) {
        let found = compare(actual, expected, 0);
        assert_eq!(found.mismatches, []);
        (
            found.matched,
            found.expected_leaves,
            found.extra,
            found.mismatch_count,
        )
    }

    #[test]
    fn leaves_are_counted() {
        for (actual, expected, found) in [
            ("1.00", "1.01", (0, 1, 0, 1)),
            ("0", "0.01", (1, 1, 0, 0)),
            ("1e400", "1e400", (0, 1, 0, 1)),
            ("[1, \"1\", null]", "[\"1\", \"null\"]", (2, 2, 0, 0)),
            ("[5, 6]", "{\"0\": 5}", (1, 1, 1, 1)),
            ("{\"1\": 6, \"0\": 5}", "[5, [6]]", (1, 2, 0, 1)),
            ("{}", "[]", (1, 1, 0, 0)),
            ("[]", "{}", (1, 1, 0, 0)),
            ("{}", "[1]", (0, 1, 0, 1)),
            ("null", "[]", (0, 1, 0, 1)),
            ("{\"a\": 1, \"a\": 2}", "{\"a\": 2}", (1, 1, 0, 0)),
            ("\"é\"", "\"e\u{301}\"", (0, 1, 0, 1)),
        ] {
            assert_eq!(counts(actual, expected), found, "{actual} {expected}");
        }
    }

    #[test]
    fn large_documents_take_no_square_of_time() {
        let object = |from: usize| {
            let members: Vec<String> = (from..from + 100_000)
                .map(|i| format!("\"k{i}\":{i}"))
                .collect();
            format!("{{{}}}", members.join(","))
        };
        let list = |from: usize| format!("{:?}", (from..from + 100_000).collect::<Vec<_>>());
        let found = (50_000, 100_000, 50_000, 100_000);
        assert_eq!(counts(&object(0), &object(50_000)), found);
        assert_eq!(counts(&list(0), &list(50_000)), found);
    }

    #[test]
    fn small_and_large_sets_are_compared_alike() {
        let values = [
            "1",
            "\"1\"",
            "1.0",
            "-0",
            "0",
            "\"0\"",
            "true",
            "\"true\"",
            "null",
            "\"null\"",
            "1e400",
            "\"Infinity\"",
            "\"\"",
            "2",
        ];
        for from in 0..values.len() {
            for to in from..values.len() {
                let (a, e) = (values[from..to].join(","), values[to / 2..].join(","));
                let small = counts(&format!("[{a}]"), &format!("[{e}]"));
                // The same sets with twenty more values that they share.
                let more: Vec<String> = (100..120).map(|i| i.to_string()).collect();
                let more = more.join(",");
                let comma = if a.is_empty() { "" } else { "," };
                let large = counts(&format!("[{a}{comma}{more}]"), &format!("[{e},{more}]"));
                assert_eq!(
                    (small.0 + 20, small.1 + 20, small.2, small.3),
                    large,
                    "{a} {e}"
                );
            }
        }
    }

    #[test]
    fn only_some_differences_are_listed() {
        let found = compare(
            "{\"a\": [{\"b.c\": 1}, 2, {}]}",
            "{\"a\": [{\"b.c\": true}]}",
            2,
        );
        assert_eq!((found.mismatch_count, found.mismatches.len()), (3, 2));
        assert_eq!(
            (&*found.mismatches[0].path, found.mismatches[0].kind),
            ("$.a[0].b.c", "type_mismatch")
        );
        assert_eq!(found.mismatches[1].actual.as_deref(), Some("2"));
    }

    #[test]
    fn the_tool_trims_strings_but_not_members_of_sets() {
        let mut workspace = Workspace::default();
        let (actual, expected) = (
            "{\"s\": \" a\u{a0}\", \"l\": [\" a\"]}",
            "{\"s\": \"a\", \"l\": [\"a\"]}",
        );
        let found = compare_json(actual, expected, 9, Compat::Tool, &mut workspace).unwrap();
        assert_eq!(
            (found.matched, found.expected_leaves, found.extra),
            (1, 2, 1)
        );
    }
}
