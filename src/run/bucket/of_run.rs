//! The buckets of a run, one after the other in as many streams as there are cores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::SessionContext;
use serde_json::Value;

use super::{BucketCounts, BucketJob, BucketPlace, FinishedBuckets};
use crate::engine::for_each_bucket;
use crate::output::table_writer::Parts;
use crate::output::{RunDirectory, RunError};
use crate::trace::Buckets;

/// The buckets of a run.
#[derive(Debug)]
pub(in crate::run) struct RunBuckets {
    pub count: Buckets,
    /// Where finished ones are noted; none where nobody can go on with them.
    finished: Option<FinishedBuckets>,
    /// Those that a run which was broken off has finished, and what came of them.
    done: Mutex<BTreeMap<u32, BucketCounts>>,
    /// Their numbers.
    pub done_before: Vec<u32>,
}

impl RunBuckets {
    /// All sessions in one.
    pub fn one() -> Self {
        Self {
            count: Buckets::ONE,
            finished: None,
            done: Mutex::default(),
            done_before: Vec::new(),
        }
    }

    /// Those of a run that is asked this. What a run that was broken off has finished counts, unless judges are asked: what
    /// they say now may be more than they said then.
    ///
    /// # Errors
    /// As those of [`FinishedBuckets::open`].
    pub fn open(
        run: &RunDirectory,
        count: Buckets,
        asked: &Value,
        judged: bool,
        elsewhere: bool,
    ) -> Result<Self, RunError> {
        let (finished, mut done) = FinishedBuckets::open(run, count, asked, elsewhere)?;
        if judged && !done.is_empty() {
            tracing::warn!(
                "--resume: {} finished buckets are scored again, since judges are asked; answers come from the ledger, \
                 vectors from the cache",
                done.len()
            );
            done.clear();
            finished.remove_all()?;
        }
        Ok(Self {
            count,
            finished: Some(finished),
            done_before: done.keys().copied().collect(),
            done: Mutex::new(done),
        })
    }

    /// Scores `rows` and writes their tables: one stream in session order, or streams of whole buckets where there are several.
    ///
    /// # Errors
    /// As those of [`super::score_bucket`], and the disk's.
    pub async fn score(
        &self,
        job: &Arc<BucketJob>,
        context: &SessionContext,
        run: &RunDirectory,
        rows: Arc<dyn ExecutionPlan>,
    ) -> Result<BucketCounts, RunError> {
        let place = BucketPlace::of(run, Parts::OfAll);
        if self.count == Buckets::ONE {
            return place.score(job, context, rows).await;
        }
        let (schema, task) = (rows.schema(), context.task_ctx());
        let each = {
            let (job, place) = (Arc::clone(job), place.clone());
            let (context, finished) = (context.clone(), self.finished.clone());
            move |bucket, rows| {
                let (job, place) = (Arc::clone(&job), place.bucket(bucket));
                let (context, finished) = (context.clone(), finished.clone());
                async move {
                    let counts = place.score(&job, &context, rows).await?;
                    if let Some(finished) = finished {
                        finished.add(bucket, &counts)?;
                    }
                    Ok::<_, RunError>((bucket, counts))
                }
            }
        };
        let scored = for_each_bucket(rows, task, each).await?;
        let sum = self.sum(scored);
        if let Some(sum) = sum {
            return Ok(sum);
        }
        // Readers find the columns of the tables even where there are no rows.
        let nothing = Arc::new(EmptyExec::new(schema));
        place.bucket(0).score(job, context, nothing).await
    }

    /// What these buckets come to, with those that were finished before; none if there is no bucket.
    pub fn sum(&self, scored: Vec<(u32, BucketCounts)>) -> Option<BucketCounts> {
        let mut all = self.take_done();
        all.extend(scored);
        let mut counts = all.into_values();
        let mut sum = counts.next()?;
        counts.for_each(|more| sum.merge(more));
        Some(sum)
    }

    /// The folder of the markers of finished buckets.
    pub fn markers(&self) -> Option<&std::path::Path> {
        self.finished.as_ref().map(FinishedBuckets::folder)
    }

    fn take_done(&self) -> BTreeMap<u32, BucketCounts> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *done)
    }
}
