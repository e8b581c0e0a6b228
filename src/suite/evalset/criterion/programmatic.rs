//! Comparisons and tokenizers that a program brings along; no file can hold one.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Comparison, Mismatch};
use crate::suite::evalset::model::Invocation;

/// A function of a program. Clones share it; two are equal if they share it.
pub struct Programmatic<F: ?Sized>(Arc<F>);

/// Whether an actual text matches an expected one.
pub type TextFunction = Programmatic<dyn Fn(&str, &str) -> Result<bool, String> + Send + Sync>;

/// Whether an actual value matches an expected one.
pub type JsonFunction = Programmatic<dyn Fn(&Value, &Value) -> Result<bool, String> + Send + Sync>;

/// Whether an actual turn matches an expected one; either may be missing.
pub type InvocationFunction = Programmatic<
    dyn Fn(Option<&Invocation>, Option<&Invocation>) -> Result<bool, String> + Send + Sync,
>;

/// The tokens of a text.
pub type Tokenizer = Programmatic<dyn Fn(&str) -> Vec<String> + Send + Sync>;

impl TextFunction {
    /// Asked with the actual and the expected text.
    pub fn of_texts(
        function: impl Fn(&str, &str) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    pub(super) fn compare(&self, actual: &str, expected: &str) -> Comparison {
        comparison((self.0)(actual, expected))
    }
}

impl JsonFunction {
    /// Asked with the actual and the expected value; null where there is none.
    pub fn of_values(
        function: impl Fn(&Value, &Value) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    pub(super) fn compare(&self, actual: &Value, expected: &Value) -> Comparison {
        comparison((self.0)(actual, expected))
    }
}

impl InvocationFunction {
    /// Asked with the actual and the expected turn.
    pub fn of_turns(
        function: impl Fn(Option<&Invocation>, Option<&Invocation>) -> Result<bool, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    pub(super) fn compare(
        &self,
        actual: Option<&Invocation>,
        expected: Option<&Invocation>,
    ) -> Comparison {
        comparison((self.0)(actual, expected))
    }
}

impl Tokenizer {
    /// Asked with a text.
    pub fn of_text(function: impl Fn(&str) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    pub(super) fn tokens(&self, text: &str) -> Vec<String> {
        (self.0)(text)
    }
}

fn comparison(answer: Result<bool, String>) -> Comparison {
    match answer {
        Ok(true) => Ok(()),
        Ok(false) => Err(Mismatch::differs("the program's comparison says no")),
        Err(reason) => Err(Mismatch::differs(reason)),
    }
}

impl<F: ?Sized> Clone for Programmatic<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> fmt::Debug for Programmatic<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Programmatic")
    }
}

impl<F: ?Sized> PartialEq for Programmatic<F> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}
