//! JSON Schemas. Nothing is fetched: a reference that leads out of the schema makes it unusable.

mod steps;

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::{Comparison, Mismatch, shown};

/// Most levels of a schema, and of a value held against one: both are walked on the stack.
const MOST_LEVELS: usize = 128;
/// About how many bytes a compiled pattern of a schema may take.
const MOST_PATTERN_BYTES: usize = 10 << 20;

/// A JSON Schema, of draft 2020-12 unless it names another. It is compiled when it is first needed; clones share that.
#[derive(Clone)]
pub struct JsonSchema {
    schema: Value,
    compiled: Arc<OnceLock<Result<Compiled, String>>>,
}

struct Compiled {
    validator: Validator,
    has_references: bool,
}

impl JsonSchema {
    /// A schema as it is written. One that can't be used is found out when a value is held against it.
    pub fn new(schema: Value) -> Self {
        Self {
            schema,
            compiled: Arc::default(),
        }
    }

    /// Holds a value against the schema.
    pub(super) fn check(&self, actual: &Value) -> Comparison {
        let compiled = self.compiled.get_or_init(|| compile(&self.schema));
        let compiled = compiled
            .as_ref()
            .map_err(|reason| Mismatch::config(format!("the schema can't be used: {reason}")))?;
        if is_deep(actual) {
            let reason = format!("the value has more than {MOST_LEVELS} levels");
            return Err(Mismatch::differs(reason));
        }
        match steps::counted(|| compiled.validator.is_valid(actual)) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => {
                let reason = "it takes too long to hold the value against the schema";
                return Err(Mismatch::differs(reason));
            }
        }
        // To look for the place takes longer than to know the answer where references branch.
        let found = match compiled.has_references {
            true => None,
            false => steps::counted(|| compiled.validator.validate(actual).err()).flatten(),
        };
        let place = found.map(|error| {
            let reason = shown(&error.to_string());
            format!(" at ${}: {reason}", error.instance_path())
        });
        Err(Mismatch::differs(format!(
            "the schema does not allow the value{}",
            place.unwrap_or_default()
        )))
    }
}

fn compile(schema: &Value) -> Result<Compiled, String> {
    if is_deep(schema) {
        return Err(format!("it has more than {MOST_LEVELS} levels"));
    }
    let counting = steps::with_counts(schema);
    let validator = jsonschema::options()
        .offline()
        // Linear time, and no look-around, as in Go.
        .with_pattern_options(PatternOptions::regex().size_limit(MOST_PATTERN_BYTES))
        .with_keyword(steps::KEYWORD, |_, _, _| Ok(Box::new(steps::Count)))
        .build(&counting.schema)
        .map_err(|error| shown(&error.to_string()))?;
    Ok(Compiled {
        validator,
        has_references: counting.has_references,
    })
}

/// Whether a value has more than [`MOST_LEVELS`] levels.
fn is_deep(value: &Value) -> bool {
    let mut todo = vec![(value, 0_usize)];
    while let Some((value, level)) = todo.pop() {
        if level > MOST_LEVELS {
            return true;
        }
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => todo.extend(members.values().map(|item| (item, level + 1))),
            _ => {}
        }
    }
    false
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JsonSchema").field(&self.schema).finish()
    }
}

impl PartialEq for JsonSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::evalset::criterion::MismatchKind;
    use serde_json::{Map, json};

    fn kind(schema: Value, actual: Value) -> Option<MismatchKind> {
        let mismatch = JsonSchema::new(schema).check(&actual).err();
        mismatch.map(|mismatch| mismatch.kind)
    }

    const DIFFERS: Option<MismatchKind> = Some(MismatchKind::Differs);
    const CONFIG: Option<MismatchKind> = Some(MismatchKind::Config);

    #[test]
    fn values_are_held_against_draft_2020_12() {
        let schema =
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
        assert_eq!(kind(schema.clone(), json!({"a": 1})), None);
        assert_eq!(kind(schema.clone(), json!({"a": 1.0})), None);
        assert_eq!(kind(schema.clone(), json!({"a": "1"})), DIFFERS);
        assert_eq!(kind(schema, json!({})), DIFFERS);
        let tuple = json!({"prefixItems": [{"type": "string"}], "items": false});
        assert_eq!(kind(tuple.clone(), json!(["a"])), None);
        assert_eq!(kind(tuple, json!(["a", "b"])), DIFFERS);
        assert_eq!(kind(json!(false), json!(1)), DIFFERS);
        assert_eq!(kind(json!(true), json!(1)), None);
        let inner = json!({"$defs": {"a": {"const": 1}}, "$ref": "#/$defs/a"});
        assert_eq!(kind(inner, json!(2)), DIFFERS);
    }

    #[test]
    fn schemas_that_are_none_are_a_matter_of_the_criterion() {
        for schema in [
            json!(1),
            json!("x"),
            json!({"type": "nope"}),
            json!({"pattern": "["}),
            json!({"pattern": "(?=a)a"}),
            json!({"pattern": r"(a)\1"}),
            json!({"$ref": "#/nowhere"}),
        ] {
            assert_eq!(kind(schema.clone(), json!("aa")), CONFIG, "{schema}");
        }
    }

    #[test]
    fn nothing_is_fetched() {
        let file = std::env::temp_dir().join("nightmill-schema-not-to-be-read.json");
        std::fs::write(&file, "true").unwrap();
        for address in [
            format!("file://{}", file.display()),
            "http://127.0.0.1:9/schema.json".to_owned(),
            "https://example.com/schema.json".to_owned(),
            "other.json".to_owned(),
        ] {
            let schema = json!({"$ref": address.clone()});
            let mismatch = JsonSchema::new(schema).check(&json!(1)).unwrap_err();
            assert_eq!(mismatch.kind, MismatchKind::Config, "{address}");
            let schema = json!({"$schema": address.clone()});
            assert_eq!(kind(schema, json!(1)), CONFIG, "{address}");
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn references_in_circles_do_no_harm() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"not": {"not": {"$ref": "#"}}}),
            json!({"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]}),
            json!({"if": {"$ref": "#"}, "then": true}),
        ] {
            let _ = kind(schema, json!({"a": [1, {"b": 2}]}));
        }
    }

    #[test]
    fn branching_references_come_to_an_end() {
        // Each level asks twice about the next one.
        for applicator in ["allOf", "anyOf", "oneOf"] {
            let mut levels = Map::new();
            for level in 0..60 {
                let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
                levels.insert(
                    format!("l{level}"),
                    json!({applicator: [next.clone(), next]}),
                );
            }
            levels.insert("l60".to_owned(), json!({"type": "integer"}));
            let schema = json!({"$defs": levels, "$ref": "#/$defs/l0"});
            let value = if applicator == "anyOf" {
                json!("1")
            } else {
                json!(1)
            };
            assert_eq!(kind(schema, value), DIFFERS, "{applicator}");
        }
        // Each level of the value is asked about twice.
        let member = json!({"properties": {"a": {"$ref": "#"}}});
        let value = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
        for applicator in ["allOf", "anyOf", "oneOf"] {
            let schema = json!({applicator: [member.clone(), member.clone()]});
            let _ = kind(schema, value.clone());
        }
        // Everything asks everything else.
        let all: Vec<Value> = (0..14)
            .map(|n| json!({"$ref": format!("#/$defs/{n}")}))
            .collect();
        let parts: Map<String, Value> = (0..14)
            .map(|n| (n.to_string(), json!({"allOf": all})))
            .collect();
        let _ = kind(json!({"$defs": parts, "$ref": "#/$defs/0"}), json!(1));
    }

    #[test]
    fn counting_changes_no_answer() {
        for (schema, fitting, other) in [
            (json!({"const": {"a": 1}}), json!({"a": 1}), json!({"a": 2})),
            (json!({"enum": [{"a": {}}]}), json!({"a": {}}), json!({})),
            (
                json!({"properties": {"const": {"type": "string"}}, "additionalProperties": false}),
                json!({"const": "a"}),
                json!({"nightmill:steps": true}),
            ),
            (
                json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}}),
                json!({"a": 1, "b": 1}),
                json!({"c": 1}),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]},
                    "items": [{"type": "null"}], "definitions": {"x": {"$ref": "#"}}}),
                json!([null, 1]),
                json!([1]),
            ),
            (
                json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
                json!({"a": 1}),
                json!({"b": 1}),
            ),
            (
                json!({"components": {"x": {"type": "null"}}, "$ref": "#/components/x"}),
                json!(null),
                json!(1),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"x": {"type": "integer"}},
                    "$ref": "#/definitions/x", "maximum": 3}),
                json!(4),
                json!("4"),
            ),
            (
                json!({"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x", "maximum": 3, "allOf": [true]}),
                json!(3),
                json!(4),
            ),
            (
                json!({"$defs": {"x": {"properties": {"a": true}}}, "$ref": "#/$defs/x",
                    "unevaluatedProperties": false}),
                json!({"a": 1}),
                json!({"b": 1}),
            ),
            (
                json!({"properties": {"$ref": {"type": "string"}}, "required": ["$ref"]}),
                json!({"$ref": "a"}),
                json!({"$ref": 1}),
            ),
            (
                json!({"const": {"$ref": "#"}}),
                json!({"$ref": "#"}),
                json!({}),
            ),
            (
                json!({"$id": "https://a.test/s", "$defs": {"x": {"$id": "x", "$anchor": "y", "type": "null"}},
                    "items": {"$ref": "x#y"}}),
                json!([null]),
                json!([1]),
            ),
            (
                json!({"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}},
                    "additionalProperties": false}),
                json!({"a": {"a": {}}}),
                json!({"a": {"b": {}}}),
            ),
            (json!({"not": {}}), json!(null), json!(null)),
        ] {
            if fitting != other {
                assert_eq!(kind(schema.clone(), fitting), None, "{schema}");
            }
            assert_eq!(kind(schema.clone(), other), DIFFERS, "{schema}");
        }
    }

    #[test]
    fn the_deepest_schema_and_value_fit_on_the_stack() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let recursive = json!({"items": {"$ref": "#"}, "type": ["array", "integer"]});
        assert_eq!(kind(recursive.clone(), nested(MOST_LEVELS)), None);
        assert_eq!(kind(recursive, nested(MOST_LEVELS + 1)), DIFFERS);
        let deep =
            |levels: usize| (0..levels).fold(json!(true), |inner, _| json!({"items": inner}));
        assert_eq!(kind(deep(MOST_LEVELS), nested(MOST_LEVELS)), None);
        assert_eq!(kind(deep(MOST_LEVELS + 1), json!(1)), CONFIG);
    }
}
