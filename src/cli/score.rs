//! `nightmill score`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::notify::Notifier;
use super::piped::Piped;
use super::progress::ProgressBar;
use super::setting_flags::{OfRuns, SettingFlags};
use super::target_flags::TargetFlags;
use super::{AnyError, Outcome, idle_flags, outcome, simulation};
#[cfg(feature = "cluster")]
use crate::cluster::BallistaExchange;
use crate::job::{Job, SettingsError};
use crate::run::open::{self, sample_seed};
use crate::run::worker::Exchange;
use crate::run::{ClusterSize, PageWriter, Progress, ScoreRequest, score};
use crate::store::{Destination, Fetched, StoreError};

/// Flags of `score`.
#[derive(Args, Debug)]
pub(super) struct ScoreArgs {
    /// Files, folders (also Hive-partitioned) and globs, here or in buckets (s3://, gs://, az://); files behind https://
    #[arg(required_unless_present = "template", value_name = "PATH")]
    paths: Vec<String>,
    /// The run directory to make, here or in a bucket
    #[arg(long, value_name = "DIR", required_unless_present_any = ["template", "simulate"])]
    out: Option<PathBuf>,
    /// Print a settings file with every setting, each as a comment, to save as nightmill.toml
    #[arg(long, exclusive = true)]
    template: bool,
    /// Go on with the sessions of an earlier run: a run directory, or a folder of runs, of which the one that no other continues
    #[arg(long = "continue", value_name = "RUN|FOLDER")]
    continues: Option<PathBuf>,
    /// Have the run done by the executors of a cluster: the address of its scheduler. All of them must see the folder of --out
    #[cfg(feature = "cluster")]
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "simulate",
        help_heading = "Machines"
    )]
    cluster: Option<String>,
    /// The folder of the cluster's keys, as `nightmill keys` makes it
    #[cfg(feature = "cluster")]
    #[arg(
        long,
        value_name = "DIR",
        requires = "cluster",
        help_heading = "Machines"
    )]
    cluster_keys: Option<PathBuf>,
    /// With --out in a bucket: a folder that all members see, where the run is made before it is carried there. It is gone if
    /// the run fails: only a run for a shared folder can be resumed
    #[cfg(feature = "cluster")]
    #[arg(
        long,
        value_name = "DIR",
        requires = "cluster",
        help_heading = "Machines"
    )]
    cluster_folder: Option<PathBuf>,
    /// Score PATH as a sample, and say what a cluster would take for as many rows: 100x16,1000000000 are 100 executors of 16 slots
    #[arg(long, value_name = "EXECUTORSxSLOTS,ROWS", conflicts_with_all = ["out", "continues"], help_heading = "Machines")]
    simulate: Option<ClusterSize>,
    /// Write no report.html
    #[arg(long)]
    no_report: bool,
    #[command(flatten)]
    targets: TargetFlags,
    #[command(flatten)]
    settings: SettingFlags<OfRuns>,
}

pub(super) fn run(mut args: ScoreArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    if args.template {
        outcome::print(&crate::job::template())?;
        return Ok(Outcome::Done);
    }
    let piped = Piped::take(&mut args.paths)?;
    #[cfg(feature = "cluster")]
    if piped.any() && args.cluster.is_some() {
        return Err("--cluster: executors can't read what comes through a pipe; write it to a file that all of them see".into());
    }
    let job = Job::of(args.settings.given.clone().complete(config)?)?;
    idle_flags::of_alerts(&args.settings.given, &job)?;
    let notifier = Notifier::of(&job)?;
    let out = args.out.clone().unwrap_or_default();
    let result = scored(args, job, notifier.as_ref());
    if let (Some(notifier), Err(error)) = (&notifier, &result) {
        notifier.failed(None, &out, &error.to_string());
    }
    result
}

fn scored(args: ScoreArgs, mut job: Job, notifier: Option<&Notifier>) -> Result<Outcome, AnyError> {
    let out = args.out.clone().unwrap_or_default();
    if args.continues.is_none() {
        idle_flags::of_no_night(
            &args.settings.given,
            "this run continues no other, so that there are no nights to hold it against; name one with --continue",
        )?;
    }
    if job.notify_texts && args.no_report {
        return Err(SettingsError(
            "--notify-texts: texts are read for the report, and --no-report leaves it out; leave one of them out".into(),
        )
        .into());
    }
    let page = (!args.no_report).then_some(crate::report::html as PageWriter);
    let exchange = exchange(&args, &out)?;
    let inputs = brought(args.paths, &mut job)?;
    if job.resume && out.to_str().is_some_and(|out| out.contains("://")) {
        return Err("--resume: a run for a bucket of another machine leaves nothing behind that could be gone on with; name a local --out, \
                    and copy it there"
            .into());
    }
    if let Some(cluster) = args.simulate {
        let request = ScoreRequest {
            targets: args.targets.choice(sample_seed(&job))?,
            ..open::score(&job, inputs.paths.clone(), PathBuf::new(), None)?
        };
        return simulation::run(&request, cluster, job.json);
    }
    #[cfg(feature = "cluster")]
    let shared = args.cluster_folder.as_deref();
    #[cfg(not(feature = "cluster"))]
    let shared = None;
    let place = destination(out, &job, &inputs, shared)?;
    let request = ScoreRequest {
        overwrite: job.overwrite,
        continues: args.continues,
        exchange,
        targets: args.targets.choice(sample_seed(&job))?,
        ..open::score(&job, inputs.paths.clone(), place.folder().to_owned(), page)?
    };
    let sampled = args.targets.sampled();
    idle_flags::of_scoring(&args.settings.given, &job, &request.rules, sampled)?;
    carry_out(&request, job.json, place, notifier)
}

/// Who does the parts of the run, if not this process.
#[cfg(feature = "cluster")]
fn exchange(args: &ScoreArgs, out: &Path) -> Result<Option<Arc<dyn Exchange>>, AnyError> {
    let Some(address) = &args.cluster else {
        return Ok(None);
    };
    let shown = out.to_string_lossy().to_lowercase();
    let is_remote = shown.contains("://") && !shown.starts_with("file://");
    if let Some(folder) = args
        .cluster_folder
        .as_ref()
        .filter(|folder| !folder.is_dir())
    {
        return Err(format!("--cluster-folder {}: no such folder", folder.display()).into());
    }
    match (&args.cluster_folder, is_remote) {
        (None, true) => {
            return Err("--cluster: executors write into the folder of the run, before it is carried anywhere; name one that all of \
                        them see with --cluster-folder"
                .into());
        }
        (Some(_), false) => {
            return Err("--cluster-folder: --out is a folder itself, and the run is made beside it; leave one of them out".into());
        }
        _ => {}
    }
    let cluster = BallistaExchange::new(address, args.cluster_keys.as_deref())?;
    Ok(Some(Arc::new(cluster)))
}

#[cfg(not(feature = "cluster"))]
fn exchange(_: &ScoreArgs, _: &Path) -> Result<Option<Arc<dyn Exchange>>, AnyError> {
    Ok(None)
}

/// Brings remote inputs here, and remote signals beside them: the job names their copy then.
pub(super) fn brought(mut paths: Vec<String>, job: &mut Job) -> Result<Fetched, StoreError> {
    paths.extend(job.signals.clone());
    let mut inputs = crate::store::fetched(paths, job.offline)?;
    if job.signals.is_some() {
        job.signals = inputs.paths.pop();
    }
    Ok(inputs)
}

/// Where a run directory is made, and where it goes.
pub(super) fn destination(
    out: PathBuf,
    job: &Job,
    inputs: &Fetched,
    parent: Option<&Path>,
) -> Result<Destination, StoreError> {
    let names = crate::output::names_of_a_run();
    Destination::of(out, job.overwrite, job.offline, inputs, names, parent)
}

/// Scores, with a progress bar, prints what came of it, and tells who is to be told.
pub(super) fn carry_out(
    request: &ScoreRequest,
    json: bool,
    place: Destination,
    notifier: Option<&Notifier>,
) -> Result<Outcome, AnyError> {
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::start(Arc::clone(&progress));
    let result = score(request, &progress);
    bar.stop();
    let (summary, folder) = result?;
    place.deliver()?;
    let (ended, report) = (Outcome::of(&summary), request.report.is_some());
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&summary)?),
        false => outcome::told(&summary, &folder, report),
    };
    // A server that does not answer must not be waited for before the answer is seen.
    let printed = outcome::print_of(&folder, &text);
    if let Some(notifier) = notifier {
        notifier.ended(request.name.as_deref(), &folder, report, &summary, ended);
    }
    printed?;
    Ok(ended)
}
