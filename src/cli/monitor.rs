//! `nightmill monitor`: runs that are made again and again.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::monitor_flags::{AddArgs, MonitorCommand, SetArgs};
use super::monitor_run::{Runner, check, kept_settings, masked, metrics_of};
use super::{AnyError, Outcome, listing, outcome};
use crate::history::figures::Target;
use crate::job::{Setting, SettingsError, split_numbers};
use crate::metric::Level;
use crate::monitor;
use crate::monitor::{Cadence, Monitor, MonitorStatus, MonitorStore, NewMonitor, StoreError};
use crate::output::{BegunRun, begun_runs};
use crate::report::brief;
use crate::selection::TargetFilters;
use crate::store::Warehouse;
use crate::text::instant;

pub(super) use super::monitor_flags::MonitorArgs;

const WEIGHTS: &str = "signal_weights";

pub(super) fn run(args: MonitorArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let now = args.now.unwrap_or_else(Utc::now);
    let store = MonitorStore::open(&folder(args.monitors)?)?;
    match args.command {
        MonitorCommand::Add(args) => add(&store, args, now, config)?,
        MonitorCommand::List(args) => return list(&store, args.json),
        MonitorCommand::Show(args) => show(&store.find(&args.monitor)?, args.json)?,
        MonitorCommand::Pause(args) => {
            let id = store.find(&args.monitor)?.id;
            let paused = store.update(&id, |monitor| {
                monitor.pause(now);
                Ok::<_, StoreError>(())
            })?;
            show(&paused, false)?;
        }
        MonitorCommand::Resume(args) => {
            let id = store.find(&args.monitor)?.id;
            let resumed =
                store.update(&id, |monitor| monitor.resume(now).map_err(StoreError::from))?;
            show(&resumed, false)?;
        }
        MonitorCommand::Set(args) => {
            let id = store.find(&args.monitor)?.id;
            let changed = store.update(&id, |monitor| change(monitor, &args, now, config))?;
            show(&changed, false)?;
        }
        MonitorCommand::Remove(args) => {
            let id = match store.find(&args.monitor) {
                Ok(monitor) => monitor.id,
                // A damaged record has no name; its id is the name of its file.
                Err(StoreError::Damaged { .. }) => args.monitor,
                Err(error) => return Err(error.into()),
            };
            store.remove(&id)?;
            outcome::print(&format!("removed {id}; its runs stay\n"))?;
        }
        MonitorCommand::Trigger(args) => return trigger(&store, &args.monitor, now, config),
        MonitorCommand::Tick(args) => return tick(&store, now, config, args.json),
    }
    Ok(Outcome::Done)
}

/// The folder of the monitors.
fn folder(given: Option<PathBuf>) -> Result<PathBuf, SettingsError> {
    if let Some(folder) = given {
        return Ok(folder);
    }
    // systemd may name several folders, with colons between them; the first is the main one.
    let state = std::env::var("STATE_DIRECTORY").unwrap_or_default();
    if let Some(first) = state.split(':').find(|first| !first.is_empty()) {
        return Ok(Path::new(first).join("monitors"));
    }
    match dirs::data_local_dir() {
        Some(folder) => Ok(folder.join("nightmill").join("monitors")),
        None => Err(SettingsError(
            "this user has no data folder; name a folder with --monitors".into(),
        )),
    }
}

fn filters(json: Option<&str>) -> Result<Map<String, Value>, SettingsError> {
    serde_json::from_str(json.unwrap_or("{}"))
        .map_err(|e| SettingsError(format!("--filters: expected a JSON object: {e}")))
}

fn weights(given: &[String]) -> Result<Value, SettingsError> {
    let pairs = split_numbers("weights", given)?;
    if let Some((signal, weight)) = pairs.iter().find(|(_, weight)| !weight.is_finite()) {
        return Err(SettingsError(format!(
            "--weights {signal}={weight}: expected a finite number"
        )));
    }
    let members = pairs
        .into_iter()
        .map(|(signal, weight)| (signal, Value::from(weight)));
    Ok(Value::Object(members.collect()))
}

/// A monitor may run from any folder.
fn absolute(paths: &[String]) -> Result<Vec<String>, AnyError> {
    crate::run::open::local_paths(paths)?;
    for path in paths {
        if let Some(kind) = Warehouse::of(Path::new(path)) {
            let (problem, advice) = (kind.problem(), kind.advice());
            return Err(format!("`{path}`: {problem}; {advice}").into());
        }
    }
    let whole = paths.iter().map(|path| {
        let path = std::path::absolute(path)?;
        Ok::<_, AnyError>(path.display().to_string())
    });
    whole.collect()
}

/// Where runs go, as a whole path: a folder of this machine.
fn local_folder(out: &Path) -> Result<PathBuf, AnyError> {
    match out.to_string_lossy().contains("://") {
        false => Ok(std::path::absolute(out)?),
        true => Err(SettingsError(format!(
            "--out {}: monitors write here alone; name a local folder, and copy its runs there",
            out.display()
        ))
        .into()),
    }
}

fn known_metrics(target: Target) -> Vec<&'static str> {
    metrics_of(match target {
        Target::Trace => Level::Trace,
        Target::Session => Level::Session,
    })
}

fn add(
    store: &MonitorStore,
    args: AddArgs,
    now: DateTime<Utc>,
    config: Option<&Path>,
) -> Result<(), AnyError> {
    let mut filters = filters(args.filters.as_deref())?;
    if let Some(given) = &args.weights {
        filters.insert(WEIGHTS.to_owned(), weights(given)?);
    }
    let new = NewMonitor {
        name: args.name,
        project_id: args.project,
        target_type: args.target,
        metric_names: args.metrics,
        filters,
        sampling_rate: args.sample,
        model: args.judge,
        cadence: args.cadence,
        only_if_changed: !args.always,
        paths: absolute(&args.paths)?,
        out: local_folder(&args.out)?,
        settings: kept_settings(&args.set)?,
    };
    let monitor = Monitor::create(new, &known_metrics(args.target), now)?;
    check(&monitor, config)?;
    store.add(&monitor)?;
    show(&monitor, false)
}

/// Changes what is given. What the result would be is checked as if it were created so.
fn change(
    monitor: &mut Monitor,
    args: &SetArgs,
    now: DateTime<Utc>,
    config: Option<&Path>,
) -> Result<(), AnyError> {
    let before = monitor.clone();
    if args.filters.is_some() || args.weights.is_some() {
        let mut given = match &args.filters {
            Some(json) => filters(Some(json))?,
            None => filters_of(monitor)?,
        };
        if let Some(pairs) = &args.weights {
            given.insert(WEIGHTS.to_owned(), weights(pairs)?);
        }
        monitor.replace_filters(given, now)?;
    }
    if let Some(cadence) = &args.cadence {
        monitor.change_cadence(cadence.parse::<Cadence>()?, now)?;
    }
    let mut settings = monitor.settings.clone();
    for key in &args.unset {
        if settings.remove(&key.replace('-', "_")).is_none() {
            let near = crate::text::nearest(key, settings.keys().map(String::as_str));
            let problem = format!("--unset {key}: the monitor has no such setting{near}");
            return Err(SettingsError(problem).into());
        }
    }
    settings.extend(kept_settings(&args.set)?);
    let created = Monitor::create(
        NewMonitor {
            name: args.name.clone().unwrap_or_else(|| monitor.name.clone()),
            project_id: monitor.project_id.clone(),
            target_type: monitor.target_type(),
            metric_names: args
                .metrics
                .clone()
                .unwrap_or_else(|| monitor.metric_names.clone()),
            filters: filters_of(monitor)?,
            sampling_rate: args.sample.unwrap_or_else(|| monitor.sampling_rate.get()),
            model: match &args.judge {
                Some(judge) if judge.is_empty() => None,
                Some(judge) => Some(judge.clone()),
                None => monitor.model.clone(),
            },
            cadence: monitor.cadence.to_string(),
            only_if_changed: args
                .always
                .map_or(monitor.only_if_changed, |always| !always),
            paths: match args.paths.is_empty() {
                true => monitor.paths.clone(),
                false => absolute(&args.paths)?,
            },
            out: match &args.out {
                Some(out) => local_folder(out)?,
                None => monitor.out.clone(),
            },
            settings,
        },
        &known_metrics(monitor.target_type()),
        now,
    )?;
    // The rest of the record is its history.
    *monitor = Monitor {
        name: created.name,
        metric_names: created.metric_names,
        sampling_rate: created.sampling_rate,
        model: created.model,
        only_if_changed: created.only_if_changed,
        paths: created.paths,
        out: created.out,
        settings: created.settings,
        ..monitor.clone()
    };
    if *monitor != before {
        monitor.updated_at = now;
    }
    let chooses_or_computes = |of: &Monitor| {
        let mut settings = of.settings.clone();
        settings.retain(|name, _| !Setting::named(name).is_some_and(Setting::of_alerts));
        (
            of.filters.clone(),
            of.sampling_rate,
            of.metric_names.clone(),
            of.model.clone(),
            settings,
        )
    };
    if chooses_or_computes(monitor) != chooses_or_computes(&before) {
        // What the monitor saw was evaluated in another way.
        monitor.seen.clear();
    }
    check(monitor, config)
}

/// The filters of a monitor as they are given.
fn filters_of(monitor: &Monitor) -> Result<Map<String, Value>, AnyError> {
    let filters = match &monitor.filters {
        TargetFilters::Trace(filters) => serde_json::to_value(filters)?,
        TargetFilters::Session(filters) => serde_json::to_value(filters)?,
    };
    match filters {
        Value::Object(filters) => Ok(filters),
        _ => Ok(Map::new()),
    }
}

fn status(monitor: &Monitor) -> &'static str {
    match monitor.status {
        MonitorStatus::Active => "ACTIVE",
        MonitorStatus::Paused => "PAUSED",
    }
}

/// Records that can't be read are named, and stop no other from being listed.
fn list(store: &MonitorStore, json: bool) -> Result<Outcome, AnyError> {
    let monitor::Listing { monitors, damaged } = store.list()?;
    let shown: Vec<Shown> = monitors.iter().map(Shown::of).collect();
    listing::print(json, &shown, || {
        let header = [
            "id",
            "name",
            "status",
            "cadence",
            "next run",
            "last run",
            "without result",
        ];
        let rows = monitors.iter().map(|monitor| {
            [
                monitor.id.clone(),
                monitor.name.clone(),
                status(monitor).to_owned(),
                monitor.cadence.to_string(),
                listing::time(monitor.next_run_at),
                listing::time(monitor.last_run_at),
                begun_of(monitor)
                    .iter()
                    .map(brief_of_begun)
                    .collect::<Vec<_>>()
                    .join("; "),
            ]
        });
        listing::table(header, rows.collect())
    })?;
    for error in &damaged {
        outcome::print_error(error);
    }
    Ok(match damaged.is_empty() {
        true => Outcome::Done,
        false => Outcome::Incomplete,
    })
}

/// A monitor, and its runs that left no result.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    monitor: Monitor,
    /// Those that are under way, or failed.
    without_result: Vec<BegunRun>,
}

impl Shown {
    fn of(monitor: &Monitor) -> Self {
        Self {
            monitor: without_secrets(monitor),
            without_result: begun_of(monitor),
        }
    }
}

/// The runs of a monitor that left no result, by time.
fn begun_of(monitor: &Monitor) -> Vec<BegunRun> {
    let mut runs = begun_runs(&monitor.out);
    runs.retain(|run| run.monitor_id.as_ref() == Some(&monitor.id));
    runs.sort_by_key(|run| run.created_at);
    runs
}

fn brief_of_begun(run: &BegunRun) -> String {
    let why = run.error.as_deref().map(|why| format!(": {}", brief(why)));
    format!(
        "{} {}{}",
        run.status.name(),
        listing::time(Some(run.created_at)),
        why.unwrap_or_default()
    )
}

/// A monitor as it may be shown: records of an earlier version may hold secrets.
fn without_secrets(monitor: &Monitor) -> Monitor {
    let mut shown = monitor.clone();
    for (key, value) in &mut shown.settings {
        *value = masked(key, value);
    }
    shown
}

fn show(monitor: &Monitor, json: bool) -> Result<(), AnyError> {
    let monitor = &without_secrets(monitor);
    let filters = Value::Object(filters_of(monitor)?).to_string();
    listing::print(json, monitor, || {
        let mut lines = vec![
            ("id", monitor.id.clone()),
            ("name", monitor.name.clone()),
            ("status", status(monitor).to_owned()),
            ("metrics", monitor.metric_names.join(", ")),
            ("paths", monitor.paths.join(", ")),
            ("out", monitor.out.display().to_string()),
            ("cadence", monitor.cadence.to_string()),
            ("only if changed", monitor.only_if_changed.to_string()),
            ("filters", filters),
            ("sample", monitor.sampling_rate.get().to_string()),
            ("next run", listing::time(monitor.next_run_at)),
            ("last run", listing::time(monitor.last_run_at)),
        ];
        lines.extend(
            monitor
                .last_run_id
                .iter()
                .map(|id| ("last run id", id.clone())),
        );
        lines.extend(monitor.model.iter().map(|model| ("judge", model.clone())));
        let begun = begun_of(monitor);
        lines.extend(
            begun
                .iter()
                .map(|run| ("without result", brief_of_begun(run))),
        );
        let settings = monitor.settings.iter();
        lines.extend(settings.map(|(key, value)| ("setting", format!("{key}={value}"))));
        let rows = lines
            .into_iter()
            .map(|(name, value)| [name.to_owned(), value]);
        listing::table(["monitor", ""], rows.collect())
    })
}

fn trigger(
    store: &MonitorStore,
    name: &str,
    now: DateTime<Utc>,
    config: Option<&Path>,
) -> Result<Outcome, AnyError> {
    let mut runner = Runner::new(config);
    match monitor::trigger(store, name, now, &mut runner)? {
        monitor::Outcome::Failed(problem) => Err(format!("monitor `{name}`: {problem}").into()),
        monitor::Outcome::Ran(run) => {
            outcome::print(&format!("run {run}\n"))?;
            Ok(worst(&runner.ended))
        }
        monitor::Outcome::SkippedUnchanged
        | monitor::Outcome::NotDue
        | monitor::Outcome::Running => Ok(Outcome::Done),
    }
}

/// How a command ends that made several runs: a failed gate is what a scheduler must see first.
fn worst(ended: &[Outcome]) -> Outcome {
    [Outcome::GateFailed, Outcome::Incomplete]
        .into_iter()
        .find(|outcome| ended.contains(outcome))
        .unwrap_or(Outcome::Done)
}

/// What a tick did.
#[derive(Serialize)]
struct Ticked {
    /// The time for which it ran.
    #[serde(serialize_with = "instant::serialize")]
    now: DateTime<Utc>,
    /// Every monitor.
    monitors: Vec<TickedMonitor>,
    /// Records that can't be read, and why.
    damaged: Vec<String>,
}

#[derive(Serialize)]
struct TickedMonitor {
    id: String,
    /// `ran`, `skipped_unchanged`, `not_due`, `running` or `failed`.
    outcome: &'static str,
    /// The run made.
    run: Option<String>,
    /// Why it failed.
    problem: Option<String>,
}

impl TickedMonitor {
    fn new(id: String, outcome: monitor::Outcome) -> Self {
        let (outcome, run, problem) = match outcome {
            monitor::Outcome::Ran(run) => ("ran", Some(run), None),
            monitor::Outcome::SkippedUnchanged => ("skipped_unchanged", None, None),
            monitor::Outcome::NotDue => ("not_due", None, None),
            monitor::Outcome::Running => ("running", None, None),
            monitor::Outcome::Failed(problem) => ("failed", None, Some(problem)),
        };
        Self {
            id,
            outcome,
            run,
            problem,
        }
    }
}

fn tick(
    store: &MonitorStore,
    now: DateTime<Utc>,
    config: Option<&Path>,
    json: bool,
) -> Result<Outcome, AnyError> {
    let mut runner = Runner::new(config);
    let report = monitor::tick(store, now, &mut runner)?;
    let outcomes = report.outcomes.into_iter();
    let ticked = Ticked {
        now,
        monitors: outcomes
            .map(|(id, outcome)| TickedMonitor::new(id, outcome))
            .collect(),
        damaged: report.damaged.iter().map(ToString::to_string).collect(),
    };
    listing::print(json, &ticked, || {
        let rows = ticked.monitors.iter().map(|monitor| {
            let detail = monitor.run.as_ref().or(monitor.problem.as_ref());
            [
                monitor.id.clone(),
                monitor.outcome.to_owned(),
                detail.cloned().unwrap_or_default(),
            ]
        });
        listing::table(["monitor", "outcome", "run"], rows.collect())
    })?;
    for error in &report.damaged {
        outcome::print_error(error);
    }
    let failed = ticked.monitors.iter().any(|m| m.outcome == "failed");
    Ok(match failed || !ticked.damaged.is_empty() {
        true => Outcome::Incomplete,
        false => worst(&runner.ended),
    })
}
