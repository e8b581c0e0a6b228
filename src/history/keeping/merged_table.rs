//! One table of several runs as one table: rows that are sorted in each are sorted in all, and memory holds a batch of each.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array, new_null_array,
};
use arrow::compute::{SortOptions, cast, filter_record_batch, interleave_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::KeepingError;
use super::carried_files::CarriedFiles;
use crate::history::stored_run::HistoryError;
use crate::history::verify::check_file;
use crate::output::table_writer::{Parts, TableWriter};
use crate::output::{RunDirectory, RunError};

/// Rows that are written at once.
const ROWS: usize = 8192;
/// Columns that `sessions` of a night has beside those of a first run.
const FIRST_RUN: &str = "first_run";
const REVISION: &str = "revision";

/// The rows of a table of one run, in their order.
pub(super) struct Source<'r> {
    run: &'r Path,
    files: VecDeque<PathBuf>,
    file: PathBuf,
    reader: Option<ParquetRecordBatchReader>,
    at: usize,
}

impl<'r> Source<'r> {
    /// The rows of these files of a run, the `at`th of its chain.
    pub fn new(run: &'r Path, files: Vec<PathBuf>, at: usize) -> Self {
        Self {
            run,
            files: files.into(),
            file: PathBuf::new(),
            reader: None,
            at,
        }
    }

    /// What is wrong with the file that is being read.
    pub fn damaged(&self, problem: impl ToString) -> KeepingError {
        HistoryError::damaged(self.run, &self.file.to_string_lossy(), problem).into()
    }

    fn open(&mut self) -> Result<bool, KeepingError> {
        let Some(file) = self.files.pop_front() else {
            return Ok(false);
        };
        self.file = file;
        check_file(self.run, &self.file.to_string_lossy())?;
        let opened = File::open(self.run.join(&self.file)).map_err(|e| self.damaged(e))?;
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|e| self.damaged(e))?;
        let reader = builder.with_batch_size(ROWS).build();
        self.reader = Some(reader.map_err(|e| self.damaged(e))?);
        Ok(true)
    }

    /// The next batch that has rows.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, KeepingError> {
        loop {
            match self.reader.as_mut().and_then(Iterator::next) {
                Some(Ok(batch)) if batch.num_rows() > 0 => return Ok(Some(batch)),
                Some(Ok(_)) => {}
                Some(Err(e)) => return Err(self.damaged(e)),
                None if self.open()? => {}
                None => return Ok(None),
            }
        }
    }
}

/// Says which rows of a batch of the run with this number stay.
pub(super) type Keep<'k> = dyn Fn(usize, &RecordBatch) -> Result<BooleanArray, String> + 'k;

/// How a table is merged.
pub(super) struct Merging<'k> {
    pub table: &'k str,
    pub keep: &'k Keep<'k>,
    /// Gives the places of rows the numbers of one list of files.
    pub places: Option<&'k CarriedFiles>,
    /// The numbers of the runs that rows are taken from, one after the other; by what rows are sorted if none are given.
    pub order: Option<&'k [usize]>,
}

/// A run's number, name, directory and files of the table.
pub(super) type OfRun<'r> = (usize, &'r str, &'r Path, &'r [PathBuf]);

impl Merging<'_> {
    /// Writes the table; returns the number of the run that each row came from.
    pub fn write(
        &self,
        runs: &[OfRun<'_>],
        directory: &RunDirectory,
    ) -> Result<Vec<usize>, KeepingError> {
        let schema = self.schema(runs)?;
        if self.order(&schema).is_empty() {
            // Of no session and no trace.
            return Ok(Vec::new());
        }
        let mut given = self.order.map(|order| order.iter());
        let parts = |file: &PathBuf| Parts::of(file).unwrap_or_default();
        let files = runs.iter().flat_map(|(_, _, _, files)| files.iter());
        let all_parts: BTreeSet<Parts> = files.map(parts).collect();
        let mut all: Vec<usize> = Vec::new();
        for of in all_parts {
            // A session is in the bucket of the same number in every run.
            let sources = runs.iter().map(|(at, _, run, files)| {
                let files = files.iter().filter(|file| parts(file) == of).cloned();
                Source::new(run, files.collect(), *at)
            });
            let (run, schema) = (directory.path(), Arc::clone(&schema));
            let mut table = TableWriter::create_parts(run, self.table, Arc::clone(&schema), of)?;
            all.extend(self.merge(sources.collect(), runs, &schema, given.as_mut(), &mut table)?);
            table.finish()?;
        }
        match given.as_mut().and_then(Iterator::next) {
            None => Ok(all),
            Some(_) => Err(fewer_rows()),
        }
    }

    /// The columns of all: those of the newest run, then what only others have; what `sessions` says of its history is last.
    fn schema(&self, runs: &[OfRun<'_>]) -> Result<SchemaRef, KeepingError> {
        let mut fields: Vec<Field> = Vec::new();
        for (nth, (at, _, run, files)) in runs.iter().rev().enumerate() {
            let mut source = Source::new(run, files.to_vec(), *at);
            source.open()?;
            let Some(reader) = &source.reader else {
                continue;
            };
            let schema = arrow::array::RecordBatchReader::schema(reader);
            for field in schema.fields() {
                match fields.iter_mut().find(|f| f.name() == field.name()) {
                    Some(known) => known.set_nullable(known.is_nullable() || field.is_nullable()),
                    // Newer runs lack it.
                    None => fields.push(
                        field
                            .as_ref()
                            .clone()
                            .with_nullable(field.is_nullable() || nth > 0),
                    ),
                }
            }
            for known in &mut fields {
                if schema.field_with_name(known.name()).is_err() {
                    known.set_nullable(true);
                }
            }
        }
        if self.table == "sessions" {
            fields.retain(|f| f.name() != FIRST_RUN && f.name() != REVISION);
            fields.push(Field::new(FIRST_RUN, DataType::Utf8, false));
            fields.push(Field::new(REVISION, DataType::UInt32, false));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// A batch of one run with the columns of all.
    fn aligned(
        &self,
        batch: &RecordBatch,
        (at, name): (usize, &str),
        schema: &SchemaRef,
    ) -> Result<RecordBatch, String> {
        let rows = batch.num_rows();
        let column = |field: &Arc<Field>| -> Result<ArrayRef, String> {
            let found = batch.column_by_name(field.name());
            match (self.table, field.name().as_str(), found) {
                // The first run has neither: its sessions are new, and its own.
                ("sessions", FIRST_RUN, None) => Ok(Arc::new(StringArray::from(vec![name; rows]))),
                ("sessions", REVISION, None) => Ok(Arc::new(UInt32Array::from(vec![1; rows]))),
                (_, _, None) => Ok(new_null_array(field.data_type(), rows)),
                (_, "rows", Some(found)) if self.places.is_some() => match self.places {
                    Some(places) => places.places(at, found),
                    None => Ok(Arc::clone(found)),
                },
                (_, _, Some(found)) if found.data_type() == field.data_type() => {
                    Ok(Arc::clone(found))
                }
                (_, _, Some(found)) => cast(found, field.data_type())
                    .map_err(|e| format!("column `{}`: {e}", field.name())),
            }
        };
        let columns: Vec<ArrayRef> = schema
            .fields()
            .iter()
            .map(column)
            .collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| e.to_string())
    }

    /// By what rows are sorted: those of traces before those of sessions, then by session and time.
    fn order(&self, schema: &Schema) -> Vec<(&'static str, DataType, bool)> {
        let all = [
            ("target_type", DataType::Utf8, true),
            ("session_id", DataType::Utf8, false),
            ("project_id", DataType::Utf8, false),
            ("started_at", DataType::Int64, false),
            ("trace_id", DataType::Utf8, false),
        ];
        // Tables but `traces` may have several rows of a trace, in an order of their own.
        let is_traces = self.table == "traces" || schema.field_with_name("session_id").is_err();
        let mut all: Vec<_> = all.into();
        all.retain(|(name, _, _)| {
            schema.field_with_name(name).is_ok()
                && (is_traces || !["started_at", "trace_id"].contains(name))
        });
        all
    }

    fn merge(
        &self,
        sources: Vec<Source<'_>>,
        runs: &[OfRun<'_>],
        schema: &SchemaRef,
        mut given: Option<&mut std::slice::Iter<'_, usize>>,
        table: &mut TableWriter,
    ) -> Result<Vec<usize>, KeepingError> {
        let order = self.order(schema);
        let fields = order.iter().map(|(_, data_type, descending)| {
            let options = SortOptions {
                descending: *descending,
                nulls_first: false,
            };
            SortField::new_with_options(data_type.clone(), options)
        });
        let failed = |e: arrow::error::ArrowError| KeepingError::Run(RunError::Plan(e.to_string()));
        let mut merged = Merged {
            converter: RowConverter::new(fields.collect()).map_err(failed)?,
            cursors: Vec::new(),
        };
        for source in sources {
            let name = runs.iter().find(|(at, ..)| *at == source.at);
            let name = name.map_or("", |(_, name, ..)| *name);
            merged.cursors.push(Cursor {
                source,
                name,
                batch: None,
                row: 0,
            });
        }
        let mut out = Picked::default();
        let mut picked = Vec::new();
        let mut heap = BinaryHeap::new();
        for at in 0..merged.cursors.len() {
            if let Some(key) = merged.advance(at, self, schema, &order)? {
                heap.push(Reverse((key, at)));
            }
        }
        loop {
            let at = match &mut given {
                None => match heap.pop() {
                    None => break,
                    Some(Reverse((_, at))) => at,
                },
                Some(_) if merged.cursors.iter().all(|c| c.batch.is_none()) => break,
                Some(given) => match given.next() {
                    None => break,
                    Some(run) => merged.of_run(*run)?,
                },
            };
            let cursor = &merged.cursors[at];
            if let Some((batch, _)) = &cursor.batch {
                out.pick(at, batch, cursor.row);
                picked.push(cursor.source.at);
            }
            if out.picks.len() == ROWS {
                out.write(table)?;
            }
            if let Some(key) = merged.advance(at, self, schema, &order)?
                && given.is_none()
            {
                heap.push(Reverse((key, at)));
            }
        }
        if let Some(cursor) = merged.cursors.iter().find(|cursor| cursor.batch.is_some()) {
            let problem = "it has more rows than the table `traces`";
            return Err(cursor.source.damaged(problem));
        }
        out.write(table)?;
        Ok(picked)
    }
}

fn fewer_rows() -> KeepingError {
    KeepingError::Refused(
        "a table `carried` has fewer rows than `traces`: its run is not what was written, see `nightmill runs verify`"
            .to_owned(),
    )
}

/// Where the reading of a run is.
struct Cursor<'r> {
    source: Source<'r>,
    name: &'r str,
    batch: Option<(RecordBatch, Rows)>,
    row: usize,
}

struct Merged<'r> {
    converter: RowConverter,
    cursors: Vec<Cursor<'r>>,
}

impl Merged<'_> {
    /// The cursor of a run that has rows left.
    fn of_run(&self, run: usize) -> Result<usize, KeepingError> {
        let mut cursors = self.cursors.iter().enumerate();
        let found = cursors.find(|(_, cursor)| cursor.source.at == run && cursor.batch.is_some());
        found.map(|(at, _)| at).ok_or_else(fewer_rows)
    }

    /// Goes to the next row of a run that stays; returns its key, none at the end.
    fn advance(
        &mut self,
        at: usize,
        merging: &Merging<'_>,
        schema: &SchemaRef,
        order: &[(&'static str, DataType, bool)],
    ) -> Result<Option<OwnedRow>, KeepingError> {
        let cursor = &mut self.cursors[at];
        cursor.row += 1;
        loop {
            if let Some((batch, keys)) = &cursor.batch
                && cursor.row < batch.num_rows()
            {
                return Ok(Some(keys.row(cursor.row).owned()));
            }
            let Some(batch) = cursor.source.next()? else {
                cursor.batch = None;
                return Ok(None);
            };
            let made = (|| -> Result<(RecordBatch, Rows), String> {
                let stay = (merging.keep)(cursor.source.at, &batch)?;
                let batch = filter_record_batch(&batch, &stay).map_err(|e| e.to_string())?;
                let batch = merging.aligned(&batch, (cursor.source.at, cursor.name), schema)?;
                let columns: Vec<ArrayRef> = order
                    .iter()
                    .map(|(name, data_type, _)| {
                        let column = batch.column_by_name(name).ok_or("a column is missing")?;
                        cast(column, data_type).map_err(|e| e.to_string())
                    })
                    .collect::<Result<_, String>>()?;
                let keys = self.converter.convert_columns(&columns);
                Ok((batch, keys.map_err(|e| e.to_string())?))
            })();
            cursor.batch = Some(made.map_err(|e| cursor.source.damaged(e))?);
            cursor.row = 0;
        }
    }
}

/// Rows that were picked and are not written yet, and the batches that they are in.
#[derive(Default)]
struct Picked {
    batches: Vec<RecordBatch>,
    /// The last batch of each run among them.
    known: BTreeMap<usize, usize>,
    picks: Vec<(usize, usize)>,
}

impl Picked {
    fn pick(&mut self, run: usize, batch: &RecordBatch, row: usize) {
        let known = self.known.get(&run).copied();
        // A batch is known by its first column: batches share their columns when they are cloned.
        let same = |at: &usize| {
            let (held, new) = (&self.batches[*at], batch);
            held.num_columns() > 0 && Arc::ptr_eq(held.column(0), new.column(0))
        };
        let at = known.filter(same).unwrap_or_else(|| {
            self.batches.push(batch.clone());
            self.known.insert(run, self.batches.len() - 1);
            self.batches.len() - 1
        });
        self.picks.push((at, row));
    }

    fn write(&mut self, table: &mut TableWriter) -> Result<(), KeepingError> {
        if !self.picks.is_empty() {
            let batches: Vec<&RecordBatch> = self.batches.iter().collect();
            let batch = interleave_record_batch(&batches, &self.picks);
            table.write(&batch.map_err(|e| RunError::Plan(e.to_string()))?)?;
        }
        *self = Self::default();
        Ok(())
    }
}
