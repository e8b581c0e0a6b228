//! A run whose parts other processes do, on this machine or on many: readers of files, and scorers of buckets.
//!
//! The driver opens the files and writes a job (`job.rs`) beside the run's markers. Workers read units of the files and
//! say of each row its bucket; an [`Exchange`] carries rows of one bucket to one place; there a worker scores them with the
//! same code that scores a bucket on one machine, writes its files aside and puts a marker. What no marker says has not
//! happened: so parts may be lost, done twice, or end late, and the tables are the same, byte for byte.

mod attempt;
mod driver;
mod job;
mod open_job;
mod score;
mod unit;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
pub(super) use driver::drive;
pub use driver::{Exchange, PartsOfRun};
pub use job::JobPlace;
pub(super) use job::{EncoderOfJob, FileOfJob, NightOfJob, WorkerJob};
use open_job::OpenJobs;
pub use open_job::WorkerSettings;
pub use score::ExchangedRows;
pub use unit::{BUCKET, Unit};

use crate::output::RunError;

/// A process that does parts of runs. It keeps the models that it has loaded.
#[derive(Debug)]
pub struct Worker {
    settings: WorkerSettings,
    open: OpenJobs,
}

impl Worker {
    /// A worker. It loads a model when a job asks for one.
    pub fn new(settings: WorkerSettings) -> Self {
        Self {
            settings,
            open: OpenJobs::default(),
        }
    }

    /// The columns of the rows of a job on their way from readers to scorers.
    ///
    /// # Errors
    /// As those of [`Worker::read`], but for the files.
    pub fn schema(&self, place: &JobPlace) -> Result<SchemaRef, RunError> {
        let job = self.open.open(place, &self.settings)?;
        Ok(unit::exchanged_schema(&job.job.rules))
    }

    /// Reads a unit. `each` gets batches of rows with the column [`BUCKET`] and returns whether it takes more. When it has
    /// taken all of them the unit counts as read.
    ///
    /// # Errors
    /// [`RunError`] naming the worker, where its version, model or device is another than the run's, or the file that can't be
    /// read.
    pub fn read(
        &self,
        place: &JobPlace,
        unit: &Unit,
        each: impl FnMut(RecordBatch) -> bool,
    ) -> Result<(), RunError> {
        let job = self.open.open(place, &self.settings)?;
        unit::read(&job, unit, each)?;
        tracing::info!(unit = unit.number, run = %job.job.run.display(), "read");
        Ok(())
    }

    /// Scores rows: all rows of each of their buckets, in any order. Each bucket is committed on its own, under a marker
    /// that only one attempt can put. Returns the numbers of the buckets.
    ///
    /// # Errors
    /// [`RunError`]; buckets that were committed before stay so.
    pub async fn score(&self, place: &JobPlace, rows: ExchangedRows) -> Result<Vec<u32>, RunError> {
        let job = self.open.open(place, &self.settings)?;
        let buckets = score::score(&job, &self.settings, rows).await?;
        tracing::info!(?buckets, run = %job.job.run.display(), "scored");
        Ok(buckets)
    }

    /// The same, of rows that a reader gives, on threads of its own.
    ///
    /// # Errors
    /// As those of [`Worker::score`]; the reader's.
    pub fn score_here(
        &self,
        place: &JobPlace,
        rows: impl RecordBatchReader + Send + 'static,
    ) -> Result<Vec<u32>, RunError> {
        let runtime = crate::run::runtime(1)?;
        let schema = rows.schema();
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        // A reader may wait for whoever makes the rows: no thread of the engine may.
        let feeding = runtime.spawn_blocking(move || {
            for batch in rows {
                if sender
                    .blocking_send(batch.map_err(DataFusionError::from))
                    .is_err()
                {
                    return;
                }
            }
        });
        let batches = futures::stream::unfold(receiver, async |mut receiver| {
            let batch = receiver.recv().await?;
            Some((batch, receiver))
        });
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
        let scored = runtime.block_on(self.score(place, rows));
        drop(feeding);
        runtime.shutdown_background();
        scored
    }
}
