//! Flags that take one of a few names: help and completions show them.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::history::figures::Target;

/// What scores are of.
pub(super) const TARGETS: &[(&str, Target)] =
    &[("trace", Target::Trace), ("session", Target::Session)];

/// Reads a name as the value that stands beside it.
pub(super) fn named<T: Clone + Send + Sync + 'static>(
    values: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(move |given: String| {
        let mut values = values.iter();
        let found = values.find(|(name, _)| name.eq_ignore_ascii_case(&given));
        found.map(|(_, value)| value.clone()).ok_or("no such value")
    })
}
