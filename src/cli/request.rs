//! From settings to validated requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::judge_file::JudgeFile;
use crate::job::{RequestRecord, Settings, SettingsError, bytes, number_pairs, split_pairs};
use crate::metric::{ALL, CONVERSATION, Gate, Rules, SignalWeights};
use crate::run::{CacheChoice, EngineRequest, JudgeRequest, ScoreRequest};
use crate::text::TextMode;
use crate::trace::{ColumnMap, EpochUnit, OnBadFile, SourceFormat};

/// An error message about settings.
pub(super) fn wrong<T>(message: String) -> Result<T, SettingsError> {
    Err(SettingsError(message))
}

fn metric_name(setting: &str, name: &str) -> Result<String, SettingsError> {
    match crate::metric::find(name) {
        Some(metric) => Ok(metric.name.to_owned()),
        None => wrong(format!(
            "--{setting} {name}: no such metric{}; `nightmill metrics` lists them",
            crate::trace::nearest(name, ALL.iter().map(|m| m.name))
        )),
    }
}

pub(super) fn one_of<T: Copy>(
    setting: &str,
    given: Option<&str>,
    choices: &[(&str, T)],
) -> Result<Option<T>, SettingsError> {
    let Some(given) = given else { return Ok(None) };
    match choices.iter().find(|(name, _)| *name == given) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            wrong(format!(
                "--{setting} {given}: choose {}",
                names.join(" or ")
            ))
        }
    }
}

pub(super) fn count(
    setting: &str,
    text: Option<&str>,
    least: usize,
    most: usize,
) -> Result<Option<usize>, SettingsError> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<usize>() {
        Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
        _ => wrong(format!(
            "--{setting} {text}: expected a whole number from {least} to {most}"
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
pub(super) fn rules(settings: &Settings) -> Result<Rules, SettingsError> {
    let metrics: Vec<String> = match &settings.metrics {
        None => crate::metric::unjudged()
            .map(|m| m.name.to_owned())
            .collect(),
        Some(names) if names == &["all"] => ALL.iter().map(|m| m.name.to_owned()).collect(),
        Some(names) if names.is_empty() => {
            return wrong("--metrics: name at least one metric".into());
        }
        Some(names) => {
            let mut chosen = Vec::new();
            for name in names {
                let name = metric_name("metrics", name)?;
                if !chosen.contains(&name) {
                    chosen.push(name);
                }
            }
            chosen
        }
    };
    let thresholds = number_pairs(
        "threshold",
        settings.threshold.as_deref().unwrap_or_default(),
    )?;
    within_unit("threshold", &thresholds)?;
    let mut thresholds = thresholds
        .into_iter()
        .map(|(name, value)| Ok((metric_name("threshold", &name)?, value)))
        .collect::<Result<BTreeMap<_, _>, SettingsError>>()?;
    // The bar of a verdict and the threshold of its metric are one; the flag wins over the file.
    if let Some(path) = &settings.judge.judge_config
        && metrics.iter().any(|name| name == CONVERSATION)
        && !thresholds.contains_key(CONVERSATION)
    {
        let percent = JudgeFile::read(path)?.config.pass_threshold;
        thresholds.insert(CONVERSATION.to_owned(), percent / 100.0);
    }
    let weights = number_pairs("weights", settings.weights.as_deref().unwrap_or_default())?;
    for (name, _) in &weights {
        if !crate::metric::SIGNALS
            .iter()
            .any(|(signal, _)| signal == name)
        {
            let near = crate::trace::nearest(name, crate::metric::SIGNALS.map(|(s, _)| s));
            let names = crate::metric::SIGNALS.map(|(signal, _)| signal).join(", ");
            return wrong(format!(
                "--weights {name}: no such signal{near}; signals are {names}"
            ));
        }
    }
    let weights =
        SignalWeights::with(&weights).map_err(|e| SettingsError(format!("--weights: {e}")))?;
    let gates = number_pairs(
        "fail-under",
        settings.fail_under.as_deref().unwrap_or_default(),
    )?;
    within_unit("fail-under", &gates)?;
    let gates = gates
        .into_iter()
        .map(|(name, minimum)| {
            let metric = metric_name("fail-under", &name)?;
            match metrics.contains(&metric) {
                true => Ok(Gate { metric, minimum }),
                false => wrong(format!(
                    "--fail-under {metric}: this metric is not computed; add it to --metrics"
                )),
            }
        })
        .collect::<Result<Vec<_>, SettingsError>>()?;
    let modes = [("compat", TextMode::Compat), ("content", TextMode::Content)];
    Ok(Rules {
        metrics,
        thresholds,
        window: count("window", settings.window.as_deref(), 1, 1000)?
            .unwrap_or(crate::metric::loop_detection::DEFAULT_WINDOW),
        weights,
        text_mode: one_of("text-mode", settings.text_mode.as_deref(), &modes)?.unwrap_or_default(),
        null_without_evidence: one_of(
            "on-no-evaluable",
            settings.on_no_evaluable.as_deref(),
            &[("null", true), ("one", false)],
        )?
        .unwrap_or(true),
        gates,
    })
}

/// Model, threads and memory.
///
/// `cache` is what an unset `--cache` means to the command.
pub(super) fn engine(
    settings: &Settings,
    cache: CacheChoice,
) -> Result<EngineRequest, SettingsError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let request = EngineRequest {
        model: settings.model.clone(),
        device: settings.device.clone().unwrap_or_else(|| "auto".into()),
        precision: settings.precision.clone().unwrap_or_else(|| "auto".into()),
        threads: count("threads", settings.threads.as_deref(), 1, 1024)?.unwrap_or(cores),
        memory_limit: bytes(
            "memory-limit",
            settings.memory_limit.as_deref().unwrap_or("2G"),
        )?,
        cache: match &settings.cache {
            _ if settings.no_cache => CacheChoice::Off,
            Some(folder) if folder.as_os_str().is_empty() => {
                return wrong("--cache: name a folder, or use --no-cache".into());
            }
            Some(folder) => CacheChoice::Folder(folder.clone()),
            None => cache,
        },
        cache_size: bytes(
            "cache-size",
            settings.cache_size.as_deref().unwrap_or("10G"),
        )? as u64,
    };
    const LEAST: usize = 128 << 20;
    if request.memory_limit < LEAST {
        return wrong("--memory-limit: at least 128M is needed beside the model".into());
    }
    Ok(request)
}

/// Column names and JSON columns.
pub(super) fn column_map(settings: &Settings) -> Result<ColumnMap, SettingsError> {
    let pairs = split_pairs("map", settings.map.as_deref().unwrap_or_default())?;
    let map = ColumnMap::new(pairs, settings.json_columns.clone().unwrap_or_default())
        .map_err(|e| SettingsError(format!("--map: {e}")))?;
    let map = map
        .with_text(settings.text_columns.clone().unwrap_or_default())
        .map_err(|e| SettingsError(format!("--text-columns {e}")))?;
    let unit = one_of("time-unit", settings.time_unit.as_deref(), &EpochUnit::ALL)?;
    let map = map.with_time_unit(unit);
    match map.unknown_json_columns().first() {
        Some(column) => wrong(format!(
            "--json-columns {column}: only the columns of input and output can be JSON; map `{column}` to one of them with --map"
        )),
        None => Ok(map),
    }
}

/// A scoring run of these files into `out`. Nothing is replaced, and a report is written.
pub(super) fn score(
    settings: &Settings,
    paths: Vec<String>,
    out: PathBuf,
) -> Result<ScoreRequest, SettingsError> {
    local_paths(&paths)?;
    let rules = rules(settings)?;
    let judge = super::judge_request::judge(settings, &rules)?;
    Ok(ScoreRequest {
        name: None,
        monitor_id: None,
        metric_names: rules.metrics.clone(),
        record: record(settings, &paths, &rules, judge.as_ref()),
        paths,
        out,
        overwrite: false,
        format: format(settings)?,
        map: column_map(settings)?,
        on_bad_file: on_bad_file(settings)?,
        signals: settings.signals.clone(),
        judge,
        rules,
        engine: engine(settings, CacheChoice::User)?,
        targets: None,
        report: Some(crate::report::html),
    })
}

/// What a manifest keeps of a request. Where a setting was left open, it says what was chosen: another user, folder or
/// version may choose otherwise.
pub(super) fn record(
    settings: &Settings,
    paths: &[String],
    rules: &Rules,
    judge: Option<&JudgeRequest>,
) -> RequestRecord {
    let mut given = settings.clone();
    given.metrics = Some(rules.metrics.clone());
    if let Some(judge) = judge {
        given.judge.judge = Some(judge.asking.model.clone());
        given.judge.ledger = Some(judge.ledger.clone());
    }
    RequestRecord::new(paths, given.recorded())
}

/// Which files to read.
pub(super) fn format(settings: &Settings) -> Result<Option<SourceFormat>, SettingsError> {
    let choices = [
        ("auto", None),
        ("parquet", Some(SourceFormat::Parquet)),
        ("jsonl", Some(SourceFormat::JsonLines)),
    ];
    Ok(one_of("format", settings.format.as_deref(), &choices)?.flatten())
}

/// What to do about unreadable files.
pub(super) fn on_bad_file(settings: &Settings) -> Result<OnBadFile, SettingsError> {
    let choices = [("fail", OnBadFile::Fail), ("skip", OnBadFile::Skip)];
    Ok(one_of("on-bad-file", settings.on_bad_file.as_deref(), &choices)?.unwrap_or_default())
}

/// Paths must be local: this build has no object store, and `--offline` promises none.
pub(super) fn local_paths(paths: &[String]) -> Result<(), SettingsError> {
    match paths.iter().find(|path| path.contains("://")) {
        Some(path) => wrong(format!(
            "`{path}`: this build reads local files only; copy it here first"
        )),
        None => Ok(()),
    }
}
