//! Scoring the sessions of a bucket: from scored traces to the rows of all tables, and what they come to. A run in one piece
//! is one bucket.

mod asked;
mod counts;
mod finished;
mod of_run;
mod tables;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arrow::array::RecordBatch;
pub(super) use asked::{Asked, buckets};
pub(super) use counts::{BucketCounts, SessionCounts, TraceCounts};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
pub(super) use finished::{FileOfBucket, FinishedBuckets, Marker};
pub(super) use of_run::RunBuckets;
pub(super) use tables::{BucketPlace, FACTS, PLACES, SessionTables};

use super::carried::FirstNights;
use super::judging::judgements::Judgements;
use super::night::SessionsSoFar;
use super::session_rows::SessionRows;
use super::trace_rows::{TraceBatches, TraceRows};
use crate::engine::{SessionPlan, Tap, external, for_each_batch};
use crate::metric::Rules;
use crate::output::RunError;
use crate::output::score_rows::ModelLabel;

/// What scoring a bucket needs beside its rows: the same for all buckets of a run.
#[derive(Debug)]
pub(super) struct BucketJob {
    pub rules: Rules,
    /// Of the embedding model, if there is one.
    pub labels: Option<ModelLabel>,
    /// Whether a quick model goes before it.
    pub triage: bool,
    /// Trace ids with given signals.
    pub given: HashSet<String>,
    /// What judges said of traces.
    pub judgements: Option<Judgements>,
    /// The number of the file whose rows stand for what can't be read again.
    pub standing_in: Option<usize>,
    /// Traces that keep the scores of an earlier run, by canonical id, and that run.
    pub kept: BTreeMap<String, String>,
    /// When its traces were new.
    pub nights: FirstNights,
    /// The sessions of earlier nights; none of a run that continues no other.
    pub so_far: Option<SessionsSoFar>,
    /// The files that are read, by number.
    pub files: Vec<String>,
    pub sessions: SessionPlan,
}

/// Takes in the rows of tables, in their order.
pub(super) trait Sink<Rows> {
    /// Takes rows.
    fn write(&mut self, rows: Rows) -> Result<(), RunError>;
}

/// What comes of a batch of sessions.
#[derive(Debug)]
pub(super) struct SessionBatches {
    /// Rows of `sessions`.
    pub sessions: RecordBatch,
    /// Rows of `scores`, any number a session.
    pub scores: RecordBatch,
    /// What the order of sessions and the report need to know of each beside its row; then thrown away.
    pub facts: Option<RecordBatch>,
}

/// Scores the sessions of a bucket: `rows` is a plan of one stream of its scored traces in session order. Rows of traces go
/// to `traces` from a thread of their own, so that making them holds up no plan; rows of sessions go to `sessions`.
///
/// # Errors
/// [`RunError`]: of the plan, or of whoever takes the rows.
pub(super) async fn score_bucket<T, S>(
    job: &Arc<BucketJob>,
    context: &SessionContext,
    rows: Arc<dyn ExecutionPlan>,
    mut traces: T,
    sessions: &mut S,
) -> Result<(BucketCounts, T), RunError>
where
    T: Sink<TraceBatches> + Send + 'static,
    S: Sink<SessionBatches>,
{
    // At most a few batches wait.
    let (sender, receiver) = sync_channel::<RecordBatch>(4);
    let of_traces = Arc::clone(job);
    let writer = tokio::task::spawn_blocking(move || {
        let mut rows = TraceRows::of(&of_traces);
        while let Ok(batch) = receiver.recv() {
            traces.write(rows.make(&batch)?)?;
        }
        Ok::<_, RunError>((rows.counts, traces))
    });
    let tap = Arc::new(Tap::new(rows, move |batch| {
        // The writer only stops listening when it has failed; its own error is the one to report.
        let stopped = |_| external(RunError::Plan("trace rows can't be written".into()));
        sender.send(batch.clone()).map_err(stopped)
    }));
    let (labels, so_far) = (job.labels.as_ref(), job.so_far.as_ref());
    let mut session_rows = SessionRows::of(&job.rules, labels, so_far)
        .with_files(&job.files)
        .of_triage(job.triage);
    let table = Arc::clone(&tap);
    let ran = match job.sessions.sessions(context, table).await {
        Err(e) => Err(e),
        Ok(frame) => {
            for_each_batch(frame, |batch| {
                let rows = session_rows.make(&batch).map_err(external)?;
                sessions.write(rows).map_err(external)
            })
            .await
        }
    };
    // The channel's sending end goes, and the writer comes to its end.
    tap.close();
    let written = writer.await;
    let written =
        written.map_err(|_| RunError::Plan("the writer of trace rows panicked".into()))?;
    let (trace_counts, traces) = written?;
    ran?;
    let counts = BucketCounts {
        traces: trace_counts,
        sessions: session_rows.counts,
    };
    Ok((counts, traces))
}
