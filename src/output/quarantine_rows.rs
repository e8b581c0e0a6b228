//! The `quarantine` table.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use crate::output::table_writer::TableWriter;
use crate::output::{QuarantineSummary, RunDirectory, RunError};
use crate::text::{origin_of, with_origins};
use crate::trace::QuarantinedRows;

/// Writes the table: one row for consecutive rows of a file with one problem.
pub(crate) fn write(run: &RunDirectory, entries: &[QuarantinedRows]) -> Result<(), RunError> {
    let text = |name| Field::new(name, DataType::Utf8, false);
    let count = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![
        text("file"),
        count("first_row"),
        count("rows"),
        text("column"),
        text("code"),
        text("reason"),
    ]));
    let mut table = TableWriter::create(run.path(), "quarantine", Arc::clone(&schema))?;
    for entries in entries.chunks(8192) {
        let texts = |f: &dyn Fn(&QuarantinedRows) -> String| -> ArrayRef {
            Arc::new(entries.iter().map(|e| Some(f(e))).collect::<StringArray>())
        };
        let counts = |f: &dyn Fn(&QuarantinedRows) -> u64| -> ArrayRef {
            Arc::new(
                entries
                    .iter()
                    .map(|e| Some(f(e) as i64))
                    .collect::<Int64Array>(),
            )
        };
        let columns = vec![
            texts(&|e| origin_of(&e.file)),
            counts(&|e| e.first_row),
            counts(&|e| e.rows),
            texts(&|e| e.column.clone()),
            texts(&|e| e.code.name().to_owned()),
            texts(&|e| with_origins(&e.reason)),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|e| RunError::Plan(e.to_string()))?;
        table.write(&batch)?;
    }
    table.finish().map(|_| ())
}

/// The entries by code, for the summary.
pub(crate) fn summarise(entries: &[QuarantinedRows]) -> Vec<QuarantineSummary> {
    let mut summaries: Vec<QuarantineSummary> = Vec::new();
    for entry in entries {
        let code = entry.code.name();
        match summaries.iter_mut().find(|s| s.code == code) {
            Some(summary) => summary.rows += entry.rows,
            None => {
                let column = match entry.column.as_str() {
                    "" => String::new(),
                    column => format!(", column {column}"),
                };
                summaries.push(QuarantineSummary {
                    code: code.into(),
                    rows: entry.rows,
                    example: format!(
                        "{} row {}{column}: {}",
                        origin_of(&entry.file),
                        entry.first_row,
                        with_origins(&entry.reason)
                    ),
                });
            }
        }
    }
    summaries
}
