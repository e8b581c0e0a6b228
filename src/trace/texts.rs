//! A few traces, read again for people to look at: their texts, and their calls of tools.

use std::collections::HashMap;
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;

use super::TraceError;
use super::calls::{CalledTool, calls_in};
use super::quarantine::Quarantine;
use super::rows::{Found, RowAt, rows_of_file};
use super::schema::SPANS;
use super::source::TraceSource;

/// What a row says, to be shown.
#[derive(Clone, Debug, Default)]
pub struct RowToShow {
    /// The input's text; none where it is null, or not read by the run.
    pub input: Option<String>,
    /// The same of the output.
    pub output: Option<String>,
    /// Calls of tools, in their order in time; none where spans can't be read.
    pub calls: Vec<CalledTool>,
}

impl TraceSource {
    /// Reads a few rows again, in one pass over their files.
    ///
    /// # Errors
    /// [`TraceError`] if a file has gone or changed since.
    pub fn rows_to_show(
        &self,
        mut places: Vec<RowAt>,
    ) -> Result<HashMap<RowAt, RowToShow>, TraceError> {
        places.sort_unstable();
        places.dedup();
        let ignored = Quarantine::default();
        let mut builder = self.builder();
        let mut signals = Vec::new();
        let mut found: HashMap<RowAt, RowToShow> = HashMap::new();
        let spans = self.options.map.column(SPANS);
        for (at, file) in self.files.iter().enumerate() {
            let rows = rows_of_file(&places, at);
            let texts = file.texts();
            let each = &mut |number, row: Found<'_>| {
                if let Ok(row) = row {
                    let at = RowAt::new(at, number);
                    let cell = row.value(spans).and_then(Result::ok);
                    found.entry(at).or_default().calls = calls_in(cell, texts);
                    if let Ok(row) = row.of_trace(&mut signals) {
                        builder.push(row, at.position(), &file.source.path, number, &ignored);
                    }
                }
                Ok(true)
            };
            file.read_rows(&[spans], &rows, self.options.limits, each)?;
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
        for row in 0..batch.num_rows() {
            let at = RowAt::from_position(positions.value(row));
            let shown = found.entry(at).or_default();
            (shown.input, shown.output) = (text("input", row), text("output", row));
        }
        Ok(found)
    }

    /// Whether inputs are read, and whether outputs are.
    pub fn reads_texts(&self) -> (bool, bool) {
        let columns = &self.options.columns;
        (columns.input, columns.reads_output())
    }
}
