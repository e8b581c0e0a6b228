//! `nightmill aggregate`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{AnyError, Outcome, outcome, request};
use crate::config::{Settings, SettingsError};
use crate::metric::Method;
use crate::run::{AggregateRequest, CacheChoice, aggregate};

/// Flags of `aggregate`.
#[derive(Args, Debug)]
pub(super) struct AggregateArgs {
    /// Files with trace_id, session_id, started_at and any of confidence, loop_detection,
    /// tool_correctness, coherence
    #[arg(required = true, value_name = "SIGNALS")]
    paths: Vec<String>,
    /// The run directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: AggregateArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let given = &args.settings;
    // Settings of the file or the environment may be meant for other commands; flags are meant for this.
    for (flag, given) in [
        ("model", given.model.is_some()),
        ("device", given.device.is_some()),
        ("precision", given.precision.is_some()),
        ("cache", given.cache.is_some()),
        ("text-mode", given.text_mode.is_some()),
        ("json-columns", given.json_columns.is_some()),
        ("text-columns", given.text_columns.is_some()),
        ("window", given.window.is_some()),
    ] {
        if given {
            let message = format!("--{flag}: aggregate reads no texts, so this has no effect");
            return Err(SettingsError(message).into());
        }
    }
    let mut settings = args.settings.complete(config)?;
    request::local_paths(&args.paths)?;
    if settings.signals.is_some() {
        let message = "--signals: aggregate takes its signals from the files it is given";
        return Err(SettingsError(message.into()).into());
    }
    let session_metrics = crate::metric::ALL
        .iter()
        .filter(|m| m.method == Method::Aggregate);
    if settings.metrics.is_none() {
        settings.metrics = Some(session_metrics.map(|m| m.name.to_owned()).collect());
    }
    let rules = request::rules(&settings)?;
    if let Some(metric) = rules
        .metrics
        .iter()
        .find(|m| crate::metric::find(m).is_some_and(|m| m.method != Method::Aggregate))
    {
        return Err(SettingsError(format!(
            "--metrics {metric}: aggregate computes session metrics from signals only; use score"
        ))
        .into());
    }
    let request = AggregateRequest {
        paths: args.paths,
        format: request::format(&settings)?,
        out: args.out,
        overwrite: settings.overwrite,
        map: request::column_map(&settings)?,
        on_bad_file: request::on_bad_file(&settings)?,
        rules,
        engine: request::engine(&settings, CacheChoice::Off)?,
    };
    let (summary, folder) = aggregate(&request)?;
    if settings.json {
        outcome::print(&format!("{}\n", serde_json::to_string_pretty(&summary)?))?;
    } else {
        outcome::print(&format!(
            "{}results: {}\n",
            crate::report::text(&summary),
            folder.display()
        ))?;
    }
    Ok(Outcome::of(&summary))
}
