//! `nightmill suite infer`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::Patterns;
use super::participant_flags::ParticipantFlags;
use super::run::{found, threads};
use super::runner_flags::RunnerFlags;
use crate::cli::progress::ProgressBar;
use crate::cli::setting_flags::{Offer, SettingFlags};
use crate::cli::{AnyError, Outcome, outcome};
use crate::job::{Job, Setting};
use crate::report::{counted, plain};
use crate::run::{CacheChoice, Progress, open};
use crate::suite::evalset::evaluator::Registry;
use crate::suite::evalset::{EvalSetRequest, Participants, infer};

/// Flags of `suite infer`.
#[derive(Args, Debug)]
pub(in crate::cli) struct InferArgs {
    /// A set (NAME.evalset.json), the folder of an application, or the folder above it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The file that gets a line of JSON for each case and pass
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The application, where PATH holds several or none is to be seen
    #[arg(long)]
    app: Option<String>,
    /// The set, where the application has several
    #[arg(long)]
    set: Option<String>,
    /// Only these cases
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    cases: Vec<String>,
    /// Passes over all cases
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    runner: RunnerFlags,
    #[command(flatten)]
    participants: ParticipantFlags,
    #[command(flatten)]
    patterns: Patterns,
    #[command(flatten)]
    settings: SettingFlags<OfInference>,
}

/// Settings that asking agents has a use for.
#[derive(Debug)]
pub(in crate::cli) struct OfInference;

impl Offer for OfInference {
    fn offers(setting: &Setting) -> bool {
        ["offline", "overwrite"].contains(&setting.name)
    }
}

pub(super) fn run(args: InferArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let given = args.settings.given.complete(config)?;
    let job = Job::of(given.only(|name| Setting::named(name).is_some_and(OfInference::offers)))?;
    let (base, app, set) = found(
        &args.path,
        args.app.as_deref(),
        args.set.as_deref(),
        &args.patterns,
    )?;
    if args.out.exists() && !job.overwrite {
        return Err(format!(
            "`{}` exists; choose another --out, or give --overwrite to replace it",
            args.out.display()
        )
        .into());
    }
    let agent = args.runner.agent(job.offline)?;
    let request = EvalSetRequest {
        sets: args.patterns.sets(&base)?,
        metrics: args.patterns.metrics(&base)?,
        results: args.patterns.results(&base)?,
        app,
        set,
        cases: args.cases,
        runs: args.runs,
        cases_at_once: args.runner.cases_at_once(),
        agent: args.runner.described(),
        strict_metrics: false,
        latest_format: false,
        judge: None,
        providers: Vec::new(),
        offline: job.offline,
        threads: threads(None),
        engine: open::engine(&job, CacheChoice::Off)?,
        engine_flag: None,
        pass_k: None,
    };
    let inputs = [
        request.sets.path(&request.app, &request.set)?,
        request.metrics.path(&request.app, &request.set)?,
        args.out.clone(),
    ];
    args.participants.refuse_inputs(&inputs)?;
    let participants = Participants {
        own_evaluators: Vec::new(),
        evaluators: Registry::default(),
        hooks: args.participants.hooks()?,
        agent,
    };
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::start(Arc::clone(&progress));
    let done = infer(&request, participants, &args.out, &progress);
    bar.stop();
    let done = done?;
    let mut text = format!(
        "{}: {}\n",
        counted(done.cases, "case", "cases"),
        args.out.display()
    );
    if done.taken > 0 {
        text.push_str(&format!(
            "{} taken from a run that was broken off, and not asked again\n",
            counted(done.taken, "case", "cases")
        ));
    }
    for note in &done.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    if let Some(first) = &done.first_failure {
        text.push_str(&format!(
            "{} failed; first: {}\n",
            done.failed,
            plain(first)
        ));
    }
    outcome::say(&text, args.participants.take_stdout())?;
    Ok(match done.failed {
        0 => Outcome::Done,
        _ => Outcome::Incomplete,
    })
}
