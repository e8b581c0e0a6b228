//! The record of a monitor, and what changes it (as in PandaProbe).
//!
//! Everything here is pure: the time is an argument, nothing is read or written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cadence::{Cadence, CadenceError};
use crate::history::figures::Target;
use crate::selection::{RateError, SamplingRate, TargetFilters};
use crate::text::nearest;
use crate::text::{format_instant, instant, optional_instant};

const SIGNAL_WEIGHTS: &str = "signal_weights";
const LONGEST_SLUG: usize = 40;

/// Whether a monitor runs on its cadence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MonitorStatus {
    /// It runs.
    Active,
    /// It waits to be resumed.
    Paused,
}

/// How far a file was read: what a file looked like when a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMark {
    /// The file.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// When it was last written.
    #[serde(with = "instant")]
    pub modified: DateTime<Utc>,
    /// Rows, where known.
    #[serde(default)]
    pub rows: Option<u64>,
}

/// What a user gives to create a monitor. Keys left out have the defaults named here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMonitor {
    /// A name for people; not empty.
    pub name: String,
    /// Project of the monitor. Default none.
    #[serde(default)]
    pub project_id: Option<String>,
    /// Evaluate traces or sessions.
    pub target_type: Target,
    /// Metrics to compute; at least one.
    pub metric_names: Vec<String>,
    /// Filters by key. Default none.
    #[serde(default)]
    pub filters: Map<String, Value>,
    /// Share of targets in [0, 1]. Default 1; 0 makes runs without targets.
    #[serde(default = "whole")]
    pub sampling_rate: f64,
    /// Model to use. Default: the program's.
    #[serde(default)]
    pub model: Option<String>,
    /// When to run, see [`Cadence`].
    pub cadence: String,
    /// Pass over a run if there is nothing new. Default true.
    #[serde(default = "yes")]
    pub only_if_changed: bool,
    /// Files, folders and globs to score, as absolute paths; at least one.
    pub paths: Vec<String>,
    /// The folder that gets one folder per run, as an absolute path.
    pub out: PathBuf,
    /// Other settings of the run, by name. Default none.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

fn whole() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// A monitor: an evaluation that is run again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    /// Identity, see [`monitor_id`].
    pub id: String,
    /// Project of the monitor.
    pub project_id: Option<String>,
    /// Name for people.
    pub name: String,
    /// Metrics to compute, distinct, in the order given.
    pub metric_names: Vec<String>,
    /// Which targets to evaluate, and whether they are traces or sessions.
    #[serde(flatten)]
    pub filters: TargetFilters,
    /// Share of targets to evaluate.
    pub sampling_rate: SamplingRate,
    /// Model to use; none is the program's default.
    pub model: Option<String>,
    /// When to run.
    pub cadence: Cadence,
    /// Pass over a run if there is nothing new.
    pub only_if_changed: bool,
    /// Whether it runs on its cadence.
    pub status: MonitorStatus,
    /// The `now` of the last run. A run passed over does not count.
    #[serde(with = "optional_instant")]
    pub last_run_at: Option<DateTime<Utc>>,
    /// Id of the last run.
    pub last_run_id: Option<String>,
    /// When the next run is due. None exactly if the monitor is paused.
    #[serde(with = "optional_instant")]
    pub next_run_at: Option<DateTime<Utc>>,
    /// When the monitor was created.
    #[serde(with = "instant")]
    pub created_at: DateTime<Utc>,
    /// When a user last changed the monitor. Runs do not count.
    #[serde(with = "instant")]
    pub updated_at: DateTime<Utc>,
    /// Files, folders and globs to score, as absolute paths.
    pub paths: Vec<String>,
    /// The folder that gets one folder per run.
    pub out: PathBuf,
    /// Other settings of the run, by name.
    pub settings: BTreeMap<String, String>,
    /// The files of the last run as they were when it began, by path.
    pub seen: Vec<FileMark>,
}

/// Why a monitor can't be created or changed so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MonitorError {
    /// No name.
    #[error("a monitor needs a name that is not empty")]
    NoName,
    /// No metric.
    #[error("a monitor needs a metric; metrics are {known}")]
    NoMetrics {
        /// The metrics there are.
        known: String,
    },
    /// A metric that does not exist for this target type.
    #[error("`{name}` is no metric of a {target} monitor{hint}; metrics are {known}")]
    UnknownMetric {
        /// The name given.
        name: String,
        /// `trace` or `session`.
        target: &'static str,
        /// The nearest name, if one is near.
        hint: String,
        /// The metrics there are.
        known: String,
    },
    /// Filters that can't be read: an unknown key, a wrong value.
    #[error("filters of a {target} monitor: {problem}")]
    Filters {
        /// `trace` or `session`.
        target: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Signal weights on a trace monitor.
    #[error("a trace monitor has no signal weights; remove `signal_weights`, or monitor sessions")]
    WeightsOnTraces,
    /// A sampling rate outside [0, 1].
    #[error(transparent)]
    Rate(#[from] RateError),
    /// A cadence that can't be read or never fires.
    #[error(transparent)]
    Cadence(#[from] CadenceError),
    /// Nothing to score.
    #[error("a monitor needs paths to score: files, folders or globs")]
    NoPaths,
    /// A path that means another place in another working folder.
    #[error("`{0}` is no absolute path; a monitor may run from any folder, so give the whole path")]
    RelativePath(String),
}

impl Monitor {
    /// Creates an active monitor, first due at the next time of its cadence. `known` are the metrics that
    /// exist for its target type.
    ///
    /// # Errors
    /// [`MonitorError`] for the first thing that is wrong with `new`.
    pub fn create(
        new: NewMonitor,
        known: &[&str],
        now: DateTime<Utc>,
    ) -> Result<Self, MonitorError> {
        if new.name.trim().is_empty() {
            return Err(MonitorError::NoName);
        }
        let metric_names = check_metrics(new.metric_names, new.target_type, known)?;
        let filters = read_filters(new.target_type, new.filters)?;
        let sampling_rate = SamplingRate::new(new.sampling_rate)?;
        let cadence: Cadence = new.cadence.parse()?;
        if new.paths.is_empty() {
            return Err(MonitorError::NoPaths);
        }
        let places = new.paths.iter().map(Path::new);
        for path in places.chain([new.out.as_path()]) {
            if !path.is_absolute() {
                return Err(MonitorError::RelativePath(path.display().to_string()));
            }
        }
        Ok(Self {
            id: monitor_id(&new.name, now),
            project_id: new.project_id,
            name: new.name,
            metric_names,
            filters,
            sampling_rate,
            model: new.model,
            next_run_at: Some(cadence.next(now)?),
            cadence,
            only_if_changed: new.only_if_changed,
            status: MonitorStatus::Active,
            last_run_at: None,
            last_run_id: None,
            created_at: now,
            updated_at: now,
            paths: new.paths,
            out: new.out,
            settings: new.settings,
            seen: Vec::new(),
        })
    }

    /// A monitor from its JSON document.
    ///
    /// # Errors
    /// What is wrong with the document; also a key that no monitor has.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let document: Map<String, Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let monitor: Self =
            serde_json::from_value(document.clone().into()).map_err(|e| e.to_string())?;
        // serde can't refuse unknown keys of a struct with flattened fields.
        let known = serde_json::to_value(&monitor).map_err(|e| e.to_string())?;
        match document.keys().find(|key| known.get(key).is_none()) {
            Some(key) => Err(format!("unknown field `{key}`")),
            None => Ok(monitor),
        }
    }

    /// Whether it evaluates traces or sessions.
    pub fn target_type(&self) -> Target {
        match self.filters {
            TargetFilters::Trace(_) => Target::Trace,
            TargetFilters::Session(_) => Target::Session,
        }
    }

    /// Whether a run is due at `now`.
    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.status == MonitorStatus::Active && self.next_run_at.is_some_and(|next| next <= now)
    }

    /// Stops running on the cadence. Pausing a paused monitor changes nothing.
    pub fn pause(&mut self, now: DateTime<Utc>) {
        if self.status == MonitorStatus::Active {
            self.status = MonitorStatus::Paused;
            self.next_run_at = None;
            self.updated_at = now;
        }
    }

    /// Runs on the cadence again, counted from `now`. Resuming an active monitor changes nothing.
    ///
    /// # Errors
    /// If the cadence has no time after `now`.
    pub fn resume(&mut self, now: DateTime<Utc>) -> Result<(), CadenceError> {
        if self.status == MonitorStatus::Paused {
            self.next_run_at = Some(self.cadence.next(now)?);
            self.status = MonitorStatus::Active;
            self.updated_at = now;
        }
        Ok(())
    }

    /// Changes the cadence and counts it from `now`. A paused monitor stays paused. The cadence it has
    /// already changes nothing.
    ///
    /// # Errors
    /// If the cadence has no time after `now`.
    pub fn change_cadence(
        &mut self,
        cadence: Cadence,
        now: DateTime<Utc>,
    ) -> Result<(), CadenceError> {
        if self.cadence != cadence {
            let next = cadence.next(now)?;
            self.cadence = cadence;
            self.next_run_at = self.next_run_at.map(|_| next);
            self.updated_at = now;
        }
        Ok(())
    }

    /// Replaces all filters. Signal weights stay unless `filters` has the key; null removes them.
    ///
    /// # Errors
    /// [`MonitorError`] for an unknown key or a wrong value; then nothing is changed.
    pub fn replace_filters(
        &mut self,
        filters: Map<String, Value>,
        now: DateTime<Utc>,
    ) -> Result<(), MonitorError> {
        let weights_given = filters.contains_key(SIGNAL_WEIGHTS);
        let mut filters = read_filters(self.target_type(), filters)?;
        if let (TargetFilters::Session(old), TargetFilters::Session(new)) =
            (&mut self.filters, &mut filters)
            && !weights_given
        {
            new.signal_weights = old.signal_weights.take();
        }
        self.filters = filters;
        self.updated_at = now;
        Ok(())
    }

    /// Puts the next run at the next time of the cadence after `now`: done before a run, on the cadence or
    /// triggered by hand. A paused monitor may be triggered too and stays paused.
    ///
    /// # Errors
    /// If the cadence has no time after `now`.
    pub fn advance(&mut self, now: DateTime<Utc>) -> Result<(), CadenceError> {
        if self.status == MonitorStatus::Active {
            self.next_run_at = Some(self.cadence.next(now)?);
        }
        Ok(())
    }

    /// Takes note of a finished run: `now` is the instant for which it ran, `seen` its files as they were
    /// when it began.
    pub fn finish(&mut self, run_id: String, now: DateTime<Utc>, mut seen: Vec<FileMark>) {
        seen.sort_by(|a, b| a.path.cmp(&b.path));
        self.last_run_at = Some(now);
        self.last_run_id = Some(run_id);
        self.seen = seen;
    }

    /// The name of its runs.
    pub fn run_name(&self) -> String {
        format!("[Monitor] {}", self.name)
    }
}

/// Reads filters of a target type.
fn read_filters(
    target: Target,
    filters: Map<String, Value>,
) -> Result<TargetFilters, MonitorError> {
    let refuse = |e: serde_json::Error| MonitorError::Filters {
        target: target.name(),
        problem: e.to_string(),
    };
    let given = Value::Object(filters);
    match target {
        Target::Trace if given.get(SIGNAL_WEIGHTS).is_some() => Err(MonitorError::WeightsOnTraces),
        Target::Trace => serde_json::from_value(given)
            .map(TargetFilters::Trace)
            .map_err(refuse),
        Target::Session => serde_json::from_value(given)
            .map(TargetFilters::Session)
            .map_err(refuse),
    }
}

/// The id of a monitor: its name in ASCII letters, digits and hyphens, then 8 hexadecimal digits from the
/// name and the time of creation. Readable as a file name, and not used again by a later monitor of
/// the same name, whose runs are other runs.
pub fn monitor_id(name: &str, created_at: DateTime<Utc>) -> String {
    let mut id = String::new();
    for c in name.chars() {
        if id.len() == LONGEST_SLUG {
            break;
        }
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => id.push(c),
            _ if id.is_empty() || id.ends_with('-') => {}
            _ => id.push('-'),
        }
    }
    let id = id.trim_end_matches('-');
    let instant = format_instant(created_at);
    let digest = blake3::hash(format!("{instant} {name}").as_bytes()).to_hex();
    let tail = digest.get(..8).unwrap_or_default();
    match id {
        "" => format!("monitor-{tail}"),
        id => format!("{id}-{tail}"),
    }
}

/// The metrics, each once, in the order given.
fn check_metrics(
    names: Vec<String>,
    target: Target,
    known: &[&str],
) -> Result<Vec<String>, MonitorError> {
    if names.is_empty() {
        return Err(MonitorError::NoMetrics {
            known: known.join(", "),
        });
    }
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !known.contains(&name.as_str()) {
            return Err(MonitorError::UnknownMetric {
                hint: nearest(&name, known.iter().copied()),
                name,
                target: target.name(),
                known: known.join(", "),
            });
        }
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    Ok(distinct)
}

#[cfg(test)]
pub(super) mod samples;
#[cfg(test)]
mod tests;
