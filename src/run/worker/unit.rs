//! Units: pieces of files that a worker reads on its own, and where their rows go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::attempt::{self, UnitMarker};
use super::open_job::OpenJob;
use crate::metric::Rules;
use crate::output::RunError;
use crate::run::engine_plans::columns;
use crate::store::{Fetched, fetched, is_address};
use crate::trace::{Quarantine, ReadOptions, TraceError, TraceSource, canonical_schema};

/// The column that says where a row goes.
pub const BUCKET: &str = "bucket";

/// Bytes that a unit should have at least: small files are read together.
const LEAST_BYTES: u64 = 128 << 20;

/// A unit of work: pieces of files, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its number in the run.
    pub number: u32,
    /// Each a file, by number, and a row group of it; 0 of a file that is read whole.
    pub pieces: Vec<(usize, usize)>,
}

/// Cuts the files of a source into units of some size, and into at least as many as `least`, if they have so many pieces.
pub(super) fn units(source: &TraceSource, least: usize) -> Vec<Unit> {
    let pieces: Vec<(usize, usize, Option<u64>)> = source.pieces().collect();
    let sizes: Vec<u64> = source
        .files()
        .map(|file| std::fs::metadata(&file.path).map_or(0, |of| of.len()))
        .collect();
    let mut of_file: BTreeMap<usize, u64> = BTreeMap::new();
    for (file, ..) in &pieces {
        *of_file.entry(*file).or_default() += 1;
    }
    let bytes = |file: usize| {
        let size = sizes.get(file).copied().unwrap_or_default();
        size / of_file.get(&file).copied().unwrap_or(1).max(1)
    };
    let all: u64 = pieces.iter().map(|(file, ..)| bytes(*file)).sum();
    let wanted = LEAST_BYTES.min(all / least.max(1) as u64);
    let mut units: Vec<Unit> = Vec::new();
    let mut filled = u64::MAX;
    for (file, piece, _) in pieces {
        if filled >= wanted {
            let number = u32::try_from(units.len()).unwrap_or(u32::MAX);
            units.push(Unit {
                number,
                pieces: Vec::new(),
            });
            filled = 0;
        }
        if let Some(unit) = units.last_mut() {
            unit.pieces.push((file, piece));
        }
        filled += bytes(file);
    }
    units
}

/// The columns of traces that a job reads.
pub(super) fn read_schema(rules: &Rules) -> SchemaRef {
    canonical_schema(&columns(rules, None))
}

/// The columns of the rows that go from readers to scorers: those of traces, and the bucket. Their types are those that every
/// engine can carry: not all know numbers without sign or texts as views, and a view may drag a whole batch along.
pub(super) fn exchanged_schema(rules: &Rules) -> SchemaRef {
    let schema = read_schema(rules);
    let plain = schema.fields().iter().map(|field| {
        let data_type = match field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::UInt32 | DataType::UInt64 => DataType::Int64,
            other => other.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    let bucket = Arc::new(Field::new(BUCKET, DataType::Int32, false));
    Arc::new(Schema::new(plain.chain([bucket]).collect::<Vec<_>>()))
}

/// A file that is open, and what holds its copy.
struct OpenFile<'j> {
    number: usize,
    source: TraceSource,
    /// Where it was found, and how the driver names it.
    path: PathBuf,
    named: &'j str,
    quarantine: Arc<Quarantine>,
    _copy: Option<Fetched>,
}

impl OpenFile<'_> {
    /// Adds what was read of it, under the name that the driver knows.
    fn close(self, marker: &mut UnitMarker) {
        marker.counts.add(&self.source.counts());
        let here = self.path.display().to_string();
        for mut entry in self.quarantine.sorted() {
            entry.file = PathBuf::from(self.named);
            entry.reason = entry.reason.replace(&here, self.named);
            marker.quarantine.push(entry);
        }
    }
}

/// Reads a unit. `each` gets batches of rows and returns whether it takes more; when it has taken all, the unit's marker is
/// put: what was read, what was set aside, and how many rows go to each bucket.
///
/// # Errors
/// [`RunError`] for a file that is not the one that the driver saw, or that can't be read.
pub(super) fn read(
    job: &OpenJob,
    unit: &Unit,
    mut each: impl FnMut(RecordBatch) -> bool,
) -> Result<(), RunError> {
    let schema = exchanged_schema(&job.job.rules);
    let mut marker = UnitMarker {
        counts: Default::default(),
        quarantine: Vec::new(),
        rows: BTreeMap::new(),
    };
    let mut open: Option<OpenFile<'_>> = None;
    for (file, piece) in &unit.pieces {
        if open.as_ref().is_none_or(|open| open.number != *file) {
            if let Some(read) = open.take() {
                read.close(&mut marker);
            }
            open = Some(open_file(job, *file)?);
        }
        let Some(open) = &open else {
            continue;
        };
        let mut failed = None;
        let more = open.source.read_piece(0, *piece, |batch| {
            match with_buckets(job, &schema, batch, &mut marker.rows) {
                Ok(batch) if batch.num_rows() == 0 => true,
                Ok(batch) => each(batch),
                Err(e) => {
                    failed = Some(e);
                    false
                }
            }
        });
        match (failed, more?) {
            (Some(error), _) => return Err(error),
            // Whoever takes the rows has failed, and has the reason.
            (None, false) => return Ok(()),
            (None, true) => {}
        }
    }
    if let Some(read) = open {
        read.close(&mut marker);
    }
    let folder = job.job.work().join(attempt::units_of(&job.place));
    attempt::check_current(&job.job.work(), &job.place)?;
    attempt::put_if_absent(&folder, &attempt::of_unit(unit.number), &marker)?;
    Ok(())
}

/// Opens a file of the job.
fn open_file(job: &OpenJob, number: usize) -> Result<OpenFile<'_>, RunError> {
    let quarantine = Arc::new(Quarantine::default());
    let Some(file) = job.job.files.get(number) else {
        return Err(RunError::Plan(format!("the job has no file {number}")));
    };
    let (path, copy) = match is_address(&file.path) {
        false => (PathBuf::from(&file.path), None),
        true => {
            let copy = fetched(vec![file.path.clone()], false)
                .map_err(|e| RunError::Scratch(e.to_string()))?;
            let path = copy.paths.first().map(PathBuf::from);
            (path.unwrap_or_default(), Some(copy))
        }
    };
    let wrong = |problem: String| {
        RunError::Trace(TraceError::File {
            file: path.clone(),
            problem,
        })
    };
    let found = std::fs::metadata(&path).map_err(|e| {
        wrong(format!(
            "{e}; all machines of a cluster read the same files, under one path"
        ))
    })?;
    if found.len() != file.bytes {
        return Err(wrong(format!(
            "has {} bytes, and had {} when the run was begun; files must not change while they are scored",
            found.len(),
            file.bytes
        )));
    }
    let options = ReadOptions {
        columns: columns(&job.job.rules, None),
        map: job.job.map.clone(),
        text_mode: job.job.rules.text_mode,
        on_bad_file: job.job.on_bad_file,
        limits: job.limits,
    };
    let source = TraceSource::open(
        vec![file.source(path.clone())],
        options,
        Arc::clone(&quarantine),
    )?;
    if source.files().count() == 0 {
        return Err(wrong(
            "could be opened when the run was begun, and can't be now".into(),
        ));
    }
    let source = source.numbered(number);
    let source = match &job.only {
        None => source,
        Some(only) => source.keep_only(Arc::clone(only)),
    };
    Ok(OpenFile {
        number,
        source,
        path,
        named: &file.named,
        quarantine,
        _copy: copy,
    })
}

/// The rows of a batch whose buckets are not done, with their buckets; counts all of them.
fn with_buckets(
    job: &OpenJob,
    schema: &SchemaRef,
    batch: RecordBatch,
    rows: &mut BTreeMap<u32, u64>,
) -> Result<RecordBatch, RunError> {
    let failed = |e: arrow::error::ArrowError| RunError::Plan(e.to_string());
    let text = |name: &str| {
        let column = batch.column_by_name(name);
        let column = column.and_then(|column| column.as_string_opt::<i32>());
        column.ok_or_else(|| RunError::Plan(format!("rows lack the column {name}")))
    };
    let (traces, sessions, projects) =
        (text("trace_id")?, text("session_id")?, text("project_id")?);
    let buckets = job.job.buckets();
    let mut of_rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let trace = traces.value(row);
        let session = sessions.is_valid(row).then(|| sessions.value(row));
        let project = projects.is_valid(row).then(|| projects.value(row));
        // Rows of one trace are together, whatever each of them says of its session.
        let bucket = match job.job.repeated.get(trace) {
            Some(bucket) => *bucket,
            None => buckets.of(project, session, trace),
        };
        // Their numbers have five digits.
        of_rows.push(i32::try_from(bucket).unwrap_or(i32::MAX));
    }
    let carried = batch.columns().iter().zip(schema.fields());
    let carried = carried.map(|(column, field)| cast(column, field.data_type()));
    let mut all = carried
        .collect::<Result<Vec<ArrayRef>, _>>()
        .map_err(failed)?;
    all.push(Arc::new(Int32Array::from(of_rows)));
    let mut batch = RecordBatch::try_new(Arc::clone(schema), all).map_err(failed)?;
    let last = batch.num_columns() - 1;
    // Those of buckets that are done count too: the driver holds each bucket against its rows, whoever has scored it.
    for bucket in batch.column(last).as_primitive::<Int32Type>().values() {
        *rows.entry(bucket.cast_unsigned()).or_default() += 1;
    }
    if !job.job.done.is_empty() {
        let of_rows = batch.column(last).as_primitive::<Int32Type>();
        let is_done = |bucket: u32| job.job.done.binary_search(&bucket).is_ok();
        let wanted = of_rows
            .values()
            .iter()
            .map(|bucket| Some(!is_done(bucket.cast_unsigned())));
        let wanted = wanted.collect();
        batch = filter_record_batch(&batch, &wanted).map_err(failed)?;
    }
    Ok(batch)
}
