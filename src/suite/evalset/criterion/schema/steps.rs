//! A bound on how long a value is held against a schema.
//!
//! A schema without references is done with soon. References that branch make a short one take exponential time. So
//! every reference gets a keyword beside it that counts how often references are followed; when that was often enough,
//! it says no, and all that is left to follow says no at once.

use std::cell::Cell;

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value, json};

/// The keyword that counts.
pub(super) const KEYWORD: &str = "nightmill:steps";
/// Most references that are followed for one value.
const MOST_STEPS: u64 = 200_000;
/// Keywords that stand for another part of the schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

thread_local! {
    /// How many more references may be followed for the value that this thread is at.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Counts what `ask` follows. None if that was too much.
pub(super) fn counted<T>(ask: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(MOST_STEPS);
    let answer = ask();
    (LEFT.get() > 0).then_some(answer)
}

/// What the keyword does.
pub(super) struct Count;

impl<'i> Keyword<'i> for Count {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        match self.is_valid(instance) {
            true => Ok(()),
            false => Err(ValidationError::custom("it takes too long")),
        }
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        let left = LEFT.get().saturating_sub(1);
        LEFT.set(left);
        left > 0
    }
}

/// A schema and whether it has references.
pub(super) struct Counting {
    pub schema: Value,
    pub has_references: bool,
    /// Up to draft 7, what stands beside a reference does not count.
    is_old: bool,
}

/// The same schema with the keyword beside each reference. The depth of the schema bounds the recursion; it must have
/// been looked at.
pub(super) fn with_counts(schema: &Value) -> Counting {
    let draft = schema.get("$schema").and_then(Value::as_str);
    let old_drafts = ["draft-03", "draft-04", "draft-06", "draft-07"];
    let mut counting = Counting {
        schema: Value::Null,
        has_references: false,
        is_old: draft.is_some_and(|draft| old_drafts.iter().any(|old| draft.contains(old))),
    };
    counting.schema = counting.part(schema);
    counting
}

impl Counting {
    fn part(&mut self, part: &Value) -> Value {
        match part {
            Value::Object(members) => {
                let inner = members.iter();
                let mut counted: Map<_, _> = inner
                    .map(|(key, value)| (key.clone(), self.keyword(key, value)))
                    .collect();
                let is_reference = |key: &&str| matches!(members.get(*key), Some(Value::String(_)));
                let references: Vec<&str> = REFERENCES.into_iter().filter(is_reference).collect();
                if !references.is_empty() {
                    self.has_references = true;
                    self.move_references(&references, &mut counted);
                }
                Value::Object(counted)
            }
            Value::Array(parts) => parts.iter().map(|part| self.part(part)).collect(),
            other => other.clone(),
        }
    }

    /// Puts the references of a part behind a count, into its `allOf`, at the end: what is there keeps its place.
    fn move_references(&self, references: &[&str], part: &mut Map<String, Value>) {
        let mut counted = vec![json!({KEYWORD: true})];
        for reference in references {
            if let Some(target) = part.shift_remove(*reference) {
                counted.push(Value::Object(Map::from_iter([(
                    (*reference).to_owned(),
                    target,
                )])));
            }
        }
        if self.is_old {
            part.retain(|key, _| matches!(key.as_str(), "$schema" | "definitions" | "$defs"));
        }
        let all_of = part
            .entry("allOf")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all_of) = all_of {
            all_of.push(json!({"allOf": counted}));
        }
    }

    /// The value of a keyword. Of a keyword that is not known, it may hold parts that something refers to.
    fn keyword(&mut self, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("const" | "enum" | "default" | "examples", value) => value.clone(),
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies",
                Value::Object(parts),
            ) => {
                let parts = parts.iter();
                let parts = parts.map(|(name, part)| (name.clone(), self.part(part)));
                Value::Object(parts.collect())
            }
            (_, value) => self.part(value),
        }
    }
}
