//! Regular expressions of ECMAScript with the multi-line flag and without the Unicode one, and with the legacy syntax
//! of the web. Matching is over characters and not over UTF-16 code units: `.` matches an emoji, an escaped surrogate
//! pair is one character, and a range over all surrogates has all characters that are made of them. Modifiers such as
//! `(?i:` and names that two groups share are invalid.
//!
//! An engine of our own, because translated patterns would have to be compiled, which takes longer than matching a
//! text of a few hundred characters, and because its steps are counted.

mod chars;
mod escape;
mod parse;
mod program;
mod search;
mod syntax;

/// Steps after which matching gives up: comparisons of a character, a group or a place with the pattern.
const MOST_STEPS: u64 = 10_000_000;
/// Places that matching keeps to come back to. More make it give up, too.
const MOST_PLACES: usize = 1 << 20;

/// Why a text could not be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The pattern is no regular expression.
    Invalid,
    /// Matching took too many steps.
    TooComplex,
}

/// Whether the pattern matches somewhere in the text. The pattern must be short: reading it goes as deep as its groups.
///
/// # Errors
/// [`Failure`] if the pattern is invalid or takes too many steps.
pub(super) fn is_match(pattern: &str, text: &str) -> Result<bool, Failure> {
    let pattern = parse::parse(pattern).ok_or(Failure::Invalid)?;
    let program = program::compile(&pattern);
    search::search(&program, text)
}

#[cfg(test)]
mod tests;
