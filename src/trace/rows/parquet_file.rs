//! Parquet files: metadata once, then one row group at a time.
//!
//! String columns are read as bytes (their UTF-8 annotation is taken off the schema), so that one
//! broken cell is one quarantined row instead of an unreadable batch; and as views, so that a
//! repeated megabyte cell is in memory once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader};

use super::super::epoch::EpochUnit;
use super::super::format::NativeTexts;
use super::super::schema::{ColumnMap, TextEncoding, TraceColumns};
use super::super::{BatchLimits, TraceError, native};
use super::found_batch::FoundBatch;
use super::parquet_columns::{FoundColumns, as_bytes, find_columns};

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

    /// Opens a file that holds no traces, whose columns are read by name alone.
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
    fn rows_within(&self, row_group: usize, columns: &[usize], bytes: usize, most: usize) -> usize {
        let group = self.metadata.metadata().row_group(row_group);
        let schema = self.metadata.schema();
        let wanted: Vec<&str> = columns
            .iter()
            .map(|i| schema.field(*i).name().as_str())
            .collect();
        let size: u64 = group
            .columns()
            .iter()
            .filter(|c| {
                c.column_path()
                    .parts()
                    .first()
                    .is_some_and(|name| wanted.contains(&name.as_str()))
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

    /// Reads a row group, or those of its rows that are among `rows` (numbers within the file, ascending): the found columns, and
    /// those of these names as far as the file has them and they can become values. `each` gets a row's number, its batch and
    /// its row there, and says whether to go on; so does this. Rows of a part that can't be read are in the error, the ones
    /// before it were given out.
    pub fn read_group(
        &self,
        row_group: usize,
        names: &[&str],
        rows: Option<&[u64]>,
        limits: BatchLimits,
        each: &mut OnRow<'_>,
    ) -> Result<bool, TraceError> {
        let first = self.first_row_of(row_group);
        let end = first + self.rows_of(row_group);
        let wanted = rows.map(|rows| {
            let within = |row: u64| rows.partition_point(|r| *r < row);
            &rows[within(first)..within(end)]
        });
        if wanted.is_some_and(<[u64]>::is_empty) {
            return Ok(true);
        }
        let columns = self.columns_of(names);
        let most = wanted.map_or(limits.rows, |rows| limits.rows.min(rows.len()));
        let at_once = self.rows_within(row_group, &columns, limits.bytes, most);
        let in_group =
            |e: &dyn std::fmt::Display| broken(&self.path, format!("row group {row_group}: {e}"));
        let mut reader = guarded(&self.path, || {
            let file = File::open(&self.path).map_err(|e| in_group(&e))?;
            self.reader(file, row_group, &columns, at_once, wanted)
                .map_err(|e| in_group(&e))
        })?;
        let mut numbers: Box<dyn Iterator<Item = u64>> = match wanted {
            None => Box::new(first..end),
            Some(rows) => Box::new(rows.iter().copied()),
        };
        while let Some(batch) = guarded(&self.path, || {
            reader.next().transpose().map_err(|e| in_group(&e))
        })? {
            let batch = FoundBatch::of(&batch, &columns, &self.columns, self.time_unit)
                .map_err(|e| broken(&self.path, e))?;
            for (row, number) in (0..batch.rows()).zip(&mut numbers) {
                if !each(number, &batch, row)? {
                    return Ok(false);
                }
            }
        }
        match numbers.count() {
            0 => Ok(true),
            missing => Err(broken(
                &self.path,
                format!("row group {row_group} ends {missing} rows early"),
            )),
        }
    }

    /// The found columns and those of these names, ascending.
    fn columns_of(&self, names: &[&str]) -> Vec<usize> {
        let fields = self.metadata.schema().fields().iter().enumerate();
        let named = fields.filter(|(_, field)| {
            names.contains(&field.name().as_str()) && native::is_native(field.data_type())
        });
        let mut columns: Vec<usize> = named.map(|(at, _)| at).chain(self.columns.all()).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    fn reader(
        &self,
        file: File,
        row_group: usize,
        columns: &[usize],
        batch_rows: usize,
        wanted: Option<&[u64]>,
    ) -> Result<ParquetRecordBatchReader, parquet::errors::ParquetError> {
        let roots = columns.iter().copied();
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), roots);
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(mask)
                .with_row_groups(vec![row_group])
                .with_batch_size(batch_rows);
        if let Some(wanted) = wanted {
            let first = self.first_row_of(row_group);
            let places = wanted.iter().map(|row| (row - first) as usize);
            let ranges = places.map(|at| at..at + 1);
            let rows = self.rows_of(row_group) as usize;
            let selection = RowSelection::from_consecutive_ranges(ranges, rows);
            builder = builder.with_row_selection(selection);
        }
        builder.build()
    }
}

/// Takes a row's number, its batch and its row there; says whether to go on.
type OnRow<'e> = dyn FnMut(u64, &FoundBatch<'_>, usize) -> Result<bool, TraceError> + 'e;

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
