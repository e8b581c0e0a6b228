//! Token counts that were recorded earlier, and their sums (as in Connexity).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Token counts by key, such as `prompt_tokens`. In JSON an object; an `estimated` flag stands beside the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct TokenUsage {
    /// The counts. Entries of the source that are no whole numbers are left out.
    pub counts: BTreeMap<String, i64>,
    /// Whether any part of it is an estimate.
    pub estimated: bool,
}

impl TokenUsage {
    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && !self.estimated
    }

    fn add(&mut self, other: &Self) {
        for (key, count) in &other.counts {
            let sum = self.counts.entry(key.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.estimated |= other.estimated;
    }

    /// The sum of all parts; `None` if nothing was recorded.
    pub(in crate::conversation) fn total<'a>(
        parts: impl Iterator<Item = Option<&'a Self>>,
    ) -> Option<Self> {
        let mut sum = Self::default();
        parts.flatten().for_each(|part| sum.add(part));
        (!sum.is_empty()).then_some(sum)
    }
}

impl From<Value> for TokenUsage {
    /// From an object, or from its JSON text; anything else is empty.
    fn from(value: Value) -> Self {
        let value = match value {
            Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
            other => other,
        };
        let Value::Object(members) = value else {
            return Self::default();
        };
        let estimated = members.get("estimated").and_then(Value::as_bool);
        let count = |value: &Value| {
            let whole = value.as_f64().filter(|number| number.fract() == 0.0);
            value.as_i64().or(whole.map(|number| number as i64))
        };
        Self {
            counts: members
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), count(value)?)))
                .collect(),
            estimated: estimated.unwrap_or(false),
        }
    }
}

impl From<TokenUsage> for Value {
    fn from(usage: TokenUsage) -> Self {
        let counts = usage
            .counts
            .into_iter()
            .map(|(key, count)| (key, Self::from(count)));
        let estimated = usage
            .estimated
            .then(|| ("estimated".to_owned(), Self::Bool(true)));
        Self::Object(counts.chain(estimated).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_objects_and_from_text() {
        let usage = |json: &str| serde_json::from_str::<TokenUsage>(json).unwrap();
        let read = usage(r#"{"prompt_tokens":3,"estimated":true,"details":{"a":1},"share":0.5}"#);
        assert_eq!(read, usage(r#""{\"prompt_tokens\":3,\"estimated\":true}""#));
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            r#"{"prompt_tokens":3,"estimated":true}"#
        );
        assert!(usage("{}").is_empty() && usage("null").is_empty() && usage("[1]").is_empty());
        assert_eq!(
            TokenUsage::total([None, Some(&usage("{}"))].into_iter()),
            None
        );
    }
}
