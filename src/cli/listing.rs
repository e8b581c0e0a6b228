//! Lists: as a table for people, or as JSON for programs.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{AnyError, outcome};
use crate::report::plain;
use crate::selection::format_instant;

/// Prints a value as JSON, or as the text that `text` makes.
pub(super) fn print<T: Serialize + ?Sized>(
    json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> Result<(), AnyError> {
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(value)?),
        false => text(),
    };
    Ok(outcome::print(&text)?)
}

/// Rows under headers; every column is as wide as its widest cell.
pub(super) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut lines = vec![header.map(str::to_owned)];
    lines.extend(rows.into_iter().map(|row| row.map(|cell| plain(&cell))));
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A score with 4 decimals, or a dash.
pub(super) fn score(score: Option<f64>) -> String {
    score.map_or_else(|| "–".to_owned(), |score| format!("{score:.4}"))
}

/// A time, or a dash.
pub(super) fn time(time: Option<DateTime<Utc>>) -> String {
    time.map_or_else(|| "–".to_owned(), format_instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headers() {
        let rows = vec![
            ["größe".to_owned(), "1".to_owned()],
            ["a\u{1b}[2J".to_owned(), "22".to_owned()],
        ];
        assert_eq!(
            table(["name", "n"], rows),
            "name   n\ngröße  1\na\u{fffd}[2J  22\n"
        );
    }
}
