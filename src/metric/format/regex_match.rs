//! `regex_match`: whether a regular expression matches somewhere in the output.

use memchr::memmem;

use super::ecma_pattern::{Failure, is_match};
use crate::metric::comparison::units;

/// Patterns have at most so many UTF-16 code units.
const MOST_UNITS: usize = 500;

/// What came of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It matches.
    Found,
    /// It does not match.
    NotFound,
    /// It is no regular expression.
    Invalid,
    /// It has over 500 UTF-16 code units, and is not tried.
    TooLong,
    /// It looks like one that takes for ever, and is not tried.
    Unsafe,
    /// It takes too many steps.
    TooComplex,
}

impl Outcome {
    /// Why the pattern was not tried to the end: `too_long`, `unsafe` or `too_complex`; none if it was.
    pub fn rejected(self) -> Option<&'static str> {
        match self {
            Self::TooLong => Some("too_long"),
            Self::Unsafe => Some("unsafe"),
            Self::TooComplex => Some("too_complex"),
            Self::Found | Self::NotFound | Self::Invalid => None,
        }
    }
}

/// Searches the whole output for the pattern: ECMAScript with the multi-line flag, case sensitive.
pub(super) fn outcome(pattern: &str, text: &str) -> Outcome {
    if units(pattern) > MOST_UNITS {
        return Outcome::TooLong;
    }
    if looks_unsafe(pattern) {
        return Outcome::Unsafe;
    }
    let matched = match literal_start(pattern) {
        Some(start) if start.len() == pattern.len() => Ok(is_in(start, text)),
        // Whether the rest is a valid pattern makes no difference then.
        Some(start) if !is_in(some_of(start), text) => Ok(false),
        _ => is_match(pattern, text),
    };
    match matched {
        Ok(true) => Outcome::Found,
        Ok(false) => Outcome::NotFound,
        Err(Failure::Invalid) => Outcome::Invalid,
        Err(Failure::TooComplex) => Outcome::TooComplex,
    }
}

fn is_in(part: &str, text: &str) -> bool {
    memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// The first characters of a text: enough to find few places, and soon prepared for searching.
fn some_of(start: &str) -> &str {
    start.get(..16).unwrap_or(start)
}

/// What every match of the pattern begins with, if that can be seen without reading the pattern.
fn literal_start(pattern: &str) -> Option<&str> {
    if pattern.contains('|') {
        return None;
    }
    let bytes = pattern.as_bytes();
    let is_special = |at: &usize| is_special(bytes.get(*at..).unwrap_or_default());
    let end = (0..bytes.len()).find(is_special).unwrap_or(pattern.len());
    let (start, rest) = pattern.split_at_checked(end)?;
    match rest.starts_with(['*', '?', '{']) {
        // The last character need not be there.
        true => start
            .char_indices()
            .next_back()
            .and_then(|(last, _)| start.get(..last)),
        false => Some(start),
    }
}

/// Whether what is first in a part of a pattern means something else than itself. `{` does only before a digit.
fn is_special(rest: &[u8]) -> bool {
    match rest {
        [b'{', next, ..] => next.is_ascii_digit(),
        [first, ..] => {
            let first = *first;
            matches!(first, b'\\' | b'^' | b'$' | b'.' | b'*' | b'+' | b'?')
                || matches!(first, b'(' | b')' | b'[' | b'|')
        }
        [] => false,
    }
}

/// A plain search for an open-ended count behind something complex, on one line of the pattern. It may reject innocent
/// patterns.
fn looks_unsafe(pattern: &str) -> bool {
    if memmem::find(pattern.as_bytes(), b",}").is_none() {
        return false;
    }
    let in_order = |line: &str, parts: &[&str]| {
        let found = parts.iter().try_fold(line, |rest, part| {
            rest.split_once(part).map(|(_, rest)| rest)
        });
        found.is_some()
    };
    let shapes: [&[&str]; 9] = [
        &["(", "){", ",}"],
        &["(?", "{", ",}"],
        &["[", "{", ",}"],
        &["\\w{", ",}"],
        &["\\W{", ",}"],
        &["\\d{", ",}"],
        &["\\D{", ",}"],
        &["\\s{", ",}"],
        &["\\S{", ",}"],
    ];
    let mut lines = pattern.split(['\n', '\r', '\u{2028}', '\u{2029}']);
    lines.any(|line| shapes.iter().any(|shape| in_order(line, shape)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ended_counts_of_something_complex_are_not_tried() {
        for (pattern, is_unsafe) in [
            ("(ab){2,}", true),
            ("(ab)x{2,}", false),
            ("(a)\n{2,}", false),
            ("(a){1,5} and {,}", true),
            ("(?:a)b{2,}", true),
            ("[a]b{2,}", true),
            ("{2,}[a]", false),
            ("\\d{2,}", true),
            ("\\d+{2,}", false),
            ("\\S{2}x{3,}", true),
            ("\\b{2,}", false),
            ("a{2,}", false),
            (".{2,}", false),
            ("(ab){1,5}", false),
            ("[a\u{2028}{2,}", false),
            ("){,}(", false),
        ] {
            assert_eq!(looks_unsafe(pattern), is_unsafe, "{pattern:?}");
        }
    }

    #[test]
    fn plain_starts_decide_early() {
        for (pattern, start) in [
            ("plain text", Some("plain text")),
            ("ab.", Some("ab")),
            ("ab*", Some("a")),
            ("aé?", Some("a")),
            ("ab+", Some("ab")),
            ("ab{2}", Some("a")),
            ("{\"a\": {}, b]}", Some("{\"a\": {}, b]}")),
            ("{a}.", Some("{a}")),
            ("{1}", None),
            ("?", None),
            ("ab|c", None),
            ("", Some("")),
        ] {
            assert_eq!(literal_start(pattern), start, "{pattern}");
        }
        assert_eq!(outcome("ab(", "x"), Outcome::NotFound);
        assert_eq!(outcome("ab(", "ab"), Outcome::Invalid);
        assert_eq!(outcome("", ""), Outcome::Found);
    }
}
