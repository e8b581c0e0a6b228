//! From RE2 syntax to that of the `regex` crate.
//!
//! What comes out has no flags but those of single parts, no captures and no laziness: only whether a text matches is
//! asked.

use super::BadPattern;
use super::class::{self, NOTHING};

/// Most levels of groups and repetitions inside each other.
pub(super) const MOST_LEVELS: u32 = 200;
/// Most times that something may be counted to repeat, all repetitions around it taken together.
const MOST_REPEATS: u32 = 1000;

/// Flags that hold from here to the end of the group. `U` is read and forgotten: it changes what is captured, not
/// whether something matches.
#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_all: bool,
}

/// What a repetition would repeat.
#[derive(Clone, Copy)]
struct Atom {
    /// Where it begins in the translation.
    start: usize,
    /// How deep it is nested.
    levels: u32,
    /// How often its most repeated part is counted to repeat.
    repeats: u32,
    /// Whether it ends in a repetition.
    is_repeated: bool,
}

/// A sequence that is being read: the pattern itself or a group.
#[derive(Default)]
struct Sequence {
    /// Where the group begins in the translation, and which flags held before it.
    start: usize,
    flags_before: Flags,
    /// Of all atoms but the last.
    levels: u32,
    repeats: u32,
    last: Option<Atom>,
}

impl Sequence {
    /// Makes the last atom one that can't be repeated any more.
    fn settle(&mut self) {
        if let Some(atom) = self.last.take() {
            self.levels = self.levels.max(atom.levels);
            self.repeats = self.repeats.max(atom.repeats);
        }
    }
}

struct Translation<'p> {
    rest: &'p str,
    out: String,
    flags: Flags,
    /// Groups around the sequence that is being read.
    around: Vec<Sequence>,
    sequence: Sequence,
}

/// The same pattern for the `regex` crate.
pub(super) fn translated(pattern: &str) -> Result<String, BadPattern> {
    let mut translation = Translation {
        rest: pattern,
        out: String::with_capacity(2 * pattern.len()),
        flags: Flags::default(),
        around: Vec::new(),
        sequence: Sequence::default(),
    };
    let mut after_repetition = false;
    while !translation.rest.is_empty() {
        let is_repetition = translation.step(after_repetition)?;
        after_repetition = is_repetition;
    }
    match translation.around.is_empty() {
        true => Ok(translation.out),
        false => Err(BadPattern::MissingClose),
    }
}

impl<'p> Translation<'p> {
    /// Reads one part of the pattern. Says whether it was a repetition.
    fn step(&mut self, after_repetition: bool) -> Result<bool, BadPattern> {
        let Some(next) = self.rest.chars().next() else {
            return Ok(false);
        };
        let after = &self.rest[next.len_utf8()..];
        match next {
            '(' => match after.strip_prefix('?') {
                Some(_) => self.flags_or_group()?,
                None => self.open(after, self.flags),
            },
            ')' => self.close(after)?,
            '|' => {
                self.sequence.settle();
                self.out.push('|');
                self.rest = after;
            }
            '^' => self.atom(
                after,
                if self.flags.multi_line {
                    "(?m:^)"
                } else {
                    r"\A"
                },
            ),
            '$' => self.atom(
                after,
                if self.flags.multi_line {
                    "(?m:$)"
                } else {
                    r"\z"
                },
            ),
            '.' => self.atom(
                after,
                if self.flags.dot_all {
                    "(?s:.)"
                } else {
                    r"[^\n]"
                },
            ),
            '[' => {
                let (class, after) = class::bracketed(self.rest)?;
                self.class(after, &class);
            }
            '*' | '+' | '?' => {
                let operator = &self.rest[..1];
                self.repeat(after, after_repetition, operator, None)?;
                return Ok(true);
            }
            '{' => match counts(after) {
                None => self.literal(after, u32::from('{')),
                Some((least, most, after)) => {
                    let operator = match most {
                        Some(most) => format!("{{{least},{most}}}"),
                        None => format!("{{{least},}}"),
                    };
                    let too_often = least > MOST_REPEATS
                        || most.is_some_and(|most| most > MOST_REPEATS || most < least);
                    if too_often {
                        return Err(BadPattern::RepeatSize);
                    }
                    let counted = Some((least, most));
                    self.repeat(after, after_repetition, &operator, counted)?;
                    return Ok(true);
                }
            },
            '\\' => self.escape(after)?,
            literal => self.literal(after, u32::from(literal)),
        }
        Ok(false)
    }

    fn atom(&mut self, after: &'p str, translation: &str) {
        self.sequence.settle();
        self.sequence.last = Some(Atom {
            start: self.out.len(),
            levels: 1,
            repeats: 1,
            is_repeated: false,
        });
        self.out.push_str(translation);
        self.rest = after;
    }

    fn class(&mut self, after: &'p str, class: &str) {
        match self.flags.fold {
            true => self.atom(after, &format!("(?i:{class})")),
            false => self.atom(after, class),
        }
    }

    /// A code point; one that no text holds matches nothing.
    fn literal(&mut self, after: &'p str, code: u32) {
        let Some(character) = char::from_u32(code) else {
            return self.atom(after, NOTHING);
        };
        let escaped = regex::escape(character.encode_utf8(&mut [0; 4]));
        match self.flags.fold && character.is_alphabetic() {
            true => self.atom(after, &format!("(?i:{escaped})")),
            false => self.atom(after, &escaped),
        }
    }

    fn open(&mut self, after: &'p str, flags: Flags) {
        self.sequence.settle();
        let group = Sequence {
            start: self.out.len(),
            flags_before: self.flags,
            ..Sequence::default()
        };
        let outer = std::mem::replace(&mut self.sequence, group);
        self.around.push(outer);
        self.out.push_str("(?:");
        self.flags = flags;
        self.rest = after;
    }

    fn close(&mut self, after: &'p str) -> Result<(), BadPattern> {
        let outer = self.around.pop().ok_or(BadPattern::UnexpectedClose)?;
        let mut group = std::mem::replace(&mut self.sequence, outer);
        group.settle();
        self.out.push(')');
        self.flags = group.flags_before;
        self.sequence.last = Some(Atom {
            start: group.start,
            levels: deeper(group.levels)?,
            repeats: group.repeats.max(1),
            is_repeated: false,
        });
        self.rest = after;
        Ok(())
    }

    /// A repetition of the last atom. What lies between two atoms is no obstacle to it: in `a(?i)*` the `a` is
    /// repeated.
    fn repeat(
        &mut self,
        after: &'p str,
        after_repetition: bool,
        operator: &str,
        counted: Option<(u32, Option<u32>)>,
    ) -> Result<(), BadPattern> {
        // Order of the complaints as in Go: `**` at the start has nothing to repeat.
        let lazy = after.strip_prefix('?');
        if after_repetition {
            return Err(BadPattern::RepeatedRepetition);
        }
        let atom = self
            .sequence
            .last
            .as_mut()
            .ok_or(BadPattern::NothingToRepeat)?;
        if atom.is_repeated {
            self.out.insert_str(atom.start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        atom.is_repeated = true;
        atom.levels = deeper(atom.levels)?;
        if let Some((least, most)) = counted {
            // Without an upper bound the lower one counts, and a lower bound of 0 counts as no factor; `x{0}` is
            // nothing.
            let factor = most.unwrap_or(least.max(1));
            atom.repeats = atom.repeats.saturating_mul(factor);
            if atom.repeats > MOST_REPEATS {
                return Err(BadPattern::RepeatSize);
            }
        }
        self.rest = lazy.unwrap_or(after);
        Ok(())
    }

    /// `(?i)`, `(?i-s:…)`, `(?P<name>…)` or `(?<name>…)`.
    fn flags_or_group(&mut self) -> Result<(), BadPattern> {
        let whole = self.rest;
        let inner = whole.get(2..).unwrap_or_default();
        let named = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
        if let Some(named) = named {
            let bad = || BadPattern::Name(first_characters(whole));
            let (name, after) = named.split_once('>').ok_or_else(bad)?;
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(bad());
            }
            self.open(after, self.flags);
            return Ok(());
        }
        let mut flags = self.flags;
        let (mut on, mut seen) = (true, false);
        for (at, character) in inner.char_indices() {
            match character {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_all = on,
                'U' => {}
                '-' if on => {
                    (on, seen) = (false, false);
                    continue;
                }
                ':' | ')' if on || seen => {
                    let after = &inner[at + 1..];
                    match character {
                        ':' => self.open(after, flags),
                        _ => (self.flags, self.rest) = (flags, after),
                    }
                    return Ok(());
                }
                _ => break,
            }
            seen = true;
        }
        // `(?i` without an end is a group that RE2 has not, too.
        Err(BadPattern::Group(first_characters(whole)))
    }

    fn escape(&mut self, after: &'p str) -> Result<(), BadPattern> {
        let Some(letter) = after.chars().next() else {
            return Err(BadPattern::TrailingBackslash);
        };
        let further = &after[letter.len_utf8()..];
        match letter {
            'A' => self.atom(further, r"\A"),
            'z' => self.atom(further, r"\z"),
            'b' => self.atom(further, r"(?-u:\b)"),
            'B' => self.atom(further, r"(?-u:\B)"),
            'Q' => {
                let (quoted, further) = further.split_once(r"\E").unwrap_or((further, ""));
                quoted
                    .chars()
                    .for_each(|c| self.literal(further, u32::from(c)));
                self.rest = further;
            }
            _ => match class::escaped(self.rest)? {
                Some((items, further)) => self.class(further, &format!("[{items}]")),
                None => {
                    let (code, further) = class::character(self.rest)?;
                    self.literal(further, code);
                }
            },
        }
        Ok(())
    }
}

fn deeper(levels: u32) -> Result<u32, BadPattern> {
    match levels < MOST_LEVELS {
        true => Ok(levels + 1),
        false => Err(BadPattern::TooDeep),
    }
}

/// The bounds in `{2}`, `{2,}` or `{2,3}` after the brace, and what follows. None if it is no repetition, and the brace
/// stands for itself: there are no leading zeros, and the lower bound is there.
fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (least, text) = count(text)?;
    let (most, text) = match text.strip_prefix(',') {
        None => (Some(least), text),
        Some(text) if text.starts_with('}') => (None, text),
        Some(text) => {
            let (most, text) = count(text)?;
            (Some(most), text)
        }
    };
    Some((least, most, text.strip_prefix('}')?))
}

/// A number at the beginning of the text; a large one is cut to the largest.
fn count(text: &str) -> Option<(u32, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    match digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        true => None,
        false => Some((digits.parse().unwrap_or(u32::MAX), after)),
    }
}

fn first_characters(text: &str) -> String {
    text.chars().take(8).collect()
}
