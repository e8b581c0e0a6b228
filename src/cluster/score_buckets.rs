//! The second stage: the rows of whole buckets go in, files come to be; out come the numbers of the buckets, which nobody
//! looks at.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::TryStreamExt;

use super::codec::{engine_error, no_worker};
use crate::run::worker::{BUCKET, JobPlace, Worker};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(
        BUCKET,
        DataType::UInt32,
        false,
    )]))
}

/// The error that a stream ended with, as it was.
type Lost = Arc<Mutex<Option<DataFusionError>>>;

/// The same rows, and where the error goes that ends them: Ballista knows by it what was lost, and from whom, and has that
/// done again. Whoever scores the rows gets its text.
fn remembering(rows: SendableRecordBatchStream) -> (SendableRecordBatchStream, Lost) {
    let lost = Lost::default();
    let (schema, keep) = (rows.schema(), Arc::clone(&lost));
    let rows = rows.map_err(move |error| {
        let told = DataFusionError::Execution(error.to_string());
        *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        told
    });
    (Box::pin(RecordBatchStreamAdapter::new(schema, rows)), lost)
}

/// Scores the buckets of its input, whose partitions hold whole ones.
pub(super) struct ScoreBucketsExec {
    pub job: JobPlace,
    rows: Arc<dyn ExecutionPlan>,
    worker: Option<Arc<Worker>>,
    properties: Arc<PlanProperties>,
}

impl ScoreBucketsExec {
    pub fn new(job: JobPlace, rows: Arc<dyn ExecutionPlan>, worker: Option<Arc<Worker>>) -> Self {
        let partitions = rows.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema()),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Self {
            job,
            rows,
            worker,
            properties,
        }
    }
}

impl fmt::Debug for ScoreBucketsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreBucketsExec")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ScoreBucketsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScoreBucketsExec: job={}", self.job.path.display())
    }
}

impl ExecutionPlan for ScoreBucketsExec {
    fn name(&self) -> &str {
        "ScoreBucketsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([rows]) = <[_; 1]>::try_from(children) else {
            return internal_err!("ScoreBucketsExec has one input");
        };
        Ok(Arc::new(Self::new(
            self.job.clone(),
            rows,
            self.worker.clone(),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(worker) = self.worker.clone() else {
            return no_worker();
        };
        let (rows, lost) = remembering(self.rows.execute(partition, context)?);
        let job = self.job.clone();
        let scored = futures::stream::once(async move {
            let buckets = worker.score(&job, rows).await.map_err(|error| {
                let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.take().unwrap_or_else(|| engine_error(error))
            })?;
            let column: ArrayRef = Arc::new(UInt32Array::from(buckets));
            Ok(RecordBatch::try_new(schema(), vec![column])?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), scored)))
    }
}
