//! What tells an actual text from the expected one, as plain data: lines with a sign, and words in them that differ.
//!
//! Time and size are bounded by counts, never by a clock, so that the same texts always look the same: equal beginnings
//! and ends are found in linear time, and only a bounded middle is compared line by line and word by word.

mod ordered;
mod words;

use std::borrow::Cow;

use serde::Serialize;
use similar::{DiffOp, TextDiff};

use ordered::ordered;
use words::{marked, visible, windowed};

/// Unchanged lines shown around a change; one more where it would be the only one that is left out.
const CONTEXT: usize = 3;
/// The most lines of each text, from the first that differs on, that are compared.
const MOST_COMPARED: usize = 300;

/// How much of a difference is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The most lines.
    pub lines: usize,
    /// The most characters of a line.
    pub line: usize,
    /// The most characters of all lines; the line that passes it is the last.
    pub characters: usize,
}

/// Expected and actual text held side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// Which texts there are, and how they stand to each other.
    pub kind: Kind,
    /// Whether JSON is shown: one member a line, keys sorted.
    pub json: bool,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

impl Difference {
    /// Characters in all lines.
    pub fn characters(&self) -> usize {
        self.lines.iter().map(Line::characters).sum()
    }
}

/// How expected and actual stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// They differ.
    Different,
    /// They are the same, to the byte.
    Same,
    /// They are the same JSON; only spaces, escapes or the order of keys differ.
    SameJson,
    /// Nothing is there to compare what was expected with.
    OnlyExpected,
    /// Nothing was expected.
    OnlyActual,
}

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// Where the line is.
    pub sign: Sign,
    /// Its words, joined as far as they are alike or differ.
    pub pieces: Vec<Piece>,
}

impl Line {
    fn said(text: String) -> Self {
        Self {
            sign: Sign::Gap,
            pieces: vec![Piece {
                text,
                differs: false,
            }],
        }
    }

    fn characters(&self) -> usize {
        let pieces = self.pieces.iter();
        pieces.map(|piece| piece.text.chars().count()).sum()
    }
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sign {
    /// In both texts.
    Both,
    /// Only in the expected text: `-`.
    Expected,
    /// Only in the actual text: `+`.
    Actual,
    /// Nowhere: it says how many lines are not shown.
    Gap,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Piece {
    /// The text. No control characters, none that reorder others.
    pub text: String,
    /// Whether the line opposite has other words here.
    pub differs: bool,
}

/// Expected and actual text held side by side; none if there is neither. Where both are a JSON object or array, both
/// are laid out with sorted keys first, so that the order of keys and the spaces make no difference.
pub(super) fn difference(
    expected: Option<&str>,
    actual: Option<&str>,
    bounds: Bounds,
) -> Option<Difference> {
    let (expected, actual) = match (expected, actual) {
        (None, None) => return None,
        (Some(text), None) => return Some(alone(Kind::OnlyExpected, text, bounds)),
        (None, Some(text)) => return Some(alone(Kind::OnlyActual, text, bounds)),
        (Some(expected), Some(actual)) => (expected, actual),
    };
    if expected == actual {
        return Some(alone(Kind::Same, expected, bounds));
    }
    let (old, new, json) = match (ordered(expected), ordered(actual)) {
        (Some(old), Some(new)) if old == new => {
            return Some(alone(Kind::SameJson, expected, bounds));
        }
        (Some(old), Some(new)) => (Cow::Owned(old), Cow::Owned(new), true),
        _ => (Cow::Borrowed(expected), Cow::Borrowed(actual), false),
    };
    let (mut old, mut new) = (lines_of(&old), lines_of(&new));
    if old.last() == Some(&"") && new.last() == Some(&"") {
        old.pop();
        new.pop();
    }
    Some(Difference {
        kind: Kind::Different,
        json,
        lines: shown(compared(&old, &new), bounds),
    })
}

/// A text with nothing to compare it with.
fn alone(kind: Kind, text: &str, bounds: Bounds) -> Difference {
    let laid_out = ordered(text);
    let mut lines = lines_of(laid_out.as_deref().unwrap_or(text));
    lines.pop_if(|last| last.is_empty());
    let entries = lines.into_iter().map(|line| Entry::Line(Sign::Both, line));
    Difference {
        kind,
        json: laid_out.is_some(),
        lines: shown(entries.collect(), bounds),
    }
}

/// Lines without their ends. An end after the last line makes an empty line more: a text that lacks it is another text.
fn lines_of(text: &str) -> Vec<&str> {
    match text {
        "" => Vec::new(),
        text => text.split('\n').collect(),
    }
}

/// A line to be shown, before it is cut.
enum Entry<'a> {
    Line(Sign, &'a str),
    /// The line, and the one opposite it.
    Changed(Sign, &'a str, &'a str),
    /// So many lines that both have.
    Alike(usize),
    /// Lines of the expected and of the actual text that are not compared.
    NotCompared(usize, usize),
}

fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Entry<'a>> {
    let pairs = old.iter().zip(new);
    let before = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (old.split_at(before), new.split_at(before));
    let pairs = old.1.iter().rev().zip(new.1.iter().rev());
    let after = pairs.take_while(|(old, new)| old == new).count();
    let (middle, end) = old.1.split_at(old.1.len() - after);
    let opposite = &new.1[..new.1.len() - after];

    let mut entries = Vec::new();
    let context = context_of(before);
    entries.extend((before > context).then(|| Entry::Alike(before - context)));
    let beginning = old.0.iter().skip(before - context);
    entries.extend(beginning.map(|line| Entry::Line(Sign::Both, line)));

    let (middle, rest) = middle.split_at(middle.len().min(MOST_COMPARED));
    let (opposite, opposite_rest) = opposite.split_at(opposite.len().min(MOST_COMPARED));
    push_changes(&mut entries, middle, opposite);
    if !(rest.is_empty() && opposite_rest.is_empty()) {
        entries.push(Entry::NotCompared(rest.len(), opposite_rest.len()));
    }

    let context = context_of(after);
    let end = end.iter().take(context);
    entries.extend(end.map(|line| Entry::Line(Sign::Both, line)));
    entries.extend((after > context).then(|| Entry::Alike(after - context)));
    entries
}

/// How many of so many unchanged lines at an end are shown.
fn context_of(lines: usize) -> usize {
    match lines {
        few if few <= CONTEXT + 1 => few,
        _ => CONTEXT,
    }
}

fn push_changes<'a>(entries: &mut Vec<Entry<'a>>, old: &[&'a str], new: &[&'a str]) {
    for op in TextDiff::from_slices(old, new).ops() {
        let removed = old.get(op.old_range()).unwrap_or_default();
        let added = new.get(op.new_range()).unwrap_or_default();
        if matches!(op, DiffOp::Equal { .. }) {
            let hidden = match removed.len() {
                few if few <= 2 * CONTEXT + 1 => 0..0,
                many => CONTEXT..many - CONTEXT,
            };
            for (at, line) in removed.iter().enumerate() {
                if at == hidden.start && !hidden.is_empty() {
                    entries.push(Entry::Alike(hidden.len()));
                }
                if !hidden.contains(&at) {
                    entries.push(Entry::Line(Sign::Both, line));
                }
            }
            continue;
        }
        for (sign, lines, opposite) in [
            (Sign::Expected, removed, added),
            (Sign::Actual, added, removed),
        ] {
            for (at, line) in lines.iter().enumerate() {
                entries.push(match opposite.get(at) {
                    Some(opposite) => Entry::Changed(sign, line, opposite),
                    None => Entry::Line(sign, line),
                });
            }
        }
    }
}

fn shown(entries: Vec<Entry<'_>>, bounds: Bounds) -> Vec<Line> {
    let (mut lines, mut characters, total) = (Vec::new(), 0, entries.len());
    for (at, entry) in entries.into_iter().enumerate() {
        if at >= bounds.lines || characters >= bounds.characters {
            lines.push(Line::said(format!("{} not shown", count(total - at))));
            break;
        }
        let line = match entry {
            Entry::Alike(lines) => Line::said(format!("{} alike", count(lines))),
            Entry::NotCompared(expected, actual) => Line::said(format!(
                "not compared: {} expected, {} actual",
                count(expected),
                count(actual)
            )),
            Entry::Line(sign, text) => {
                let text = text.to_owned();
                let differs = false;
                line(sign, vec![Piece { text, differs }], bounds.line)
            }
            Entry::Changed(sign, text, opposite) => line(sign, marked(text, opposite), bounds.line),
        };
        characters += line.characters();
        lines.push(line);
    }
    lines
}

fn line(sign: Sign, pieces: Vec<Piece>, most: usize) -> Line {
    let mut pieces = visible(windowed(pieces, most));
    // An empty line that only one text has could not be seen.
    if sign != Sign::Both && pieces.is_empty() {
        pieces.push(Piece {
            text: "⏎".into(),
            differs: true,
        });
    }
    Line { sign, pieces }
}

fn count(lines: usize) -> String {
    crate::report::counted(lines as u64, "line", "lines")
}

#[cfg(test)]
mod tests;
