//! The table `replaced`: which rows of earlier runs a night takes over.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};

use super::Night;
use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError};

/// The name of the table.
pub(super) const REPLACED: &str = "replaced";

/// Writes the table: the sessions of earlier runs that are in this one, or that lost all of their traces to others, and
/// then the traces that stood alone. Sorted, so that equal nights have equal files.
///
/// # Errors
/// [`RunError`] if it can't be written.
pub(in crate::run) fn write(run: &RunDirectory, night: &Night) -> Result<(), RunError> {
    let text = |name, null| Field::new(name, DataType::Utf8, null);
    let schema = Arc::new(Schema::new(vec![
        text("session_id", true),
        text("project_id", true),
        text("trace_id", true),
        text("run", false),
    ]));
    let mut columns = [0; 4].map(|_| StringBuilder::new());
    let mut push = |cells: [Option<&str>; 4]| {
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.append_option(cell);
        }
    };
    let mut sessions: Vec<_> = night.sessions.earlier.iter().collect();
    sessions.sort_unstable_by(|(a, _), (b, _)| {
        let ids = a.session_id.cmp(&b.session_id);
        ids.then_with(|| a.project_id.cmp(&b.project_id))
    });
    for (key, earlier) in sessions {
        push([
            Some(&key.session_id),
            key.project_id.as_deref(),
            None,
            Some(&earlier.run),
        ]);
    }
    let mut alone: Vec<_> = night.alone.iter().collect();
    alone.sort_unstable();
    for (trace_id, of) in alone {
        push([None, None, Some(trace_id), Some(of)]);
    }
    let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef);
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())
        .map_err(|e| RunError::Plan(format!("the table {REPLACED} could not be built: {e}")))?;
    let mut table = TableWriter::create(run.path(), REPLACED, schema)?;
    table.write(&rows)?;
    table.finish()?;
    Ok(())
}
