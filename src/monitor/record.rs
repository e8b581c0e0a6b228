//! The record of a monitor, and what changes it (specification, section 16).
//!
//! Everything here is pure: the time is an argument, nothing is read or written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cadence::{Cadence, CadenceError};
use crate::analytics::Target;
use crate::selection::{
    RateError, SamplingRate, SessionFilters, TraceFilters, format_instant, instant,
    optional_instant,
};
use crate::trace::nearest;

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

/// Filters of a monitor: those of its target type. In JSON the keys `target_type` and `filters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "target_type",
    content = "filters",
    rename_all = "SCREAMING_SNAKE_CASE"
)]
pub enum MonitorFilters {
    /// Of a trace monitor.
    Trace(TraceFilters),
    /// Of a session monitor, with its signal weights.
    Session(SessionFilters),
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
    pub filters: MonitorFilters,
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
        let filters = MonitorFilters::read(new.target_type, new.filters)?;
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
            MonitorFilters::Trace(_) => Target::Trace,
            MonitorFilters::Session(_) => Target::Session,
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
        let mut filters = MonitorFilters::read(self.target_type(), filters)?;
        if let (MonitorFilters::Session(old), MonitorFilters::Session(new)) =
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

impl MonitorFilters {
    /// Reads filters of a target type.
    fn read(target: Target, filters: Map<String, Value>) -> Result<Self, MonitorError> {
        let refuse = |e: serde_json::Error| MonitorError::Filters {
            target: word(target),
            problem: e.to_string(),
        };
        let given = Value::Object(filters);
        match target {
            Target::Trace if given.get(SIGNAL_WEIGHTS).is_some() => {
                Err(MonitorError::WeightsOnTraces)
            }
            Target::Trace => serde_json::from_value(given)
                .map(Self::Trace)
                .map_err(refuse),
            Target::Session => serde_json::from_value(given)
                .map(Self::Session)
                .map_err(refuse),
        }
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

fn word(target: Target) -> &'static str {
    match target {
        Target::Trace => "trace",
        Target::Session => "session",
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
                target: word(target),
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
pub(super) mod samples {
    use super::*;

    pub(in super::super) fn at(text: &str) -> DateTime<Utc> {
        crate::selection::parse_instant(text).unwrap()
    }

    pub(in super::super) fn new(json: Value) -> NewMonitor {
        let mut all = serde_json::json!({
            "name": "Nightly Support", "target_type": "SESSION", "metric_names": ["agent_reliability"],
            "cadence": "daily", "paths": ["/data/traces"], "out": "/data/runs",
        });
        let (all_keys, given) = (all.as_object_mut().unwrap(), json.as_object().unwrap());
        all_keys.extend(given.clone());
        serde_json::from_value(all).unwrap()
    }

    pub(in super::super) fn created(json: Value) -> Result<Monitor, MonitorError> {
        let known = ["agent_reliability", "agent_consistency"];
        Monitor::create(new(json), &known, at("2026-01-31T03:00:00Z"))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{at, created};
    use super::*;
    use serde_json::json;

    fn object(json: Value) -> Map<String, Value> {
        json.as_object().unwrap().clone()
    }

    #[test]
    fn a_new_monitor_is_active_and_due_at_the_next_time() {
        let monitor = created(json!({
            "metric_names": ["agent_consistency", "agent_reliability", "agent_consistency"]
        }))
        .unwrap();
        assert_eq!(monitor.status, MonitorStatus::Active);
        assert_eq!(monitor.next_run_at, Some(at("2026-02-01T03:00:00Z")));
        assert_eq!((monitor.last_run_at, &monitor.last_run_id), (None, &None));
        assert_eq!(
            monitor.metric_names,
            ["agent_consistency", "agent_reliability"]
        );
        assert!(monitor.only_if_changed);
        assert_eq!(monitor.sampling_rate, SamplingRate::ALL);
        assert_eq!(monitor.run_name(), "[Monitor] Nightly Support");
        assert!(!monitor.is_due(at("2026-02-01T02:59:59Z")));
        assert!(monitor.is_due(at("2026-02-01T03:00:00Z")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, expected) in [
            (json!({"name": " "}), "a name"),
            (
                json!({"metric_names": []}),
                "agent_reliability, agent_consistency",
            ),
            (
                json!({"metric_names": ["agent_reliabilty"]}),
                "did you mean `agent_reliability`",
            ),
            (
                json!({"filters": {"sampling": 1}}),
                "unknown field `sampling`",
            ),
            (json!({"filters": {"min_trace_count": 0}}), "nonzero"),
            (json!({"filters": {"date_from": "soon"}}), "`soon`"),
            // What JSON makes of a weight that is NaN.
            (
                json!({"filters": {"signal_weights": {"coherence": null}}}),
                "null",
            ),
            (json!({"sampling_rate": 1.5}), "1.5"),
            (json!({"cadence": "hourly"}), "`hourly`"),
            (json!({"cadence": "cron:0 0 31 2 *"}), "never fires"),
            (json!({"paths": []}), "paths"),
            (
                json!({"paths": ["/data", "traces/*.parquet"]}),
                "`traces/*.parquet`",
            ),
            (json!({"out": "runs"}), "`runs`"),
            (
                json!({"target_type": "TRACE", "filters": {"signal_weights": {}}}),
                "signal weights",
            ),
            (
                json!({"target_type": "TRACE", "filters": {"has_error": true}}),
                "unknown field `has_error`",
            ),
        ] {
            let error = created(wrong.clone()).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
        assert!(serde_json::from_value::<NewMonitor>(json!({"nam": "x"})).is_err());
    }

    #[test]
    fn pausing_and_resuming_twice_is_as_once() {
        let mut monitor = created(json!({})).unwrap();
        monitor.pause(at("2026-01-31T04:00:00Z"));
        let paused = monitor.clone();
        assert_eq!(paused.status, MonitorStatus::Paused);
        assert_eq!(paused.next_run_at, None);
        assert!(!paused.is_due(at("2027-01-01")));
        monitor.pause(at("2026-01-31T05:00:00Z"));
        assert_eq!(monitor, paused);

        monitor.resume(at("2026-01-31T06:00:00Z")).unwrap();
        let resumed = monitor.clone();
        assert_eq!(resumed.status, MonitorStatus::Active);
        assert_eq!(resumed.next_run_at, Some(at("2026-02-01T06:00:00Z")));
        assert_eq!(resumed.updated_at, at("2026-01-31T06:00:00Z"));
        monitor.resume(at("2026-01-31T07:00:00Z")).unwrap();
        assert_eq!(monitor, resumed);
    }

    #[test]
    fn a_new_cadence_counts_from_now() {
        let mut monitor = created(json!({})).unwrap();
        let now = at("2026-01-31T10:00:00Z");
        monitor.change_cadence(Cadence::Daily, now).unwrap();
        assert_eq!(monitor.next_run_at, Some(at("2026-02-01T03:00:00Z")));
        monitor.change_cadence(Cadence::Every6h, now).unwrap();
        assert_eq!(monitor.next_run_at, Some(at("2026-01-31T16:00:00Z")));
        monitor.pause(now);
        monitor.change_cadence(Cadence::Weekly, now).unwrap();
        assert_eq!(monitor.next_run_at, None);
        assert_eq!(monitor.cadence, Cadence::Weekly);
    }

    #[test]
    fn replacing_filters_keeps_signal_weights_unless_given() {
        let now = at("2026-02-02");
        let mut monitor = created(json!({
            "filters": {"user_id": "u1", "signal_weights": {"coherence": 0.5}}
        }))
        .unwrap();
        let filters = |monitor: &Monitor| serde_json::to_value(monitor).unwrap()["filters"].clone();

        monitor
            .replace_filters(object(json!({"tags": ["a"]})), now)
            .unwrap();
        let kept = json!({"tags": ["a"], "signal_weights": {"coherence": 0.5}});
        assert_eq!(filters(&monitor), kept);
        assert_eq!(monitor.updated_at, now);

        let before = monitor.clone();
        assert!(
            monitor
                .replace_filters(object(json!({"tag": "a"})), at("2026-02-03"))
                .is_err()
        );
        assert_eq!(monitor, before);

        let given = json!({"signal_weights": {"confidence": 2.0}});
        monitor.replace_filters(object(given.clone()), now).unwrap();
        assert_eq!(filters(&monitor), given);
        monitor
            .replace_filters(object(json!({"signal_weights": null})), now)
            .unwrap();
        assert_eq!(filters(&monitor), json!({}));
    }

    #[test]
    fn advancing_moves_active_monitors_only() {
        let mut monitor = created(json!({"cadence": "cron:0 3 * * *"})).unwrap();
        monitor.advance(at("2026-02-05T12:00:00Z")).unwrap();
        assert_eq!(monitor.next_run_at, Some(at("2026-02-06T03:00:00Z")));
        monitor.pause(at("2026-02-05T12:00:00Z"));
        monitor.advance(at("2026-02-05T12:00:00Z")).unwrap();
        assert_eq!(monitor.next_run_at, None);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for (target, metric, filters) in [
            (
                "SESSION",
                "agent_reliability",
                json!({"has_error": true, "signal_weights": {"coherence": 0.5}}),
            ),
            (
                "TRACE",
                "agent_reliability",
                json!({"name": "x", "date_from": "2026-01-01T00:00:00.000000001Z"}),
            ),
        ] {
            let mut monitor = created(json!({
                "target_type": target, "metric_names": [metric], "filters": filters,
                "sampling_rate": 0.1, "settings": {"window": "4"},
            }))
            .unwrap();
            let mark = |path: &str| FileMark {
                path: path.into(),
                size: 7,
                modified: at("2026-01-31T03:00:00.123456789Z"),
                rows: Some(3),
            };
            let now = at("2026-02-01T03:00:00Z");
            monitor.finish("run-1".into(), now, vec![mark("/data/b"), mark("/data/a")]);
            assert_eq!(monitor.seen, [mark("/data/a"), mark("/data/b")]);
            assert_eq!(monitor.last_run_at, Some(now));
            let text = serde_json::to_string(&monitor).unwrap();
            assert_eq!(Monitor::from_json(&text).unwrap(), monitor);
            assert!(
                text.contains(&format!("\"target_type\":\"{target}\"")),
                "{text}"
            );

            for (wrong, expected) in [
                (text.replacen('{', "{\"pause\":1,", 1), "`pause`"),
                (
                    text.replacen("\"next_run_at\"", "\"next_run\"", 1),
                    "`next_run_at`",
                ),
                (
                    text.replacen("\"filters\":{", "\"filters\":{\"x\":1,", 1),
                    "`x`",
                ),
                (text.replacen("0.1", "1.1", 1), "1.1"),
                (text.replacen("daily", "dayly", 1), "`dayly`"),
                (text[..text.len() - 1].to_owned(), "EOF"),
                ("[]".to_owned(), "map"),
            ] {
                let problem = Monitor::from_json(&wrong).unwrap_err();
                assert!(problem.contains(expected), "{problem}");
            }
        }
    }

    #[test]
    fn ids_are_readable_and_never_used_twice() {
        let now = at("2026-01-31");
        let id = monitor_id("Größe: Nightly  Support!", now);
        let (slug, tail) = id.rsplit_once('-').unwrap();
        assert_eq!(slug, "gr-e-nightly-support");
        assert!(tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(id, monitor_id("Größe: Nightly  Support!", at("2026-02-01")));
        assert!(monitor_id("夜", now).starts_with("monitor-"));
        assert!(monitor_id("../../x", now).starts_with("x-"));
        assert!(monitor_id(&"a".repeat(500), now).len() <= LONGEST_SLUG + 9);
    }
}
