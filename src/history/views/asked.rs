//! Queries over the views, for the figures of this room.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::num::NonZero;

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use tokio::runtime::{Builder, Runtime};

use super::Views;
use crate::engine::{EngineOptions, engine_session};
use crate::history::figures::Target;
use crate::history::model_labels::ModelLabels;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, text, whole_number, whole_numbers};
use crate::metric::SignalWeights;
use crate::text::TextMode;

/// What queries may take.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    /// Threads at work.
    pub threads: usize,
    /// Bytes that sorting and joining may hold before they spill.
    pub memory: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, NonZero::get),
            memory: 1 << 30,
        }
    }
}

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
        Self::within(views, needed, QueryLimits::default())
    }

    /// The same within limits.
    ///
    /// # Errors
    /// As [`Asked::of`].
    pub fn within(
        views: &Views,
        needed: &[&str],
        limits: QueryLimits,
    ) -> Result<Self, HistoryError> {
        let QueryLimits { threads, memory } = limits;
        let failed = |e: std::io::Error| HistoryError::Query(e.to_string());
        let spill = tempfile::tempdir().map_err(failed)?;
        let context = engine_session(&EngineOptions {
            threads,
            memory,
            spill_folder: spill.path().to_owned(),
            embedding: None,
            triage: None,
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

/// A query for sums over sessions, of rows that are alike in `keys`: how many sessions have how many rows and which sum.
/// Sessions that are alike are one row, so that there are far fewer rows than sessions.
pub(crate) fn sums_of(keys: &str, sum: &str, from: &str) -> String {
    format!(
        "SELECT {keys}, n, s, count(*) AS sessions FROM \
         (SELECT {keys}, _unit, count(*) AS n, sum({sum}) AS s FROM {from} GROUP BY {keys}, _unit) GROUP BY {keys}, n, s"
    )
}

/// Sessions that are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlikeSessions {
    /// The run; 0 where runs are not told apart.
    pub run: usize,
    /// How many they are.
    pub sessions: u64,
    /// How many scores each has.
    pub count: u64,
    /// Their sum in steps.
    pub sum: u64,
}

/// Shows the rows of [`sums_of`], each with the cells of the named columns of texts.
///
/// # Errors
/// [`HistoryError`] if a column is missing.
pub(crate) fn each_sum<const N: usize>(
    batches: &[RecordBatch],
    names: [&str; N],
    mut each: impl FnMut([Option<&str>; N], AlikeSessions),
) -> Result<(), HistoryError> {
    each_batch(batches, |batch| {
        let mut texts = Vec::with_capacity(N);
        for name in names {
            texts.push(text(batch, name)?);
        }
        let runs = match batch.column_by_name("run_no") {
            Some(_) => Some(whole_numbers(batch, "run_no")?),
            None => None,
        };
        let [sessions, counts, sums] = ["sessions", "n", "s"].map(|of| whole_numbers(batch, of));
        let (sessions, counts, sums) = (sessions?, counts?, sums?);
        for row in 0..batch.num_rows() {
            let of = |column| whole_number(column, row).and_then(|of| u64::try_from(of).ok());
            let run = runs.as_ref().map_or(Some(0), of);
            if let (Some(run), Some(sessions), Some(count), Some(sum)) =
                (run, of(&sessions), of(&counts), of(&sums))
            {
                let alike = AlikeSessions {
                    run: run as usize,
                    sessions,
                    count,
                    sum,
                };
                each(std::array::from_fn(|at| cell(&texts[at], row)), alike);
            }
        }
        Ok(())
    })
}

/// A metric, and what it is about.
pub(crate) type MetricKey = (Target, String);

/// The key of the cells of `target_type` and `metric`.
pub(crate) fn metric_key(target_type: Option<&str>, metric: Option<&str>) -> MetricKey {
    let target = match target_type {
        Some("session") => Target::Session,
        _ => Target::Trace,
    };
    (target, metric.unwrap_or_default().to_owned())
}

/// By metric: the models of its scores, and the runs of each.
pub(crate) type ModelsOf = BTreeMap<String, BTreeMap<String, BTreeSet<usize>>>;

/// Which models made the scores of a view.
///
/// # Errors
/// [`HistoryError`] if a file of a run can't be read.
pub(crate) fn models_of(asked: &Asked, view: &str) -> Result<ModelsOf, HistoryError> {
    let columns = ModelLabels::COLUMNS.map(|name| format!("CAST({name} AS VARCHAR) AS {name}"));
    let rows = asked.rows(&format!(
        "SELECT DISTINCT run_no, metric, {} FROM {view} WHERE model IS NOT NULL AND status = 'SUCCESS'",
        columns.join(", ")
    ))?;
    let mut found = ModelsOf::new();
    each_batch(&rows, |batch| {
        let (metrics, runs) = (text(batch, "metric")?, whole_numbers(batch, "run_no")?);
        let mut models = ModelLabels::of(batch)?;
        for row in 0..batch.num_rows() {
            let run = whole_number(&runs, row).and_then(|run| usize::try_from(run).ok());
            if let (Some(metric), Some(model), Some(run)) =
                (cell(&metrics, row), models.row(row), run)
            {
                let of_metric = found.entry(metric.to_owned()).or_default();
                of_metric.entry(model.to_string()).or_default().insert(run);
            }
        }
        Ok(())
    })?;
    Ok(found)
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
