//! One table of a run directory: `NAME/part-00000.parquet`, …, or of one of its buckets: `NAME/bucket-00017.parquet`, …
//!
//! Everything that could differ between two runs over the same rows is fixed: row-group size, part
//! size, encodings, the creator's name. Equal rows give equal bytes.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::output::RunError;

const ROWS_PER_GROUP: usize = 1 << 16;
pub(crate) const ROWS_PER_PART: u64 = 1 << 22;

pub(crate) fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
        // Each is another one: a dictionary would hold them all.
        .set_column_dictionary_enabled("trace_hash".into(), false)
        .set_created_by(concat!("nightmill ", env!("CARGO_PKG_VERSION")).to_owned())
        .build()
}

/// The file of a table's part.
pub(crate) fn part_path(folder: &Path, part: u64) -> PathBuf {
    Parts::OfAll.path(folder, part)
}

/// What the parts of a table hold, which their names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Parts {
    /// All rows, one part after the other.
    #[default]
    OfAll,
    /// The rows of a bucket.
    OfBucket(u32),
}

impl Parts {
    /// The file of a part. In the order of their names, parts of a bucket follow each other, and buckets too.
    pub fn path(self, folder: &Path, part: u64) -> PathBuf {
        folder.join(match (self, part) {
            (Self::OfAll, part) => format!("part-{part:05}.parquet"),
            (Self::OfBucket(bucket), 0) => format!("bucket-{bucket:05}.parquet"),
            (Self::OfBucket(bucket), part) => format!("bucket-{bucket:05}_{part:05}.parquet"),
        })
    }

    /// What a file holds, by its name; none if it is no part of a table.
    pub fn of(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_str()?.strip_suffix(".parquet")?;
        match name.strip_prefix("bucket-") {
            Some(bucket) => Some(Self::OfBucket(bucket.get(..5)?.parse().ok()?)),
            None => name.starts_with("part-").then_some(Self::OfAll),
        }
    }
}

/// Of tables that only the run itself reads: no time is spent on making them small.
fn properties_of_work() -> WriterProperties {
    WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
        .build()
}

/// Writes rows in the order given.
pub(crate) struct TableWriter {
    folder: PathBuf,
    parts: Parts,
    schema: SchemaRef,
    properties: WriterProperties,
    part: u64,
    rows_in_part: u64,
    writer: ArrowWriter<BufWriter<File>>,
}

impl TableWriter {
    /// Starts a table; its first part is there even if it stays without rows, so that readers find
    /// the schema.
    pub fn create(run: &Path, name: &str, schema: SchemaRef) -> Result<Self, RunError> {
        Self::start(run, name, schema, (properties(), Parts::OfAll))
    }

    /// Starts what these parts hold of a table.
    pub fn create_parts(
        run: &Path,
        name: &str,
        schema: SchemaRef,
        parts: Parts,
    ) -> Result<Self, RunError> {
        Self::start(run, name, schema, (properties(), parts))
    }

    /// Starts a table among the working files of a run, which go before the run is whole.
    pub fn create_in_work(
        work: &Path,
        name: &str,
        schema: SchemaRef,
        parts: Parts,
    ) -> Result<Self, RunError> {
        Self::start(work, name, schema, (properties_of_work(), parts))
    }

    fn start(
        parent: &Path,
        name: &str,
        schema: SchemaRef,
        (properties, parts): (WriterProperties, Parts),
    ) -> Result<Self, RunError> {
        let folder = parent.join(name);
        // Not its parent: where that is gone, nobody wants the table any more.
        match std::fs::create_dir(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(RunError::write(&folder, e));
            }
            _ => {}
        }
        let writer = Self::open(&parts.path(&folder, 0), &schema, &properties)?;
        Ok(Self {
            folder,
            parts,
            schema,
            properties,
            part: 0,
            rows_in_part: 0,
            writer,
        })
    }

    fn open(
        path: &Path,
        schema: &SchemaRef,
        properties: &WriterProperties,
    ) -> Result<ArrowWriter<BufWriter<File>>, RunError> {
        let file = File::create(path).map_err(|e| RunError::write(path, e))?;
        ArrowWriter::try_new(
            BufWriter::with_capacity(1 << 20, file),
            schema.clone(),
            Some(properties.clone()),
        )
        .map_err(|e| RunError::write(path, e))
    }

    fn path(&self) -> PathBuf {
        self.parts.path(&self.folder, self.part)
    }

    fn failed(&self, problem: impl ToString) -> RunError {
        RunError::write(&self.path(), problem)
    }

    /// Where the parts are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), RunError> {
        let mut start = 0;
        while start < batch.num_rows() {
            if self.rows_in_part == ROWS_PER_PART {
                self.part += 1;
                let next = Self::open(&self.path(), &self.schema, &self.properties)?;
                let full = std::mem::replace(&mut self.writer, next);
                close(full).map_err(|e| self.failed(e))?;
                self.rows_in_part = 0;
            }
            let room = usize::try_from(ROWS_PER_PART - self.rows_in_part).unwrap_or(usize::MAX);
            let count = room.min(batch.num_rows() - start);
            self.writer
                .write(&batch.slice(start, count))
                .map_err(|e| self.failed(e))?;
            start += count;
            self.rows_in_part += count as u64;
        }
        Ok(())
    }

    /// Closes the table; returns the number of its last part.
    pub fn finish(self) -> Result<u64, RunError> {
        let (path, part) = (self.path(), self.part);
        close(self.writer).map_err(|e| RunError::write(&path, e))?;
        Ok(part)
    }
}

/// A table that a thread of its own writes, so that encoding does not hold up whoever makes the rows. At most a few
/// batches wait.
pub(crate) struct TableThread {
    name: &'static str,
    sender: Option<SyncSender<RecordBatch>>,
    ended: Option<Receiver<Result<u64, RunError>>>,
}

impl TableThread {
    /// Hands a table over to a thread. Its name is for people.
    pub fn start(mut table: TableWriter, name: &'static str) -> Result<Self, RunError> {
        let (sender, receiver) = sync_channel::<RecordBatch>(4);
        let (end, ended) = sync_channel(1);
        let write = move || {
            let mut written = Ok(());
            while written.is_ok()
                && let Ok(batch) = receiver.recv()
            {
                written = table.write(&batch);
            }
            // Whoever is told of a failure finds nobody listening before.
            drop(receiver);
            // Nobody waits for the end of a table that is given up.
            let _ = end.send(written.and_then(|()| table.finish()));
        };
        on_thread(&format!("write-{name}"), write)?;
        Ok(Self {
            name,
            sender: Some(sender),
            ended: Some(ended),
        })
    }

    pub fn write(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        if let Some(sender) = &self.sender
            && sender.send(batch).is_ok()
        {
            return Ok(());
        }
        // The thread only stops listening when it has failed.
        self.end().map(|_| ())
    }

    /// Closes the table; returns the number of its last part.
    pub fn finish(mut self) -> Result<u64, RunError> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, RunError> {
        self.sender = None;
        let ended = self.ended.take().map(|ended| ended.recv());
        let failed = || RunError::Plan(format!("the thread that writes `{}` failed", self.name));
        match ended {
            Some(Ok(result)) => result,
            _ => Err(failed()),
        }
    }
}

impl Drop for TableThread {
    /// Nobody writes into a folder any more when it is removed.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(ended) = self.ended.take() {
            // What it failed with, if it did, comes after what made the run end.
            let _ = ended.recv();
        }
    }
}

/// Does something on a thread beside this one: of the runtime, if there is one, which uses its threads again. Memory that a
/// thread has freed stays with it: with a new one for each table of each bucket, memory would grow with their number.
fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), RunError> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => drop(
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
                .map_err(|e| {
                    RunError::Plan(format!("a writing thread could not be started: {e}"))
                })?,
        ),
    }
    Ok(())
}

/// Closes a file for good: its last bytes are written and on the disk, or this says why not.
pub(crate) fn close(writer: ArrowWriter<BufWriter<File>>) -> Result<(), String> {
    let buffer = writer.into_inner().map_err(|e| e.to_string())?;
    let file = buffer.into_inner().map_err(|e| e.to_string())?;
    file.sync_all().map_err(|e| e.to_string())
}
