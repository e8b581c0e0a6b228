//! Scoring rows of whole buckets, wherever they come from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::internal_err;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, stream};

use super::attempt::{self, ATTEMPTS};
use super::job::JobPlace;
use super::open_job::{OpenJob, WorkerSettings};
use super::unit::{BUCKET, read_schema};
use crate::embed::{EmbeddingCounts, EmbeddingService};
use crate::engine::for_each_bucket;
use crate::output::RunError;
use crate::output::directory::UNFINISHED;
use crate::output::score_rows::ModelLabel;
use crate::output::table_writer::Parts;
use crate::run::bucket::{BucketJob, BucketPlace, Marker};
use crate::run::engine::service_of;
use crate::run::engine_plans::{PlanFacts, plan_session, session_plan, trace_plan};
use crate::run::judging::judgements::Judgements;
use crate::run::signals_file::GivenSignals;

/// Batches of rows, in no order, with the column [`BUCKET`].
pub type ExchangedRows = SendableRecordBatchStream;

/// Scores rows: all rows of each of their buckets. Each bucket is committed on its own. Returns their numbers.
///
/// # Errors
/// [`RunError`]; buckets that were committed before stay so.
pub(super) async fn score(
    open: &Arc<OpenJob>,
    settings: &WorkerSettings,
    rows: ExchangedRows,
) -> Result<Vec<u32>, RunError> {
    let job = &open.job;
    let engine = settings.engine(job.encoder.as_ref());
    let scratch = tempfile::Builder::new()
        .prefix("part-")
        .tempdir_in(&settings.folder)
        .map_err(|e| RunError::write(&settings.folder, e))?;
    let folder = scratch.path();
    let service = match &open.model {
        None => None,
        Some(model) => Some(service_of(Arc::clone(model), &engine, folder)?),
    };
    let given = GivenSignals::of_rows(job.signals.clone(), job.given.clone());
    let judgements = match &job.judged {
        None => None,
        Some(judged) => {
            let mut judgements = Judgements::create(folder)?;
            for (trace_id, of_trace) in judged {
                judgements.put(trace_id, of_trace)?;
            }
            judgements.flush()?;
            Some(judgements)
        }
    };
    let context = plan_session(
        &engine,
        &job.rules,
        service.clone(),
        None,
        folder.to_owned(),
    )?;
    let facts = PlanFacts {
        given: &given.names,
        repeats: job.repeats,
        triage: false,
        buckets: (job.buckets(), &[]),
    };
    let plan = trace_plan(&job.rules, facts, None);
    let counted = Arc::new(CountedRows::new(read_schema(&job.rules), rows));
    let partition = Arc::clone(&counted) as Arc<dyn PartitionStream>;
    let table = StreamingTable::try_new(Arc::clone(&counted.schema), vec![partition])?;
    context.register_table("traces", Arc::new(table))?;
    if !given.names.is_empty() {
        context.register_table("signals", given.table()?)?;
    }
    let computed = plan.computed(&context).await?;
    let judged = judgements.as_ref().map(Judgements::table).transpose()?;
    let rows = plan.in_buckets(&context, computed, judged).await?;
    let bucket_job = Arc::new(bucket_job(open, service.as_ref(), &given, judgements));
    let encoder = service.clone();
    let part = Arc::new(Part {
        work: job.work(),
        place: open.place.clone(),
        job: bucket_job,
        context: context.clone(),
        counted,
        service,
        told: Mutex::default(),
    });
    let each = move |bucket, rows| {
        let part = Arc::clone(&part);
        async move { part.score(bucket, rows).await }
    };
    let scored = for_each_bucket(rows, context.task_ctx(), each).await?;
    if let Some(encoder) = encoder {
        encoder.finish();
    }
    Ok(scored)
}

fn bucket_job(
    open: &OpenJob,
    service: Option<&Arc<EmbeddingService>>,
    given: &GivenSignals,
    judgements: Option<Judgements>,
) -> BucketJob {
    let job = &open.job;
    let mut given_ids = given.ids();
    if let Some(only) = &open.only {
        given_ids.retain(|trace_id| only.contains(trace_id));
    }
    let night = job.night.as_ref();
    BucketJob {
        rules: job.rules.clone(),
        labels: service.map(|service| ModelLabel::of(service.model())),
        triage: false,
        given: given_ids,
        standing_in: night.and_then(|night| night.standing_in),
        kept: night.map(|night| night.kept.clone()).unwrap_or_default(),
        nights: night
            .map(super::job::NightOfJob::first_nights)
            .unwrap_or_default(),
        so_far: night.map(super::job::NightOfJob::so_far),
        files: job.files.iter().map(|file| file.shown.clone()).collect(),
        sessions: session_plan(&job.rules, &given.names, |name| {
            judgements
                .as_ref()
                .is_some_and(|judged| judged.has_signal(name))
        }),
        judgements,
    }
}

/// The buckets of one stream of rows.
struct Part {
    /// The working files of the run.
    work: PathBuf,
    place: JobPlace,
    job: Arc<BucketJob>,
    context: SessionContext,
    counted: Arc<CountedRows>,
    service: Option<Arc<EmbeddingService>>,
    /// What markers have said of embedding so far.
    told: Mutex<EmbeddingCounts>,
}

impl Part {
    /// Scores a bucket and commits it.
    async fn score(
        &self,
        bucket: u32,
        rows: Arc<dyn datafusion::physical_plan::ExecutionPlan>,
    ) -> Result<u32, RunError> {
        let rows_of_it = self.counted.of(bucket);
        if rows_of_it == 0 {
            return Err(RunError::Plan(format!(
                "bucket {bucket} has traces, and no row was carried for it: what its rows say of their session is not what the driver \
                 has read; nothing of it is used"
            )));
        }
        let attempts = self.work.join(ATTEMPTS);
        // Where the run is gone, nothing is begun.
        let folder = tempfile::Builder::new()
            .prefix(&format!("{bucket:05}."))
            .tempdir_in(&attempts)
            .map_err(|e| RunError::write(&attempts, e))?;
        let work = folder.path().join("work");
        std::fs::create_dir(&work).map_err(|e| RunError::write(&work, e))?;
        let place = BucketPlace::in_folder(folder.path().to_owned(), Parts::OfBucket(bucket));
        let counts = place.score(&self.job, &self.context, rows).await?;
        let files = attempt::files_of(folder.path())?;
        // It stays from here on, for whoever reads the marker.
        let folder = folder.keep();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let marker = Marker {
            bucket,
            files,
            counts,
            attempt: Some(format!("{ATTEMPTS}/{name}")),
            rows: rows_of_it,
            embedding: self.embedded(),
        };
        attempt::check_current(&self.work, &self.place)?;
        attempt::commit(&self.work, &self.work.join(UNFINISHED), &marker)?;
        Ok(bucket)
    }

    /// What was embedded since the last marker.
    fn embedded(&self) -> EmbeddingCounts {
        let now = self
            .service
            .as_ref()
            .map(|service| service.counts())
            .unwrap_or_default();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.since(&told);
        *told = now;
        since
    }
}

/// Rows on their way, counted by bucket; without the column of buckets.
struct CountedRows {
    schema: SchemaRef,
    rows: Mutex<Option<ExchangedRows>>,
    counts: Arc<Mutex<BTreeMap<u32, u64>>>,
}

impl CountedRows {
    fn new(schema: SchemaRef, rows: ExchangedRows) -> Self {
        Self {
            schema,
            rows: Mutex::new(Some(rows)),
            counts: Arc::default(),
        }
    }

    /// Rows of a bucket so far.
    fn of(&self, bucket: u32) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&bucket).copied().unwrap_or_default()
    }
}

impl std::fmt::Debug for CountedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountedRows").finish_non_exhaustive()
    }
}

/// Counts the rows of a batch by bucket, and takes the columns of traces out of it.
fn counted(
    schema: &SchemaRef,
    counts: &Mutex<BTreeMap<u32, u64>>,
    batch: &RecordBatch,
) -> Result<RecordBatch, DataFusionError> {
    let Some(buckets) = batch.column_by_name(BUCKET) else {
        return internal_err!("rows lack the column {BUCKET}");
    };
    let buckets = cast(buckets, &DataType::UInt32)?;
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    for bucket in buckets.as_primitive::<UInt32Type>().iter().flatten() {
        *counts.entry(bucket).or_default() += 1;
    }
    drop(counts);
    // By name: whoever carried the rows may have put the columns in another order.
    let columns = schema.fields().iter().map(|field| {
        let Some(column) = batch.column_by_name(field.name()) else {
            return internal_err!("rows lack the column {}", field.name());
        };
        // Likewise whoever carried them may have given them other types.
        match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => Ok(cast(column, field.data_type())?),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

impl PartitionStream for CountedRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self
            .rows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (schema, counts) = (Arc::clone(&self.schema), Arc::clone(&self.counts));
        let batches = match rows {
            None => stream::once(async { internal_err!("rows of a part are read twice") }).boxed(),
            Some(rows) => rows
                .map(move |batch| counted(&schema, &counts, &batch?))
                .boxed(),
        };
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        ))
    }
}
