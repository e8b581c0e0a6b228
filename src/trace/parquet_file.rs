//! Parquet files as traces: metadata once, then one row group at a time.
//!
//! String columns are read as bytes (their UTF-8 annotation is taken off the schema), so that one
//! broken cell is one quarantined row instead of an unreadable batch; and as views, so that a
//! repeated megabyte cell is in memory once.

use std::borrow::Cow;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, TimestampNanosecondType};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader};

use super::TraceError;
use super::cells::{Moment, Row, TextCell, moment_of_text};
use super::epoch::EpochUnit;
use super::format::NativeTexts;
use super::native;
use super::parquet_columns::{FoundColumns, as_bytes, find_columns};
use super::schema::{ColumnMap, TextEncoding, TraceColumns};
use crate::text::Json;

/// An opened file: checked columns, row groups to read.
pub(super) struct ParquetFile {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    columns: FoundColumns,
    time_unit: Option<EpochUnit>,
    texts: Option<NativeTexts>,
}

fn broken(path: &Path, problem: impl std::fmt::Display) -> TraceError {
    TraceError::File {
        file: path.to_owned(),
        problem: problem.to_string(),
    }
}

impl ParquetFile {
    /// Opens a file and finds the wanted columns.
    pub fn open(
        path: &Path,
        partition: &[(String, String)],
        columns: &TraceColumns,
        map: &ColumnMap,
    ) -> Result<Self, TraceError> {
        let opened = Self::open_with(path, |schema, json| {
            find_columns(path, schema, json, partition, columns, map)
        })?;
        Ok(Self {
            time_unit: map.time_unit(),
            ..opened
        })
    }

    /// Opens a file that holds no traces, for [`ParquetFile::read_values`] alone.
    pub fn open_table(path: &Path) -> Result<Self, TraceError> {
        Self::open_with(path, |_, _| Ok(FoundColumns::default()))
    }

    fn open_with(
        path: &Path,
        find: impl FnOnce(&Schema, &[String]) -> Result<FoundColumns, TraceError>,
    ) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| broken(path, e))?;
        guarded(path, || {
            let metadata = ParquetMetaDataReader::new()
                .parse_and_finish(&file)
                .map_err(|e| broken(path, format!("not a readable Parquet file: {e}; it may be cut off or still being written")))?;
            Self::with_metadata(path, metadata, find)
        })
    }

    fn with_metadata(
        path: &Path,
        metadata: ParquetMetaData,
        find: impl FnOnce(&Schema, &[String]) -> Result<FoundColumns, TraceError>,
    ) -> Result<Self, TraceError> {
        let bad = |e: parquet::errors::ParquetError| {
            broken(path, format!("its schema can't be read: {e}"))
        };
        let facts = metadata.file_metadata();
        // Units that Parquet has no type for (seconds) are only in the embedded Arrow schema.
        let original = parquet::arrow::parquet_to_arrow_schema(
            facts.schema_descr(),
            facts.key_value_metadata(),
        )
        .or_else(|_| parquet::arrow::parquet_to_arrow_schema(facts.schema_descr(), None))
        .map_err(bad)?;
        let (schema, mut json) = as_bytes(facts.schema_descr()).map_err(bad)?;
        let texts = NativeTexts::of(facts);
        if texts == Some(NativeTexts::Documents) {
            json.extend(["input", "output", "expected"].map(str::to_owned));
        }
        let plain = parquet::arrow::parquet_to_arrow_schema(&schema, None).map_err(bad)?;
        let fields: Vec<Field> = plain
            .fields()
            .iter()
            .zip(original.fields())
            .map(
                |(field, original)| match (field.data_type(), original.data_type()) {
                    (DataType::Binary, _) => {
                        field.as_ref().clone().with_data_type(DataType::BinaryView)
                    }
                    (DataType::Int64, seconds @ DataType::Timestamp(..)) => {
                        field.as_ref().clone().with_data_type(seconds.clone())
                    }
                    _ => field.as_ref().clone(),
                },
            )
            .collect();
        let arrow_schema = Arc::new(Schema::new(fields));
        let rebuilt = FileMetaData::new(
            facts.version(),
            facts.num_rows(),
            facts.created_by().map(str::to_owned),
            None,
            Arc::new(schema),
            None,
        );
        let rebuilt = ParquetMetaData::new(rebuilt, metadata.row_groups().to_vec());
        let options = ArrowReaderOptions::new().with_schema(Arc::clone(&arrow_schema));
        let metadata = ArrowReaderMetadata::try_new(Arc::new(rebuilt), options).map_err(bad)?;
        let mut columns = find(&arrow_schema, &json)?;
        if texts == Some(NativeTexts::Said) {
            let found = [
                &mut columns.input,
                &mut columns.output,
                &mut columns.expected,
            ];
            for (_, encoding) in found.into_iter().flatten() {
                if *encoding == TextEncoding::Text {
                    *encoding = TextEncoding::Said;
                }
            }
        }
        Ok(Self {
            path: path.to_owned(),
            metadata,
            columns,
            time_unit: None,
            texts,
        })
    }

    /// What the texts hold, where nightmill wrote the file from another format.
    pub fn texts(&self) -> Option<NativeTexts> {
        self.texts
    }

    /// Whether any wanted signal is a column of this file.
    pub fn has_any_signal(&self) -> bool {
        self.columns.signals.iter().any(Option::is_some)
    }

    /// Whether the wanted signal of this number is a column of this file.
    pub fn has_signal(&self, at: usize) -> bool {
        self.columns.signals.get(at).is_some_and(Option::is_some)
    }

    /// Whether cells of its texts are documents.
    pub fn has_documents(&self) -> bool {
        let texts = [self.columns.input, self.columns.output];
        let mut texts = texts.into_iter().flatten();
        texts.any(|(_, encoding)| matches!(encoding, TextEncoding::Json | TextEncoding::Native))
    }

    /// The columns of the file; texts are of the type `BinaryView`.
    pub fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Rows of a row group, as its metadata says.
    pub fn rows_of(&self, row_group: usize) -> u64 {
        u64::try_from(self.metadata.metadata().row_group(row_group).num_rows()).unwrap_or(0)
    }

    /// Rows of the file, as its metadata says.
    pub fn rows(&self) -> u64 {
        self.first_row_of(self.row_groups())
    }

    /// The number, within the file, of a row group's first row.
    pub fn first_row_of(&self, row_group: usize) -> u64 {
        (0..row_group).map(|g| self.rows_of(g)).sum()
    }

    /// How many rows of these columns of a row group fit into `bytes`, judged by its metadata; at least one.
    fn rows_within(
        &self,
        row_group: usize,
        columns: impl Iterator<Item = usize>,
        bytes: usize,
        most: usize,
    ) -> usize {
        let group = self.metadata.metadata().row_group(row_group);
        let wanted: Vec<String> = columns
            .map(|i| self.metadata.schema().field(i).name().clone())
            .collect();
        let size: u64 = group
            .columns()
            .iter()
            .filter(|c| {
                c.column_path()
                    .parts()
                    .first()
                    .is_some_and(|name| wanted.contains(name))
            })
            .map(|c| {
                let decoded = c.unencoded_byte_array_data_bytes().unwrap_or(0);
                u64::try_from(decoded.max(c.uncompressed_size())).unwrap_or(0)
            })
            .sum();
        let rows = self.rows_of(row_group).max(1);
        let each = (size / rows).max(1);
        usize::try_from(bytes as u64 / each)
            .unwrap_or(usize::MAX)
            .clamp(1, most)
    }

    fn reader(
        &self,
        row_group: usize,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<ParquetRecordBatchReader, TraceError> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), self.columns.all());
        self.reader_of(row_group, mask, batch_rows, selection)
    }

    fn reader_of(
        &self,
        row_group: usize,
        mask: ProjectionMask,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<ParquetRecordBatchReader, TraceError> {
        let in_group =
            |e: &dyn std::fmt::Display| broken(&self.path, format!("row group {row_group}: {e}"));
        let file = File::open(&self.path).map_err(|e| in_group(&e))?;
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(mask)
                .with_row_groups(vec![row_group])
                .with_batch_size(batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        builder.build().map_err(|e| in_group(&e))
    }

    /// Reads a row group. `each` gets every batch with the file's number of its first row; rows of a
    /// part that can't be read are in the error, the ones before it were given out.
    pub fn read_row_group(
        &self,
        row_group: usize,
        batch_bytes: usize,
        batch_rows: usize,
        mut each: impl FnMut(&FoundBatch<'_>, u64) -> Result<bool, TraceError>,
    ) -> Result<(), TraceError> {
        let columns = self.columns.all();
        let batch_rows = self.rows_within(row_group, columns, batch_bytes, batch_rows);
        let mut reader = guarded(&self.path, || self.reader(row_group, batch_rows, None))?;
        let mut first = self.first_row_of(row_group);
        let expected = first + self.rows_of(row_group);
        loop {
            let next = guarded(&self.path, || {
                reader
                    .next()
                    .transpose()
                    .map_err(|e| broken(&self.path, format!("row group {row_group}: {e}")))
            })?;
            let Some(batch) = next else { break };
            let rows = batch.num_rows() as u64;
            if !each(&self.found(&batch)?, first)? {
                return Ok(());
            }
            first += rows;
        }
        if first != expected {
            return Err(broken(
                &self.path,
                format!("row group {row_group} ends {} rows early", expected - first),
            ));
        }
        Ok(())
    }

    /// Reads single rows (numbers within the file, ascending) of any row groups.
    pub fn read_rows(
        &self,
        rows: &[u64],
        mut each: impl FnMut(&FoundBatch<'_>, u64) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        for row_group in 0..self.row_groups() {
            let first = self.first_row_of(row_group);
            let end = first + self.rows_of(row_group);
            let wanted: Vec<usize> = rows
                .iter()
                .filter(|&&r| (first..end).contains(&r))
                .map(|&r| (r - first) as usize)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let ranges = wanted.iter().map(|&r| r..r + 1);
            let selection = RowSelection::from_consecutive_ranges(ranges, (end - first) as usize);
            let mut numbers = wanted.iter().map(|&r| first + r as u64);
            let mut reader = guarded(&self.path, || self.reader(row_group, 1, Some(selection)))?;
            while let Some(batch) = guarded(&self.path, || {
                reader
                    .next()
                    .transpose()
                    .map_err(|e| broken(&self.path, format!("row group {row_group}: {e}")))
            })? {
                if let Some(number) = numbers.next() {
                    each(&self.found(&batch)?, number)?;
                }
            }
        }
        Ok(())
    }

    /// Reads whole cells of these columns, as far as the file has them, of some rows (numbers within the file, ascending) or of
    /// all. `each` gets a row's number and a reader of its cells by column: none where there is no such column, else the cell's value or why it has none.
    /// `broken` says whether to go on with the next row group after one that can't be read to its end.
    pub fn read_values(
        &self,
        columns: &[&str],
        rows: Option<&[u64]>,
        mut each: impl FnMut(u64, &Cells<'_>) -> ControlFlow<()>,
        broken: impl Fn(TraceError) -> Result<(), TraceError>,
    ) -> Result<ControlFlow<()>, TraceError> {
        let schema = self.metadata.schema();
        let chosen: Vec<usize> = (0..schema.fields().len())
            .filter(|i| {
                let field = schema.field(*i);
                columns.contains(&field.name().as_str()) && native::is_native(field.data_type())
            })
            .collect();
        for row_group in 0..self.row_groups() {
            let first = self.first_row_of(row_group);
            let end = first + self.rows_of(row_group);
            let wanted: Vec<u64> = match rows {
                None => (first..end).collect(),
                Some(rows) => {
                    let within = |row: u64| rows.partition_point(|r| *r < row);
                    rows[within(first)..within(end)].to_vec()
                }
            };
            if wanted.is_empty() {
                continue;
            }
            match self.read_group_values(row_group, &chosen, rows.is_some(), wanted, &mut each) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(flow) => return Ok(flow),
                Err(e) => broken(e)?,
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads cells of the `wanted` rows of a row group, which are `some` or all of it.
    fn read_group_values(
        &self,
        row_group: usize,
        columns: &[usize],
        some: bool,
        wanted: Vec<u64>,
        each: &mut impl FnMut(u64, &Cells<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TraceError> {
        /// Documents may be large; a few at a time.
        const ROWS_AT_ONCE: usize = 64;
        const BYTES_AT_ONCE: usize = 16 << 20;
        let (first, rows) = (self.first_row_of(row_group), self.rows_of(row_group));
        let selection = some.then(|| {
            let ranges = wanted
                .iter()
                .map(|r| (r - first) as usize)
                .map(|r| r..r + 1);
            RowSelection::from_consecutive_ranges(ranges, rows as usize)
        });
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        let mut reader = guarded(&self.path, || {
            let at_once = columns.iter().copied();
            let at_once = self.rows_within(row_group, at_once, BYTES_AT_ONCE, ROWS_AT_ONCE);
            self.reader_of(row_group, mask, at_once, selection)
        })?;
        let mut numbers = wanted.into_iter();
        while let Some(batch) = guarded(&self.path, || {
            let next = reader.next().transpose();
            next.map_err(|e| broken(&self.path, format!("row group {row_group}: {e}")))
        })? {
            for (row, number) in (0..batch.num_rows()).zip(&mut numbers) {
                let cell = |column: &str| {
                    let column = batch.column_by_name(column)?;
                    Some(native::value_or_uuid(column.as_ref(), row))
                };
                if each(number, &cell).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Pairs a decoded batch's columns with what they stand for.
    fn found<'b>(&self, batch: &'b RecordBatch) -> Result<FoundBatch<'b>, TraceError> {
        // A projected batch holds the chosen columns in file order.
        let mut chosen: Vec<usize> = self.columns.all().collect();
        chosen.sort_unstable();
        chosen.dedup();
        let column = |at: Option<usize>| -> Option<&'b ArrayRef> {
            batch.columns().get(chosen.binary_search(&at?).ok()?)
        };
        let text = |at: Option<(usize, TextEncoding)>| Some((column(at.map(|(i, _)| i))?, at?.1));
        let signals = self
            .columns
            .signals
            .iter()
            .map(|at| {
                column(*at)
                    .map(|array| {
                        arrow::compute::cast(array, &DataType::Float64)
                            .map_err(|e| broken(&self.path, e))
                    })
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let started_at = match column(self.columns.started_at) {
            None => Times::Missing,
            Some(array) => Times::new(array, self.time_unit).map_err(|e| broken(&self.path, e))?,
        };
        Ok(FoundBatch {
            rows: batch.num_rows(),
            trace_id: column(self.columns.trace_id),
            session_id: column(self.columns.session_id),
            project_id: column(self.columns.project_id),
            started_at,
            name: column(self.columns.name),
            environment: column(self.columns.environment),
            input: text(self.columns.input),
            output: text(self.columns.output),
            expected: text(self.columns.expected),
            spans: text(self.columns.spans),
            signals,
        })
    }
}

/// Runs a piece of reading; a panic inside the Parquet decoder (it has assertions that hostile files
/// can reach) becomes an error that names the file.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, TraceError>) -> Result<T, TraceError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(broken(
            path,
            "the Parquet decoder gave up on it; the file is corrupt",
        ))
    })
}

/// A decoded batch of found columns.
pub(super) struct FoundBatch<'b> {
    pub rows: usize,
    trace_id: Option<&'b ArrayRef>,
    session_id: Option<&'b ArrayRef>,
    project_id: Option<&'b ArrayRef>,
    started_at: Times<'b>,
    name: Option<&'b ArrayRef>,
    environment: Option<&'b ArrayRef>,
    input: Option<(&'b ArrayRef, TextEncoding)>,
    output: Option<(&'b ArrayRef, TextEncoding)>,
    expected: Option<(&'b ArrayRef, TextEncoding)>,
    spans: Option<(&'b ArrayRef, TextEncoding)>,
    signals: Vec<Option<ArrayRef>>,
}

impl FoundBatch<'_> {
    /// A row's signal values, in the order of the wanted signals.
    pub fn signals(&self, row: usize, into: &mut Vec<Option<f64>>) {
        into.clear();
        into.extend(self.signals.iter().map(|column| {
            let column = column.as_ref()?.as_primitive::<Float64Type>();
            column.is_valid(row).then(|| column.value(row))
        }));
    }

    pub fn row<'a>(&'a self, row: usize, signals: &'a [Option<f64>]) -> Row<'a> {
        Row {
            trace_id: self.trace_id.and_then(|c| identifier(c, row)),
            session_id: self.session_id.and_then(|c| identifier(c, row)),
            project_id: self.project_id.and_then(|c| identifier(c, row)),
            started_at: self.started_at.at(row),
            name: self.name.and_then(|c| identifier(c, row)),
            environment: self.environment.and_then(|c| identifier(c, row)),
            input: text_cell(self.input, row),
            output: text_cell(self.output, row),
            expected: text_cell(self.expected, row),
            spans: text_cell(self.spans, row),
            signals,
        }
    }
}

fn text_cell(column: Option<(&ArrayRef, TextEncoding)>, row: usize) -> TextCell<'_> {
    match column {
        None => TextCell::Null,
        Some((column, _)) if column.is_null(row) => TextCell::Null,
        Some((column, TextEncoding::Native)) => match native::value(column.as_ref(), row) {
            Ok(value) => TextCell::Value(value),
            Err(reason) => TextCell::Bad(reason),
        },
        Some((column, encoding)) => match bytes(column, row) {
            Some(bytes) => TextCell::Bytes(bytes, encoding),
            None => TextCell::Null,
        },
    }
}

fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    let column = column.as_binary_view_opt()?;
    column.is_valid(row).then(|| column.value(row))
}

/// Reads a row's cell by column: none where there is no such column, else the cell's value or why it has none.
pub(super) type Cells<'c> = dyn Fn(&str) -> Option<Result<Json, String>> + 'c;

/// An id, name or label: text, an integer, or a UUID as 16 bytes.
fn identifier(column: &ArrayRef, row: usize) -> Option<Cow<'_, [u8]>> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::BinaryView => bytes(column, row).map(Cow::Borrowed),
        DataType::FixedSizeBinary(16) => {
            native::uuid(column.as_ref(), row).map(|hex| Cow::Owned(hex.into_bytes()))
        }
        _ => match native::value(column.as_ref(), row).ok()? {
            crate::text::Json::Integer(digits) => Some(Cow::Owned(digits.into_bytes())),
            _ => None,
        },
    }
}

/// A start time column.
enum Times<'b> {
    Missing,
    /// Nanoseconds or coarser, as nanoseconds could overflow: microseconds and what is beyond.
    Micros(arrow::array::Int64Array),
    Nanos(arrow::array::PrimitiveArray<TimestampNanosecondType>),
    Text(&'b ArrayRef),
    /// Whole numbers of a unit since 1970.
    Counts(arrow::array::Int64Array, EpochUnit),
    /// The same with fractions.
    Floats(arrow::array::Float64Array, EpochUnit),
}

impl<'b> Times<'b> {
    fn new(array: &'b ArrayRef, unit: Option<EpochUnit>) -> Result<Self, arrow::error::ArrowError> {
        use arrow::datatypes::TimeUnit::{Microsecond, Nanosecond};
        Ok(match array.data_type() {
            of if of.is_integer()
                && let Some(unit) = unit =>
            {
                let counts = arrow::compute::cast(array, &DataType::Int64)?;
                Self::Counts(counts.as_primitive::<Int64Type>().clone(), unit)
            }
            of if of.is_numeric()
                && let Some(unit) = unit =>
            {
                let counts = arrow::compute::cast(array, &DataType::Float64)?;
                Self::Floats(counts.as_primitive::<Float64Type>().clone(), unit)
            }
            DataType::Timestamp(Nanosecond, _) => {
                Self::Nanos(array.as_primitive::<TimestampNanosecondType>().clone())
            }
            DataType::BinaryView => Self::Text(array),
            _ => {
                let micros = arrow::compute::cast(array, &DataType::Timestamp(Microsecond, None))?;
                let micros = arrow::compute::cast(&micros, &DataType::Int64)?;
                Self::Micros(micros.as_primitive::<Int64Type>().clone())
            }
        })
    }

    fn at(&self, row: usize) -> Result<Moment, String> {
        const NULL: &str = "null";
        match self {
            Self::Missing => Err("the column is missing".into()),
            Self::Micros(times) if times.is_valid(row) => Ok(Moment {
                micros: times.value(row),
                nanos: 0,
            }),
            Self::Nanos(times) if times.is_valid(row) => {
                let nanos = times.value(row);
                Ok(Moment {
                    micros: nanos.div_euclid(1000),
                    nanos: nanos.rem_euclid(1000) as i16,
                })
            }
            Self::Counts(counts, unit) if counts.is_valid(row) => unit.moment(counts.value(row)),
            Self::Floats(counts, unit) if counts.is_valid(row) => {
                unit.moment_of_float(counts.value(row))
            }
            Self::Text(column) => match bytes(column, row) {
                None => Err(NULL.into()),
                Some(text) => moment_of_text(&String::from_utf8_lossy(text)),
            },
            _ => Err(NULL.into()),
        }
    }
}
