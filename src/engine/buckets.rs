//! Streams of whole buckets, taken apart into buckets.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::bucket_order::{BUCKET, session_order};

/// Rows of a batch of a bucket, but for its last: where batches end decides the bytes of files, and must not depend on the
/// buckets that share a stream.
const ROWS: usize = 2048;
/// Batches that wait between a stream and whoever scores a bucket of it.
const WAITING: usize = 2;

/// Runs a plan of streams of whole buckets. The rows of each bucket go to `each` as a plan of one stream in session order;
/// buckets of one stream follow each other, streams run side by side. What `each` returns comes back in no order.
///
/// # Errors
/// The first of DataFusion's and those of `each`; nothing is run any more then.
pub(crate) async fn for_each_bucket<T, E, F>(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    each: impl Fn(u32, Arc<dyn ExecutionPlan>) -> F + Clone + Send + 'static,
) -> Result<Vec<T>, E>
where
    T: Send + 'static,
    E: From<DataFusionError> + Send + 'static,
    F: Future<Output = Result<T, E>> + Send,
{
    let mut streams = tokio::task::JoinSet::new();
    for partition in 0..plan.output_partitioning().partition_count() {
        let rows = plan.execute(partition, Arc::clone(&context))?;
        let each = each.clone();
        streams.spawn(async move {
            let mut rows = Unfinished { rows, next: None };
            let mut results = Vec::new();
            while let Some(bucket) = rows.bucket().await? {
                let (sender, receiver) = channel(WAITING);
                let source = BucketRows::plan(rows.rows.schema(), receiver)?;
                let (fed, scored) = tokio::join!(rows.feed(bucket, sender), each(bucket, source));
                // Whoever scores has the reason why it takes no more.
                results.push(scored?);
                fed?;
            }
            Ok::<Vec<T>, E>(results)
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = streams.join_next().await {
        match ended {
            Ok(results) => all.extend(results?),
            Err(e) => return Err(DataFusionError::ExecutionJoin(Box::new(e)).into()),
        }
    }
    Ok(all)
}

/// A stream of rows with the batch that is next, if it is known.
struct Unfinished {
    rows: SendableRecordBatchStream,
    next: Option<RecordBatch>,
}

impl Unfinished {
    /// The bucket that comes next; none at the end.
    async fn bucket(&mut self) -> Result<Option<u32>> {
        while self.next.as_ref().is_none_or(|b| b.num_rows() == 0) {
            match self.rows.try_next().await? {
                None => return Ok(None),
                batch => self.next = batch,
            }
        }
        match &self.next {
            None => Ok(None),
            Some(batch) => Ok(buckets(batch)?.first().copied()),
        }
    }

    /// Hands on the rows of a bucket, which are next, while somebody takes them.
    async fn feed(&mut self, bucket: u32, to: Sender<RecordBatch>) -> Result<()> {
        let mut equal = BatchCoalescer::new(self.rows.schema(), ROWS);
        while self.bucket().await? == Some(bucket) {
            let Some(batch) = self.next.take() else {
                break;
            };
            let rows = buckets(&batch)?.partition_point(|other| *other <= bucket);
            if rows < batch.num_rows() {
                self.next = Some(batch.slice(rows, batch.num_rows() - rows));
            }
            equal.push_batch(batch.slice(0, rows))?;
            if !Self::hand_on(&mut equal, &to).await {
                return Ok(());
            }
        }
        equal.finish_buffered_batch()?;
        Self::hand_on(&mut equal, &to).await;
        Ok(())
    }

    /// Hands on what is complete. Whether somebody takes it.
    async fn hand_on(batches: &mut BatchCoalescer, to: &Sender<RecordBatch>) -> bool {
        while let Some(batch) = batches.next_completed_batch() {
            if to.send(batch).await.is_err() {
                return false;
            }
        }
        true
    }
}

fn buckets(batch: &RecordBatch) -> Result<&[u32]> {
    let column = batch.column_by_name(BUCKET);
    match column.and_then(|column| column.as_primitive_opt::<UInt32Type>()) {
        Some(column) => Ok(column.values()),
        None => internal_err!("rows lack the column {BUCKET}"),
    }
}

/// The rows of a bucket, once.
struct BucketRows {
    schema: SchemaRef,
    rows: Mutex<Option<Receiver<RecordBatch>>>,
}

impl BucketRows {
    fn plan(schema: SchemaRef, rows: Receiver<RecordBatch>) -> Result<Arc<dyn ExecutionPlan>> {
        let order = session_order(&schema, false)?;
        let source: Arc<dyn PartitionStream> = Arc::new(Self {
            schema: Arc::clone(&schema),
            rows: Mutex::new(Some(rows)),
        });
        let plan = StreamingTableExec::try_new(schema, vec![source], None, order, false, None)?;
        Ok(Arc::new(plan))
    }
}

impl fmt::Debug for BucketRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRows").finish_non_exhaustive()
    }
}

impl PartitionStream for BucketRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let batches = match rows.take() {
            None => {
                futures::stream::once(async { internal_err!("a bucket is read twice") }).boxed()
            }
            Some(receiver) => futures::stream::unfold(receiver, async |mut receiver| {
                let batch = receiver.recv().await?;
                Some((Ok(batch), receiver))
            })
            .boxed(),
        };
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        ))
    }
}
