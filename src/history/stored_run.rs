//! Finished runs: finding their directories, what they say of themselves, and their stored scores.

mod error;
mod found;
mod scores;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::HistoryError;
pub use found::{find_runs, find_runs_below};
pub(crate) use scores::push_records;
pub use scores::{ScoreQuery, read_scores, stored_metrics};

use crate::history::lineage::RunMark;
use crate::history::run_record::{Recorded, RunRecord};
use crate::history::verify::{check_file, check_manifest};
use crate::output::directory::MANIFEST;
use crate::text::instant;

pub(crate) const SUMMARY: &str = "summary.json";
const SCORES: &str = "scores";

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
