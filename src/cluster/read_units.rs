//! The first stage: a list of units goes in, their rows come out.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;

use super::codec::{engine_error, no_worker};
use crate::run::worker::{JobPlace, Unit, Worker};

/// The column of units, each as JSON.
const UNIT: &str = "unit";

/// The columns of a list of units.
pub(super) fn units_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(UNIT, DataType::Utf8, false)]))
}

/// A list of one unit.
pub(super) fn list_of(unit: &Unit) -> Result<RecordBatch> {
    let text = serde_json::to_string(unit).map_err(|e| DataFusionError::External(e.into()))?;
    let column: ArrayRef = Arc::new(StringArray::from(vec![text]));
    Ok(RecordBatch::try_new(units_schema(), vec![column])?)
}

/// Reads the units of its input. The list is its input and no part of it: whoever hands out tasks cuts inputs, and would have
/// each task read all units of a node without one.
pub(super) struct ReadUnitsExec {
    pub job: JobPlace,
    list: Arc<dyn ExecutionPlan>,
    worker: Option<Arc<Worker>>,
    properties: Arc<PlanProperties>,
}

impl ReadUnitsExec {
    pub fn new(
        job: JobPlace,
        schema: SchemaRef,
        list: Arc<dyn ExecutionPlan>,
        worker: Option<Arc<Worker>>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            list.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self {
            job,
            list,
            worker,
            properties,
        }
    }
}

impl fmt::Debug for ReadUnitsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadUnitsExec")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ReadUnitsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadUnitsExec: job={}", self.job.path.display())
    }
}

impl ExecutionPlan for ReadUnitsExec {
    fn name(&self) -> &str {
        "ReadUnitsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.list]
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
        let Ok([list]) = <[_; 1]>::try_from(children) else {
            return internal_err!("ReadUnitsExec has one input");
        };
        Ok(Arc::new(Self::new(
            self.job.clone(),
            self.schema(),
            list,
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
        let mut list = self.list.execute(partition, context)?;
        let job = self.job.clone();
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), 2);
        let sender = builder.tx();
        builder.spawn(async move {
            while let Some(batch) = list.next().await {
                for text in batch?.column(0).as_string::<i32>().iter().flatten() {
                    let unit: Unit = serde_json::from_str(text)
                        .map_err(|e| DataFusionError::External(e.into()))?;
                    let (worker, job, sender) = (Arc::clone(&worker), job.clone(), sender.clone());
                    let read = tokio::task::spawn_blocking(move || {
                        worker.read(&job, &unit, |batch| sender.blocking_send(Ok(batch)).is_ok())
                    });
                    let read = read
                        .await
                        .map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
                    read.map_err(engine_error)?;
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }
}
