//! Scores for figures, each trace and session once: what counts now, by the views of this room.

use arrow::array::RecordBatch;
use chrono::DateTime;

use crate::history::StoredRun;
use crate::history::continues::Continues;
use crate::history::figures::{ScoreRecord, Target};
use crate::history::stored_run::{HistoryError, ScoreQuery, push_records};
use crate::history::stored_table::{cell, text, whole_number, whole_numbers};
use crate::history::views::{Asked, Views, each_batch};

/// Which time a score has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOf {
    /// That of its run (as in PandaProbe).
    Run,
    /// That of the trace, or of the last trace of the session; of scores without one, that of the run.
    Traces,
}

/// Whether a run goes on from another, so that rows of earlier runs may not count any more.
///
/// # Errors
/// [`HistoryError`] if a manifest can't be read.
pub fn any_goes_on(runs: &[StoredRun]) -> Result<bool, HistoryError> {
    for run in runs {
        if Continues::read(&run.path)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the latest scores, each trace and session once.
///
/// # Errors
/// [`HistoryError`] if a run can't be read.
pub fn read_latest_scores(
    runs: &[StoredRun],
    query: &ScoreQuery<'_>,
    time: TimeOf,
) -> Result<Vec<ScoreRecord>, HistoryError> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let target = query.filter.target;
    let (joined, at) = match (time, target) {
        (TimeOf::Run, _) => (String::new(), "s.run_created_at"),
        (TimeOf::Traces, Target::Trace) => (
            "LEFT JOIN traces t ON s.run = t.run AND s.target_id = t.trace_id".to_owned(),
            "coalesce(t.started_at, s.run_created_at)",
        ),
        (TimeOf::Traces, Target::Session) => (
            "LEFT JOIN sessions t ON s.run = t.run AND s.target_id = t.session_id \
             AND coalesce('p' || s.project_id, '') = coalesce('p' || t.project_id, '')"
                .to_owned(),
            "coalesce(t.last_started_at, s.run_created_at)",
        ),
    };
    let mut conditions = vec![format!("s.target_type = {}", quoted(target.name()))];
    if let Some(metric) = query.metric {
        conditions.push(format!("s.metric = {}", quoted(metric)));
    }
    if let Some(project) = query.project_id {
        conditions.push(format!("s.project_id = {}", quoted(project)));
    }
    let views = Views::of(runs.to_vec(), true)?.opening(&[]);
    let mut needed = vec!["scores_latest"];
    if time == TimeOf::Traces {
        needed.extend(["traces", "sessions"]);
    }
    let asked = Asked::of(&views, &needed)?;
    let rows = asked.rows(&format!(
        "SELECT s.run, CAST({at} AS BIGINT) AS at, s.target_type, s.target_id, s.project_id, s.metric, s.status, s.score, \
         s.data_type, s.model, s.precision, s.text_mode FROM scores_latest s {joined} WHERE {}",
        conditions.join(" AND ")
    ))?;
    let mut records = Vec::new();
    each_batch(&rows, |batch| push(query, batch, &mut records))?;
    Ok(records)
}

fn push(
    query: &ScoreQuery<'_>,
    batch: &RecordBatch,
    records: &mut Vec<ScoreRecord>,
) -> Result<(), String> {
    let (runs, times) = (text(batch, "run")?, whole_numbers(batch, "at")?);
    push_records(query, batch, records, |row| {
        let at = whole_number(&times, row).and_then(DateTime::from_timestamp_micros);
        let run = cell(&runs, row).unwrap_or_default().to_owned();
        (run, at.unwrap_or_default())
    })
}
