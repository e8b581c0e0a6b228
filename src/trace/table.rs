//! Tables that hold no traces: rows of named columns, from Parquet and JSON Lines.
//!
//! A table is read twice: once from end to end, to check its rows and note where they are, and then in pieces. A piece
//! is found by its place, in both formats, so that pieces may be read in any order.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::TraceError;
use super::discover::{SourceFile, SourceFormat};
use super::document::parsed;
use super::jsonl::{self, Line, LineAt, Wanted};
use super::native;
use super::parquet_file::{Cells, ParquetFile};
use super::quarantine::{Code, Quarantine, QuarantinedRows};
use super::source::OnBadFile;
use crate::text::Json;
use crate::text::nearest;

/// The columns of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableColumns {
    /// What the table is called in messages.
    pub table: &'static str,
    /// Those that are read.
    pub names: &'static [&'static str],
    /// Those that every file must have.
    pub required: &'static [&'static str],
    /// Those whose text is read as JSON, if it is an object or a list.
    pub structured: &'static [&'static str],
}

/// Where a row is. Orders as files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowAt {
    file: usize,
    row: u64,
    /// Where its line begins; 0 in Parquet.
    byte: u64,
}

/// Rows of a file that follow each other. Orders as files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRun {
    first: RowAt,
    rows: u64,
}

impl RowRun {
    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn is_followed_by(&self, at: RowAt) -> bool {
        (self.first.file, self.first.row + self.rows) == (at.file, at.row)
    }
}

/// Adds a row to a list of runs. Rows come in the order of the file.
pub fn push_row(runs: &mut Vec<RowRun>, at: RowAt) {
    match runs.last_mut() {
        Some(last) if last.is_followed_by(at) => last.rows += 1,
        _ => runs.push(RowRun { first: at, rows: 1 }),
    }
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
pub struct TableSource {
    /// Parquet files are open; others are JSON Lines.
    files: Vec<(SourceFile, Option<ParquetFile>)>,
    columns: TableColumns,
    on_bad_file: OnBadFile,
    quarantine: Arc<Quarantine>,
}

impl std::fmt::Debug for TableSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableSource")
            .field("table", &self.columns.table)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl TableSource {
    /// Opens files and checks their columns. A file that can't be opened, or lacks a column, fails the call or goes to
    /// quarantine, as `on_bad_file` says.
    ///
    /// # Errors
    /// [`TraceError`] naming the file and column.
    pub fn open(
        files: Vec<SourceFile>,
        columns: TableColumns,
        on_bad_file: OnBadFile,
        quarantine: Arc<Quarantine>,
    ) -> Result<Self, TraceError> {
        let mut source = Self {
            files: Vec::new(),
            columns,
            on_bad_file,
            quarantine,
        };
        for file in files {
            let opened = match file.format {
                SourceFormat::Parquet => source.open_parquet(&file).map(Some),
                SourceFormat::JsonLines => source.check_lines(&file).map(|()| None),
            };
            match opened {
                Ok(opened) => source.files.push((file, opened)),
                Err(e) if on_bad_file == OnBadFile::Skip => {
                    source.unreadable(&file.path, 0, 0, e.of_file()?);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(source)
    }

    fn open_parquet(&self, file: &SourceFile) -> Result<ParquetFile, TraceError> {
        let parquet = ParquetFile::open_table(&file.path)?;
        let fields = parquet.schema().fields();
        let present: Vec<String> = fields.iter().map(|f| f.name().clone()).collect();
        self.check_columns(file, &present)?;
        for name in self.columns.names {
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
                file: file.path.clone(),
                column: (*name).to_owned(),
                problem,
            });
        }
        Ok(parquet)
    }

    /// Looks at the first lines together: any of them may leave out what is null in it.
    fn check_lines(&self, file: &SourceFile) -> Result<(), TraceError> {
        const LINES: usize = 1000;
        let mut present: Vec<String> = Vec::new();
        let mut lines = 0;
        jsonl::read_lines(&file.path, Wanted::Names, |_, line| {
            if let Ok(line) = line {
                lines += 1;
                for name in line.names() {
                    if !present.iter().any(|known| known == name) {
                        present.push(name.to_owned());
                    }
                }
            }
            Ok(lines < LINES)
        })?;
        match lines {
            0 => Ok(()),
            _ => self.check_columns(file, &present),
        }
    }

    fn check_columns(&self, file: &SourceFile, present: &[String]) -> Result<(), TraceError> {
        let known = |name: &str| {
            let in_folder = file.partition.iter().any(|(key, _)| key == name);
            in_folder || present.iter().any(|column| column == name)
        };
        let missing = self.columns.required.iter().find(|name| !known(name));
        let Some(column) = missing else { return Ok(()) };
        let listed: Vec<&str> = present.iter().map(String::as_str).take(30).collect();
        Err(TraceError::MissingColumn {
            file: file.path.clone(),
            column: (*column).to_owned(),
            hint: format!(
                "a table of {} needs it; the file has {}{}",
                self.columns.table,
                listed.join(", "),
                nearest(column, listed.iter().copied())
            ),
        })
    }

    /// The files that were opened.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().map(|(file, _)| file)
    }

    /// A row in words: `row 7 of turns.jsonl`.
    pub fn describe(&self, at: RowAt) -> String {
        format!("row {} of `{}`", at.row, self.path(at).display())
    }

    fn path(&self, at: RowAt) -> &Path {
        let file = self.files.get(at.file);
        file.map_or(Path::new(""), |(file, _)| file.path.as_path())
    }

    /// Puts a row into the quarantine.
    pub fn set_aside(&self, at: RowAt, bad: &BadRow) {
        let reason = bad.reason.clone();
        self.quarantine
            .add_row(self.path(at), at.row, &bad.column, bad.code, reason);
    }

    fn unreadable(&self, path: &Path, first_row: u64, rows: u64, reason: String) {
        self.quarantine.add(QuarantinedRows {
            file: path.to_owned(),
            first_row,
            rows,
            column: String::new(),
            code: Code::UnreadableFile,
            reason,
        });
    }

    /// Reads all rows in the order of files. Returns how many there are, with those of parts that could not be read.
    ///
    /// # Errors
    /// [`TraceError`] for a file that breaks in the middle, unless bad files are skipped.
    pub fn scan(&self, mut each: impl FnMut(TableRow)) -> Result<u64, TraceError> {
        let mut total = 0;
        for (at, (file, parquet)) in self.files.iter().enumerate() {
            let (mut rows, mut next) = (0, 0);
            let read = self.read_piece(at, None, &mut |row| {
                rows += 1;
                next = row.at.row + 1;
                each(row);
            });
            match read {
                Ok(()) => {}
                Err(TraceError::File { problem, .. }) if self.on_bad_file == OnBadFile::Skip => {
                    let whole = parquet.as_ref().map_or(rows, ParquetFile::rows);
                    let lost = whole.saturating_sub(rows);
                    self.unreadable(&file.path, next, lost, problem);
                    rows += lost;
                }
                Err(e) => return Err(e),
            }
            total += rows;
        }
        Ok(total)
    }

    /// Reads the rows of some runs, in the order of files.
    ///
    /// # Errors
    /// [`TraceError`] for a file that has gone or changed since.
    pub fn read(
        &self,
        mut runs: Vec<RowRun>,
        mut each: impl FnMut(TableRow),
    ) -> Result<(), TraceError> {
        runs.sort_unstable();
        // Runs that touch are one piece: a file in the right order is read in one go.
        let mut pieces: Vec<RowRun> = Vec::new();
        for run in runs {
            match pieces.last_mut() {
                Some(last) if last.is_followed_by(run.first) => last.rows += run.rows,
                _ => pieces.push(run),
            }
        }
        let mut rest = pieces.as_slice();
        while let Some(first) = rest.first() {
            let file = first.first.file;
            let count = rest.partition_point(|run| run.first.file <= file);
            let (of_file, others) = rest.split_at(count);
            self.read_piece(file, Some(of_file), &mut each)?;
            rest = others;
        }
        Ok(())
    }

    /// Reads runs of one file, or all of it.
    fn read_piece(
        &self,
        file: usize,
        runs: Option<&[RowRun]>,
        each: &mut dyn FnMut(TableRow),
    ) -> Result<(), TraceError> {
        let Some((source, parquet)) = self.files.get(file) else {
            return Ok(());
        };
        let Some(parquet) = parquet else {
            let whole = RowRun {
                first: RowAt {
                    file,
                    row: 0,
                    byte: 0,
                },
                rows: u64::MAX,
            };
            return runs
                .unwrap_or(&[whole])
                .iter()
                .try_for_each(|run| self.read_lines(source, *run, each));
        };
        let rows: Option<Vec<u64>> = runs.map(|runs| {
            let rows = runs.iter().map(|r| r.first.row..r.first.row + r.rows);
            rows.flatten().collect()
        });
        let row = |row: u64, value: &Cells<'_>| {
            let cells = self.cells(source, &mut |column| match value(column) {
                None => Ok(Json::Null),
                Some(value) => value.map(without_nulls),
            });
            let at = RowAt { file, row, byte: 0 };
            each(TableRow { at, cells });
            ControlFlow::Continue(())
        };
        let flow = parquet.read_values(self.columns.names, rows.as_deref(), row, Err);
        flow.map(|_| ())
    }

    fn read_lines(
        &self,
        source: &SourceFile,
        run: RowRun,
        each: &mut dyn FnMut(TableRow),
    ) -> Result<(), TraceError> {
        let RowAt { file, row, byte } = run.first;
        let mut left = run.rows;
        jsonl::read_lines_from(
            &source.path,
            LineAt { number: row, byte },
            Wanted::Values(self.columns.names),
            |line_at, line| {
                let cells = match line {
                    Ok(line) => self.cells_of_line(source, &line),
                    Err((code, reason)) => Err(BadRow {
                        column: String::new(),
                        code,
                        reason,
                    }),
                };
                let at = RowAt {
                    file,
                    row: line_at.number,
                    byte: line_at.byte,
                };
                each(TableRow { at, cells });
                left -= 1;
                Ok(left > 0)
            },
        )
    }

    fn cells_of_line(
        &self,
        source: &SourceFile,
        line: &Line,
    ) -> Result<Map<String, Value>, BadRow> {
        self.cells(source, &mut |column| Ok(line.member(column).clone()))
    }

    /// The cells of a row that are not null. A column that the file lacks may be in the names of its folders.
    fn cells(
        &self,
        source: &SourceFile,
        value: &mut dyn FnMut(&str) -> Result<Json, String>,
    ) -> Result<Map<String, Value>, BadRow> {
        let mut cells = Map::new();
        for name in self.columns.names {
            let found = value(name).map_err(|reason| BadRow {
                column: (*name).to_owned(),
                code: Code::InvalidUtf8,
                reason,
            })?;
            let found = match found {
                Json::Null => {
                    let in_folder = source.partition.iter().find(|(key, _)| key == name);
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
