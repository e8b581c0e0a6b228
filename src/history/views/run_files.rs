//! One table of many runs, as DataFusion reads it: the files of all runs in one scan, with columns that say which run a row
//! is of. A condition on those columns leaves out runs before a file of theirs is opened.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path as StorePath;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::engine::external;
use crate::history::StoredRun;
use crate::history::stored_run::HistoryError;
use crate::history::verify::check_file;

/// The number of a run in its list.
pub(super) const RUN_NO: &str = "run_no";
/// What a run is called: the name of its directory, or its path where two have one name.
pub(super) const RUN: &str = "run";
/// When a run's manifest was written.
pub(super) const RUN_CREATED_AT: &str = "run_created_at";

/// A file of a table, and the place of its run in the list.
#[derive(Clone, Debug)]
struct RunFile {
    run: usize,
    /// The run directory, and the file seen from it.
    folder: PathBuf,
    name: String,
    file: PartitionedFile,
}

/// A table of several runs.
#[derive(Debug)]
pub(super) struct RunFiles {
    schema: TableSchema,
    files: Vec<RunFile>,
    /// The columns that say which run a row is of: a row a run.
    runs: RecordBatch,
    /// Whether each file is compared with what its manifest says before it is read.
    check: bool,
}

/// A table of runs to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Its folder.
    pub table: &'a str,
    /// Columns that it has, of runs that lack them too.
    pub columns: &'a [(&'a str, DataType)],
    /// Whether rows say which run they are of by name and time, too.
    pub named: bool,
    /// Whether each file is compared with what its manifest says before it is read.
    pub check: bool,
    /// The runs whose footers are read for further columns; none is all.
    pub opened: Option<&'a [usize]>,
}

impl RunFiles {
    /// Finds the files of runs that have the table, and reads one footer a run. `labels` are what the runs are called.
    ///
    /// # Errors
    /// [`HistoryError::Damaged`] for a file that can't be opened.
    pub fn open(
        runs: &[StoredRun],
        labels: &[String],
        wanted: Wanted<'_>,
    ) -> std::result::Result<Self, HistoryError> {
        let told = of_runs(runs, labels, wanted.named);
        let mut columns: Vec<Field> = wanted
            .columns
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.clone(), true))
            .collect();
        let mut files = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            let names = parts(run, wanted.table);
            let opens = wanted.opened.is_none_or(|runs| runs.contains(&at));
            if let Some(first) = names.first().filter(|_| opens) {
                for field in footer(run, first)?.fields() {
                    // What a run is called stands in columns of our own.
                    if told.column_by_name(field.name()).is_none() {
                        merge(&mut columns, field);
                    }
                }
            }
            for name in names {
                let file = partitioned(run, &name, at, &told)?;
                let folder = run.path.clone();
                files.push(RunFile {
                    run: at,
                    folder,
                    name,
                    file,
                });
            }
        }
        let of_runs: Vec<FieldRef> = told.schema().fields().iter().cloned().collect();
        Ok(Self {
            schema: TableSchema::builder(Arc::new(Schema::new(columns)))
                .with_table_partition_cols(of_runs)
                .build(),
            files,
            runs: told,
            check: wanted.check,
        })
    }

    /// Whether a run that passes these conditions can be told by them alone, run by run.
    fn passing(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<bool>> {
        let mut passing = vec![true; self.runs.num_rows()];
        let schema = self.runs.schema();
        let known = DFSchema::try_from(schema.as_ref().clone())?;
        for filter in filters {
            let columns = filter.column_refs();
            let of_runs = columns
                .iter()
                .all(|column| schema.field_with_name(&column.name).is_ok());
            if columns.is_empty() || !of_runs || filter.is_volatile() {
                continue;
            }
            let Ok(condition) = state.create_physical_expr(filter.clone(), &known) else {
                continue;
            };
            let found = condition
                .evaluate(&self.runs)?
                .into_array(self.runs.num_rows())?;
            if let Some(found) = found.as_boolean_opt() {
                for (run, passes) in passing.iter_mut().enumerate() {
                    *passes &= found.is_valid(run) && found.value(run);
                }
            }
        }
        Ok(passing)
    }
}

#[async_trait]
impl TableProvider for RunFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Files of other runs are left out; which rows of a file pass is found out above the scan.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let passing = self.passing(state, filters)?;
        let kept = self.files.iter();
        let kept: Vec<&RunFile> = kept
            .filter(|file| passing.get(file.run).copied().unwrap_or(true))
            .collect();
        if kept.is_empty() {
            let schema = datafusion::physical_plan::project_schema(&self.schema(), projection)?;
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        if self.check {
            for file in &kept {
                check_file(&file.folder, &file.name).map_err(external)?;
            }
        }
        let files = kept.into_iter().map(|file| file.file.clone()).collect();
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit.filter(|_| filters.is_empty()))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// The columns that say which run a row is of: a row a run.
fn of_runs(runs: &[StoredRun], labels: &[String], named: bool) -> RecordBatch {
    use arrow::array::{StringArray, TimestampMicrosecondArray, UInt32Array};
    let numbers: UInt32Array = (0..runs.len() as u32).collect();
    let mut fields = vec![Field::new(RUN_NO, DataType::UInt32, false)];
    let mut columns: Vec<ArrayRef> = vec![Arc::new(numbers)];
    if named {
        let names: StringArray = labels.iter().map(Some).collect();
        let times: TimestampMicrosecondArray = runs
            .iter()
            .map(|run| Some(run.created_at.timestamp_micros()))
            .collect();
        fields.push(Field::new(RUN, DataType::Utf8, false));
        fields.push(Field::new(RUN_CREATED_AT, instant(), false));
        columns.push(Arc::new(names));
        columns.push(Arc::new(times.with_timezone("UTC")));
    }
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(Arc::clone(&schema), columns)
        .unwrap_or_else(|_| RecordBatch::new_empty(schema))
}

/// The type of points in time.
pub(super) fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The files of a table of a run, seen from the run directory; none if it has no such table.
fn parts(run: &StoredRun, table: &str) -> Vec<String> {
    let entries = std::fs::read_dir(run.path.join(table)).into_iter();
    let mut names: Vec<String> = entries
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name.ends_with(".parquet"))
        .map(|name| format!("{table}/{name}"))
        .collect();
    names.sort();
    names
}

/// The columns of a file.
fn footer(run: &StoredRun, name: &str) -> std::result::Result<SchemaRef, HistoryError> {
    let damaged = |e: String| HistoryError::damaged(&run.path, name, e);
    let file = File::open(run.path.join(name)).map_err(|e| damaged(e.to_string()))?;
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| damaged(e.to_string()))?;
    Ok(Arc::clone(reader.schema()))
}

fn partitioned(
    run: &StoredRun,
    name: &str,
    at: usize,
    told: &RecordBatch,
) -> std::result::Result<PartitionedFile, HistoryError> {
    let damaged = |e: String| HistoryError::damaged(&run.path, name, e);
    let path = run.path.join(name);
    let metadata = std::fs::metadata(&path).map_err(|e| damaged(e.to_string()))?;
    let location = StorePath::from_absolute_path(&path).map_err(|e| damaged(e.to_string()))?;
    let values = told.columns().iter();
    let values = values
        .map(|column| ScalarValue::try_from_array(column, at))
        .collect::<Result<Vec<_>>>()
        .map_err(|e| damaged(e.to_string()))?;
    let modified = metadata.modified().ok().map(Into::into);
    let meta = ObjectMeta {
        location,
        last_modified: modified.unwrap_or(run.created_at),
        size: metadata.len(),
        e_tag: None,
        version: None,
    };
    Ok(PartitionedFile::new_from_meta(meta).with_partition_values(values))
}

/// Takes a column of a file into those of the table. Where two runs have it in two types, it gets one that holds both.
fn merge(columns: &mut Vec<Field>, field: &Field) {
    let kind = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        other => other.clone(),
    };
    match columns
        .iter_mut()
        .find(|known| known.name() == field.name())
    {
        None => columns.push(Field::new(field.name(), kind, true)),
        Some(known) if *known.data_type() == kind => {}
        Some(known) => {
            let both = match known.data_type().is_numeric() && kind.is_numeric() {
                true => DataType::Float64,
                false => DataType::Utf8View,
            };
            *known = Field::new(field.name(), both, true);
        }
    }
}

impl From<HistoryError> for DataFusionError {
    fn from(error: HistoryError) -> Self {
        external(error)
    }
}
