//! Tables that hold no traces: rows of named columns, from Parquet and JSON Lines.
//!
//! A table is read twice: once from end to end, to check its rows and note where they are, and then in pieces. A piece
//! is found by its place, in both formats, so that pieces may be read in any order.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::TraceError;
use super::discover::SourceFile;
use super::members::parsed;
use super::native;
use super::quarantine::{Code, Quarantine};
use super::rows::{
    BatchLimits, Found, FoundRow, OnBadFile, Reading, RowAt, RowFile, RowRun, rows_of_file,
};
use crate::text::Json;
use crate::text::nearest;

/// The columns of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableColumns<'c> {
    /// What the table is called in messages.
    pub table: &'c str,
    /// Those that are read.
    pub names: &'c [&'c str],
    /// Those that every file must have.
    pub required: &'c [&'c str],
    /// Those whose text is read as JSON, if it is an object or a list.
    pub structured: &'c [&'c str],
}

/// Why a row can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The column at fault; empty if it is the whole row.
    pub column: String,
    /// What kind of problem.
    pub code: Code,
    /// The problem in words.
    pub reason: String,
}

impl BadRow {
    /// A value that its column can't have.
    pub fn value(column: &str, reason: impl Into<String>) -> Self {
        Self {
            column: column.to_owned(),
            code: Code::InvalidValue,
            reason: reason.into(),
        }
    }
}

/// A row: the cells that are not null, by column.
#[derive(Debug)]
pub struct TableRow {
    /// Where it is.
    pub at: RowAt,
    /// Its cells, or why it can't be read.
    pub cells: Result<Map<String, Value>, BadRow>,
}

/// The opened files of a table.
pub struct TableSource<'c> {
    files: Vec<RowFile>,
    columns: TableColumns<'c>,
    on_bad_file: OnBadFile,
    quarantine: Arc<Quarantine>,
}

impl std::fmt::Debug for TableSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableSource")
            .field("table", &self.columns.table)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl<'c> TableSource<'c> {
    /// Opens files and checks their columns. A file that can't be opened, or lacks a column, fails the call or goes to
    /// quarantine, as `on_bad_file` says.
    ///
    /// # Errors
    /// [`TraceError`] naming the file and column.
    pub fn open(
        files: Vec<SourceFile>,
        columns: TableColumns<'c>,
        on_bad_file: OnBadFile,
        quarantine: Arc<Quarantine>,
    ) -> Result<Self, TraceError> {
        let open = |file| open(file, columns);
        Ok(Self {
            files: on_bad_file.open(files, &quarantine, open)?,
            columns,
            on_bad_file,
            quarantine,
        })
    }

    /// The files that were opened.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().map(|file| &file.source)
    }

    /// A row in words: `row 7 of turns.jsonl`.
    pub fn describe(&self, at: RowAt) -> String {
        format!("row {} of `{}`", at.row(), self.path(at).display())
    }

    fn path(&self, at: RowAt) -> &Path {
        let file = self.files.get(at.file());
        file.map_or(Path::new(""), |file| file.source.path.as_path())
    }

    /// Puts a row into the quarantine.
    pub fn set_aside(&self, at: RowAt, bad: &BadRow) {
        let reason = bad.reason.clone();
        self.quarantine
            .add_row(self.path(at), at.row(), &bad.column, bad.code, reason);
    }

    /// Reads all rows in the order of files. Returns how many there are, with those of parts that could not be read.
    ///
    /// # Errors
    /// [`TraceError`] for a file that breaks in the middle, unless bad files are skipped.
    pub fn scan(&self, mut each: impl FnMut(TableRow)) -> Result<u64, TraceError> {
        let mut total = 0;
        for (at, file) in self.files.iter().enumerate() {
            for unit in 0..file.units() {
                let (first, rows) = file.rows_of(unit);
                let (mut seen, mut next) = (0, first);
                let each = &mut |number, row: Found<'_>| {
                    seen += 1;
                    next = number + 1;
                    each(self.row(file, RowAt::new(at, number), row));
                    Ok(true)
                };
                let read = file.read_unit(unit, Reading::all(self.columns.names, LIMITS), each);
                match read {
                    Ok(_) => {}
                    Err(TraceError::File { problem, .. })
                        if self.on_bad_file == OnBadFile::Skip =>
                    {
                        let lost = rows.map_or(0, |rows| rows.saturating_sub(seen));
                        let path = &file.source.path;
                        self.quarantine.add_unreadable(path, next, lost, problem);
                        seen += lost;
                    }
                    Err(e) => return Err(e),
                }
                total += seen;
            }
        }
        Ok(total)
    }

    /// Reads the rows of some runs, in the order of files.
    ///
    /// # Errors
    /// [`TraceError`] for a file that has gone or changed since.
    pub fn read(
        &self,
        runs: impl IntoIterator<Item = RowRun>,
        mut each: impl FnMut(TableRow) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let mut places: Vec<RowAt> = runs.into_iter().flat_map(RowRun::places).collect();
        places.sort_unstable();
        for (at, file) in self.files.iter().enumerate() {
            let rows = rows_of_file(&places, at);
            let each = &mut |number, row: Found<'_>| {
                each(self.row(file, RowAt::new(at, number), row))?;
                Ok(true)
            };
            file.read_rows(self.columns.names, &rows, LIMITS, each)?;
        }
        Ok(())
    }

    fn row(&self, file: &RowFile, at: RowAt, row: Found<'_>) -> TableRow {
        let cells = match row {
            Ok(row) => self.cells(file, &row),
            Err((code, reason)) => Err(BadRow {
                column: String::new(),
                code,
                reason,
            }),
        };
        TableRow { at, cells }
    }

    /// The cells of a row that are not null. A column that the file lacks may be in the names of its folders.
    fn cells(&self, file: &RowFile, row: &FoundRow<'_>) -> Result<Map<String, Value>, BadRow> {
        let mut cells = Map::new();
        for name in self.columns.names {
            let found = row.value(name).unwrap_or(Ok(Json::Null));
            let found = found.map_err(|reason| BadRow {
                column: (*name).to_owned(),
                code: Code::InvalidUtf8,
                reason,
            })?;
            let found = match file.schema() {
                Some(_) => without_nulls(found),
                None => found,
            };
            let found = match found {
                Json::Null => {
                    let in_folder = file.source.partition.iter().find(|(key, _)| key == name);
                    match in_folder {
                        Some((_, value)) => Value::String(value.clone()),
                        None => continue,
                    }
                }
                // Writers that know no null in columns of numbers write NaN, and whole numbers as floats.
                Json::Float(literal) => match literal.parse::<f64>() {
                    Ok(number) if number.is_nan() => continue,
                    Ok(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                        Value::from(number as i64)
                    }
                    _ => Json::Float(literal).into(),
                },
                Json::String(text) if self.columns.structured.contains(name) => parsed(text),
                other => other.into(),
            };
            cells.insert((*name).to_owned(), found);
        }
        Ok(cells)
    }
}

/// Rows of tables are small, but for transcripts in one cell.
const LIMITS: BatchLimits = BatchLimits {
    rows: 64,
    bytes: 16 << 20,
};

/// Opens a file and checks its columns.
fn open(file: SourceFile, columns: TableColumns<'_>) -> Result<RowFile, TraceError> {
    let file = RowFile::of_table(file)?;
    if let Some(present) = file.column_names()? {
        check_columns(&file.source, columns, &present)?;
    }
    let fields = file.schema().map(|schema| schema.fields().iter());
    let fields: Vec<_> = fields.into_iter().flatten().collect();
    for name in columns.names {
        let mut found = fields.iter().filter(|field| field.name() == name);
        let problem = match (found.next(), found.next()) {
            (_, Some(_)) => {
                "is there more than once; write the file with distinct names".to_owned()
            }
            (Some(field), None) if !native::is_native(field.data_type()) => {
                format!("has type {}, which can't be read", field.data_type())
            }
            _ => continue,
        };
        return Err(TraceError::ColumnType {
            file: file.source.path.clone(),
            column: (*name).to_owned(),
            problem,
        });
    }
    Ok(file)
}

fn check_columns(
    file: &SourceFile,
    columns: TableColumns<'_>,
    present: &[String],
) -> Result<(), TraceError> {
    let known = |name: &str| {
        let in_folder = file.partition.iter().any(|(key, _)| key == name);
        in_folder || present.iter().any(|column| column == name)
    };
    let missing = columns.required.iter().find(|name| !known(name));
    let Some(column) = missing else { return Ok(()) };
    let listed: Vec<&str> = present.iter().map(String::as_str).take(30).collect();
    Err(TraceError::MissingColumn {
        file: file.path.clone(),
        column: (*column).to_owned(),
        hint: format!(
            "a table of {} needs it; the file has {}{}",
            columns.table,
            listed.join(", "),
            nearest(column, listed.iter().copied())
        ),
    })
}

/// The same without null members of structs: every struct of a Parquet column has all members of the column's type, so
/// that null says that a member is not there.
fn without_nulls(value: Json) -> Json {
    match value {
        Json::Array(items) => Json::Array(items.into_iter().map(without_nulls).collect()),
        Json::Object(members) => {
            let members = members
                .into_iter()
                .filter(|(_, value)| *value != Json::Null);
            Json::Object(members.map(|(k, v)| (k, without_nulls(v))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
