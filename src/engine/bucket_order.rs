//! Rows in the order of sessions, and in streams of whole buckets.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties};

/// What makes a session.
pub(super) const SESSION: [&str; 2] = ["session_id", "project_id"];
/// Sessions one after the other, and each in the order of its traces; nulls last.
const ORDER: [&str; 5] = [
    "session_id",
    "project_id",
    "started_at",
    "started_at_nanos",
    "trace_id",
];
/// The column of buckets: a session is in one.
pub(super) const BUCKET: &str = "bucket";

/// These columns of a plan.
pub(super) fn columns(schema: &Schema, names: &[&str]) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    names.iter().map(|name| col(name, schema)).collect()
}

/// Session order; of rows in buckets, one bucket after the other.
pub(super) fn session_order(schema: &Schema, in_buckets: bool) -> Result<Option<LexOrdering>> {
    let nulls_last = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let mut order = columns(schema, &ORDER)?;
    if in_buckets {
        order.insert(0, col(BUCKET, schema)?);
    }
    let order = order
        .into_iter()
        .map(|column| PhysicalSortExpr::new(column, nulls_last));
    Ok(LexOrdering::new(order))
}

/// The rows of a plan in so many streams of whole buckets, each in session order. A plan that has them so stays as it is.
pub(super) fn in_buckets(
    rows: Arc<dyn ExecutionPlan>,
    streams: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let bucket = columns(&schema, &[BUCKET])?;
    let whole = Distribution::KeyPartitioned(bucket.clone());
    let known = rows.equivalence_properties();
    let partitioning = rows.output_partitioning();
    let is_whole = partitioning
        .satisfaction(&whole, known, false)
        .is_satisfied();
    let rows: Arc<dyn ExecutionPlan> = match is_whole {
        true => rows,
        false => Arc::new(RepartitionExec::try_new(
            rows,
            Partitioning::Hash(bucket, streams.max(1)),
        )?),
    };
    let Some(order) = session_order(&schema, true)? else {
        return Ok(rows);
    };
    let sorted = rows
        .equivalence_properties()
        .ordering_satisfy(order.clone())?;
    Ok(match sorted {
        true => rows,
        false => Arc::new(SortExec::new(order, rows).with_preserve_partitioning(true)),
    })
}
