//! What a line of Markdown is, by its first characters.

use crate::metric::comparison::is_space;

/// What starts an item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// `-`, `*` or `+`
    Bullet(u8),
    /// A number and its delimiter, `.` or `)`.
    Number(u32, u8),
}

impl Marker {
    pub(super) fn is_bullet(self) -> bool {
        matches!(self, Self::Bullet(_))
    }
}

/// The kinds of lines; a line is of the first kind that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Backticks or tildes, how many, and whether only blanks follow.
    Fence(u8, usize, bool),
    /// Blanks only.
    Empty,
    /// A line across the page.
    Break,
    /// A heading of this level.
    Heading(usize),
    /// Hashes that make no heading.
    BadHeading,
    /// An item, with its indent.
    Item(usize, Marker),
    /// A marker with a letter right behind it.
    BadItem,
    /// Anything else, with its indent.
    Other(usize),
}

/// The kind of a line, which has no line end.
pub(super) fn kind_of(line: &str) -> Line {
    let bytes = line.as_bytes();
    let blanks = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    let (leading, rest) = bytes.split_at_checked(blanks).unwrap_or((bytes, b""));
    let Some(first) = rest.first() else {
        return Line::Empty;
    };
    let indent: usize = leading
        .iter()
        .map(|byte| if *byte == b'\t' { 4 } else { 1 })
        .sum();
    // Only few lines of prose begin with any of these.
    if !matches!(
        first,
        b'`' | b'~' | b'-' | b'*' | b'_' | b'#' | b'+' | b'0'..=b'9'
    ) {
        return Line::Other(indent);
    }
    let is_near = blanks <= 3 && !leading.contains(&b'\t');
    if is_near
        && let Some(line) = fence(rest)
            .or_else(|| thematic_break(rest))
            .or_else(|| heading(rest))
    {
        return line;
    }
    item(rest, indent).unwrap_or(Line::Other(indent))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn run(bytes: &[u8], mark: u8) -> usize {
    bytes.iter().take_while(|byte| **byte == mark).count()
}

fn fence(rest: &[u8]) -> Option<Line> {
    let mark = *rest.first().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let count = run(rest, mark);
    let bare = rest.iter().skip(count).all(|byte| is_blank(*byte));
    (count >= 3).then_some(Line::Fence(mark, count, bare))
}

fn thematic_break(rest: &[u8]) -> Option<Line> {
    let mark = *rest
        .first()
        .filter(|mark| matches!(mark, b'-' | b'*' | b'_'))?;
    let only_marks = rest.iter().all(|byte| *byte == mark || is_blank(*byte));
    let count = rest.iter().filter(|byte| **byte == mark).count();
    (only_marks && count >= 3).then_some(Line::Break)
}

fn heading(rest: &[u8]) -> Option<Line> {
    let hashes = run(rest, b'#');
    let behind = rest.get(hashes..).unwrap_or_default();
    match (hashes, behind.first()) {
        (0, _) => None,
        (7.., _) => Some(Line::BadHeading),
        (_, None) => Some(Line::Heading(hashes)),
        (_, Some(byte)) if is_blank(*byte) => Some(Line::Heading(hashes)),
        // Other white space makes it neither.
        _ => {
            let behind = String::from_utf8_lossy(behind);
            (!behind.starts_with(is_space)).then_some(Line::BadHeading)
        }
    }
}

fn item(rest: &[u8], indent: usize) -> Option<Line> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (marker, behind) = match (digits, rest) {
        (0, [mark @ (b'-' | b'*' | b'+'), behind @ ..]) => (Marker::Bullet(*mark), behind),
        (1..=9, _) => {
            let (number, behind) = rest.split_at_checked(digits)?;
            let [delimiter @ (b'.' | b')'), behind @ ..] = behind else {
                return None;
            };
            let number = std::str::from_utf8(number).ok()?.parse().ok()?;
            (Marker::Number(number, *delimiter), behind)
        }
        _ => return None,
    };
    match behind.first() {
        None => Some(Line::Item(indent, marker)),
        Some(byte) if is_blank(*byte) => Some(Line::Item(indent, marker)),
        Some(byte) if byte.is_ascii_alphabetic() && marker != Marker::Bullet(b'*') => {
            Some(Line::BadItem)
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kind_that_fits_counts() {
        for (line, kind) in [
            ("", Line::Empty),
            (" \t ", Line::Empty),
            ("   ```rs", Line::Fence(b'`', 3, false)),
            ("~~~~ \t", Line::Fence(b'~', 4, true)),
            ("``", Line::Other(0)),
            ("    ~~~", Line::Other(4)),
            ("***", Line::Break),
            (" - - -", Line::Break),
            ("_ _\t_", Line::Break),
            ("- -", Line::Item(0, Marker::Bullet(b'-'))),
            ("    ---", Line::Other(4)),
            ("    - - -", Line::Item(4, Marker::Bullet(b'-'))),
            ("___x", Line::Other(0)),
            ("######", Line::Heading(6)),
            ("#\t", Line::Heading(1)),
            ("#!", Line::BadHeading),
            ("#é", Line::BadHeading),
            ("#\u{3000}x", Line::Other(0)),
            ("#######", Line::BadHeading),
            ("\t1. x", Line::Item(4, Marker::Number(1, b'.'))),
            (" 007)", Line::Item(1, Marker::Number(7, b')'))),
            (
                "999999999. x",
                Line::Item(0, Marker::Number(999_999_999, b'.')),
            ),
            ("1)x", Line::BadItem),
            ("*x", Line::Other(0)),
            ("  \u{a0}x", Line::Other(2)),
        ] {
            assert_eq!(kind_of(line), kind, "{line:?}");
        }
    }
}
