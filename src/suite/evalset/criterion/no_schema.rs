//! JSON Schemas in a build without them: a criterion with one can't be used, and says so.

use serde_json::Value;

use super::{Comparison, Mismatch};

/// A JSON Schema, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonSchema(Value);

impl JsonSchema {
    /// A schema that nothing can be held against.
    pub fn new(schema: Value) -> Self {
        Self(schema)
    }

    /// No value can be held against it.
    pub(super) fn check(&self, _: &Value) -> Comparison {
        Err(Mismatch::config(
            "this build has no JSON Schema; build nightmill with --features json-schema",
        ))
    }
}
