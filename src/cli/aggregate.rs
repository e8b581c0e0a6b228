//! `nightmill aggregate`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, idle_flags, outcome, score};
use crate::job::{Job, Setting, SettingsError};
use crate::metric::Method;
use crate::run::open;
use crate::run::{AggregateRequest, CacheChoice, aggregate};

/// Flags of `aggregate`.
#[derive(Args, Debug)]
pub(super) struct AggregateArgs {
    /// Run directories, or files with trace_id, session_id, started_at and any of confidence, loop_detection,
    /// tool_correctness, coherence, and metrics of spans that --weights names. Directories of imported scores (`runs scores --import`) beside them: their signals go before
    #[arg(required = true, value_name = "SIGNALS")]
    paths: Vec<String>,
    /// The run directory to make, here or in a bucket
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    settings: SettingFlags<OfAggregate>,
}

/// Flags that would change nothing are there to be refused with a reason.
#[derive(Debug)]
struct OfAggregate;

impl Offer for OfAggregate {
    fn offers(_: &Setting) -> bool {
        true
    }

    fn hides(setting: &Setting) -> bool {
        let idle = idle_flags::OF_AGGREGATE.contains(&setting.name);
        idle || setting.of_judges() || setting.of_alerts()
    }
}

pub(super) fn run(mut args: AggregateArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.paths)?;
    idle_flags::of_aggregate(&args.settings.given)?;
    let mut given = args.settings.given.complete(config)?;
    let session_metrics = crate::metric::ALL
        .iter()
        .filter(|m| m.method == Method::Aggregate);
    if !given.has("metrics") {
        let names: Vec<&str> = session_metrics.map(|m| m.name).collect();
        given = given.with("metrics", names);
    }
    let job = Job::of(given)?;
    let rules = open::rules(&job)?;
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
    let inputs = crate::store::fetched(args.paths, job.offline)?;
    let place = score::destination(args.out, &job, &inputs, None)?;
    let request = AggregateRequest {
        paths: inputs.paths.clone(),
        format: open::own_format(&job)?,
        out: place.folder().to_owned(),
        overwrite: job.overwrite,
        map: open::column_map(&job)?,
        on_bad_file: open::on_bad_file(&job),
        rules,
        engine: open::engine(&job, CacheChoice::Off)?,
    };
    let (summary, folder) = aggregate(&request)?;
    place.deliver()?;
    let text = match job.json {
        true => format!("{}\n", serde_json::to_string_pretty(&summary)?),
        false => outcome::told(&summary, &folder, false),
    };
    outcome::print_of(&folder, &text)?;
    Ok(Outcome::of(&summary))
}
