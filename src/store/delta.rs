//! Delta tables: the rows of one version, written as Parquet into the temporary folder, from where they are read as if that
//! were the folder that was named.
//!
//! The table's log is read by the Delta kernel, which says which files count, which of their rows are deleted, and how
//! columns as they are stored become those of the table's schema. One file of the table becomes one file here, so that what
//! is said of a file and a row leads back to the table. Only files that count are read, also in buckets.

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use delta_kernel::engine::arrow_conversion::TryIntoArrow;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::state::{ScanFile, transform_to_logical};
use delta_kernel::scan::{Scan, StatsOptions};
use delta_kernel::{Engine, FileMeta, KernelError, Snapshot};
use delta_kernel_default_engine::DefaultEngineBuilder;
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use futures::StreamExt;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use percent_encoding::percent_decode_str;
use rayon::prelude::*;

use super::connect::Connection;
use super::location::{Kind, Location};
use super::scratch::Scratch;
use super::warehouse::Warehouse;
use super::{StoreError, listing};

/// What the kernel calls the table's folder. The store below it ends at that folder, so that no path of a log leads out of
/// it. Of a bucket with this ending, the kernel expects listings in no order, and sorts them.
const ROOT: &str = "delta://table--x-s3/";
/// Rows decoded at once: texts are long.
const ROWS_PER_BATCH: usize = 256;
/// Where a group of rows ends, so that memory stays the same however large a table is.
const ROWS_PER_GROUP: usize = 8192;
const BYTES_PER_GROUP: usize = 64 << 20;

const WRITE_IT: &str = "write its rows as Parquet with the engine that the table is written with, and name those files";
const CHECK_IT: &str = "check the table with the engine that it is written with, or name an earlier version of it \
                        (TABLE@vNUMBER)";

/// A table, and which version of it is wanted.
#[derive(Debug)]
pub(super) struct Table {
    /// Begins at the table's folder.
    store: Arc<dyn ObjectStore>,
    /// As people named it, without a version.
    name: String,
    /// The same from wherever it is read again.
    whole_name: String,
    version: Option<u64>,
}

/// What goes wrong with one file.
enum Fault {
    /// In the table.
    Table(KernelError),
    /// On the disk here.
    Disk(String),
}

impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Self {
        Self::Table(error)
    }
}

impl Table {
    /// The table at a local path: a folder with a log, or `FOLDER@vNUMBER` for a version of it.
    pub fn local(path: &str) -> Result<Option<Self>, StoreError> {
        let is_table = |path: &str| Warehouse::of(Path::new(path)) == Some(Warehouse::Delta);
        let (folder, version) = match versioned(path) {
            _ if is_table(path) => (path, None),
            Some((folder, version)) if !Path::new(path).exists() && is_table(folder) => {
                (folder, Some(version))
            }
            _ => return Ok(None),
        };
        let store = LocalFileSystem::new_with_prefix(folder);
        let store = store.map_err(|e| StoreError::new(folder, e, "check the folder"))?;
        let whole = std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from(folder));
        Ok(Some(Self {
            store: Arc::new(store),
            name: folder.to_owned(),
            whole_name: whole.display().to_string(),
            version,
        }))
    }

    /// The table at an address and the address without a version, if there is a log below it.
    pub async fn remote(
        connection: &Connection,
        at: &Location,
    ) -> Result<Option<(Self, Location)>, StoreError> {
        let key = at.key.trim_end_matches('/');
        let name = key.rsplit('/').next().unwrap_or_default();
        let is_file = listing::may_be_read(name) && !at.key.ends_with('/');
        if at.kind == Kind::Web || listing::is_glob(key) || is_file {
            return Ok(None);
        }
        let earlier = versioned(key).map(|(key, version)| (key, Some(version)));
        for (key, version) in std::iter::once((key, None)).chain(earlier) {
            let folder = at.sibling(key);
            let log = listing::path(&folder, format!("{key}/_delta_log").trim_start_matches('/'))?;
            let first = connection.store.list(Some(&log)).next().await;
            match &first {
                Some(Ok(_)) => {}
                // Whoever may not list may be able to read what is named.
                None
                | Some(Err(
                    Error::NotFound { .. }
                    | Error::PermissionDenied { .. }
                    | Error::Unauthenticated { .. },
                )) => continue,
                Some(Err(error)) => return Err(connection.told(at, error)),
            }
            let store = Arc::clone(&connection.store);
            let table = Self {
                store: Arc::new(PrefixStore::new(store, listing::path(&folder, key)?)),
                name: folder.shown(),
                whole_name: folder.shown(),
                version,
            };
            return Ok(Some((table, folder)));
        }
        Ok(None)
    }

    /// Writes the rows that count, and says into which folder. `number` tells the tables of a run apart.
    pub fn write(
        &self,
        scratch: &Scratch,
        number: usize,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<PathBuf, StoreError> {
        let executor = TokioMultiThreadExecutor::new(runtime.handle().clone());
        let engine = DefaultEngineBuilder::new(Arc::clone(&self.store))
            .with_task_executor(Arc::new(executor))
            .with_batch_size(NonZero::new(ROWS_PER_BATCH).unwrap_or(NonZero::<usize>::MIN))
            .build();
        let in_log = |error: KernelError| self.told("its log can't be read", &error);
        let mut snapshot = Snapshot::builder_for(ROOT);
        if let Some(version) = self.version {
            snapshot = snapshot.at_version(version);
        }
        let snapshot = snapshot.build(&engine).map_err(in_log)?;
        let version = snapshot.version();
        let scan = snapshot.scan_builder().with_stats(StatsOptions::none());
        let scan = scan.build().map_err(in_log)?;
        let mut files: Vec<ScanFile> = Vec::new();
        for found in scan.scan_metadata(&engine).map_err(in_log)? {
            let found =
                found.and_then(|found| found.visit_scan_files(files, |all, file| all.push(file)));
            files = found.map_err(in_log)?;
        }
        let sizes = files
            .iter()
            .map(|file| u64::try_from(file.size).unwrap_or(0));
        scratch.check_room(sizes.sum())?;
        let folder = scratch.of_table(number, &self.whole_name, version);
        let written: Vec<Result<u64, StoreError>> = files
            .par_iter()
            .map(|file| {
                let to = folder.join(self.place_of(&scan, &file.path)?);
                let written = write_file(&engine, &scan, file, &to);
                written.map_err(|fault| match fault {
                    Fault::Table(error) => {
                        self.told(&format!("its file `{}` can't be read", file.path), &error)
                    }
                    Fault::Disk(problem) => unwritable(&to, &problem),
                })
            })
            .collect();
        let mut rows = 0;
        for written in written {
            rows += written?;
        }
        if rows == 0 {
            let to = folder.join("no-rows.parquet");
            let empty = no_rows(&scan, &to);
            empty.map_err(|fault| match fault {
                Fault::Table(error) => self.told("its schema can't be read", &error),
                Fault::Disk(problem) => unwritable(&to, &problem),
            })?;
        }
        tracing::info!(table = %self.name, version, files = files.len(), rows, "read a Delta table");
        Ok(folder)
    }

    /// Where the copy of a table's file is to be, from the folder of copies. Names that discovery would pass over, or would
    /// take values of columns from, are changed: the table's schema is what its columns are.
    fn place_of(&self, scan: &Scan, path: &str) -> Result<PathBuf, StoreError> {
        let elsewhere = || {
            let problem = format!(
                "its file `{path}` is not in its folder (a table that was cloned or moved)"
            );
            StoreError::new(&self.name, problem, WRITE_IT)
        };
        let root = scan.table_root();
        let whole = root.join(path).map_err(|_| elsewhere())?;
        if whole.scheme() != root.scheme()
            || whole.host_str() != root.host_str()
            || path.starts_with('/')
        {
            return Err(elsewhere());
        }
        let decoded = percent_decode_str(path).decode_utf8();
        let decoded = decoded.map_err(|_| elsewhere())?;
        let mut place = PathBuf::new();
        for part in decoded.split('/') {
            if part.is_empty() || part == "." || part == ".." || part.contains('\0') {
                return Err(elsewhere());
            }
            let hidden = if part.starts_with(['.', '_']) {
                "~"
            } else {
                ""
            };
            place.push(format!("{hidden}{}", part.replace('=', ":")));
        }
        if !decoded.to_ascii_lowercase().ends_with(".parquet") {
            place.as_mut_os_string().push(".parquet");
        }
        Ok(place)
    }

    fn told(&self, what: &str, error: &KernelError) -> StoreError {
        let error = error.without_backtrace();
        let text = error.to_string().replace(ROOT, "");
        match error {
            KernelError::Unsupported(reason) => {
                let problem = format!("this Delta table can't be read here: {reason}");
                StoreError::new(&self.name, problem, WRITE_IT)
            }
            _ => StoreError::new(&self.name, format!("{what}: {text}"), CHECK_IT),
        }
    }
}

/// A path and the version at its end, written as `PATH@vNUMBER`.
fn versioned(path: &str) -> Option<(&str, u64)> {
    let (path, version) = path.trim_end_matches('/').rsplit_once("@v")?;
    let digits = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    Some((path, version.parse().ok().filter(|_| digits)?))
}

fn unwritable(to: &Path, problem: &str) -> StoreError {
    let advice = "make room there, or name another temporary folder with the variable TMPDIR";
    StoreError::new(to.display().to_string(), problem, advice)
}

/// Writes the rows of one file that are not deleted; no file if there are none.
fn write_file(engine: &dyn Engine, scan: &Scan, file: &ScanFile, to: &Path) -> Result<u64, Fault> {
    let root = scan.table_root();
    let location = root.join(&file.path).map_err(KernelError::from)?;
    let size = u64::try_from(file.size).unwrap_or(0);
    let meta = FileMeta::new(location, file.modification_time, size);
    let kept = file.dv_info.get_selection_vector(engine, root)?;
    let handler = engine.parquet_handler();
    let batches = handler.read_parquet_files(&[meta], scan.physical_schema().clone(), None)?;
    let (mut copy, mut read) = (None, 0);
    for batch in batches {
        let batch = transform_to_logical(
            engine,
            batch?,
            scan.physical_schema(),
            scan.logical_schema(),
            file.transform.clone(),
        )?;
        let batch = ArrowEngineData::try_from_engine_data(batch)?;
        let mut batch: RecordBatch = batch.record_batch().clone();
        let (first, rows) = (read, batch.num_rows());
        read += rows;
        if let Some(kept) = &kept {
            // The vector ends at the last row that is deleted.
            let mask = (first..read).map(|row| kept.get(row).copied().unwrap_or(true));
            let mask = BooleanArray::from_iter(mask.map(Some));
            batch = filter_record_batch(&batch, &mask).map_err(KernelError::from)?;
        }
        if batch.num_rows() > 0 {
            let copy = match &mut copy {
                Some(copy) => copy,
                none => none.insert(RowFile::begin(to, batch.schema())?),
            };
            copy.write(&batch)?;
        }
    }
    let rows = copy.map_or(Ok(0), RowFile::end)?;
    let deleted = file.dv_info.cardinality()?.unwrap_or(0);
    let gone = (read as u64).checked_sub(rows);
    match gone == Some(deleted) {
        true => Ok(rows),
        false => Err(KernelError::generic(format!(
            "{deleted} of its rows are to be deleted, and of its {read} rows {rows} are left"
        ))
        .into()),
    }
}

/// A file of the table's columns without a row: an empty table is no folder without files.
fn no_rows(scan: &Scan, to: &Path) -> Result<(), Fault> {
    let schema = scan.logical_schema().as_ref().try_into_arrow();
    let schema: Schema = schema.map_err(KernelError::from)?;
    RowFile::begin(to, Arc::new(schema))?.end().map(|_| ())
}

/// A file that is being written.
struct RowFile {
    writer: ArrowWriter<BufWriter<File>>,
    rows: u64,
}

fn disk(problem: impl ToString) -> Fault {
    Fault::Disk(problem.to_string())
}

impl RowFile {
    fn begin(to: &Path, schema: SchemaRef) -> Result<Self, Fault> {
        let folder = to.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(folder).map_err(disk)?;
        // Two files of the table must not become one.
        let file = File::create_new(to).map_err(disk)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(disk)?))
            .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
            .build();
        let file = BufWriter::with_capacity(1 << 20, file);
        let writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(disk)?;
        Ok(Self { writer, rows: 0 })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        self.writer.write(batch).map_err(disk)?;
        self.rows += batch.num_rows() as u64;
        if self.writer.in_progress_size() > BYTES_PER_GROUP {
            self.writer.flush().map_err(disk)?;
        }
        Ok(())
    }

    fn end(self) -> Result<u64, Fault> {
        self.writer.close().map_err(disk)?;
        Ok(self.rows)
    }
}

#[cfg(test)]
mod tests;
