//! How much of an outcome fits on a page: texts that are cut, lists that end, and what is left of both.

use serde::Serialize;

use crate::suite::difference::{Bounds, Difference, difference};

/// The most characters of a name.
const MOST_NAME: usize = 300;
/// The most characters of a reason, an error or an input.
const MOST_WORDS: usize = 4_000;
/// The most characters of the words on a check that passed.
const MOST_SMALL: usize = 300;
/// How much of expected and actual text is shown.
const TEXTS: Bounds = Bounds {
    lines: 400,
    line: 4_000,
    characters: 8_000,
};
/// The most differences on a page.
const MOST_DIFFERENCES: usize = 3_000;
/// The most characters of cases that did not pass, and of those that did: data, and the lines and rows it stands in.
const MOST_CHARACTERS: usize = 5_000_000;
const MOST_OF_PASSED: usize = 1_500_000;
/// So many of them are kept for names and scores: long texts end before.
const KEPT_FOR_NAMES: usize = 1_000_000;
/// What a line of a difference and a row of a table cost beside their texts.
const LINE: usize = 60;
const ROW: usize = 400;

/// A text, cut at its end where it is too long.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Text {
    text: String,
    /// Characters of the whole text, where it is cut.
    cut: Option<usize>,
}

/// The first so many characters. Control characters other than line ends and tabs become U+FFFD.
fn cut(text: &str, most: usize) -> Text {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let longer = text.char_indices().nth(most).is_some();
    Text {
        text: text.chars().take(most).map(shown).collect(),
        cut: longer.then(|| text.chars().count()),
    }
}

/// The first so many characters, with `…` where there are more.
pub(super) fn beginning(text: &str, most: usize) -> String {
    let text = cut(text, most);
    match text.cut {
        None => text.text,
        Some(_) => format!("{}…", text.text),
    }
}

/// A name, with `…` where it is too long.
pub(super) fn short(name: &str) -> String {
    beginning(name, MOST_NAME)
}

/// The first items of a list, and how many there are beyond them.
#[derive(Debug, Serialize)]
pub(super) struct Few<T> {
    shown: Vec<T>,
    more: usize,
}

impl<T> Few<T> {
    /// The first items, at most so many.
    pub fn of<'a, S: 'a>(items: &'a [S], most: usize, shown: impl FnMut(&'a S) -> T) -> Self {
        Self {
            shown: items.iter().take(most).map(shown).collect(),
            more: items.len().saturating_sub(most),
        }
    }

    /// As many items as there is room for, at most so many.
    pub fn within<'a, S: 'a>(
        room: &mut Room,
        items: &'a [S],
        most: usize,
        mut shown: impl FnMut(&'a S, &mut Room) -> T,
    ) -> Self {
        let mut list = Vec::new();
        for item in items.iter().take(most) {
            if room.characters == 0 {
                break;
            }
            room.take(ROW);
            list.push(shown(item, room));
        }
        Self {
            more: items.len() - list.len(),
            shown: list,
        }
    }
}

/// What may still be shown on the page.
pub(super) struct Room {
    differences: usize,
    characters: usize,
}

impl Room {
    /// For cases that did not pass.
    pub fn of_open() -> Self {
        Self {
            differences: MOST_DIFFERENCES,
            characters: MOST_CHARACTERS,
        }
    }

    /// For cases that passed: a line each, and what was held against them.
    pub fn of_passed() -> Self {
        Self {
            differences: 0,
            characters: MOST_OF_PASSED,
        }
    }

    fn take(&mut self, characters: usize) {
        self.characters = self.characters.saturating_sub(characters);
    }

    /// What is left for long texts.
    fn for_texts(&self) -> usize {
        self.characters.saturating_sub(KEPT_FOR_NAMES)
    }

    /// A name.
    pub fn name(&mut self, name: &str) -> String {
        let name = short(name);
        self.take(name.chars().count());
        name
    }

    /// A reason, an error or an input.
    pub fn text(&mut self, text: &str) -> Text {
        let text = cut(text, MOST_WORDS.min(self.for_texts()));
        self.take(text.text.chars().count());
        text
    }

    /// A few words, which are shown even where long texts no longer are.
    pub fn words(&mut self, text: &str) -> Text {
        let text = cut(text, MOST_SMALL);
        self.take(text.text.chars().count());
        text
    }

    /// Expected and actual text.
    pub fn texts(&mut self, expected: Option<&str>, actual: Option<&str>) -> Texts {
        let there = expected.is_some() || actual.is_some();
        if there && (self.differences == 0 || self.for_texts() == 0) {
            return Texts {
                left_out: true,
                ..Texts::default()
            };
        }
        let found = difference(expected, actual, TEXTS);
        if let Some(found) = &found {
            self.differences -= 1;
            self.take(found.characters() + found.lines.len() * LINE);
        }
        Texts {
            found,
            left_out: false,
            empty_expected: expected.is_some_and(str::is_empty),
            empty_actual: actual.is_some_and(str::is_empty),
        }
    }
}

/// Expected and actual text.
#[derive(Debug, Default, Serialize)]
pub(super) struct Texts {
    found: Option<Difference>,
    /// Whether there are texts for which the page has no room.
    left_out: bool,
    empty_expected: bool,
    empty_actual: bool,
}
