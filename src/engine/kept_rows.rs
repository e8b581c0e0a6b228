//! Rows of a plan set aside on disk, for plans that go on from them.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::DataFrame;
use futures::StreamExt;
use tempfile::NamedTempFile;

/// A file of Arrow batches, which goes with the last who holds it.
#[derive(Clone, Debug)]
pub(crate) struct KeptRows {
    schema: SchemaRef,
    file: Arc<NamedTempFile>,
}

impl KeptRows {
    /// Runs a plan and keeps its rows in a folder, in no order.
    ///
    /// # Errors
    /// DataFusion's, and the disk's.
    pub async fn of(frame: DataFrame, folder: &Path) -> Result<Self> {
        let file = NamedTempFile::new_in(folder)?;
        let mut stream = frame.execute_stream().await?;
        let schema = stream.schema();
        let mut writer = StreamWriter::try_new(BufWriter::new(file.reopen()?), &schema)?;
        while let Some(batch) = stream.next().await {
            writer.write(&batch?)?;
        }
        writer.finish()?;
        let written = writer.into_inner()?;
        written.into_inner().map_err(|e| e.into_error())?;
        Ok(Self {
            schema,
            file: Arc::new(file),
        })
    }

    /// The rows as a table, which can be read any number of times.
    ///
    /// # Errors
    /// DataFusion's, if the schema does not fit: it always does.
    pub fn table(&self) -> Result<Arc<StreamingTable>> {
        let stream: Arc<dyn PartitionStream> = Arc::new(self.clone());
        let table = StreamingTable::try_new(Arc::clone(&self.schema), vec![stream])?;
        Ok(Arc::new(table))
    }
}

impl PartitionStream for KeptRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 1);
        let sender = builder.tx();
        let file = self.file.reopen();
        builder.spawn_blocking(move || {
            let file: File = file?;
            for batch in StreamReader::try_new(BufReader::new(file), None)? {
                if sender
                    .blocking_send(batch.map_err(DataFusionError::from))
                    .is_err()
                {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}
