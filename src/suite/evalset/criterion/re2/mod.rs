//! Patterns in RE2 syntax, as Go reads it.
//!
//! They are translated for the `regex` crate, which searches in linear time. A pattern that takes too much memory is
//! bad, like one that RE2 refuses.

mod class;
mod scripts;
mod translate;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

/// Most bytes of a pattern.
const MOST_PATTERN_BYTES: usize = 1 << 16;
/// About how many bytes a compiled pattern may take.
const MOST_COMPILED_BYTES: usize = 10 << 20;
/// Most compiled patterns that are kept.
const MOST_KEPT: usize = 32;

/// Why a pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPattern {
    #[error("it has no group that this `)` ends")]
    UnexpectedClose,
    #[error("a `(` has no `)`")]
    MissingClose,
    #[error("a `[` has no `]`")]
    MissingBracket,
    #[error("a repetition has nothing to repeat")]
    NothingToRepeat,
    #[error("a repetition of a repetition")]
    RepeatedRepetition,
    #[error("it repeats more than 1000 times, or at least more often than at most")]
    RepeatSize,
    #[error("`{0}` begins no group that RE2 has: there is no look-around")]
    Group(String),
    #[error("`{0}` is no name of a group")]
    Name(String),
    #[error("`{0}` is no escape that RE2 has: there are no back-references")]
    Escape(String),
    #[error("it ends in a `\\`")]
    TrailingBackslash,
    #[error("`{0}` is no range or class of characters")]
    Range(String),
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("it is too large")]
    TooLarge,
    #[error("{0}")]
    Other(String),
}

/// Whether the pattern is found somewhere in the text.
pub(super) fn is_match(pattern: &str, text: &str) -> Result<bool, BadPattern> {
    match &*compiled(pattern) {
        Ok(regex) => Ok(regex.is_match(text)),
        Err(bad) => Err(bad.clone()),
    }
}

type Compiled = Arc<Result<Regex, BadPattern>>;

/// What all threads have compiled lately, by pattern, each with the time of its last use.
#[derive(Default)]
struct Kept {
    patterns: HashMap<String, (Compiled, u64)>,
    clock: u64,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

fn compiled(pattern: &str) -> Compiled {
    // A thread that died while it held the lock left a map that is whole: entries are put in by one call.
    let lock = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut kept = lock();
        kept.clock += 1;
        let now = kept.clock;
        if let Some((compiled, used)) = kept.patterns.get_mut(pattern) {
            *used = now;
            return Arc::clone(compiled);
        }
    }
    // Not under the lock: the others go on meanwhile.
    let compiled = Arc::new(compile(pattern));
    let mut kept = lock();
    if kept.patterns.len() >= MOST_KEPT {
        let oldest = kept.patterns.iter().min_by_key(|(_, (_, used))| *used);
        if let Some(oldest) = oldest.map(|(pattern, _)| pattern.clone()) {
            kept.patterns.remove(&oldest);
        }
    }
    let now = kept.clock;
    kept.patterns
        .insert(pattern.to_owned(), (Arc::clone(&compiled), now));
    compiled
}

fn compile(pattern: &str) -> Result<Regex, BadPattern> {
    if pattern.len() > MOST_PATTERN_BYTES {
        return Err(BadPattern::TooLarge);
    }
    RegexBuilder::new(&translate::translated(pattern)?)
        .size_limit(MOST_COMPILED_BYTES)
        // The translation bounds nesting more closely, in levels of its own.
        .nest_limit(8 * translate::MOST_LEVELS)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => BadPattern::TooLarge,
            other => BadPattern::Other(other.to_string()),
        })
}

#[cfg(test)]
mod tests;
