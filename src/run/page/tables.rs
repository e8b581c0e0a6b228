//! Tables of a run that is being made, read back for its page.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection};

use crate::output::RunError;
use crate::output::table_writer::Parts;

/// Rows that are in memory at once.
const BATCH_ROWS: usize = 8192;

/// What is wrong with a file that was just written.
pub(super) fn unreadable(path: &Path, problem: impl ToString) -> RunError {
    RunError::Plan(format!(
        "`{}` can't be read back: {}",
        path.display(),
        problem.to_string()
    ))
}

/// The files of a table, in their order; none where the run has no such table.
pub(super) fn parts_of(run: &Path, table: &str) -> Result<Vec<PathBuf>, RunError> {
    let folder = run.join(table);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).map_err(|e| unreadable(&folder, e))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| Parts::of(path).is_some()).collect();
    paths.sort_unstable();
    Ok(paths)
}

/// The rows of a file that are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'r> {
    All,
    /// Ascending and apart.
    Ranges(&'r [Range<usize>]),
}

/// Hands on batches of these columns of a file, of which they have those that the file has. `each` gets the number of the
/// batch's first row among the rows read.
pub(super) fn each_batch(
    path: &Path,
    columns: Option<&[&str]>,
    rows: Rows<'_>,
    mut each: impl FnMut(usize, &RecordBatch) -> Result<(), String>,
) -> Result<(), RunError> {
    let failed = |e: String| unreadable(path, e);
    let file = File::open(path).map_err(|e| failed(e.to_string()))?;
    let mut reader =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| failed(e.to_string()))?;
    if let Some(columns) = columns {
        let mask = ProjectionMask::columns(reader.parquet_schema(), columns.iter().copied());
        reader = reader.with_projection(mask);
    }
    if let Rows::Ranges(ranges) = rows {
        let all = reader.metadata().file_metadata().num_rows().max(0) as usize;
        if ranges.last().is_some_and(|range| range.end > all) {
            return Err(failed("rows are missing".into()));
        }
        let wanted = RowSelection::from_consecutive_ranges(ranges.iter().cloned(), all);
        reader = reader.with_row_selection(wanted);
    }
    let reader = reader.with_batch_size(BATCH_ROWS).build();
    let mut first = 0;
    for batch in reader.map_err(|e| failed(e.to_string()))? {
        let batch = batch.map_err(|e| failed(e.to_string()))?;
        each(first, &batch).map_err(failed)?;
        first += batch.num_rows();
    }
    Ok(())
}

/// Ascending row numbers as ranges.
pub(super) fn ranges_of(rows: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}
