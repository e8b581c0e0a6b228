//! Ids taken out of JSON documents.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::trace::canonical_trace_id;

/// What stands where something was taken out.
pub(super) const TAKEN_OUT: &str = "(forgotten)";

/// What is taken out of texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub {
    /// Canonical ids of traces.
    pub traces: BTreeSet<String>,
    /// Ids of sessions, and of a user, as they are.
    pub others: BTreeSet<String>,
    /// Spellings of ids that may stand inside of texts; none are empty.
    pub spellings: BTreeSet<String>,
}

impl Scrub {
    /// Whether a text is one of the ids.
    pub fn is(&self, text: &str) -> bool {
        self.others.contains(text)
            || canonical_trace_id(text).is_some_and(|id| self.traces.contains(&id))
    }

    /// A text without the ids; none if it holds none.
    pub fn text(&self, text: &str) -> Option<String> {
        let mut scrubbed: Option<String> = None;
        for id in &self.spellings {
            let now = scrubbed.as_deref().unwrap_or(text);
            if let Some(without) = without(now, id) {
                scrubbed = Some(without);
            }
        }
        scrubbed
    }

    /// Takes the ids out of a document: members and elements that are about one go, and texts that hold one lose it. Says
    /// whether there was any.
    pub fn json(&self, value: &mut Value) -> bool {
        let mut found = false;
        match value {
            Value::Object(members) => {
                let names: Vec<String> = members
                    .keys()
                    .filter(|name| self.is(name))
                    .cloned()
                    .collect();
                for name in names {
                    members.shift_remove(&name);
                    found = true;
                }
                for member in members.values_mut() {
                    found |= self.json(member);
                }
            }
            Value::Array(elements) => {
                let before = elements.len();
                elements.retain(|element| !self.is_about(element));
                found |= elements.len() != before;
                for element in elements {
                    found |= self.json(element);
                }
            }
            Value::String(text) if self.is(text) => {
                TAKEN_OUT.clone_into(text);
                found = true;
            }
            Value::String(text) => {
                if let Some(scrubbed) = self.text(text) {
                    *text = scrubbed;
                    found = true;
                }
            }
            _ => {}
        }
        found
    }

    /// Whether an element of a list is an id, or an object about one.
    fn is_about(&self, element: &Value) -> bool {
        match element {
            Value::String(text) => self.is(text),
            Value::Object(members) => ["trace_id", "session_id"].iter().any(|name| {
                let id = members.get(*name).and_then(Value::as_str);
                id.is_some_and(|id| self.is(id))
            }),
            _ => false,
        }
    }
}

/// A text without an id, wherever it stands by itself and not in a longer word; none if it does not.
fn without(text: &str, id: &str) -> Option<String> {
    let joins = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let (mut out, mut rest_from, mut from) = (String::new(), 0, 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(id)) {
        let (start, end) = (from + at, from + at + id.len());
        let alone = !text[..start].chars().next_back().is_some_and(joins)
            && !text[end..].chars().next().is_some_and(joins);
        if alone {
            out.push_str(&text[rest_from..start]);
            out.push_str(TAKEN_OUT);
            rest_from = end;
        }
        // Ids are not empty: this ends.
        from = end;
    }
    (rest_from > 0).then(|| out + &text[rest_from..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_go_out_of_documents_and_the_rest_stays() {
        let scrub = Scrub {
            traces: [
                "41637175-2745-49c5-9b57-e656eb7a20f4".to_owned(),
                "t1".to_owned(),
            ]
            .into(),
            others: ["u1".to_owned()].into(),
            spellings: ["t1".to_owned()].into(),
        };
        let mut document = json!({
            "comparisons": [{"trace_id": "t1", "cosine": 0.5}, {"trace_id": "t2", "cosine": 0.25}],
            "steps": {"41637175274549C59B57E656EB7A20F4": 1, "t2": 2},
            "ids": ["t1", "t2", "t10"],
            "filters": {"user_id": "u1", "name": "u10"},
            "said": "repeats t1 whole",
            "count": 3,
        });
        assert!(scrub.json(&mut document));
        let expected = json!({
            "comparisons": [{"trace_id": "t2", "cosine": 0.25}],
            "steps": {"t2": 2},
            "ids": ["t2", "t10"],
            "filters": {"user_id": "(forgotten)", "name": "u10"},
            "said": "repeats (forgotten) whole",
            "count": 3,
        });
        assert_eq!(document, expected);
        assert!(!scrub.json(&mut document));
    }
}
