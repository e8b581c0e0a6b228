//! The traces of a run: files cut into units of work, read by any number of threads.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};

use super::cells::{BatchBuilder, Row};
use super::discover::{SourceFile, SourceFormat};
use super::jsonl::Wanted;
use super::parquet_file::ParquetFile;
use super::quarantine::{Code, Quarantine, QuarantinedRows};
use super::schema::{ColumnMap, TraceColumns, canonical_schema};
use super::{TraceError, jsonl};
use crate::text::TextMode;

/// What to do about a file that can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBadFile {
    /// Stop: the run fails and writes nothing.
    #[default]
    Fail,
    /// Quarantine what can't be read and go on.
    Skip,
}

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

/// What to read and how.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which columns.
    pub columns: TraceColumns,
    /// Where they are.
    pub map: ColumnMap,
    /// What a JSON cell's text is.
    pub text_mode: TextMode,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// How large batches may become.
    pub limits: BatchLimits,
}

/// A trace's place in its source: which file, which row. Orders as files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextAt(u64);

impl TextAt {
    const ROW_BITS: u32 = 40;

    /// From the `position` column.
    pub fn from_position(position: u64) -> Self {
        Self(position)
    }

    pub(super) fn new(file: usize, row: u64) -> Self {
        Self((file as u64) << Self::ROW_BITS | row)
    }

    pub(super) fn file(self) -> usize {
        (self.0 >> Self::ROW_BITS) as usize
    }

    pub(super) fn row(self) -> u64 {
        self.0 & ((1 << Self::ROW_BITS) - 1)
    }
}

enum Opened {
    Parquet(Box<ParquetFile>),
    JsonLines,
}

/// A piece of work: a row group, or a whole JSON Lines file.
#[derive(Clone, Copy)]
struct Unit {
    file: usize,
    row_group: usize,
}

/// A trace's input and output; none where a cell is null.
pub type Texts = (Option<String>, Option<String>);

/// The opened files of a run.
pub struct TraceSource {
    files: Vec<(SourceFile, Opened)>,
    units: Vec<Unit>,
    next_unit: AtomicUsize,
    options: ReadOptions,
    schema: SchemaRef,
    quarantine: Arc<Quarantine>,
    rows_read: AtomicU64,
    empty_session_ids: AtomicU64,
    non_finite_signals: AtomicU64,
    /// The traces wanted; none wants all.
    only: Option<Arc<HashSet<String>>>,
    left_out: AtomicU64,
}

impl std::fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceSource")
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl TraceSource {
    /// Opens all files and checks their columns. Files that can't be opened, or lack a column, fail the call or go to
    /// quarantine, as the options say.
    ///
    /// # Errors
    /// [`TraceError`] naming the file and column.
    pub fn open(
        files: Vec<SourceFile>,
        options: ReadOptions,
        quarantine: Arc<Quarantine>,
    ) -> Result<Self, TraceError> {
        let mut opened = Vec::new();
        let mut units = Vec::new();
        for file in files {
            let handle = match file.format {
                SourceFormat::Parquet => {
                    ParquetFile::open(&file.path, &file.partition, &options.columns, &options.map)
                        .map(|opened| Opened::Parquet(Box::new(opened)))
                }
                SourceFormat::JsonLines => jsonl::check_columns(
                    &file.path,
                    &file.partition,
                    &options.columns,
                    &options.map,
                )
                .map(|()| Opened::JsonLines),
            };
            let handle = match (handle, options.on_bad_file) {
                (Err(error), OnBadFile::Skip) => {
                    let problem = error.of_file()?;
                    quarantine.add(QuarantinedRows {
                        file: file.path.clone(),
                        first_row: 0,
                        rows: 0,
                        column: String::new(),
                        code: Code::UnreadableFile,
                        reason: problem,
                    });
                    continue;
                }
                (handle, _) => handle?,
            };
            let at = opened.len();
            match &handle {
                Opened::Parquet(parquet) => {
                    units.extend((0..parquet.row_groups()).map(|row_group| Unit {
                        file: at,
                        row_group,
                    }));
                }
                Opened::JsonLines => units.push(Unit {
                    file: at,
                    row_group: 0,
                }),
            }
            opened.push((file, handle));
        }
        Ok(Self {
            files: opened,
            units,
            next_unit: AtomicUsize::new(0),
            schema: canonical_schema(&options.columns),
            options,
            quarantine,
            rows_read: AtomicU64::new(0),
            empty_session_ids: AtomicU64::new(0),
            non_finite_signals: AtomicU64::new(0),
            only: None,
            left_out: AtomicU64::new(0),
        })
    }

    /// The same source with the rows of these traces alone. Rows of others are checked and counted, and left out.
    #[must_use]
    pub fn keep_only(mut self, trace_ids: Arc<HashSet<String>>) -> Self {
        self.only = Some(trace_ids);
        self
    }

    /// Whether the user said what a column holds: plain text or documents.
    pub(super) fn is_declared(&self, canonical: &str) -> bool {
        self.options.map.is_text(canonical) || self.options.map.is_json(canonical)
    }

    /// Whether `output` is read for more than to be compared.
    pub(super) fn reads_output(&self) -> bool {
        self.options.columns.output
    }

    /// Whether no file has a row. Of JSON Lines files, lines of white space are none.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(|(file, opened)| match opened {
            Opened::Parquet(parquet) => {
                (0..parquet.row_groups()).all(|group| parquet.rows_of(group) == 0)
            }
            Opened::JsonLines => jsonl::is_blank(&file.path),
        })
    }

    /// The first rows of the files, as they are found, until `each` has seen enough. What can't be read is passed over:
    /// whoever reads all rows reports it.
    pub(super) fn peek(&self, mut each: impl FnMut(&SourceFile, u64, &Row<'_>) -> bool) {
        let (columns, map) = (&self.options.columns, &self.options.map);
        let names = columns.names(map);
        let wanted = Wanted::Values(&names);
        let mut signals = Vec::new();
        let mut go_on = true;
        for unit in &self.units {
            let Some((file, opened)) = self.files.get(unit.file) else {
                continue;
            };
            let _ = match opened {
                Opened::Parquet(parquet) => {
                    let bytes = self.options.limits.bytes;
                    parquet.read_row_group(unit.row_group, bytes, 64, |batch, first| {
                        for row in 0..batch.rows {
                            batch.signals(row, &mut signals);
                            go_on =
                                go_on && each(file, first + row as u64, &batch.row(row, &signals));
                        }
                        Ok(go_on)
                    })
                }
                Opened::JsonLines => jsonl::read_lines(&file.path, wanted, |number, line| {
                    if let Ok(line) = line {
                        go_on = each(file, number, &line.row(columns, map, &signals));
                    }
                    Ok(go_on)
                }),
            };
            if !go_on {
                return;
            }
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The files that were opened.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().map(|(file, _)| file)
    }

    /// Whether any file has a column of a wanted signal; JSON Lines files may have one in any row.
    pub fn has_any_signal(&self) -> bool {
        self.files.iter().any(|(_, opened)| match opened {
            Opened::Parquet(parquet) => parquet.has_any_signal(),
            Opened::JsonLines => true,
        })
    }

    /// Rows in all Parquet files as their metadata says; `None` if a JSON Lines file is among them.
    pub fn rows_expected(&self) -> Option<u64> {
        self.units
            .iter()
            .map(|unit| match &self.files[unit.file].1 {
                Opened::Parquet(parquet) => Some(parquet.rows_of(unit.row_group)),
                Opened::JsonLines => None,
            })
            .sum()
    }

    /// Rows seen so far, kept or quarantined.
    pub fn rows_read(&self) -> u64 {
        self.rows_read.load(Relaxed)
    }

    /// Rows left out because their traces are not wanted.
    pub fn rows_left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// Rows whose `session_id` was the empty string; they are read as standing alone.
    pub fn empty_session_ids(&self) -> u64 {
        self.empty_session_ids.load(Relaxed)
    }

    /// Signals that were NaN or infinite; they are read as missing.
    pub fn non_finite_signals(&self) -> u64 {
        self.non_finite_signals.load(Relaxed)
    }

    /// Reads units until none is left, shared among all threads that call this. `each` gets
    /// canonical batches and returns whether to go on.
    ///
    /// # Errors
    /// [`TraceError`] for a file that breaks in the middle, unless the options say to skip.
    pub fn read_shared(&self, mut each: impl FnMut(RecordBatch) -> bool) -> Result<(), TraceError> {
        while let Some(unit) = self.units.get(self.next_unit.fetch_add(1, Relaxed)) {
            if !self.read_unit(*unit, &mut each)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_unit(
        &self,
        unit: Unit,
        each: &mut impl FnMut(RecordBatch) -> bool,
    ) -> Result<bool, TraceError> {
        let (file, opened) = &self.files[unit.file];
        let mut pending = Pending {
            source: self,
            file: &file.path,
            builder: self.builder(),
            go_on: true,
        };
        let names = self.options.columns.names(&self.options.map);
        let mut signals = Vec::new();
        let seen = std::cell::Cell::new(0u64);
        let result = match opened {
            Opened::Parquet(parquet) => {
                let limits = self.options.limits;
                parquet.read_row_group(unit.row_group, limits.bytes, limits.rows, |batch, first| {
                    for row in 0..batch.rows {
                        let number = first + row as u64;
                        batch.signals(row, &mut signals);
                        let row = partitioned(batch.row(row, &signals), file, &self.options.map);
                        pending.push(row, TextAt::new(unit.file, number), number, each)?;
                        seen.set(seen.get() + 1);
                        if !pending.go_on {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                })
            }
            Opened::JsonLines => {
                jsonl::read_lines(&file.path, Wanted::Values(&names), |number, line| {
                    seen.set(seen.get() + 1);
                    let (columns, map) = (&self.options.columns, &self.options.map);
                    let line = line.and_then(|line| {
                        line.check_ids(map).map_err(|e| (Code::InvalidValue, e))?;
                        line.signals(columns, &mut signals)
                            .map_err(|e| (Code::InvalidValue, e))?;
                        Ok(line)
                    });
                    match line {
                        Err((code, reason)) => {
                            self.rows_read.fetch_add(1, Relaxed);
                            self.quarantine
                                .add_row(&file.path, number, "", code, reason);
                        }
                        Ok(line) => {
                            let row = partitioned(line.row(columns, map, &signals), file, map);
                            pending.push(row, TextAt::new(unit.file, number), number, each)?;
                        }
                    }
                    Ok(pending.go_on)
                })
            }
        };
        // What was read before a break is kept; the rest of the unit is quarantined.
        pending.flush(each)?;
        let go_on = pending.go_on;
        match result {
            Ok(()) => Ok(go_on),
            Err(TraceError::File { problem, .. })
                if self.options.on_bad_file == OnBadFile::Skip =>
            {
                let (first, rows) = match opened {
                    Opened::Parquet(p) => {
                        (p.first_row_of(unit.row_group), p.rows_of(unit.row_group))
                    }
                    Opened::JsonLines => (0, seen.get()),
                };
                let lost = rows.saturating_sub(seen.get());
                self.rows_read.fetch_add(lost, Relaxed);
                self.quarantine.add(QuarantinedRows {
                    file: file.path.clone(),
                    first_row: first + seen.get(),
                    rows: lost,
                    column: String::new(),
                    code: Code::UnreadableFile,
                    reason: problem,
                });
                Ok(go_on)
            }
            Err(e) => Err(e),
        }
    }

    fn builder(&self) -> BatchBuilder {
        BatchBuilder::new(
            Arc::clone(&self.schema),
            &self.options.columns,
            self.options.text_mode,
            self.only.clone(),
        )
    }

    /// Reads the texts of a few traces again, for people to look at.
    ///
    /// # Errors
    /// [`TraceError`] if a file has gone or changed since.
    pub fn texts_at(&self, places: &[TextAt]) -> Result<HashMap<TextAt, Texts>, TraceError> {
        let mut by_file: HashMap<usize, Vec<u64>> = HashMap::new();
        for place in places {
            by_file.entry(place.file()).or_default().push(place.row());
        }
        let ignored = Quarantine::default();
        let names = self.options.columns.names(&self.options.map);
        let wanted = Wanted::Values(&names);
        let mut builder = self.builder();
        for (at, mut rows) in by_file {
            rows.sort_unstable();
            rows.dedup();
            let Some((file, opened)) = self.files.get(at) else {
                continue;
            };
            let no_signals = vec![None; self.options.columns.signals.len()];
            match opened {
                Opened::Parquet(parquet) => parquet.read_rows(&rows, |batch, number| {
                    let row = partitioned(batch.row(0, &no_signals), file, &self.options.map);
                    builder.push(row, TextAt::new(at, number).0, &file.path, number, &ignored);
                    Ok(())
                })?,
                Opened::JsonLines => jsonl::read_lines(&file.path, wanted, |number, line| {
                    if let (Ok(line), true) = (line, rows.binary_search(&number).is_ok()) {
                        let row = line.row(&self.options.columns, &self.options.map, &no_signals);
                        builder.push(
                            partitioned(row, file, &self.options.map),
                            TextAt::new(at, number).0,
                            &file.path,
                            number,
                            &ignored,
                        );
                    }
                    Ok(rows.last().is_some_and(|last| number < *last))
                })?,
            }
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
        Ok((0..batch.num_rows())
            .map(|row| {
                (
                    TextAt(positions.value(row)),
                    (text("input", row), text("output", row)),
                )
            })
            .collect())
    }
}

/// A batch being filled.
struct Pending<'s> {
    source: &'s TraceSource,
    file: &'s Path,
    builder: BatchBuilder,
    go_on: bool,
}

impl Pending<'_> {
    fn push(
        &mut self,
        row: Row<'_>,
        place: TextAt,
        number: u64,
        each: &mut impl FnMut(RecordBatch) -> bool,
    ) -> Result<(), TraceError> {
        self.source.rows_read.fetch_add(1, Relaxed);
        self.builder
            .push(row, place.0, self.file, number, &self.source.quarantine);
        let limits = self.source.options.limits;
        if self.builder.rows() >= limits.rows || self.builder.bytes() >= limits.bytes {
            self.flush(each)?;
        }
        Ok(())
    }

    fn flush(&mut self, each: &mut impl FnMut(RecordBatch) -> bool) -> Result<(), TraceError> {
        let full = std::mem::replace(&mut self.builder, self.source.builder());
        self.source
            .empty_session_ids
            .fetch_add(full.notes.empty_session_ids, Relaxed);
        self.source
            .non_finite_signals
            .fetch_add(full.notes.non_finite_signals, Relaxed);
        self.source.left_out.fetch_add(full.notes.left_out, Relaxed);
        if full.rows() > 0 {
            let batch = full.finish().map_err(|e| TraceError::File {
                file: self.file.to_owned(),
                problem: format!("a batch could not be built: {e}"),
            })?;
            self.go_on &= each(batch);
        }
        Ok(())
    }
}

/// A row with the values that the file's folders carry in place of columns it does not have.
fn partitioned<'a>(mut row: Row<'a>, file: &'a SourceFile, map: &ColumnMap) -> Row<'a> {
    for (key, value) in &file.partition {
        let value = || Some(std::borrow::Cow::Borrowed(value.as_bytes()));
        for (canonical, cell) in [
            ("trace_id", &mut row.trace_id),
            ("session_id", &mut row.session_id),
            ("project_id", &mut row.project_id),
            ("name", &mut row.name),
            ("environment", &mut row.environment),
        ] {
            if cell.is_none() && map.column(canonical) == key {
                *cell = value();
            }
        }
    }
    row
}
