//! `nightmill aggregate`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::{AnyError, Outcome, idle_flags, outcome, request};
use crate::job::{Settings, SettingsError};
use crate::metric::Method;
use crate::report::Paint;
use crate::run::{AggregateRequest, CacheChoice, aggregate};

/// Flags of `aggregate`.
#[derive(Args, Debug)]
pub(super) struct AggregateArgs {
    /// Run directories, or files with trace_id, session_id, started_at and any of confidence, loop_detection,
    /// tool_correctness, coherence. Directories of imported scores (`runs scores --import`) beside them: their signals go before
    #[arg(required = true, value_name = "SIGNALS")]
    paths: Vec<String>,
    /// The run directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(mut args: AggregateArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.paths)?;
    idle_flags::of_aggregate(&args.settings)?;
    let mut settings = args.settings.complete(config)?;
    request::local_paths(&args.paths)?;
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
    let text = match settings.json {
        true => format!("{}\n", serde_json::to_string_pretty(&summary)?),
        false => format!(
            "{}results: {}\n",
            crate::report::text(&summary, Paint::of_stdout()),
            folder.display()
        ),
    };
    outcome::print_of(&folder, &text)?;
    Ok(Outcome::of(&summary))
}
