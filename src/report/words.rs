//! Words and numbers as the terminal shows them.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The most characters of a text of data in a line for people.
const MOST_CHARACTERS: usize = 200;

/// Writes 1234567 as 1,234,567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and what is counted: `1 batch`, `2,000 batches`. `one` and `many` may go on with what is said of it.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let what = if count == 1 { one } else { many };
    format!("{} {what}", grouped(count))
}

/// A text of data that the terminal only shows: control characters, which would steer it, become U+FFFD.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The same of the first 200 characters, with `…` where there are more.
pub fn brief(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => plain(text),
        Some((end, _)) => format!("{}…", plain(&text[..end])),
    }
}

/// The same in at most so many columns of a terminal, with `…` where it is longer.
pub(super) fn cut(text: &str, columns: usize) -> String {
    let text = brief(text);
    if text.width() <= columns {
        return text;
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        // The last column is for the mark.
        if used + 1 > columns {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// Items with commas between them, in lines of at most so many columns. What does not fit into `most` lines is counted in the
/// last of them.
pub(super) fn in_lines(items: &[String], columns: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let comma = if at + 1 < items.len() { "," } else { "" };
        let item = format!("{item}{comma}");
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if line.width() + 1 + item.width() <= columns => {
                line.push(' ');
                line.push_str(&item);
            }
            Some(line) if full => {
                let left = grouped((items.len() - at) as u64);
                *line = format!("{} and {left} more", line.trim_end_matches(','));
                break;
            }
            _ => lines.push(item),
        }
    }
    lines
}

/// What drifted in a night, a line each; `untold` are the metrics of which nothing can be told.
pub fn drift(found: &[impl AsRef<str>], untold: &[impl AsRef<str>]) -> String {
    let shown = |lines: &[&str], between: &str| {
        let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
        lines.join(between)
    };
    let found: Vec<&str> = found.iter().map(AsRef::as_ref).collect();
    let untold: Vec<&str> = untold.iter().map(AsRef::as_ref).collect();
    let mut text = match found.is_empty() {
        true => "no drift".to_owned(),
        false => format!("drift:\n  {}", shown(&found, "\n  ")),
    };
    if !untold.is_empty() {
        let joint = if found.is_empty() { "; " } else { "\n" };
        text.push_str(&format!("{joint}no verdict on {}", shown(&untold, ", ")));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_one_is_one() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        let batches = |count| counted(count, "batch", "batches");
        assert_eq!(batches(0), "0 batches");
        assert_eq!(batches(1), "1 batch");
        assert_eq!(batches(2000), "2,000 batches");
    }

    #[test]
    fn no_drift_says_of_what_nothing_can_be_told() {
        const NONE: [&str; 0] = [];
        assert_eq!(drift(&NONE, &NONE), "no drift\n");
        assert_eq!(drift(&NONE, &["a", "b"]), "no drift; no verdict on a, b\n");
        let found = drift(&["a fell", "b\u{1b} fell"], &["c"]);
        assert_eq!(
            found,
            "drift:\n  a fell\n  b\u{fffd} fell\nno verdict on c\n"
        );
    }

    #[test]
    fn texts_are_cut_by_columns() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("ab cdefg", 4), "ab…");
        // Wide characters take two columns.
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("a\u{1b}b", 9), "a\u{fffd}b");
    }

    #[test]
    fn what_does_not_fit_into_lines_is_counted() {
        let items = ["one", "two", "three", "four", "five"].map(str::to_owned);
        assert_eq!(in_lines(&items, 80, 2), ["one, two, three, four, five"]);
        assert_eq!(
            in_lines(&items, 9, 9),
            ["one, two,", "three,", "four,", "five"]
        );
        assert_eq!(in_lines(&items, 9, 2), ["one, two,", "three and 2 more"]);
        assert!(in_lines(&[], 9, 2).is_empty());
    }

    #[test]
    fn control_characters_are_replaced_and_long_texts_cut() {
        assert_eq!(plain("a\x1b[31m\n\u{9b}"), "a\u{fffd}[31m\u{fffd}\u{fffd}");
        let text = "é".repeat(200);
        assert_eq!(brief(&text), text);
        assert_eq!(brief(&format!("{text}\n")), format!("{text}…"));
        assert_eq!(brief("a\n"), "a\u{fffd}");
    }
}
