//! Lists: as a table for people, or as JSON for programs.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{AnyError, outcome};
use crate::report::plain;
use crate::text::format_instant;

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

/// Rows under headers; every column is as wide as its widest cell, and on a terminal no wider than fits there.
pub(super) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows = rows
        .into_iter()
        .map(|row| row.map(|cell| plain(&cell)).to_vec());
    laid_out(&header, rows.collect(), terminal_width())
}

/// The width of the terminal that standard output is, if it is one.
pub(super) fn terminal_width() -> Option<u16> {
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return None;
    }
    Some(terminal_size::terminal_size().map_or(80, |(width, _)| width.0))
}

/// A table of at most so many characters a line; cells that don't fit go on in the next one.
pub(super) fn laid_out(header: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_header(header);
    if let Some(width) = width {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table.add_rows(rows);
    let columns = table.column_count();
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at + 1 == columns { 0 } else { 2 }));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
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
    fn a_table_is_no_wider_than_it_may_be() {
        let row = vec![
            "a name of some length".to_owned(),
            "x".repeat(60),
            "end".to_owned(),
        ];
        let text = laid_out(&["name", "long", "last"], vec![row.clone()], Some(40));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert_eq!(text.matches('x').count(), 60);
        let wide = laid_out(&["name", "long", "last"], vec![row], None);
        assert_eq!(wide.lines().count(), 2);
    }

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
