//! What judges said of sessions and their traces, read back for the page.

use std::collections::HashMap;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};

use super::tables::{Rows, each_batch, parts_of, ranges_of};
use crate::history::stored_table::{
    cell, number, numbers, text, text_if_there, whole_number, whole_numbers,
};
use crate::output::RunError;
use crate::summary::{ShownJudgement, ShownVerdict, VerdictMetric, VerdictOutcome};
use crate::text::text_hash;

/// Texts of judges are cut to this many characters.
const MOST_CHARACTERS: usize = 2000;
const VERDICTS: &str = "judge_verdicts";

/// A session's id and project.
pub(super) type Key = (String, Option<String>);

fn hash(session_id: &str, project_id: Option<&str>) -> u64 {
    text_hash(&format!("{session_id}\0{}", project_id.unwrap_or("\0")))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The scores of whole conversations, 16 bytes each.
pub(super) struct VerdictScores(HashMap<u64, f64>);

impl VerdictScores {
    /// Those of a run; none where it judged no conversations.
    pub fn read(run: &Path) -> Result<Option<Self>, RunError> {
        let parts = parts_of(run, VERDICTS)?;
        if parts.is_empty() {
            return Ok(None);
        }
        let mut scores = HashMap::new();
        for path in parts {
            let columns = ["session_id", "project_id", "overall_score"];
            each_batch(&path, Some(&columns), Rows::All, |_, batch| {
                let (ids, projects) = (text(batch, "session_id")?, text(batch, "project_id")?);
                let overall = numbers(batch, "overall_score")?;
                for row in 0..batch.num_rows() {
                    let key = hash(cell(&ids, row).unwrap_or_default(), cell(&projects, row));
                    if let Some(score) = number(&overall, row) {
                        scores.insert(key, score / 100.0);
                    }
                }
                Ok(())
            })?;
        }
        Ok(Some(Self(scores)))
    }

    pub fn of(&self, (session_id, project_id): &Key) -> Option<f64> {
        let key = hash(session_id, project_id.as_deref());
        self.0.get(&key).copied()
    }
}

/// Sessions whose rows are wanted, by id.
struct Wanted<'k>(HashMap<&'k str, Vec<&'k Key>>);

impl<'k> Wanted<'k> {
    fn of(sessions: &'k [Key]) -> Self {
        let mut by_id: HashMap<&str, Vec<&Key>> = HashMap::new();
        for key in sessions {
            by_id.entry(key.0.as_str()).or_default().push(key);
        }
        Self(by_id)
    }

    /// The rows of a batch that are theirs.
    fn rows(&self, batch: &RecordBatch) -> Result<Vec<(usize, &'k Key)>, String> {
        let ids = text(batch, "session_id")?;
        let projects = text_if_there(batch, "project_id")?;
        let found = (0..batch.num_rows()).filter_map(|row| {
            let of_id = self.0.get(cell(&ids, row)?)?;
            let project = cell(&projects, row);
            let mut of_id = of_id.iter();
            let key = of_id.find(|key| key.1.as_deref() == project)?;
            Some((row, *key))
        });
        Ok(found.collect())
    }
}

/// What judges said of these sessions as a whole.
///
/// # Errors
/// If a table can't be read back.
pub(super) fn verdicts<'k>(
    run: &Path,
    sessions: &'k [Key],
) -> Result<HashMap<&'k Key, ShownVerdict>, RunError> {
    let wanted = Wanted::of(sessions);
    let mut found: HashMap<&Key, ShownVerdict> = HashMap::new();
    for path in parts_of(run, VERDICTS)? {
        each_batch(&path, None, Rows::All, |_, batch| {
            let rows = wanted.rows(batch)?;
            if rows.is_empty() {
                return Ok(());
            }
            let (status, reason) = (text(batch, "status")?, text(batch, "reason")?);
            let overall = numbers(batch, "overall_score")?;
            let bar = numbers(batch, "pass_threshold")?;
            let passed = batch
                .column_by_name("passed")
                .and_then(|c| c.as_boolean_opt());
            for (row, key) in rows {
                let verdict = found.entry(key).or_default();
                verdict.status = cell(&status, row).unwrap_or_default().to_owned();
                verdict.reason = cut(cell(&reason, row).unwrap_or_default());
                verdict.overall_score = number(&overall, row);
                verdict.pass_threshold = number(&bar, row);
                verdict.passed = passed.filter(|p| p.is_valid(row)).map(|p| p.value(row));
            }
            Ok(())
        })?;
    }
    if found.is_empty() {
        return Ok(found);
    }
    for path in parts_of(run, "judge_metric_scores")? {
        each_batch(&path, None, Rows::All, |_, batch| {
            let (metric, label) = (text(batch, "metric")?, text(batch, "label")?);
            let justification = text(batch, "justification")?;
            let code = text_if_there(batch, "failure_code")?;
            let score = whole_numbers(batch, "score")?;
            for (row, key) in wanted.rows(batch)? {
                let verdict = found.entry(key).or_default();
                verdict.metrics.push(VerdictMetric {
                    metric: cell(&metric, row).unwrap_or_default().to_owned(),
                    score: whole_number(&score, row),
                    label: cell(&label, row).unwrap_or_default().to_owned(),
                    justification: cut(cell(&justification, row).unwrap_or_default()),
                    failure_code: cell(&code, row).filter(|c| !c.is_empty()).map(cut),
                });
            }
            Ok(())
        })?;
    }
    for path in parts_of(run, "judge_outcomes")? {
        each_batch(&path, None, Rows::All, |_, batch| {
            let statement = text(batch, "statement")?;
            let justification = text(batch, "justification")?;
            let passed = batch
                .column_by_name("passed")
                .and_then(|c| c.as_boolean_opt());
            for (row, key) in wanted.rows(batch)? {
                let verdict = found.entry(key).or_default();
                verdict.outcomes.push(VerdictOutcome {
                    statement: cut(cell(&statement, row).unwrap_or_default()),
                    passed: passed.filter(|p| p.is_valid(row)).map(|p| p.value(row)),
                    justification: cut(cell(&justification, row).unwrap_or_default()),
                });
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// What judges said of the traces of these sessions, by session and trace.
///
/// # Errors
/// If the table `scores` can't be read back.
pub(super) fn judgements(
    run: &Path,
    sessions: &[Key],
    metrics: &[&str],
) -> Result<HashMap<(Key, String), Vec<ShownJudgement>>, RunError> {
    let mut found: HashMap<(Key, String), Vec<ShownJudgement>> = HashMap::new();
    if metrics.is_empty() {
        return Ok(found);
    }
    let wanted = Wanted::of(sessions);
    for path in parts_of(run, "scores")? {
        // Ids first: reasons of all other sessions are not decoded.
        let mut rows = Vec::new();
        let columns = ["session_id", "project_id", "metric", "target_type"];
        each_batch(&path, Some(&columns), Rows::All, |from, batch| {
            let of_sessions = wanted.rows(batch)?;
            if of_sessions.is_empty() {
                return Ok(());
            }
            let (metric, target) = (text(batch, "metric")?, text(batch, "target_type")?);
            rows.extend(of_sessions.into_iter().filter_map(|(row, _)| {
                let of_trace = cell(&target, row) == Some("trace");
                let judged = cell(&metric, row).is_some_and(|name| metrics.contains(&name));
                (of_trace && judged).then_some(from + row)
            }));
            Ok(())
        })?;
        if rows.is_empty() {
            continue;
        }
        let ranges = ranges_of(rows);
        each_batch(&path, None, Rows::Ranges(&ranges), |_, batch| {
            let (metric, status) = (text(batch, "metric")?, text(batch, "status")?);
            let (trace, reason) = (text(batch, "target_id")?, text(batch, "reason")?);
            let score = numbers(batch, "score")?;
            for (row, key) in wanted.rows(batch)? {
                let trace = cell(&trace, row).unwrap_or_default().to_owned();
                let of_trace = found.entry((key.clone(), trace)).or_default();
                of_trace.push(ShownJudgement {
                    metric: cell(&metric, row).unwrap_or_default().to_owned(),
                    score: number(&score, row),
                    status: cell(&status, row).unwrap_or_default().to_owned(),
                    reason: cut(cell(&reason, row).unwrap_or_default()),
                });
            }
            Ok(())
        })?;
    }
    Ok(found)
}
