//! The stored scores of finished runs.

use std::collections::BTreeSet;

use arrow::array::{RecordBatch, StringArray};
use chrono::{DateTime, Utc};

use super::{HistoryError, SCORES, StoredRun};
use crate::history::figures::{
    DataType as ValueType, ScoreFilter, ScoreRecord, ScoreStatus, Target,
};
use crate::history::model_labels::ModelLabels;
use crate::history::stored_table::{cell, for_each_batch, number, numbers, text, trace_id};

/// Which scores are read.
#[derive(Clone, Debug)]
pub struct ScoreQuery<'a> {
    /// Of traces or sessions, and of runs of which time.
    pub filter: ScoreFilter,
    /// Of this metric; none is all.
    pub metric: Option<&'a str>,
    /// Of this trace (its canonical id) or session; none is all.
    pub target_id: Option<&'a str>,
    /// Of this project; none is all, scores without a project too.
    pub project_id: Option<&'a str>,
    /// Whether records name their trace or session; else their `target_id` is empty.
    pub with_ids: bool,
}

impl ScoreQuery<'_> {
    fn wants_ids(&self) -> bool {
        self.with_ids || self.target_id.is_some()
    }
}

/// Reads stored scores, only the columns needed. Tables are read batch by batch; memory grows with the
/// number of scores that the query asks for (about 100 bytes each, and their ids), not with the tables.
///
/// # Errors
/// [`HistoryError::Damaged`] naming the run and the file.
pub fn read_scores(
    runs: &[StoredRun],
    query: &ScoreQuery<'_>,
) -> Result<Vec<ScoreRecord>, HistoryError> {
    let mut columns = vec!["target_type", "metric", "status", "score", "data_type"];
    columns.extend(ModelLabels::COLUMNS);
    if query.wants_ids() {
        columns.push("target_id");
    }
    if query.project_id.is_some() || query.wants_ids() {
        columns.push("project_id");
    }
    if query.target_id.is_some() {
        columns.push("value");
    }
    let mut records = Vec::new();
    for run in in_time(runs, &query.filter) {
        for_each_batch(&run.path, SCORES, &columns, |batch| {
            push_records(query, batch, &mut records, |_| {
                (run.name.clone(), run.created_at)
            })
        })?;
    }
    Ok(records)
}

/// The metrics that have a stored score of a target type.
///
/// # Errors
/// [`HistoryError::Damaged`] naming the run and the file.
pub fn stored_metrics(
    runs: &[StoredRun],
    filter: &ScoreFilter,
) -> Result<BTreeSet<String>, HistoryError> {
    let mut metrics = BTreeSet::new();
    for run in in_time(runs, filter) {
        for_each_batch(&run.path, SCORES, &["target_type", "metric"], |batch| {
            let (targets, names) = (text(batch, "target_type")?, text(batch, "metric")?);
            for row in 0..batch.num_rows() {
                if let Some(name) = cell(&names, row)
                    && cell(&targets, row) == Some(filter.target.name())
                    && !metrics.contains(name)
                {
                    metrics.insert(name.to_owned());
                }
            }
            Ok(())
        })?;
    }
    Ok(metrics)
}

/// The runs whose scores can pass a filter: all scores of a run have the time of the run.
fn in_time<'r>(
    runs: &'r [StoredRun],
    filter: &ScoreFilter,
) -> impl Iterator<Item = &'r StoredRun> + use<'r> {
    let filter = *filter;
    runs.iter().filter(move |run| filter.covers(run.created_at))
}

/// Whether a row is of the trace or session that is asked for, if one is.
fn of_target(query: &ScoreQuery<'_>, ids: &Option<StringArray>, row: usize) -> bool {
    let (Some(wanted), Some(ids)) = (query.target_id, ids) else {
        return true;
    };
    match query.filter.target {
        Target::Trace => trace_id(ids, row).as_deref() == Some(wanted),
        Target::Session => cell(ids, row) == Some(wanted),
    }
}

/// Adds the rows of a batch that a query asks for. `of_row` says which run a row is of, and which time it has.
///
/// # Errors
/// If a column is missing, or holds what it should not.
pub(crate) fn push_records(
    query: &ScoreQuery<'_>,
    batch: &RecordBatch,
    records: &mut Vec<ScoreRecord>,
    of_row: impl Fn(usize) -> (String, DateTime<Utc>),
) -> Result<(), String> {
    let (targets, metrics) = (text(batch, "target_type")?, text(batch, "metric")?);
    let (statuses, types) = (text(batch, "status")?, text(batch, "data_type")?);
    let scores = numbers(batch, "score")?;
    let optional = |wanted: bool, name: &str| wanted.then(|| text(batch, name)).transpose();
    let ids = optional(query.wants_ids(), "target_id")?;
    let projects = optional(
        query.project_id.is_some() || query.wants_ids(),
        "project_id",
    )?;
    let values = optional(query.target_id.is_some(), "value")?;
    let mut labels = ModelLabels::of(batch)?;
    let passes = |given: Option<&str>, found: &Option<StringArray>, row: usize| {
        given.is_none() || found.as_ref().and_then(|texts| cell(texts, row)) == given
    };
    for row in 0..batch.num_rows() {
        let metric = cell(&metrics, row).unwrap_or_default();
        if cell(&targets, row) != Some(query.filter.target.name())
            || query.metric.is_some_and(|wanted| wanted != metric)
            || !of_target(query, &ids, row)
            || !passes(query.project_id, &projects, row)
        {
            continue;
        }
        let id = ids.as_ref().and_then(|ids| cell(ids, row));
        let (run, created_at) = of_row(row);
        records.push(ScoreRecord {
            target: query.filter.target,
            project_id: projects
                .as_ref()
                .and_then(|projects| cell(projects, row))
                .map(str::to_owned),
            // A trace that is asked for has one name, however its runs spell it.
            target_id: query.target_id.or(id).unwrap_or_default().to_owned(),
            metric: metric.to_owned(),
            run,
            status: match cell(&statuses, row) {
                Some("SUCCESS") => ScoreStatus::Success,
                Some("FAILED") => ScoreStatus::Failed,
                Some("PENDING") => ScoreStatus::Pending,
                Some("NO_EVIDENCE") => ScoreStatus::NoEvidence,
                other => return Err(format!("`{}` is no status", other.unwrap_or("null"))),
            },
            data_type: match cell(&types, row) {
                Some("NUMERIC") => ValueType::Numeric,
                Some("BOOLEAN") => ValueType::Boolean,
                Some("CATEGORICAL") => ValueType::Categorical,
                other => return Err(format!("`{}` is no data type", other.unwrap_or("null"))),
            },
            value: number(&scores, row),
            text: values
                .as_ref()
                .and_then(|values| cell(values, row))
                .map(str::to_owned),
            model: labels.row(row),
            created_at,
        });
    }
    Ok(())
}
