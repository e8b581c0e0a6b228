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
    let matched = match pieces(pattern).next() {
        Some(whole) if whole.len() == pattern.len() => Ok(place_behind(whole, text).is_some()),
        // Whether the pattern is valid at all makes no difference then.
        _ if lacks_a_piece(pattern, text) => Ok(false),
        _ => is_match(pattern, text),
    };
    match matched {
        Ok(true) => Outcome::Found,
        Ok(false) => Outcome::NotFound,
        Err(Failure::Invalid) => Outcome::Invalid,
        Err(Failure::TooComplex) => Outcome::TooComplex,
    }
}

/// Whether a text lacks any of what every match of the pattern has, in the order of the pattern. Documents that stand
/// for a pattern rarely match, and this shows it sooner than reading the pattern does.
fn lacks_a_piece(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pieces(pattern).any(|piece| match place_behind(piece, rest) {
        Some(behind) => {
            rest = rest.get(behind..).unwrap_or_default();
            false
        }
        None => true,
    })
}

/// Where the first occurrence of a part of a pattern in a text ends.
fn place_behind(piece: &str, text: &str) -> Option<usize> {
    // The first characters are enough to find few places, and soon prepared for searching.
    let finder = memmem::Finder::new(piece.get(..16).unwrap_or(piece));
    let mut from = 0;
    while let Some(at) = finder.find(text.as_bytes().get(from..)?) {
        let here = text.as_bytes().get(from + at..)?;
        if here.starts_with(piece.as_bytes()) {
            return Some(from + at + piece.len());
        }
        from += at + 1;
    }
    None
}

/// What every match of the pattern has in it, one behind the other, as far as that can be seen without reading the
/// pattern: characters that are themselves, between sets, `.` and places, up to the first group or escape.
fn pieces(pattern: &str) -> impl Iterator<Item = &str> {
    let mut rest = if pattern.contains('|') { "" } else { pattern };
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let bytes = rest.as_bytes();
            let is_special = |at: &usize| is_special(bytes.get(*at..).unwrap_or_default());
            let end = (0..bytes.len()).find(is_special).unwrap_or(bytes.len());
            let (piece, behind) = rest.split_at_checked(end)?;
            rest = behind_special(behind);
            let piece = match behind.starts_with(['*', '?', '{']) {
                // The last character need not be there.
                true => {
                    let last = piece.char_indices().next_back();
                    last.and_then(|(last, _)| piece.get(..last))
                        .unwrap_or_default()
                }
                false => piece,
            };
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    })
}

/// What is behind a set, or one character that is special; nothing where more would have to be read.
fn behind_special(rest: &str) -> &str {
    let behind = match rest.as_bytes() {
        [b'.' | b'^' | b'$' | b'*' | b'+' | b'?', ..] => 1,
        [b'[', set @ ..] => {
            let mut escaped = false;
            let end = set.iter().position(|byte| {
                let ends = *byte == b']' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        }
        _ => rest.len(),
    };
    rest.get(behind..).unwrap_or_default()
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
    use proptest::prelude::*;

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
    fn what_a_match_must_have_is_seen_early() {
        for (pattern, expected) in [
            ("plain text", &["plain text"][..]),
            ("ab.", &["ab"]),
            ("ab*", &["a"]),
            ("aé?", &["a"]),
            ("ab+", &["ab"]),
            ("ab{2}", &["a"]),
            ("ab{2}c", &["a"]),
            ("{\"a\": {}, b]}", &["{\"a\": {}, b]}"]),
            ("{a}.", &["{a}"]),
            ("{1}", &[]),
            ("?", &[]),
            ("ab|c", &[]),
            ("", &[]),
            (
                "{\"a\": [1, 2], \"b\": 1.5}",
                &["{\"a\": ", ", \"b\": 1", "5}"],
            ),
            ("a[^]]b[\\]]*?c$", &["a", "]b", "c"]),
            ("a[\\\\]b(c)d", &["a", "b"]),
            ("a[b", &["a"]),
            ("a\\.b", &["a"]),
        ] {
            assert_eq!(pieces(pattern).collect::<Vec<_>>(), expected, "{pattern}");
        }
        assert_eq!(outcome("ab(", "x"), Outcome::NotFound);
        assert_eq!(outcome("ab(", "ab"), Outcome::Invalid);
        assert_eq!(outcome("", ""), Outcome::Found);
        assert_eq!(outcome("ab.ab", "abab"), Outcome::NotFound);
        let (long, most) = ("a".repeat(1 << 20), "a".repeat(400) + "b");
        assert_eq!(outcome(&most, &long), Outcome::NotFound);
    }

    proptest! {
        #[test]
        fn nothing_that_lacks_a_piece_matches(pattern in "(a|b|é|\\[a?b\\]|\\[\\^?\\]|[.*+?{}^$|()1\\\\\\]\\[]){0,9}", text in "[abé1{}\\]\\[]{0,9}") {
            if lacks_a_piece(&pattern, &text) {
                prop_assert_ne!(is_match(&pattern, &text), Ok(true));
            }
        }
    }
}
