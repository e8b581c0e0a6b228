//! What a system has to say of itself so that scores can be written for it and sent to it.

use serde_json::Value;

use super::ExportError;
use super::score::{Level, Score, hash_of, hex_of};
use super::stored_scores::RunFacts;
use crate::judge::{Endpoint, Seen, Verb};

/// Reads a variable of the environment; none if it is not set, or blank.
pub(super) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where a system is, and which of its projects a key leads to.
pub(super) struct Account {
    pub endpoint: Endpoint,
    /// Tells the projects and accounts of one endpoint apart; no secret.
    pub project: String,
}

impl Account {
    /// An account that is told from others by what its headers say: whose key it is decides where scores go.
    pub fn of_headers(url: &str, headers: Vec<(String, String)>) -> Self {
        let mut parts: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            .collect();
        parts.sort();
        Self {
            project: hex_of(&hash_of(parts.iter().map(|part| Some(part.as_str())))),
            endpoint: Endpoint {
                url: url.to_owned(),
                headers,
            },
        }
    }
}

/// What was wrong with a request that was answered well.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Faults {
    /// By place in the request, and in the system's words.
    pub at: Vec<(usize, String)>,
    /// Those that may be taken later, in the same form.
    pub again: Vec<(usize, String)>,
    /// Faults that the system counts and does not place.
    pub unplaced: u64,
    pub message: Option<String>,
}

/// One system.
pub(super) trait Wire: Send + Sync {
    /// The body of one score.
    ///
    /// # Errors
    /// Why the system has no place for it.
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String>;

    /// A body as a line of a file.
    fn line(&self, body: Value) -> Value {
        body
    }

    /// Where bodies go, below the endpoint.
    fn path(&self, level: Level) -> String;

    /// Bodies in one request, at most.
    fn most(&self) -> usize {
        1
    }

    /// Bodies as one request.
    fn request(&self, bodies: &[&Value]) -> Value {
        bodies.first().map_or(Value::Null, |body| (*body).clone())
    }

    /// What the answer to a request says is wrong.
    fn faults(&self, _answer: &Value, _bodies: &[&Value]) -> Faults {
        Faults::default()
    }

    /// Whether 404 is about a trace or session that is not there, and not about the URL.
    fn looks_up_targets(&self) -> bool {
        true
    }

    /// How what stands under the id already is replaced, where a request to make it is refused with 409.
    fn replacing(&self, _body: &Value) -> Option<(Verb, String, Value)> {
        None
    }

    /// Where it is seen whether a body has arrived; only where a second one would be a second score.
    fn where_seen(&self, _body: &Value) -> Option<String> {
        None
    }

    /// Whether the answer there holds the body.
    fn seen(&self, _body: &Value, _there: &Value) -> Seen {
        Seen::No
    }

    /// Where the system is: `url`, or what the environment says.
    ///
    /// # Errors
    /// What is missing.
    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError>;
}

/// The first variable that is set.
pub(super) fn first_of(variable: Variable<'_>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| variable(name))
}

/// The message for keys that are not there.
pub(super) fn missing(what: &str) -> ExportError {
    ExportError::Request(format!("--send: {what}"))
}

#[cfg(test)]
pub(super) fn facts() -> RunFacts {
    super::stored_scores::tests_facts()
}
