//! A tap on the plan: rows pass through unchanged, and somebody gets to see them. So trace rows are
//! written while the same plan goes on to fold them into sessions.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

/// Sees every batch, in the plan's order.
type OnBatch = dyn FnMut(&RecordBatch) -> Result<()> + Send;

/// Who watches; nobody any more once the tap is closed.
type Watcher = Arc<Mutex<Option<Box<OnBatch>>>>;

/// A table that is the rest of a plan, with somebody watching its single, ordered output.
pub struct Tap {
    input: Arc<dyn ExecutionPlan>,
    watcher: Watcher,
}

impl Tap {
    /// Watches `input`, which has one partition. The watcher sees its rows in the order that it has now.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        on_batch: impl FnMut(&RecordBatch) -> Result<()> + Send + 'static,
    ) -> Self {
        Self {
            input,
            watcher: Arc::new(Mutex::new(Some(Box::new(on_batch)))),
        }
    }

    /// Lets the watcher go. A plan may be held longer than it runs, and with it whatever the watcher holds.
    pub fn close(&self) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        *watcher = None;
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Tap {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
    fn table_type(&self) -> TableType {
        TableType::Temporary
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let properties = Arc::clone(self.input.properties());
        let tap: Arc<dyn ExecutionPlan> = Arc::new(TapExec {
            input: Arc::clone(&self.input),
            watcher: Arc::clone(&self.watcher),
            properties,
        });
        match projection {
            None => Ok(tap),
            Some(columns) => project(tap, columns),
        }
    }
}

/// These columns of a plan.
pub(super) fn project(
    input: Arc<dyn ExecutionPlan>,
    columns: &[usize],
) -> Result<Arc<dyn ExecutionPlan>> {
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::projection::ProjectionExec;
    let schema = input.schema();
    let expressions = columns.iter().map(|&at| {
        let name = schema.field(at).name().clone();
        (
            Arc::new(Column::new(&name, at)) as Arc<dyn PhysicalExpr>,
            name,
        )
    });
    Ok(Arc::new(ProjectionExec::try_new(
        expressions.collect::<Vec<_>>(),
        input,
    )?))
}

/// To whoever plans on top of it this is a leaf: what is below was planned already, for more streams than the plan on top
/// has, and must stay as it is.
struct TapExec {
    input: Arc<dyn ExecutionPlan>,
    watcher: Watcher,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for TapExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapExec")
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for TapExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TapExec: trace rows to the run directory")
    }
}

impl ExecutionPlan for TapExec {
    fn name(&self) -> &str {
        "TapExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("TapExec is a leaf"),
        }
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let watcher = Arc::clone(&self.watcher);
        let stream = input.map(move |batch| {
            let batch = batch?;
            let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
            match watcher.as_mut() {
                Some(on_batch) => on_batch(&batch)?,
                None => return internal_err!("a plan went on after its tap was closed"),
            }
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.input.schema(),
            stream,
        )))
    }
}
