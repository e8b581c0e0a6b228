//! Words of a line that the line opposite has not, and lines cut around them.

use similar::{DiffOp, TextDiff};

use super::Piece;

/// The most words of each line, from the first that differs on, that are compared.
const MOST_WORDS: usize = 400;
/// Lines that share less than one character in so many are not held against each other.
const SHARED: usize = 3;
/// Characters shown before the first word that differs, where a line is cut at its beginning.
const LEAD: usize = 30;

/// The line in pieces, marked where `opposite` has other words; in one piece without a mark where both have little in
/// common.
pub(super) fn marked(line: &str, opposite: &str) -> Vec<Piece> {
    let (old, new) = (words_of(line), words_of(opposite));
    let pairs = old.iter().zip(&new);
    let before = pairs.take_while(|(old, new)| old == new).count();
    let (beginning, old) = old.split_at(before);
    let (_, new) = new.split_at(before);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let after = pairs.take_while(|(old, new)| old == new).count();
    let (middle, end) = old.split_at(old.len() - after);
    let opposite_middle = &new[..new.len() - after];

    let mut pieces = Pieces::default();
    pieces.extend(beginning, false);
    if middle.len().max(opposite_middle.len()) > MOST_WORDS {
        pieces.extend(middle, true);
    } else {
        for op in TextDiff::from_slices(middle, opposite_middle).ops() {
            let words = middle.get(op.old_range()).unwrap_or_default();
            pieces.extend(words, !matches!(op, DiffOp::Equal { .. }));
        }
    }
    pieces.extend(end, false);

    let shared = pieces.0.iter().filter(|piece| !piece.differs);
    let shared: usize = shared.map(|piece| letters(&piece.text)).sum();
    // Both lines must come to the same answer, so the longer one decides.
    match shared * SHARED < letters(line).max(letters(opposite)) {
        true => vec![Piece {
            text: line.to_owned(),
            differs: false,
        }],
        false => pieces.0,
    }
}

fn letters(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace()).count()
}

/// Words, and every other character for itself. Scripts that write no spaces between words go character by character.
fn words_of(line: &str) -> Vec<&str> {
    let in_word = |c: char| c < '\u{2e80}' && (c.is_alphanumeric() || c == '_');
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = match in_word(first) {
            true => rest.find(|c| !in_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    words
}

/// Pieces that grow as words come.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn extend(&mut self, words: &[&str], differs: bool) {
        let text = words.concat();
        if text.is_empty() {
            return;
        }
        // Two words that differ with a space between them read as one difference.
        if differs && self.0.len() > 1 {
            let bridge = self.0.pop_if(|last| !last.differs && last.text == " ");
            match (bridge, self.0.last_mut()) {
                (Some(space), Some(last)) => last.text.push_str(&space.text),
                (Some(space), None) => self.0.push(space),
                (None, _) => {}
            }
        }
        match self.0.last_mut() {
            Some(last) if last.differs == differs => last.text.push_str(&text),
            _ => self.0.push(Piece { text, differs }),
        }
    }
}

/// At most so many characters of a line, from shortly before the first difference if it would not be seen otherwise;
/// `…` stands for what is cut off.
pub(super) fn windowed(pieces: Vec<Piece>, most: usize) -> Vec<Piece> {
    let size = |piece: &Piece| piece.text.chars().count();
    let total: usize = pieces.iter().map(size).sum();
    if total <= most {
        return pieces.into_iter().filter(|p| !p.text.is_empty()).collect();
    }
    let alike = pieces.iter().take_while(|piece| !piece.differs);
    let first: usize = alike.map(size).sum();
    let start = match first < total && first + LEAD > most {
        true => first.saturating_sub(LEAD),
        false => 0,
    };
    let mut window = Vec::new();
    let (mut skip, mut left) = (start, most);
    for piece in pieces {
        let characters = size(&piece);
        let text: String = piece.text.chars().skip(skip).take(left).collect();
        left -= characters.saturating_sub(skip).min(left);
        skip = skip.saturating_sub(characters);
        if !text.is_empty() {
            window.push(Piece { text, ..piece });
        }
    }
    let ellipsis = || Piece {
        text: "…".into(),
        differs: false,
    };
    if start > 0 {
        window.insert(0, ellipsis());
    }
    if start + most < total {
        window.push(ellipsis());
    }
    window
}

/// The pieces as they can be shown: control characters as their pictures (`␛`), characters that would reorder others as
/// their numbers; and where a difference would not be seen, spaces as `·` and what has no look as its number.
pub(super) fn visible(pieces: Vec<Piece>) -> Vec<Piece> {
    let seen = |piece: Piece| {
        let blank = piece.differs && piece.text.chars().all(char::is_whitespace);
        let mut text = String::with_capacity(piece.text.len());
        for c in piece.text.chars() {
            match c {
                '\u{7f}' => text.push('\u{2421}'),
                '\0'..='\u{1f}' => text.extend(char::from_u32(u32::from(c) + 0x2400)),
                c if c.is_control() => text.push(char::REPLACEMENT_CHARACTER),
                ' ' if blank => text.push('·'),
                c if reorders(c) || (piece.differs && has_no_look(c)) => {
                    text.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
                }
                c => text.push(c),
            }
        }
        Piece { text, ..piece }
    };
    pieces.into_iter().map(seen).collect()
}

/// Embeddings, overrides and isolates of writing direction.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Spaces that are not U+0020, joiners, marks of direction, soft hyphens and byte-order marks.
fn has_no_look(c: char) -> bool {
    (c.is_whitespace() && c != ' ')
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces as text, differences in brackets.
    fn text(pieces: &[Piece]) -> String {
        let piece = |p: &Piece| match p.differs {
            true => format!("[{}]", p.text),
            false => p.text.clone(),
        };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn words_that_differ_are_marked_on_both_sides() {
        let (old, new) = ("The sky is dark blue today", "The sky is light green today");
        assert_eq!(text(&marked(old, new)), "The sky is [dark blue] today");
        assert_eq!(text(&marked(new, old)), "The sky is [light green] today");
        assert_eq!(text(&marked("価格は百円", "価格は千円")), "価格は[百]円");
        assert_eq!(text(&marked("a b", "a b c")), "a b");
        assert_eq!(text(&marked("a b c", "a b")), "a b[ c]");
    }

    #[test]
    fn lines_with_little_in_common_are_not_marked_from_either_side() {
        let (short, long) = ("yes", "no, and that for many reasons, yes");
        assert_eq!(text(&marked(short, long)), short);
        assert_eq!(text(&marked(long, short)), long);
    }

    #[test]
    fn very_long_lines_are_compared_at_their_ends_only() {
        let (old, new) = ("a ".repeat(200_000), "b ".repeat(200_000));
        let line =
            |middle: &str| format!("{}{middle}{}", "same ".repeat(200_000), "end ".repeat(9));
        let pieces = marked(&line(&old), &line(&new));
        let sizes: Vec<_> = pieces.iter().map(|p| (p.text.len(), p.differs)).collect();
        assert_eq!(sizes, [(1_000_000, false), (399_999, true), (37, false)]);
    }

    #[test]
    fn a_long_line_is_cut_around_its_first_difference() {
        let line = |word: &str| format!("{}{word} {}", "x ".repeat(500), "y ".repeat(500));
        let cut = windowed(marked(&line("old"), &line("new")), 100);
        let shown = text(&cut);
        assert!(
            shown.starts_with("…x x") && shown.ends_with("y …"),
            "{shown}"
        );
        assert!(shown.contains("x [old] y"), "{shown}");
        assert_eq!(shown.chars().count(), 100 + "…[]…".chars().count());
        let near = windowed(marked(&format!("old {}", "y ".repeat(500)), "new y"), 10);
        assert_eq!(text(&near), "old y y y …");
        let whole = windowed(marked("a b", "a c"), 3);
        assert_eq!(text(&whole), "a [b]");
    }

    #[test]
    fn what_could_not_be_seen_is_written_out() {
        let shown = |old, new| text(&visible(marked(old, new)));
        assert_eq!(shown("one  two", "one two"), "one [·]two");
        assert_eq!(shown("5\u{a0}km", "5 km"), "5[⟨U+00A0⟩]km");
        assert_eq!(shown("a\u{1b}[31m\u{9b}\r\u{7f}", ""), "a␛[31m\u{fffd}␍␡");
        assert_eq!(shown("abc \u{202e}def", "abc xyz"), "abc [⟨U+202E⟩def]");
        assert_eq!(shown("👩\u{200d}💻 x", "👩\u{200d}💻 x"), "👩\u{200d}💻 x");
    }
}
