//! Texts in columns of a terminal, where some characters are two columns wide and some none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::report::plain;

use crate::suite::difference::Piece;

/// Columns of a text without control characters.
pub(super) fn width_of(text: &str) -> usize {
    text.width()
}

/// The text in exactly so many columns: cut with `…`, or filled with spaces.
pub(super) fn fitted(text: &str, width: usize) -> String {
    let text = plain(text);
    let mut fitted = match width_of(&text) > width {
        true => format!("{}…", beginning(&text, width.saturating_sub(1))),
        false => text,
    };
    let missing = width.saturating_sub(width_of(&fitted));
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// As much of the text as so many columns hold.
fn beginning(text: &str, width: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > width
    });
    end.map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// The words of a text in lines of at most so many columns, at most `most` lines; `…` ends the last where there is
/// more. Spaces and line ends of the text become one space, other control characters U+FFFD. Never empty.
pub(super) fn folded(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let word = plain(word);
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let space = usize::from(used > 0);
            let fits = used + space + width_of(rest) <= width;
            if !fits && used > 0 {
                if lines.len() == most {
                    return cut(lines, width);
                }
                lines.push(String::new());
                used = 0;
                continue;
            }
            // A word wider than a line is cut; at least one character a line, so that this ends.
            let mut part = if fits { rest } else { beginning(rest, width) };
            if part.is_empty() {
                part = rest
                    .get(..rest.chars().next().map_or(0, char::len_utf8))
                    .unwrap_or(rest);
            }
            if let Some(line) = lines.last_mut() {
                line.push_str(if space > 0 { " " } else { "" });
                line.push_str(part);
            }
            used += space + width_of(part);
            rest = rest.get(part.len()..).unwrap_or_default();
        }
    }
    lines
}

fn cut(mut lines: Vec<String>, width: usize) -> Vec<String> {
    if let Some(last) = lines.last_mut() {
        *last = format!("{}…", beginning(last, width.saturating_sub(1)));
    }
    lines
}

/// A line in rows of at most so many columns, broken where a row is full; at most `most` rows, `…` where there is more.
pub(super) fn rows(pieces: &[Piece], width: usize, most: usize) -> Vec<Vec<Piece>> {
    let mut rows = Vec::new();
    let (mut row, mut used): (Vec<Piece>, _) = (Vec::new(), 0);
    for piece in pieces {
        let differs = piece.differs;
        for c in piece.text.chars() {
            let columns = c.width().unwrap_or(0);
            if used + columns > width {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            used += columns;
            match row.last_mut() {
                Some(last) if last.differs == differs => last.text.push(c),
                _ => row.push(Piece {
                    text: c.into(),
                    differs,
                }),
            }
        }
    }
    rows.push(row);
    if rows.len() > most {
        rows.truncate(most);
        let ellipsis = Piece {
            text: "…".into(),
            differs: false,
        };
        if let Some(last) = rows.last_mut() {
            last.push(ellipsis);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_long_ones_cut() {
        assert_eq!(folded("one two\n three", 8, 9), ["one two", "three"]);
        assert_eq!(folded("abcdefgh ij", 3, 9), ["abc", "def", "gh", "ij"]);
        assert_eq!(folded("one two three", 5, 2), ["one", "two…"]);
        assert_eq!(folded("  ", 5, 2), [""]);
        assert_eq!(folded("a\u{1b}[2J b", 20, 1), ["a\u{fffd}[2J b"]);
        assert_eq!(folded("価格は百円", 4, 9), ["価格", "は百", "円"]);
        assert_eq!(folded("価格", 1, 9), ["価", "格"]);
    }

    #[test]
    fn cells_are_as_wide_as_they_should_be() {
        assert_eq!(fitted("ab", 4), "ab  ");
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert_eq!(fitted("価格は", 4), "価… ");
    }

    #[test]
    fn rows_keep_what_differs() {
        let piece = |text: &str, differs| Piece {
            text: text.into(),
            differs,
        };
        let line = [piece("abc", false), piece("def", true)];
        assert_eq!(
            rows(&line, 4, 9),
            [
                vec![piece("abc", false), piece("d", true)],
                vec![piece("ef", true)]
            ]
        );
        assert_eq!(
            rows(&line, 4, 1),
            [vec![
                piece("abc", false),
                piece("d", true),
                piece("…", false)
            ]]
        );
        assert_eq!(rows(&[], 4, 1), [vec![]]);
    }
}
