//! The traces of a run: files cut into units of work, read by any number of threads.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use super::TraceError;
use super::cells::{BatchBuilder, Row};
use super::discover::SourceFile;
use super::quarantine::Quarantine;
use super::rows::{BatchLimits, Found, OnBadFile, Reading, RowAt, RowFile};
use super::schema::{ColumnMap, TraceColumns, canonical_schema};
use crate::text::TextMode;

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

/// A piece of work: a file and one of its units.
#[derive(Clone, Copy)]
struct Unit {
    file: usize,
    unit: usize,
}

/// What is counted while files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Rows, kept or quarantined.
    pub rows: u64,
    /// Rows decoded, each as often as it was.
    pub decoded: u64,
    /// Rows whose traces are not wanted.
    pub left_out: u64,
    /// Rows whose `session_id` was the empty string.
    pub empty_session_ids: u64,
    /// Traces whose spans can't be read, where that is no reason to set them aside.
    pub unreadable_spans: u64,
    /// Signals that were NaN or infinite.
    pub non_finite_signals: u64,
}

impl ReadCounts {
    /// Adds others.
    pub fn add(&mut self, others: &Self) {
        self.rows += others.rows;
        self.decoded += others.decoded;
        self.left_out += others.left_out;
        self.empty_session_ids += others.empty_session_ids;
        self.unreadable_spans += others.unreadable_spans;
        self.non_finite_signals += others.non_finite_signals;
    }
}

/// The opened files of a run.
pub struct TraceSource {
    pub(super) files: Vec<RowFile>,
    units: Vec<Unit>,
    next_unit: AtomicUsize,
    /// The number of the first file, where it is one of several of a run.
    first: usize,
    pub(super) options: ReadOptions,
    schema: SchemaRef,
    quarantine: Arc<Quarantine>,
    rows_read: AtomicU64,
    decoded_elsewhere: AtomicU64,
    empty_session_ids: AtomicU64,
    unreadable_spans: AtomicU64,
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
        let open = |file| RowFile::of_traces(file, &options.columns, &options.map);
        let files = options.on_bad_file.open(files, &quarantine, open)?;
        let units = files.iter().enumerate();
        let units =
            units.flat_map(|(at, file)| (0..file.units()).map(move |unit| Unit { file: at, unit }));
        Ok(Self {
            units: units.collect(),
            files,
            next_unit: AtomicUsize::new(0),
            first: 0,
            schema: canonical_schema(&options.columns),
            options,
            quarantine,
            rows_read: AtomicU64::new(0),
            decoded_elsewhere: AtomicU64::new(0),
            empty_session_ids: AtomicU64::new(0),
            unreadable_spans: AtomicU64::new(0),
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

    /// The same source, whose first file is the one of this number of a run. Places of rows say so.
    #[must_use]
    pub fn numbered(mut self, first: usize) -> Self {
        self.first = first;
        self
    }

    /// What can be read on its own: of each file its pieces, with their rows where they are known without reading.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, usize, Option<u64>)> {
        let rows = |unit: &Unit| self.files[unit.file].rows_of(unit.unit).1;
        self.units
            .iter()
            .map(move |unit| (unit.file, unit.unit, rows(unit)))
    }

    /// Reads one piece. `each` gets canonical batches and returns whether to go on; returns whether it wants more.
    ///
    /// # Errors
    /// As those of [`TraceSource::read_shared`]; if there is no such piece.
    pub fn read_piece(
        &self,
        file: usize,
        unit: usize,
        mut each: impl FnMut(RecordBatch) -> bool,
    ) -> Result<bool, TraceError> {
        let known = self.files.get(file);
        match known.filter(|known| unit < known.units()) {
            Some(_) => self.read_unit(Unit { file, unit }, &mut each),
            None => Err(TraceError::File {
                file: known
                    .map(|known| known.source.path.clone())
                    .unwrap_or_default(),
                problem: format!("has no row group {unit} any more"),
            }),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> ReadCounts {
        ReadCounts {
            rows: self.rows_read(),
            decoded: self.rows_decoded(),
            left_out: self.rows_left_out(),
            empty_session_ids: self.empty_session_ids(),
            unreadable_spans: self.unreadable_spans(),
            non_finite_signals: self.non_finite_signals(),
        }
    }

    /// Adds what somebody else has counted, who has read a part of the files.
    pub fn add_counts(&self, counts: &ReadCounts) {
        for (count, more) in [
            (&self.rows_read, counts.rows),
            (&self.decoded_elsewhere, counts.decoded),
            (&self.left_out, counts.left_out),
            (&self.empty_session_ids, counts.empty_session_ids),
            (&self.unreadable_spans, counts.unreadable_spans),
            (&self.non_finite_signals, counts.non_finite_signals),
        ] {
            count.fetch_add(more, Relaxed);
        }
    }

    /// Whether no file has a row.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(RowFile::is_empty)
    }

    /// The first rows of the files, as they are found, until `each` has seen enough. What can't be read is passed over:
    /// whoever reads all rows reports it.
    pub(super) fn peek(&self, mut each: impl FnMut(&SourceFile, u64, &Row<'_>) -> bool) {
        let limits = BatchLimits {
            rows: 64,
            ..self.options.limits
        };
        let mut signals = Vec::new();
        for unit in &self.units {
            let file = &self.files[unit.file];
            let each = &mut |number, row: Found<'_>| {
                let Ok(row) = row else { return Ok(true) };
                let row = row.of_trace(&mut signals);
                Ok(row.map_or(true, |row| each(&file.source, number, &row)))
            };
            if let Ok(false) = file.read_unit(unit.unit, Reading::all(&[], limits), each) {
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
        self.files.iter().map(|file| &file.source)
    }

    /// Whether any file has a column of a wanted signal; JSON Lines files may have one in any row.
    pub fn has_any_signal(&self) -> bool {
        self.files.iter().any(RowFile::may_have_signals)
    }

    /// Whether any file has a column of this wanted signal; JSON Lines files may have one in any row.
    pub fn has_signal(&self, name: &str) -> bool {
        let at = self.options.columns.signals.iter().position(|s| s == name);
        at.is_some_and(|at| self.files.iter().any(|file| file.may_have_signal(at)))
    }

    /// Whether any file says that cells of its texts are documents, or its first ones are.
    pub fn has_documents(&self) -> bool {
        let (columns, map) = (&self.options.columns, &self.options.map);
        let declared = (columns.input && map.is_json("input"))
            || (columns.reads_output() && map.is_json("output"));
        declared || self.files.iter().any(RowFile::has_documents) || self.begins_with_documents()
    }

    /// Rows in all Parquet files as their metadata says; `None` if a JSON Lines file is among them.
    pub fn rows_expected(&self) -> Option<u64> {
        let rows = |unit: &Unit| self.files[unit.file].rows_of(unit.unit).1;
        self.units.iter().map(rows).sum()
    }

    /// Rows seen so far, kept or quarantined.
    pub fn rows_read(&self) -> u64 {
        self.rows_read.load(Relaxed)
    }

    /// Rows decoded so far, each as often as it was.
    pub fn rows_decoded(&self) -> u64 {
        let elsewhere = self.decoded_elsewhere.load(Relaxed);
        elsewhere + self.files.iter().map(RowFile::rows_decoded).sum::<u64>()
    }

    /// Rows left out because their traces are not wanted.
    pub fn rows_left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// Traces so far whose spans can't be read, where that is no reason to set them aside.
    pub fn unreadable_spans(&self) -> u64 {
        self.unreadable_spans.load(Relaxed)
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
        Unit { file: at, unit }: Unit,
        each: &mut impl FnMut(RecordBatch) -> bool,
    ) -> Result<bool, TraceError> {
        let file = &self.files[at];
        let path = &file.source.path;
        let mut pending = Pending {
            source: self,
            file: path,
            builder: self.builder(),
            go_on: true,
        };
        let mut signals = Vec::new();
        let mut seen = 0;
        let on_row = &mut |number, row: Found<'_>| {
            seen += 1;
            self.rows_read.fetch_add(1, Relaxed);
            let set_aside = |(code, reason)| {
                self.quarantine.add_row(path, number, "", code, reason);
            };
            match row {
                Ok(row) => match row.of_trace(&mut signals) {
                    Ok(row) => pending.push(row, RowAt::new(self.first + at, number), each)?,
                    Err(problem) => set_aside(problem),
                },
                Err(problem) => set_aside(problem),
            }
            Ok(pending.go_on)
        };
        let read = file.read_unit(unit, Reading::all(&[], self.options.limits), on_row);
        // What was read before a break is kept; the rest of the unit is quarantined.
        pending.flush(each)?;
        let go_on = pending.go_on;
        match read {
            Ok(_) => Ok(go_on),
            Err(TraceError::File { problem, .. })
                if self.options.on_bad_file == OnBadFile::Skip =>
            {
                let (first, rows) = file.rows_of(unit);
                let lost = rows.map_or(0, |rows| rows.saturating_sub(seen));
                self.rows_read.fetch_add(lost, Relaxed);
                self.quarantine
                    .add_unreadable(path, first + seen, lost, problem);
                Ok(go_on)
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn builder(&self) -> BatchBuilder {
        BatchBuilder::new(
            Arc::clone(&self.schema),
            &self.options.columns,
            self.options.text_mode,
            self.only.clone(),
        )
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
        at: RowAt,
        each: &mut impl FnMut(RecordBatch) -> bool,
    ) -> Result<(), TraceError> {
        self.builder.push(
            row,
            at.position(),
            self.file,
            at.row(),
            &self.source.quarantine,
        );
        let limits = self.source.options.limits;
        if self.builder.rows() >= limits.rows || self.builder.bytes() >= limits.bytes {
            self.flush(each)?;
        }
        Ok(())
    }

    fn flush(&mut self, each: &mut impl FnMut(RecordBatch) -> bool) -> Result<(), TraceError> {
        let full = std::mem::replace(&mut self.builder, self.source.builder());
        let notes = full.notes;
        let source = self.source;
        for (count, more) in [
            (&source.empty_session_ids, notes.empty_session_ids),
            (&source.unreadable_spans, notes.unreadable_spans),
            (&source.non_finite_signals, notes.non_finite_signals),
            (&source.left_out, notes.left_out),
        ] {
            count.fetch_add(more, Relaxed);
        }
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
