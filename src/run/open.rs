//! From a job to the parts of a run: checked requests.

mod batches;
mod endpoint;
mod filters;
mod judge_file;
mod judges;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use batches::batch_rules;
pub use endpoint::provider;
pub use judge_file::JudgeFile;
pub use judges::{judge_model, ledger, named, prices, questions, sample_seed, suite};

use crate::job::{Calibration, Given, Job, NoEvidence, RequestRecord, SettingsError};
use crate::metric::session_signal::ATTENTION;
use crate::metric::spans::SPANS;
use crate::metric::{ALL, CONVERSATION, Gate, Rules, SignalWeights, of_spans};
use crate::model::Adjusted;
use crate::run::inputs::text_mode;
use crate::run::{
    CacheChoice, EngineRequest, ImportRequest, JudgeRequest, PageWriter, ScoreRequest, TurnsRequest,
};
use crate::trace::format::{self, Choice, Found, Mapping};
use crate::trace::{ColumnMap, OnBadFile, SourceFormat};

/// Bytes that a run, or a part of one at a time, needs beside the model.
pub const LEAST_MEMORY: usize = 128 << 20;

/// An error message about settings.
fn wrong<T>(message: String) -> Result<T, SettingsError> {
    Err(SettingsError(message))
}

fn metric_name(setting: &str, name: &str) -> Result<String, SettingsError> {
    match crate::metric::find(name) {
        Some(metric) => Ok(metric.name.to_owned()),
        None => wrong(format!(
            "--{setting} {name}: no such metric{}; `nightmill metrics` lists them",
            crate::text::nearest(name, ALL.iter().map(|m| m.name))
        )),
    }
}

/// The name of a metric that has scores: a plain number is neither good nor bad.
fn scored_metric(setting: &str, name: &str) -> Result<String, SettingsError> {
    let name = metric_name(setting, name)?;
    match crate::metric::find(&name).is_some_and(crate::metric::MetricInfo::has_scores) {
        true => Ok(name),
        false => wrong(format!(
            "--{setting} {name}: this is a plain number, without score and threshold; look at its column in the table traces"
        )),
    }
}

fn within_unit(setting: &str, pairs: &[(String, f64)]) -> Result<(), SettingsError> {
    match pairs.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
        Some((name, value)) => wrong(format!(
            "--{setting} {name}={value}: expected a number from 0 to 1"
        )),
        None => Ok(()),
    }
}

/// Metrics, thresholds, weights and gates.
pub fn rules(job: &Job) -> Result<Rules, SettingsError> {
    let metrics: Vec<String> = match &job.metrics {
        None => crate::metric::unjudged()
            .map(|m| m.name.to_owned())
            .collect(),
        // Whoever asks for all metrics of traces has not said that there are expected texts.
        Some(names) if names == &["all"] => crate::metric::of_traces_alone()
            .map(|m| m.name.to_owned())
            .collect(),
        Some(names) if names.is_empty() => {
            return wrong("--metrics: name at least one metric".into());
        }
        Some(names) => {
            let mut chosen = Vec::new();
            for name in names {
                let names = match name == SPANS {
                    true => of_spans().map(|m| m.name.to_owned()).collect(),
                    false => vec![metric_name("metrics", name)?],
                };
                for name in names {
                    if !chosen.contains(&name) {
                        chosen.push(name);
                    }
                }
            }
            chosen
        }
    };
    let thresholds = job.threshold.as_deref().unwrap_or_default();
    within_unit("threshold", thresholds)?;
    let mut thresholds = thresholds
        .iter()
        .map(|(name, value)| Ok((scored_metric("threshold", name)?, *value)))
        .collect::<Result<BTreeMap<_, _>, SettingsError>>()?;
    // The bar of a verdict and the threshold of its metric are one; the flag wins over the file.
    if let Some(path) = &job.judge_config
        && metrics.iter().any(|name| name == CONVERSATION)
        && !thresholds.contains_key(CONVERSATION)
    {
        let percent = JudgeFile::read(path)?.config.pass_threshold;
        thresholds.insert(CONVERSATION.to_owned(), percent / 100.0);
    }
    let weights = job.weights.as_deref().unwrap_or_default();
    for (name, _) in weights {
        let signals = crate::metric::SIGNALS.map(|(signal, _)| signal);
        let signals = [&signals[..], &crate::metric::SPAN_SIGNALS[..]].concat();
        if signals.contains(&name.as_str()) {
            continue;
        }
        let near = crate::text::nearest(name, signals.iter().copied());
        let names = signals.join(", ");
        return wrong(match crate::metric::find(name) {
            Some(metric) if !metric.has_scores() => format!(
                "--weights {name}: a plain number without a scale from bad to good, so that it can't be weighed; signals are {names}"
            ),
            _ => format!("--weights {name}: no such signal{near}; signals are {names}"),
        });
    }
    let weights =
        SignalWeights::with(weights).map_err(|e| SettingsError(format!("--weights: {e}")))?;
    let gates = job.fail_under.as_deref().unwrap_or_default();
    within_unit("fail-under", gates)?;
    let gates = gates
        .iter()
        .map(|(name, minimum)| {
            let metric = scored_metric("fail-under", name)?;
            let minimum = *minimum;
            match metrics.contains(&metric) {
                true => Ok(Gate { metric, minimum }),
                false => wrong(format!(
                    "--fail-under {metric}: this metric is not computed; add it to --metrics"
                )),
            }
        })
        .collect::<Result<Vec<_>, SettingsError>>()?;
    Ok(Rules {
        metrics,
        thresholds,
        window: job
            .window
            .map_or(crate::metric::loop_detection::DEFAULT_WINDOW, |n| n.get()),
        weights,
        text_mode: job.text_mode.unwrap_or_default(),
        null_without_evidence: job.on_no_evaluable != Some(NoEvidence::One),
        gates,
    })
}

/// Model, threads and memory.
///
/// `cache` is what an unset `--cache` means to the command.
pub fn engine(job: &Job, cache: CacheChoice) -> Result<EngineRequest, SettingsError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let request = EngineRequest {
        model: job.model.clone(),
        adjusted: Adjusted {
            prompt: job.prompt.clone(),
            dim: job.dim.map(|n| n.get()),
        },
        device: job.device.map_or("auto", |device| device.0).into(),
        gpu_graph: job.gpu_graph.unwrap_or_default(),
        precision: job.precision.map_or("auto", |precision| precision.0).into(),
        threads: job.threads.map_or(cores, |n| n.get()),
        memory_limit: job.memory_limit.map_or(2 << 30, |bytes| bytes.get()),
        cache: match &job.cache {
            _ if job.no_cache => CacheChoice::Off,
            Some(folder) if folder.as_os_str().is_empty() => {
                return wrong("--cache: name a folder, or use --no-cache".into());
            }
            Some(folder) => CacheChoice::Folder(folder.clone()),
            None => cache,
        },
        cache_size: job.cache_size.map_or(10 << 30, |bytes| bytes.get()) as u64,
        loaded: None,
    };
    if request.memory_limit < LEAST_MEMORY {
        return wrong("--memory-limit: at least 128M is needed beside the model".into());
    }
    Ok(request)
}

/// Column names and JSON columns.
pub fn column_map(job: &Job) -> Result<ColumnMap, SettingsError> {
    let pairs = job.map.clone().unwrap_or_default();
    let map = ColumnMap::new(pairs, job.json_columns.clone().unwrap_or_default())
        .map_err(|e| SettingsError(format!("--map: {e}")))?;
    let map = map
        .with_text(job.text_columns.clone().unwrap_or_default())
        .map_err(|e| SettingsError(format!("--text-columns {e}")))?;
    let map = map.with_time_unit(job.time_unit);
    match map.unknown_json_columns().first() {
        Some(column) => wrong(format!(
            "--json-columns {column}: only the columns of input, output and expected can be JSON; map `{column}` to one of them with --map"
        )),
        None => Ok(map),
    }
}

/// A scoring run of these files into `out`. Nothing is replaced.
pub fn score(
    job: &Job,
    paths: Vec<String>,
    out: PathBuf,
    report: Option<PageWriter>,
) -> Result<ScoreRequest, SettingsError> {
    local_paths(&paths)?;
    local_paths(job.signals.as_slice())?;
    let mut rules = rules(job)?;
    let calibration = job
        .calibration
        .as_deref()
        .map(Calibration::read)
        .transpose()?;
    for (metric, found) in calibration.iter().flat_map(|of| &of.thresholds) {
        if !rules.computes(metric) {
            continue;
        }
        // What is given on the command line goes before.
        rules
            .thresholds
            .entry(metric.clone())
            .or_insert(found.threshold);
    }
    if let Some(of) = &calibration {
        let thresholds = of.thresholds.keys().any(|metric| rules.computes(metric));
        let order = of.attention.is_some() && rules.wants(ATTENTION);
        if !thresholds && !order {
            return wrong(
                "--calibration: it has thresholds of metrics that this run does not compute, and no order that it makes; add \
                 them to --metrics, or leave it out"
                    .into(),
            );
        }
    }
    if job.triage.is_some() {
        let refused = [
            (
                job.judge_where.is_some(),
                "judge-where",
                "which traces are judged would hang on scores that are estimates",
            ),
            (
                job.fail_under.is_some(),
                "fail-under",
                "means of estimates are not those of the model",
            ),
            (
                job.fail_on_drift,
                "fail-on-drift",
                "means of estimates are not those of the model",
            ),
        ];
        if let Some((_, name, why)) = refused.into_iter().find(|(given, ..)| *given) {
            return wrong(format!(
                "--{name} with --triage: {why}; leave one of them out"
            ));
        }
    }
    let judge = judges::judge(job, &rules)?;
    // After everything that can be refused without a look at the files.
    let found = found(job, &paths)?;
    rules.text_mode = text_mode(job.text_mode, &found).map_err(SettingsError)?;
    Ok(ScoreRequest {
        name: None,
        monitor_id: None,
        metric_names: rules.metrics.clone(),
        record: record(job, &paths, &rules, judge.as_ref()),
        found,
        out,
        overwrite: false,
        map: column_map(job)?,
        on_bad_file: on_bad_file(job),
        signals: job.signals.clone(),
        calibration: job.calibration.clone().zip(calibration),
        continues: None,
        buckets: job.buckets.and_then(|buckets| buckets.0),
        resume: job.resume,
        fail_on_drift: job.fail_on_drift,
        offline: job.offline,
        judge,
        rules,
        engine: engine(job, CacheChoice::User)?,
        triage: job.triage.clone(),
        exchange: None,
        targets: None,
        report,
    })
}

/// The tables of a request to judge conversations.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Files, folders and globs of turns.
    pub turns: Vec<String>,
    /// The same of cases.
    pub cases: Vec<String>,
    /// Drafts and archived cases too.
    pub all_statuses: bool,
}

/// A request to judge these tables into `out`. Nothing is replaced. Settings that are for traces or for other metrics are
/// passed over: they come from a file or the environment.
///
/// # Errors
/// [`SettingsError`] for a setting that does not fit, or if no judge is named.
pub fn turns(given: Given, tables: Tables, out: PathBuf) -> Result<TurnsRequest, SettingsError> {
    const OF_TRACES: [&str; 5] = [
        "judge_policy",
        "signals",
        "judge_where",
        "judge_only",
        "judge_tags",
    ];
    let mut given = given
        .without(&OF_TRACES)
        .with("metrics", vec![CONVERSATION.to_owned()]);
    for setting in ["threshold", "fail_under", "judge_model"] {
        given = given.only_pairs(setting, |metric| metric == CONVERSATION);
    }
    let job = &Job::of(given)?;
    local_paths(&tables.turns)?;
    local_paths(&tables.cases)?;
    let rules = rules(job)?;
    let Some(judge) = judges::judge(job, &rules)? else {
        return wrong("name a judge with --judge, as in --judge openai/gpt-4o-mini".into());
    };
    Ok(TurnsRequest {
        format: own_format(job)?,
        on_bad_file: on_bad_file(job),
        out,
        overwrite: false,
        threads: engine(job, CacheChoice::Off)?.threads,
        record: record(job, &tables.turns, &rules, Some(&judge)),
        turns: tables.turns,
        cases: tables.cases,
        all_statuses: tables.all_statuses,
        rules,
        judge,
    })
}

/// What a manifest keeps of a request. Where a setting was left open, it says what was chosen: another user, folder or
/// version may choose otherwise.
fn record(
    job: &Job,
    paths: &[String],
    rules: &Rules,
    judge: Option<&JudgeRequest>,
) -> RequestRecord {
    let mut given = job.given.clone().with("metrics", rules.metrics.clone());
    if let Some(judge) = judge {
        let ledger = judge.ledger.display().to_string();
        given = given
            .with("judge", judge.asking.model.clone())
            .with("ledger", ledger);
    }
    RequestRecord::new(paths, given.recorded())
}

/// The files behind paths, in whatever format.
///
/// # Errors
/// [`SettingsError`] for a path that leads nowhere, and a file whose format is not known.
pub fn found(job: &Job, paths: &[String]) -> Result<Found, SettingsError> {
    let choice = job.format.map_or(Choice::Auto, |format| format.0);
    // Whoever says which columns are what has not exported from a system whose columns are known.
    let mapped = [
        job.map.is_some(),
        job.json_columns.is_some(),
        job.text_columns.is_some(),
        job.time_unit.is_some(),
    ];
    let mapping = match &job.mapping {
        None => None,
        Some(_) if !matches!(choice, Choice::Auto) => {
            return wrong("--mapping: says what the format is; leave out --format".into());
        }
        Some(path) => Some(Arc::new(Mapping::read(path).map_err(|problem| {
            SettingsError(format!("--mapping {}: {problem}", path.display()))
        })?)),
    };
    let found = format::found(paths, choice, mapping.as_ref(), mapped.contains(&true))
        .map_err(|e| SettingsError(e.to_string()))?;
    match (found.damaged.first(), on_bad_file(job)) {
        (Some((file, problem)), OnBadFile::Fail) => {
            wrong(format!("file `{}`: {problem}", file.display()))
        }
        _ => Ok(found),
    }
}

/// An import of these files into `out`.
///
/// # Errors
/// [`SettingsError`] if files of nightmill's own columns are among them: there is nothing to import.
pub fn import(job: &Job, found: Found, out: PathBuf) -> Result<ImportRequest, SettingsError> {
    if let Some(own) = found.native.first() {
        if let Some(problem) = format::unreadable_file(&own.path) {
            return wrong(format!("file `{}`: {problem}", own.path.display()));
        }
        return wrong(format!(
            "`{}`: no other format claims this file, so that there is nothing to import; score reads it as it is, with --map \
             where its columns have other names. If it is in a format that is known, name it with --format",
            own.path.display()
        ));
    }
    Ok(ImportRequest {
        found,
        out,
        overwrite: job.overwrite,
        text_mode: job.text_mode.unwrap_or(crate::text::TextMode::Content),
        on_bad_file: on_bad_file(job),
        memory: job.memory_limit.map_or(2 << 30, |bytes| bytes.get()) / 4,
    })
}

/// Which files to read, for commands that read nightmill's own columns alone.
///
/// # Errors
/// [`SettingsError`] if another format is named.
pub fn own_format(job: &Job) -> Result<Option<SourceFormat>, SettingsError> {
    match job.format.map_or(Choice::Auto, |format| format.0) {
        Choice::Auto => Ok(None),
        Choice::Native(format) => Ok(Some(format)),
        Choice::Foreign(format) => wrong(format!(
            "--format {}: this command reads nightmill's own columns; make them with `nightmill import`",
            format.name
        )),
    }
}

/// Which files of nightmill's own columns to read, for commands that read other formats too.
pub fn native_format(job: &Job) -> Option<SourceFormat> {
    match job.format.map_or(Choice::Auto, |format| format.0) {
        Choice::Native(format) => Some(format),
        Choice::Auto | Choice::Foreign(_) => None,
    }
}

/// What to do about unreadable files.
pub fn on_bad_file(job: &Job) -> OnBadFile {
    job.on_bad_file.unwrap_or_default()
}

/// Paths must be local: remote ones were brought here by commands that read them (see [`crate::store`]).
pub fn local_paths(paths: &[String]) -> Result<(), SettingsError> {
    match paths.iter().find(|path| path.contains("://")) {
        Some(path) => wrong(format!(
            "`{path}`: only local files are read here; copy it here first"
        )),
        None => Ok(()),
    }
}
