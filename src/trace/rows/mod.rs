//! The one way to rows: files of either layout, read unit by unit, all rows or those of some numbers.
//!
//! A row has two faces: the canonical cells that traces are made of, and any cell by its column's name. Rows are found
//! again by their numbers: in Parquet by the row groups, in JSON Lines by marks that the first reading leaves.

mod found_batch;
mod json_lines;
mod line;
mod line_index;
mod open_files;
mod parquet_columns;
mod parquet_file;
mod place;
mod times;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use found_batch::FoundBatch;
use json_lines::JsonLines;
use line::{Line, Wanted};
pub use open_files::OnBadFile;
use parquet_file::ParquetFile;
pub(super) use place::rows_of_file;
pub use place::{RowAt, RowRun, push_row};

use super::TraceError;
use super::cells::Row;
use super::discover::{SourceFile, SourceFormat};
use super::format::NativeTexts;
use super::quarantine::Code;
use super::schema::{ColumnMap, SPANS, TraceColumns, missing_column};
use crate::text::Json;

/// How large a batch may become.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most rows.
    pub rows: usize,
    /// Bytes of text after which a batch is closed. A single larger cell is a batch of its own.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            rows: 8192,
            bytes: 16 << 20,
        }
    }
}

/// How much was read of a file, each time it was read.
#[derive(Debug, Default)]
pub(super) struct ReadCount {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCount {
    fn row(&self) {
        self.rows.fetch_add(1, Relaxed);
    }

    fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// What is read of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'r> {
    /// Columns to be read by name, beside those that the file was opened for.
    pub names: &'r [&'r str],
    /// The numbers of the rows wanted, ascending; none wants all.
    pub rows: Option<&'r [u64]>,
    /// How much is decoded at once.
    pub limits: BatchLimits,
}

impl<'r> Reading<'r> {
    /// All rows, with these columns by name.
    pub fn all(names: &'r [&'r str], limits: BatchLimits) -> Self {
        Self {
            names,
            rows: None,
            limits,
        }
    }
}

/// A file that is open.
pub(super) struct RowFile {
    /// Which file.
    pub source: SourceFile,
    /// The columns of traces that are read of every row; none of a table.
    traces: Option<(TraceColumns, ColumnMap)>,
    opened: Opened,
    count: ReadCount,
}

enum Opened {
    Parquet(Box<ParquetFile>),
    JsonLines(JsonLines),
}

impl std::fmt::Debug for RowFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowFile")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A row, or why it is none.
pub(super) type Found<'r> = Result<FoundRow<'r>, (Code, String)>;

/// Takes a row's number and the row; says whether to go on.
pub(super) type OnFound<'e> = dyn FnMut(u64, Found<'_>) -> Result<bool, TraceError> + 'e;

impl RowFile {
    /// Opens a file of traces and checks that it has these columns: of JSON Lines, in its first lines.
    ///
    /// # Errors
    /// [`TraceError`] naming the file and column.
    pub fn of_traces(
        source: SourceFile,
        columns: &TraceColumns,
        map: &ColumnMap,
    ) -> Result<Self, TraceError> {
        let opened = match source.format {
            SourceFormat::Parquet => {
                let parquet = ParquetFile::open(&source.path, &source.partition, columns, map)?;
                Opened::Parquet(Box::new(parquet))
            }
            SourceFormat::JsonLines => {
                let lines = JsonLines::new(&source.path);
                if let Some(present) = lines.names()? {
                    check_columns(&source, &present, columns, map)?;
                }
                Opened::JsonLines(lines)
            }
        };
        let traces = Some((columns.clone(), map.clone()));
        Ok(Self {
            source,
            traces,
            opened,
            count: ReadCount::default(),
        })
    }

    /// Opens a file whose columns are read by name alone.
    ///
    /// # Errors
    /// [`TraceError`] naming the file.
    pub fn of_table(source: SourceFile) -> Result<Self, TraceError> {
        let opened = match source.format {
            SourceFormat::Parquet => {
                Opened::Parquet(Box::new(ParquetFile::open_table(&source.path)?))
            }
            SourceFormat::JsonLines => Opened::JsonLines(JsonLines::new(&source.path)),
        };
        Ok(Self {
            source,
            traces: None,
            opened,
            count: ReadCount::default(),
        })
    }

    /// The schema of a Parquet file; JSON Lines have none.
    pub fn schema(&self) -> Option<&arrow::datatypes::Schema> {
        match &self.opened {
            Opened::Parquet(parquet) => Some(parquet.schema()),
            Opened::JsonLines(_) => None,
        }
    }

    /// The columns, as far as the file says: of JSON Lines, in its first lines. None of a file without rows.
    ///
    /// # Errors
    /// [`TraceError`] naming the file.
    pub fn column_names(&self) -> Result<Option<Vec<String>>, TraceError> {
        match &self.opened {
            Opened::Parquet(parquet) => {
                let fields = parquet.schema().fields().iter();
                Ok(Some(fields.map(|field| field.name().clone()).collect()))
            }
            Opened::JsonLines(lines) => lines.names(),
        }
    }

    /// Pieces that can be read on their own: row groups, or a whole JSON Lines file.
    pub fn units(&self) -> usize {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.row_groups(),
            Opened::JsonLines(_) => 1,
        }
    }

    /// The first row of a unit, and how many of its rows are read if that is known without reading it.
    pub fn rows_of(&self, unit: usize) -> (u64, Option<u64>) {
        match (&self.opened, &self.source.rows) {
            (Opened::Parquet(file), None) => (file.first_row_of(unit), Some(file.rows_of(unit))),
            (Opened::Parquet(file), Some(rows)) => {
                let first = file.first_row_of(unit);
                let before = |row: u64| rows.partition_point(|wanted| *wanted < row);
                let count = before(first + file.rows_of(unit)) - before(first);
                (first, Some(count as u64))
            }
            (Opened::JsonLines(_), None) => (0, None),
            (Opened::JsonLines(_), Some(rows)) => (0, Some(rows.len() as u64)),
        }
    }

    /// Whether there is no row. Of JSON Lines, lines of white space are none.
    pub fn is_empty(&self) -> bool {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.rows() == 0,
            Opened::JsonLines(lines) => lines.is_blank(),
        }
    }

    /// Whether the file has a column of the wanted signal of this number; JSON Lines may have one in any row.
    pub fn may_have_signal(&self, at: usize) -> bool {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.has_signal(at),
            Opened::JsonLines(_) => true,
        }
    }

    /// Whether the file says that cells of its texts are documents.
    pub fn has_documents(&self) -> bool {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.has_documents(),
            Opened::JsonLines(_) => false,
        }
    }

    /// Whether the file has a column of a wanted signal; JSON Lines may have one in any row.
    pub fn may_have_signals(&self) -> bool {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.has_any_signal(),
            Opened::JsonLines(_) => true,
        }
    }

    /// What the texts hold, where nightmill wrote the file from another format.
    pub fn texts(&self) -> Option<NativeTexts> {
        match &self.opened {
            Opened::Parquet(parquet) => parquet.texts(),
            Opened::JsonLines(_) => None,
        }
    }

    /// Rows decoded so far, each as often as it was.
    pub fn rows_decoded(&self) -> u64 {
        self.count.rows.load(Relaxed)
    }

    /// Bytes of lines passed so far, each as often as it was; 0 of Parquet.
    #[cfg(test)]
    pub fn bytes_passed(&self) -> u64 {
        self.count.bytes.load(Relaxed)
    }

    /// Reads the rows of these numbers, ascending.
    ///
    /// # Errors
    /// As [`RowFile::read_unit`].
    pub fn read_rows(
        &self,
        names: &[&str],
        rows: &[u64],
        limits: BatchLimits,
        each: &mut OnFound<'_>,
    ) -> Result<(), TraceError> {
        let reading = Reading {
            names,
            rows: Some(rows),
            limits,
        };
        for unit in 0..self.units() {
            if !self.read_unit(unit, reading, each)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads a unit, or those of its rows that are wanted. Returns whether `each` wants more.
    ///
    /// # Errors
    /// [`TraceError`] for a unit that breaks in the middle, after its rows before that; and what `each` returns.
    pub fn read_unit(
        &self,
        unit: usize,
        reading: Reading<'_>,
        each: &mut OnFound<'_>,
    ) -> Result<bool, TraceError> {
        let Reading { names, limits, .. } = reading;
        let of_file = self.source.rows.as_deref().map(Vec::as_slice);
        let rows = reading.rows.or(of_file);
        match &self.opened {
            Opened::Parquet(parquet) => {
                // Threads that read other units count too: once a unit is often enough.
                let mut decoded = 0;
                let each = &mut |number, batch: &FoundBatch<'_>, row| {
                    decoded += 1;
                    let cells = Cells::Batch(batch, row);
                    each(number, Ok(FoundRow { file: self, cells }))
                };
                let read = parquet.read_group(unit, names, rows, limits, each);
                self.count.rows.fetch_add(decoded, Relaxed);
                read
            }
            Opened::JsonLines(lines) => {
                let mut names = names.to_vec();
                if let Some((columns, map)) = &self.traces {
                    names.extend(columns.names(map));
                }
                let wanted = Wanted::Values(&names);
                lines.read(rows, wanted, &self.count, &mut |number, line| match &line {
                    Ok(line) => {
                        let cells = Cells::Line(line);
                        each(number, Ok(FoundRow { file: self, cells }))
                    }
                    Err(bad) => each(number, Err(bad.clone())),
                })
            }
        }
    }
}

/// A row as it was found.
pub(super) struct FoundRow<'r> {
    file: &'r RowFile,
    cells: Cells<'r>,
}

enum Cells<'r> {
    Batch(&'r FoundBatch<'r>, usize),
    Line(&'r Line),
}

impl FoundRow<'_> {
    /// A cell by its column's name: none where there is no such column, else its value or why it has none.
    pub fn value(&self, column: &str) -> Option<Result<Json, String>> {
        match self.cells {
            Cells::Batch(batch, row) => batch.value(column, row),
            Cells::Line(line) => Some(Ok(line.member(column).clone())),
        }
    }

    /// The canonical cells, with the values that the file's folders carry in place of columns it does not have.
    ///
    /// # Errors
    /// Why the row can't be one of a trace.
    pub fn of_trace<'a>(
        &'a self,
        signals: &'a mut Vec<Option<f64>>,
    ) -> Result<Row<'a>, (Code, String)> {
        let invalid = |problem| (Code::InvalidValue, problem);
        let Some((columns, map)) = &self.file.traces else {
            return Err(invalid("it is a row of a table".to_owned()));
        };
        let mut row = match self.cells {
            Cells::Batch(batch, row) => {
                batch.signals(row, signals);
                batch.row(row, signals)
            }
            Cells::Line(line) => {
                line.check_ids(map).map_err(invalid)?;
                line.signals(columns, signals).map_err(invalid)?;
                line.row(columns, map, signals)
            }
        };
        for (key, value) in &self.file.source.partition {
            for (canonical, cell) in [
                ("trace_id", &mut row.trace_id),
                ("session_id", &mut row.session_id),
                ("project_id", &mut row.project_id),
                ("name", &mut row.name),
                ("environment", &mut row.environment),
                ("release", &mut row.release),
                ("model", &mut row.model),
            ] {
                if cell.is_none() && map.column(canonical) == key {
                    *cell = Some(Cow::Borrowed(value.as_bytes()));
                }
            }
        }
        Ok(row)
    }
}

/// Refuses a file none of whose first lines has a wanted column.
fn check_columns(
    file: &SourceFile,
    present: &[String],
    wanted: &TraceColumns,
    map: &ColumnMap,
) -> Result<(), TraceError> {
    let needed = [
        ("trace_id", true),
        ("started_at", true),
        ("session_id", wanted.session_required),
        ("input", wanted.input),
        ("output", wanted.reads_output()),
        ("expected", wanted.compared),
        (SPANS, wanted.spans && wanted.spans_required),
    ];
    let in_folder = |column: &str| file.partition.iter().any(|(key, _)| key == column);
    for (canonical, _) in needed.into_iter().filter(|(_, needed)| *needed) {
        let column = map.column(canonical);
        if !present.iter().any(|name| name == column) && !in_folder(column) {
            return Err(missing_column(&file.path, column, canonical, present));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
