//! Finished runs: finding their directories, what they say of themselves, and their stored scores.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, StringArray};
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::figures::{
    DataType as ValueType, ScoreFilter, ScoreRecord, ScoreStatus, Target,
};
use crate::history::lineage::RunMark;
use crate::history::model_labels::ModelLabels;
use crate::history::run_record::{Recorded, RunRecord};
use crate::history::stored_table::{cell, for_each_batch, number, numbers, text, trace_id};
use crate::history::verify::{check_file, check_manifest};
use crate::output::RunError;
use crate::output::directory::MANIFEST;
use crate::output::table_folder::is_no_run;
use crate::text::instant;

pub(crate) const SUMMARY: &str = "summary.json";
const SCORES: &str = "scores";

/// Why a run, or its scores, can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A path with no run in it.
    #[error("`{0}` is no run directory and holds none; name run directories, or a folder of them")]
    Nothing(PathBuf),
    /// A run on another machine, where only local ones are read.
    #[error(
        "`{0}`: only `runs show` and `runs verify` read runs in buckets; copy the run here first, with any tool: it stays a run"
    )]
    Remote(PathBuf),
    /// A run directory without manifest.
    #[error(
        "`{0}` is not a finished run (it has no manifest.json); run it again, or move it away to go on without it"
    )]
    Unfinished(PathBuf),
    /// A run directory with a file that can't be read.
    #[error(
        "the run `{run}` is damaged: `{file}`: {problem}; run it again, or move it away to go on without it"
    )]
    Damaged {
        /// The run directory.
        run: PathBuf,
        /// The file, seen from the run directory.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A query over the tables of runs that failed.
    #[error("the tables of these runs can't be read: {0}")]
    Query(String),
    /// Runs that can't be looked at as was asked.
    #[error("{0}")]
    Refused(String),
}

impl HistoryError {
    pub(crate) fn damaged(run: &Path, file: &str, problem: impl ToString) -> Self {
        Self::Damaged {
            run: run.to_owned(),
            file: file.to_owned(),
            problem: problem.to_string(),
        }
    }
}

impl From<HistoryError> for RunError {
    fn from(error: HistoryError) -> Self {
        Self::Request(error.to_string())
    }
}

/// Whether a finished run scored everything. In JSON `COMPLETED` or `INCOMPLETE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunStatus {
    /// Everything that was read was scored.
    Completed,
    /// Something was set aside, failed, or was not tried.
    Incomplete,
}

impl RunStatus {
    /// `COMPLETED` or `INCOMPLETE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Incomplete => "INCOMPLETE",
        }
    }
}

/// What a finished run says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRun {
    /// The name of its directory; the id of the run in its scores.
    pub name: String,
    /// The name that it was given beside that of its directory: `Retry: …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When its manifest was written; the time of all its scores.
    #[serde(serialize_with = "instant::serialize")]
    pub created_at: DateTime<Utc>,
    /// The subcommand that made it: `score` or `aggregate`.
    pub command: String,
    /// Whether it scored everything.
    pub status: RunStatus,
    /// Traces scored.
    pub traces: u64,
    /// Sessions scored.
    pub sessions: u64,
    /// Scores that judges gave, all metrics together.
    pub judged: u64,
    /// Scores that the run was asked for and that failed: those of traces, and conversations.
    pub failed: u64,
    /// Scores of traces that failed and that the run took up for the sake of session metrics alone (as in PandaProbe).
    pub failed_signals: u64,
    /// Traces with a metric that was not tried, and conversations that were not.
    pub pending: u64,
    /// What it was asked.
    #[serde(flatten)]
    pub record: RunRecord,
    /// The run directory.
    pub path: PathBuf,
    /// What no other run has.
    #[serde(skip)]
    pub(crate) identity: Option<String>,
    /// The runs whose scores it holds as a retry, the latest first.
    #[serde(skip)]
    pub(crate) retried: Vec<RunMark>,
}

#[derive(Deserialize)]
struct Manifest {
    name: Option<String>,
    command: String,
    #[serde(with = "instant")]
    created_at: DateTime<Utc>,
    // Neither is written by versions that took every run for one of its own.
    identity: Option<String>,
    #[serde(default)]
    retry_of: Vec<RunMark>,
    // Of a night that took over rows of runs that were pruned: as long as both are there, its rows count.
    #[serde(default)]
    carried_runs: Vec<RunMark>,
    #[serde(flatten)]
    recorded: Recorded,
}

#[derive(Deserialize)]
struct StoredSummary {
    traces: u64,
    sessions: u64,
    quarantined: u64,
    unreadable_files: u64,
    failed_signals: u64,
    // Not written by versions without judges.
    #[serde(default)]
    pending_signals: u64,
    #[serde(default)]
    judge: Option<StoredJudge>,
    #[serde(default)]
    metrics: Vec<StoredMetric>,
    // Of imported scores.
    names: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct StoredMetric {
    name: String,
    level: String,
    failed: u64,
}

impl StoredSummary {
    /// Scores of traces that failed, of metrics that nobody asked for.
    fn failed_of_others(&self, asked: &[String]) -> u64 {
        let of_traces = self.metrics.iter().filter(|m| m.level == "trace");
        let others = of_traces.filter(|m| !asked.contains(&m.name));
        let failed: u64 = others.map(|m| m.failed).sum();
        failed.min(self.failed_signals)
    }
}

#[derive(Deserialize)]
struct StoredJudge {
    metrics: Vec<StoredEnds>,
    conversations: Option<StoredEnds>,
}

/// How the traces of a metric, or the conversations, ended.
#[derive(Deserialize)]
struct StoredEnds {
    judged: u64,
    failed: u64,
    pending: u64,
}

/// The run directories that paths name: each is one, or a folder of them. In the order given, those of a
/// folder by name, each once. Other folders, hidden ones, and comparisons of runs are passed over.
///
/// # Errors
/// [`HistoryError::Nothing`] for a path that leads to no run.
pub fn find_runs(paths: &[PathBuf]) -> Result<Vec<PathBuf>, HistoryError> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for given in paths {
        // The name of `.` is the name of the folder that it means.
        let path = given.canonicalize().map_err(|_| nothing(given))?;
        let runs = if is_run(&path) {
            vec![path]
        } else {
            let entries = fs::read_dir(&path).map_err(|_| nothing(given))?;
            let mut runs: Vec<PathBuf> = entries
                .flatten()
                .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
                .map(|entry| entry.path())
                .filter(|path| is_run(path))
                .collect();
            runs.sort();
            runs
        };
        if runs.is_empty() {
            return Err(nothing(given));
        }
        found.extend(runs.into_iter().filter(|run| known.insert(run.clone())));
    }
    Ok(found)
}

/// What is said of a path with no run in it.
fn nothing(path: &Path) -> HistoryError {
    match path.to_string_lossy().contains("://") {
        true => HistoryError::Remote(path.to_owned()),
        false => HistoryError::Nothing(path.to_owned()),
    }
}

/// The same with all runs below folders, however deep.
///
/// # Errors
/// As [`find_runs`].
pub fn find_runs_below(paths: &[PathBuf]) -> Result<Vec<PathBuf>, HistoryError> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for given in paths {
        let path = given.canonicalize().map_err(|_| nothing(given))?;
        let before = found.len();
        let mut walk = walkdir::WalkDir::new(&path).sort_by_file_name().into_iter();
        while let Some(entry) = walk.next() {
            let Ok(entry) = entry else { continue };
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !entry.file_type().is_dir() {
                continue;
            }
            if entry.depth() > 0 && hidden {
                walk.skip_current_dir();
            } else if is_run(entry.path()) {
                // A run holds no runs.
                walk.skip_current_dir();
                if known.insert(entry.path().to_owned()) {
                    found.push(entry.into_path());
                }
            }
        }
        if found.len() == before {
            return Err(nothing(given));
        }
    }
    Ok(found)
}

/// What a run wrote of itself: its manifest and its summary.
///
/// # Errors
/// [`HistoryError`] if it is not finished or a file of it can't be read.
pub fn read_told(path: &Path) -> Result<(Value, Value), HistoryError> {
    if !path.join(MANIFEST).exists() {
        return Err(HistoryError::Unfinished(path.to_owned()));
    }
    Ok((read_json(path, MANIFEST)?, read_json(path, SUMMARY)?))
}

/// Whether a folder is a run directory, be it a broken one.
fn is_run(folder: &Path) -> bool {
    let mut parts = [MANIFEST, SUMMARY, SCORES].iter();
    parts.any(|name| folder.join(name).exists()) && !is_no_run(folder)
}

/// Reads what a run says of itself.
///
/// # Errors
/// [`HistoryError`] if it is not finished or a file of it can't be read.
pub fn read_run(path: &Path) -> Result<StoredRun, HistoryError> {
    if !path.join(MANIFEST).exists() {
        return Err(HistoryError::Unfinished(path.to_owned()));
    }
    let manifest: Manifest = read_json(path, MANIFEST)?;
    let summary: StoredSummary = read_json(path, SUMMARY)?;
    let judge = summary.judge.as_ref();
    let conversations = judge.and_then(|judge| judge.conversations.as_ref());
    let failed = summary.failed_signals + conversations.map_or(0, |c| c.failed);
    let mut record = RunRecord::from(manifest.recorded);
    record.metric_names = record.metric_names.or(summary.names.clone());
    let asked = record.metric_names.as_deref();
    let failed_signals = asked.map_or(0, |asked| summary.failed_of_others(asked));
    let pending = summary.pending_signals + conversations.map_or(0, |c| c.pending);
    let unscored = summary.quarantined + failed + pending + summary.unreadable_files;
    let judged = judge.into_iter().flat_map(|judge| &judge.metrics);
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    Ok(StoredRun {
        name: name.unwrap_or_else(|| path.display().to_string()),
        title: manifest.name,
        created_at: manifest.created_at,
        command: manifest.command,
        status: match unscored {
            0 => RunStatus::Completed,
            _ => RunStatus::Incomplete,
        },
        traces: summary.traces,
        sessions: summary.sessions,
        judged: judged.chain(conversations).map(|ends| ends.judged).sum(),
        failed: failed - failed_signals,
        failed_signals,
        pending,
        record,
        path: path.to_owned(),
        identity: manifest.identity,
        retried: [manifest.retry_of, manifest.carried_runs].concat(),
    })
}

pub(crate) fn read_json<T: DeserializeOwned>(run: &Path, file: &str) -> Result<T, HistoryError> {
    if file != MANIFEST {
        check_file(run, file)?;
    }
    let bytes = fs::read(run.join(file)).map_err(|e| HistoryError::damaged(run, file, e))?;
    if file == MANIFEST {
        check_manifest(run, &bytes)?;
    }
    serde_json::from_slice(&bytes).map_err(|e| HistoryError::damaged(run, file, e))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in(folder: &Path, name: &str) -> PathBuf {
        let run = folder.join(name);
        fs::create_dir_all(&run).unwrap();
        let manifest =
            r#"{"nightmill":"0.1.0","command":"score","created_at":"2026-01-31T03:00:00Z"}"#;
        fs::write(run.join(MANIFEST), manifest).unwrap();
        let summary = r#"{"traces":7,"sessions":2,"quarantined":0,"unreadable_files":0,"failed_signals":0,
            "judge":{"metrics":[{"judged":3,"failed":0,"pending":0},{"judged":4,"failed":0,"pending":0}]}}"#;
        fs::write(run.join(SUMMARY), summary).unwrap();
        run
    }

    #[test]
    fn runs_are_found_once_and_other_folders_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (b, a) = (run_in(&root, "b"), run_in(&root, "a"));
        run_in(&root, ".hidden");
        fs::create_dir(root.join("notes")).unwrap();
        fs::create_dir(run_in(&root, "compared").join("run_comparison")).unwrap();
        let found = find_runs(&[b.clone(), root.clone(), a.join("../b")]).unwrap();
        assert_eq!(found, [b, a]);
        for nowhere in ["notes", "none", "compared"].map(|name| root.join(name)) {
            let error = find_runs(std::slice::from_ref(&nowhere)).unwrap_err();
            assert_eq!(error, HistoryError::Nothing(nowhere));
        }
    }

    #[test]
    fn a_run_says_what_it_is_or_what_is_wrong_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = run_in(folder.path(), "nightly");
        let run = read_run(&path).unwrap();
        assert_eq!(
            (run.name.as_str(), run.traces, run.judged),
            ("nightly", 7, 7)
        );
        assert_eq!(run.status, RunStatus::Completed);

        let text = fs::read_to_string(path.join(SUMMARY)).unwrap();
        let pending = text.replacen('{', r#"{"pending_signals":1,"#, 1);
        fs::write(path.join(SUMMARY), pending).unwrap();
        let run = read_run(&path).unwrap();
        assert_eq!((run.status, run.pending), (RunStatus::Incomplete, 1));

        // Conversations count like traces.
        let failed = text.replacen(
            r#""metrics":"#,
            r#""conversations":{"judged":1,"failed":2,"pending":0},"metrics":"#,
            1,
        );
        fs::write(path.join(SUMMARY), failed).unwrap();
        let run = read_run(&path).unwrap();
        assert_eq!(
            (run.status, run.failed, run.judged),
            (RunStatus::Incomplete, 2, 8)
        );

        // Signals that nobody asked for are counted apart, and leave the run incomplete.
        let failed = text
            .replacen(r#""failed_signals":0"#, r#""failed_signals":5"#, 1)
            .replacen(
                "{",
                r#"{"metrics":[{"name":"confidence","level":"trace","failed":3},
                {"name":"coherence","level":"trace","failed":2},
                {"name":"agent_reliability","level":"session","failed":0}],"#,
                1,
            );
        fs::write(path.join(SUMMARY), failed).unwrap();
        for (asked, expected) in [
            (r#"["agent_reliability"]"#, (0, 5)),
            (r#"["agent_reliability","coherence"]"#, (2, 3)),
            (r#"["confidence","coherence"]"#, (5, 0)),
        ] {
            let manifest = format!(
                r#"{{"command":"score","created_at":"2026-01-31T03:00:00Z","metric_names":{asked}}}"#
            );
            fs::write(path.join(MANIFEST), manifest).unwrap();
            let run = read_run(&path).unwrap();
            assert_eq!((run.failed, run.failed_signals), expected, "{asked}");
            assert_eq!(run.status, RunStatus::Incomplete);
        }

        let filter = ScoreFilter::all(crate::history::figures::Target::Trace);
        let error = stored_metrics(&[run], &filter).unwrap_err().to_string();
        assert!(
            error.contains("nightly") && error.contains(SCORES),
            "{error}"
        );
        fs::write(path.join(SUMMARY), "{").unwrap();
        let error = read_run(&path).unwrap_err().to_string();
        assert!(
            error.contains("nightly") && error.contains(SUMMARY),
            "{error}"
        );
        fs::remove_file(path.join(MANIFEST)).unwrap();
        assert_eq!(read_run(&path), Err(HistoryError::Unfinished(path)));
    }
}
