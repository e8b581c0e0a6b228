//! Rows of Langfuse: its exports write names in snake case, its API and pages in camel case.

use serde_json::{Map, Value};

use super::values::{text, time};
use super::{Parts, Sample};

/// A row by the names of the exports.
pub(super) struct Row<'r> {
    members: &'r Map<String, Value>,
    camel: bool,
}

impl<'r> Row<'r> {
    pub fn new(members: &'r Map<String, Value>) -> Self {
        let telling = [
            "projectId",
            "traceId",
            "startTime",
            "sessionId",
            "createdAt",
        ];
        Self {
            members,
            camel: telling.iter().any(|name| members.contains_key(*name)),
        }
    }

    /// A member that is not null.
    pub fn get(&self, name: &str) -> Option<&'r Value> {
        let found = if self.camel {
            self.members.get(&camel(name))
        } else {
            self.members.get(name)
        };
        found.filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        text(self.get(name))
    }

    /// Nanoseconds since 1970.
    pub fn time(&self, name: &str) -> Result<Option<i64>, String> {
        time(name, self.get(name))
    }

    /// Counts the members with a value that nothing here knows.
    pub fn count_unknown(&self, known: &[&str], parts: &mut Parts) {
        for (name, value) in self.members {
            let is_known = || {
                known
                    .iter()
                    .any(|k| *k == name || (self.camel && camel(k) == *name))
            };
            if !value.is_null() && !is_known() {
                parts.unknown.push(name.clone());
            }
        }
    }
}

/// `trace_id` becomes `traceId`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Whether a sample has a member or column, in snake or camel case.
pub(super) fn has(sample: &Sample<'_>, name: &str) -> bool {
    let named = |name: &str| {
        sample.columns.iter().any(|column| column == name) || sample.document.get(name).is_some()
    };
    named(name) || named(&camel(name))
}

/// Members of metadata that repeat what a span was made of; the rest is the user's.
pub(super) fn own_metadata(mut metadata: Map<String, Value>) -> Map<String, Value> {
    metadata.retain(|name, value| {
        !value.is_null() && !matches!(name.as_str(), "attributes" | "resourceAttributes" | "scope")
    });
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_found_in_both_cases() {
        for row in [
            json!({"trace_id": "t", "start_time": "2026-01-01 00:00:00", "odd": 1, "gone": null}),
            json!({"traceId": "t", "startTime": "2026-01-01T00:00:00Z", "odd": 1}),
        ] {
            let row = row.as_object().unwrap();
            let row = Row::new(row);
            assert_eq!(row.text("trace_id").as_deref(), Some("t"));
            assert_eq!(row.time("start_time"), Ok(Some(1_767_225_600_000_000_000)));
            let mut parts = Parts::default();
            row.count_unknown(&["trace_id", "start_time"], &mut parts);
            assert_eq!(parts.unknown, ["odd"]);
        }
        assert_eq!(camel("parent_observation_id"), "parentObservationId");
    }
}
