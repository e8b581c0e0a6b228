//! `json_schema`: whether the output has the shape of the expected document. The shape is derived from that document:
//! its types, all its keys, and for arrays what fits every element.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use crate::metric::comparison::{Fields, JsonTree, JsonValue};

/// Most violations that are listed.
const MOST_LISTED: usize = 100;

/// How a document fits a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Assertions that hold.
    pub held: usize,
    /// All assertions: one for the type of each value that has one, and one for each required key.
    pub counted: usize,
    /// The first hundred of those that do not hold.
    pub violations: Vec<Violation>,
}

/// Where a document does not have the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as in `$.tags[1]`.
    pub path: String,
    /// `type` or `required`.
    pub kind: &'static str,
}

impl Fit {
    /// The share of assertions that hold, 0 to 1; 1 where there are none.
    pub fn score(&self) -> f64 {
        match self.counted {
            0 => 1.0,
            counted => self.held as f64 / counted as f64,
        }
    }
}

/// How the output fits the shape of the expected document. At most `most` violations are listed, and never over a
/// hundred.
pub(super) fn fit(actual: &JsonTree, expected: &JsonTree, most: usize) -> Fit {
    let mut schema = Schema::default();
    schema.admit(expected, expected.root());
    let mut check = Check {
        actual,
        most: most.min(MOST_LISTED),
        path: String::from("$"),
        fit: Fit::default(),
    };
    check.value(&schema, actual.root());
    check.fit
}

/// What fits all values that were admitted.
#[derive(Debug, Default)]
struct Schema<'t> {
    /// After null, which says nothing of what else may be there.
    anything: bool,
    boolean: bool,
    number: bool,
    text: bool,
    /// What fits all items of all arrays.
    list: Option<Box<Schema<'t>>>,
    object: Option<Box<ObjectSchema<'t>>>,
}

#[derive(Debug, Default)]
struct ObjectSchema<'t> {
    /// In the order in which they came.
    properties: Vec<(&'t str, Schema<'t>)>,
    /// Places of the properties by key, once they are looked for.
    places: OnceCell<HashMap<&'t str, usize>>,
    /// Places of the properties that all objects have, ascending.
    required: Vec<usize>,
}

impl<'t> Schema<'t> {
    /// Widens the schema by a value of a document. Goes no deeper than documents may be nested.
    fn admit(&mut self, tree: &'t JsonTree, value: &JsonValue) {
        match value {
            JsonValue::Null => self.anything = true,
            JsonValue::Bool(_) => self.boolean = true,
            JsonValue::Number(_) => self.number = true,
            JsonValue::Text(_) => self.text = true,
            JsonValue::List(items) => {
                let items = tree.items(items);
                let schema = self.list.get_or_insert_default();
                // An empty array says nothing of items.
                schema.anything |= items.is_empty();
                items.iter().for_each(|item| schema.admit(tree, item));
            }
            JsonValue::Object(members) => {
                let members = tree.members(members);
                let members = members.iter();
                let members = members.map(|member| (tree.text(&member.key), &member.value));
                match &mut self.object {
                    None => self.object = Some(Box::new(ObjectSchema::of(tree, members))),
                    Some(object) => object.admit(tree, members),
                }
            }
        }
    }

    /// Whether the type of the value fits.
    fn has_type(&self, value: &JsonValue) -> bool {
        match value {
            JsonValue::Null => false,
            JsonValue::Bool(_) => self.boolean,
            JsonValue::Number(_) => self.number,
            JsonValue::Text(_) => self.text,
            JsonValue::List(_) => self.list.is_some(),
            JsonValue::Object(_) => self.object.is_some(),
        }
    }
}

impl<'t> ObjectSchema<'t> {
    /// The schema of the first object: all its keys, which are distinct, are required.
    fn of(tree: &'t JsonTree, members: impl Iterator<Item = (&'t str, &'t JsonValue)>) -> Self {
        let properties = members.map(|(key, value)| {
            let mut schema = Schema::default();
            schema.admit(tree, value);
            (key, schema)
        });
        let properties: Vec<_> = properties.collect();
        Self {
            required: (0..properties.len()).collect(),
            properties,
            places: OnceCell::new(),
        }
    }

    /// Widens the schema by an object. Keys that it lacks are not required any more.
    fn admit(
        &mut self,
        tree: &'t JsonTree,
        members: impl Iterator<Item = (&'t str, &'t JsonValue)>,
    ) {
        self.places();
        let mut present = Vec::new();
        for (key, value) in members {
            let new = self.properties.len();
            let places = self.places.get_mut();
            let at = places.map_or(new, |places| *places.entry(key).or_insert(new));
            if at == new {
                self.properties.push((key, Schema::default()));
            }
            if let Some((_, schema)) = self.properties.get_mut(at) {
                schema.admit(tree, value);
            }
            present.push(at);
        }
        if !self.required.is_empty() {
            present.sort_unstable();
            self.required.retain(|at| present.binary_search(at).is_ok());
        }
    }

    fn places(&self) -> &HashMap<&'t str, usize> {
        self.places.get_or_init(|| {
            let places = self.properties.iter().enumerate();
            places.map(|(at, (key, _))| (*key, at)).collect()
        })
    }

    /// The fields of an object that the schema knows, by their places in it. Takes time by the smaller one of the two.
    fn known<'v>(&self, fields: Fields<'v>) -> Vec<(usize, &'v JsonValue)> {
        if fields.len() < self.properties.len() {
            let fields = fields.iter();
            let known = fields.filter_map(|(key, value)| Some((*self.places().get(&*key)?, value)));
            let mut known: Vec<_> = known.collect();
            known.sort_unstable_by_key(|(at, _)| *at);
            return known;
        }
        let index = fields.index();
        let places = self.properties.iter().enumerate();
        places
            .filter_map(|(at, (key, _))| Some((at, index.get(key, at)?)))
            .collect()
    }
}

struct Check<'t> {
    actual: &'t JsonTree,
    most: usize,
    /// Of the value at hand.
    path: String,
    fit: Fit,
}

impl<'t> Check<'t> {
    fn value(&mut self, schema: &Schema<'_>, value: &'t JsonValue) {
        if schema.anything {
            return;
        }
        self.fit.counted += 1;
        match schema.has_type(value) {
            true => self.fit.held += 1,
            false => return self.list("type"),
        }
        match (
            value,
            &schema.list,
            &schema.object,
            self.actual.fields(value),
        ) {
            (JsonValue::List(items), Some(list), _, _) => {
                for (at, item) in self.actual.items(items).iter().enumerate() {
                    let outer = self.path.len();
                    if self.lists() {
                        // A String takes whatever is written.
                        let _ = write!(self.path, "[{at}]");
                    }
                    self.value(list, item);
                    self.path.truncate(outer);
                }
            }
            (JsonValue::Object(_), _, Some(object), Some(fields)) => self.object(object, fields),
            _ => {}
        }
    }

    /// Takes time by the keys that are there, and not by those of the schema: objects may lack most of them.
    fn object(&mut self, schema: &ObjectSchema<'_>, fields: Fields<'t>) {
        let known = schema.known(fields);
        let is_there = |at: &usize| known.binary_search_by_key(at, |(at, _)| *at).is_ok();
        for at in &schema.required {
            if !self.lists() {
                break;
            }
            if let Some((key, _)) = schema.properties.get(*at).filter(|_| !is_there(at)) {
                self.at_key(key, |this| this.list("required"));
            }
        }
        let is_required =
            |(at, _): &&(usize, &JsonValue)| schema.required.binary_search(at).is_ok();
        self.fit.counted += schema.required.len();
        self.fit.held += known.iter().filter(is_required).count();
        for (at, value) in known {
            if let Some((key, schema)) = schema.properties.get(at) {
                self.at_key(key, |this| this.value(schema, value));
            }
        }
    }

    fn at_key(&mut self, key: &str, step: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        if self.lists() {
            self.path.push('.');
            self.path.push_str(key);
        }
        step(self);
        self.path.truncate(outer);
    }

    /// Whether there is room for another violation, so that its path matters.
    fn lists(&self) -> bool {
        self.fit.violations.len() < self.most
    }

    fn list(&mut self, kind: &'static str) {
        if self.lists() {
            let path = self.path.clone();
            self.fit.violations.push(Violation { path, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(actual: &str, expected: &str) -> (JsonTree, JsonTree) {
        let (mut a, mut e) = (JsonTree::default(), JsonTree::default());
        assert!(a.read(actual) && e.read(expected), "{actual} {expected}");
        (a, e)
    }

    /// Held, counted and violations.
    fn fitted(actual: &str, expected: &str) -> (usize, usize, String) {
        let (a, e) = trees(actual, expected);
        let fit = fit(&a, &e, usize::MAX);
        let violations = fit
            .violations
            .iter()
            .map(|v| format!("{} {}", v.path, v.kind));
        (
            fit.held,
            fit.counted,
            violations.collect::<Vec<_>>().join(", "),
        )
    }

    #[test]
    fn arrays_have_the_shape_of_all_their_elements() {
        let expected = r#"[{"id": 1, "x": 2, "y": null}, {"x": "a", "id": 3, "z": [1]}]"#;
        for (actual, held, counted, violations) in [
            ("[]", 1, 1, ""),
            (r#"[{"id": 1, "x": "b"}]"#, 6, 6, ""),
            (
                r#"[{"x": true, "y": {}}]"#,
                3,
                5,
                "$[0].id required, $[0].x type",
            ),
            (
                r#"[{"id": 1, "x": 1, "z": [1, "a"]}]"#,
                8,
                9,
                "$[0].z[1] type",
            ),
            (r#"[[1], 2]"#, 1, 3, "$[0] type, $[1] type"),
            ("{}", 0, 1, "$ type"),
        ] {
            assert_eq!(
                fitted(actual, expected),
                (held, counted, violations.to_owned()),
                "{actual}"
            );
        }
    }

    #[test]
    fn null_and_empty_arrays_fit_anything() {
        for (actual, expected, counted) in [
            ("{\"a\": 1}", "null", 0),
            ("[1, [null]]", "[]", 1),
            ("[1, [null]]", "[\"a\", null]", 1),
            ("[[1], [{}]]", "[[], [true]]", 3),
        ] {
            assert_eq!(
                fitted(actual, expected),
                (counted, counted, String::new()),
                "{actual}"
            );
        }
        assert_eq!(fitted("null", "1"), (0, 1, "$ type".to_owned()));
    }

    #[test]
    fn large_documents_take_no_square_of_time() {
        let wide: Vec<String> = (0..50_000).map(|i| format!("\"k{i}\":{i}")).collect();
        let wide = format!("{{{}}}", wide.join(","));
        let many = format!("[{wide}{}]", ",{\"k0\":1}".repeat(50_000));
        assert_eq!(fitted(&many, &many).2, "");
        assert_eq!(fitted(&wide, &wide).0, 100_001);
        let empty = format!("[{}{{}}]", "{},".repeat(150_000));
        let (held, counted, violations) = fitted(&empty, &format!("[{wide}]"));
        assert_eq!((held, counted), (150_002, 150_002 + 150_001 * 50_000));
        assert_eq!(violations.matches("required").count(), MOST_LISTED);
    }
}
