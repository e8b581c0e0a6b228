//! Queries over the views, for the figures of this room.

use std::error::Error;
use std::num::NonZero;

use arrow::array::{Int64Array, RecordBatch};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use tokio::runtime::{Builder, Runtime};

use super::Views;
use crate::engine::{EngineOptions, engine_session};
use crate::history::figures::Target;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{whole_number, whole_numbers};
use crate::metric::SignalWeights;
use crate::text::TextMode;

/// Bytes that sorting and joining may hold before they spill.
const MEMORY: usize = 1 << 30;

/// Views that can be asked.
pub(crate) struct Asked {
    context: SessionContext,
    runtime: Runtime,
    /// Where queries spill.
    _spill: tempfile::TempDir,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl Asked {
    /// Makes the named views known.
    ///
    /// # Errors
    /// [`HistoryError`] if a file of a run can't be read.
    pub fn of(views: &Views, needed: &[&str]) -> Result<Self, HistoryError> {
        let failed = |e: std::io::Error| HistoryError::Query(e.to_string());
        let spill = tempfile::tempdir().map_err(failed)?;
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let context = engine_session(&EngineOptions {
            threads,
            memory: MEMORY,
            spill_folder: spill.path().to_owned(),
            embedding: None,
            window: 0,
            weights: SignalWeights::with(&[]).map_err(|e| HistoryError::Query(e.to_string()))?,
            text_mode: TextMode::Compat,
        })
        .map_err(of_query)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .build()
            .map_err(failed)?;
        runtime
            .block_on(views.register(&context, |view| needed.contains(&view)))
            .map_err(of_query)?;
        Ok(Self {
            context,
            runtime,
            _spill: spill,
        })
    }

    /// Makes a query known by a name.
    ///
    /// # Errors
    /// [`HistoryError`] if it does not fit the tables.
    pub fn view(&self, name: &str, query: &str) -> Result<(), HistoryError> {
        let statement = format!("CREATE VIEW {name} AS {query}");
        let made = self.runtime.block_on(self.context.sql(&statement));
        made.map(drop).map_err(of_query)
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// [`HistoryError`] if a file of a run can't be read.
    pub fn rows(&self, query: &str) -> Result<Vec<RecordBatch>, HistoryError> {
        let rows = async { self.context.sql(query).await?.collect().await };
        self.runtime.block_on(rows).map_err(of_query)
    }

    /// The columns of a table or view.
    ///
    /// # Errors
    /// [`HistoryError`] if there is none.
    pub fn columns(&self, table: &str) -> Result<Vec<String>, HistoryError> {
        let provider = self.runtime.block_on(self.context.table_provider(table));
        let schema = provider.map_err(of_query)?.schema();
        let fields = schema.fields().iter();
        Ok(fields.map(|field| field.name().clone()).collect())
    }
}

/// An error of a query as one of this room: what is wrong with which run, if a file of one can't be read.
fn of_query(error: DataFusionError) -> HistoryError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(at) = cause {
        if let Some(known) = at.downcast_ref::<HistoryError>() {
            return known.clone();
        }
        // An error in a box does not tell that it is one of ours.
        if let Some(DataFusionError::External(inside)) = at.downcast_ref::<DataFusionError>()
            && let Some(known) = inside.downcast_ref::<HistoryError>()
        {
            return known.clone();
        }
        cause = at.source();
    }
    HistoryError::Query(error.to_string())
}

/// Sums of sessions in a batch.
pub(crate) struct SumColumns {
    runs: Int64Array,
    sessions: Int64Array,
    counts: Int64Array,
    sums: Int64Array,
}

impl SumColumns {
    /// # Errors
    /// If a column is missing.
    pub fn of(batch: &RecordBatch) -> Result<Self, String> {
        Ok(Self {
            runs: whole_numbers(batch, "run_no")?,
            sessions: whole_numbers(batch, "sessions")?,
            counts: whole_numbers(batch, "n")?,
            sums: whole_numbers(batch, "s")?,
        })
    }

    /// The run, how many sessions are alike, how many scores each has, and their sum in steps.
    pub fn row(&self, row: usize) -> Option<(usize, u64, u64, u64)> {
        let of = |column| whole_number(column, row).and_then(|number| u64::try_from(number).ok());
        let run = usize::try_from(whole_number(&self.runs, row)?).ok()?;
        Some((run, of(&self.sessions)?, of(&self.counts)?, of(&self.sums)?))
    }
}

/// What a score is about, by its name in tables.
pub(crate) fn target(name: Option<&str>) -> Target {
    match name {
        Some("session") => Target::Session,
        _ => Target::Trace,
    }
}

/// Hands on each batch of a result.
///
/// # Errors
/// What `each` finds wrong.
pub(crate) fn each_batch(
    batches: &[RecordBatch],
    mut each: impl FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), HistoryError> {
    batches
        .iter()
        .try_for_each(|batch| each(batch).map_err(HistoryError::Query))
}
