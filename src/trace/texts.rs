//! Texts of a few traces, read again for people to look at.

use std::collections::HashMap;
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;

use super::TraceError;
use super::quarantine::Quarantine;
use super::rows::{Found, RowAt, rows_of_file};
use super::source::TraceSource;

/// A trace's input and output; none where a cell is null.
pub type Texts = (Option<String>, Option<String>);

impl TraceSource {
    /// Reads the texts of a few traces again.
    ///
    /// # Errors
    /// [`TraceError`] if a file has gone or changed since.
    pub fn texts_at(&self, mut places: Vec<RowAt>) -> Result<HashMap<RowAt, Texts>, TraceError> {
        places.sort_unstable();
        places.dedup();
        let ignored = Quarantine::default();
        let mut builder = self.builder();
        let mut signals = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let rows = rows_of_file(&places, at);
            let each = &mut |number, row: Found<'_>| {
                if let Ok(row) = row
                    && let Ok(row) = row.of_trace(&mut signals)
                {
                    let position = RowAt::new(at, number).position();
                    builder.push(row, position, &file.source.path, number, &ignored);
                }
                Ok(true)
            };
            file.read_rows(&[], &rows, self.options.limits, each)?;
        }
        let batch = builder.finish().map_err(|e| TraceError::File {
            file: Path::new("texts of the report").into(),
            problem: e.to_string(),
        })?;
        let positions = batch.column(0).as_primitive::<UInt64Type>();
        let text = |column: &str, row: usize| {
            let column = batch.column_by_name(column)?.as_string_view();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let texts = |row: usize| (text("input", row), text("output", row));
        Ok((0..batch.num_rows())
            .map(|row| (RowAt::from_position(positions.value(row)), texts(row)))
            .collect())
    }
}
