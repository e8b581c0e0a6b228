//! One table of a run directory: `NAME/part-00000.parquet`, …
//!
//! Everything that could differ between two runs over the same rows is fixed: row-group size, part
//! size, encodings, the creator's name. Equal rows give equal bytes.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

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
        .set_created_by(concat!("nightmill ", env!("CARGO_PKG_VERSION")).to_owned())
        .build()
}

/// The file of a table's part.
pub(crate) fn part_path(folder: &Path, part: u64) -> PathBuf {
    folder.join(format!("part-{part:05}.parquet"))
}

/// Writes rows in the order given.
pub(crate) struct TableWriter {
    folder: PathBuf,
    schema: SchemaRef,
    part: u64,
    rows_in_part: u64,
    writer: ArrowWriter<BufWriter<File>>,
}

impl TableWriter {
    /// Starts a table; its first part is there even if it stays without rows, so that readers find
    /// the schema.
    pub fn create(run: &Path, name: &str, schema: SchemaRef) -> Result<Self, RunError> {
        let folder = run.join(name);
        std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
        let writer = Self::open(&folder, 0, &schema)?;
        Ok(Self {
            folder,
            schema,
            part: 0,
            rows_in_part: 0,
            writer,
        })
    }

    fn open(
        folder: &Path,
        part: u64,
        schema: &SchemaRef,
    ) -> Result<ArrowWriter<BufWriter<File>>, RunError> {
        let path = part_path(folder, part);
        let file = File::create(&path).map_err(|e| RunError::write(&path, e))?;
        ArrowWriter::try_new(
            BufWriter::with_capacity(1 << 20, file),
            schema.clone(),
            Some(properties()),
        )
        .map_err(|e| RunError::write(&path, e))
    }

    fn failed(&self, problem: impl ToString) -> RunError {
        RunError::write(&part_path(&self.folder, self.part), problem)
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
                let next = Self::open(&self.folder, self.part, &self.schema)?;
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
        let (path, part) = (part_path(&self.folder, self.part), self.part);
        close(self.writer).map_err(|e| RunError::write(&path, e))?;
        Ok(part)
    }
}

/// Closes a file for good: its last bytes are written and on the disk, or this says why not.
pub(crate) fn close(writer: ArrowWriter<BufWriter<File>>) -> Result<(), String> {
    let buffer = writer.into_inner().map_err(|e| e.to_string())?;
    let file = buffer.into_inner().map_err(|e| e.to_string())?;
    file.sync_all().map_err(|e| e.to_string())
}
