//! The plan of a run on a cluster: a list of units, their rows, an exchange by bucket, scorers.

use std::sync::Arc;

use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::read_units::{ReadUnitsExec, list_of, units_schema};
use super::score_buckets::ScoreBucketsExec;
use crate::run::worker::{BUCKET, PartsOfRun};

/// Files that readers write for scorers, at most: the scheduler remembers where each is.
const MOST_FILES: usize = 1 << 20;

/// The plan of a run's parts.
pub(super) fn plan_of(parts: &PartsOfRun) -> Result<Arc<dyn ExecutionPlan>> {
    let lists = parts.units.iter().map(|unit| Ok(vec![list_of(unit)?]));
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let list = MemorySourceConfig::try_new_exec(&lists, units_schema(), None)?;
    let (job, schema) = (parts.job.clone(), Arc::clone(&parts.schema));
    let bucket = col(BUCKET, &schema)?;
    let rows: Arc<dyn ExecutionPlan> = Arc::new(ReadUnitsExec::new(job, schema, list, None));
    let most = (MOST_FILES / parts.units.len().max(1)).max(1);
    let scorers = (parts.buckets as usize).min(most);
    let exchanged = RepartitionExec::try_new(rows, Partitioning::Hash(vec![bucket], scorers))?;
    let job = parts.job.clone();
    Ok(Arc::new(ScoreBucketsExec::new(
        job,
        Arc::new(exchanged),
        None,
    )))
}
