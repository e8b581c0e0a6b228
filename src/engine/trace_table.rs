//! Trace files as a table: each partition takes the next unit of work until none is left, so that a
//! slow file never holds up the others. Order does not matter here: the plan sorts.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;

use super::external;
use crate::trace::TraceSource;

/// A table over a source that can be read once, in `partitions` streams.
///
/// # Errors
/// DataFusion's, if the schema does not fit: it always does.
pub fn traces_table(source: Arc<TraceSource>, partitions: usize) -> Result<StreamingTable> {
    let stream = |_| {
        Arc::new(SourceStream {
            schema: source.schema(),
            source: Arc::clone(&source),
        }) as Arc<dyn PartitionStream>
    };
    StreamingTable::try_new(
        source.schema(),
        (0..partitions.max(1)).map(stream).collect(),
    )
}

#[derive(Debug)]
struct SourceStream {
    schema: SchemaRef,
    source: Arc<TraceSource>,
}

impl PartitionStream for SourceStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        // One batch ahead: decoding overlaps with embedding, and memory stays bounded.
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 1);
        let sender = builder.tx();
        let source = Arc::clone(&self.source);
        builder.spawn_blocking(move || {
            source
                .read_shared(|batch| sender.blocking_send(Ok(batch)).is_ok())
                .map_err(external)
        });
        builder.build()
    }
}
