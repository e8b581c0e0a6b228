//! `nightmill suite run`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::given_flags::GivenFlags;
use super::participant_flags::{EvaluatorFlags, ParticipantFlags};
use super::regression_flags::RegressionFlags;
use super::run_regression::{self, RegressionRun};
use super::runner_flags::RunnerFlags;
use super::{Patterns, ended};
use crate::cli::progress::ProgressBar;
use crate::cli::setting_flags::{Offer, SettingFlags};
use crate::cli::{AnyError, Outcome, outcome};
use crate::job::{Job, Setting, Theme};
use crate::report::Paint;
use crate::run::{CacheChoice, Progress, open};
use crate::suite::evalset::hooks::HookRegistry;
use crate::suite::evalset::store::{EvalSets, LocalSets, write};
use crate::suite::evalset::{Agent, EvalSetRequest, Participants, located, plan};
use crate::suite::page::{self, PageFacts};
use crate::suite::{SuiteKind, SuiteOutcome, SuitePlan};

/// Flags of `suite run`.
#[derive(Args, Debug)]
pub(in crate::cli) struct RunArgs {
    // The first one: the others take their values away.
    #[command(flatten)]
    given: GivenFlags,
    /// An evaluation set (NAME.evalset.json), the folder of its application, or the folder above it; or a
    /// configuration of regression suites, its folder, or a golden set. A configuration may also be named with --config
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// The folder of results, to which each run adds one; of regression suites: of records [default: .regtrace/runs
    /// beside the configuration if it is there, else .nightmill/suite-runs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The application, where PATH holds several or none is to be seen
    #[arg(long)]
    app: Option<String>,
    /// The set, where the application has several; of regression suites: those to run, by path, alias or name
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    set: Vec<String>,
    /// Only these cases
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    cases: Vec<String>,
    /// Passes over all cases
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// The k of pass^k and pass@k, the chances that all or any of k passes succeed [default: the number of --runs]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pass_k: Option<u32>,
    /// Ask no judge: metrics that need one are not evaluated; those of regression suites are computed instead
    #[arg(long)]
    no_judge: bool,
    /// Refuse metrics that no evaluator is known for
    #[arg(long)]
    strict_metrics: bool,
    /// What result files hold: what all versions of trpc-agent-go read, or scores of cases too
    #[arg(long, value_enum, default_value_t = ResultFormat::Compat)]
    result_format: ResultFormat,
    /// A provider of judges that speaks OpenAI's protocol, as in acme=openai
    #[arg(long, value_name = "NAME=openai")]
    judge_provider: Vec<String>,
    /// Write no page
    #[arg(long)]
    no_report: bool,
    /// Say what judges would be asked and what that costs; nothing is sent or written, and no agent is asked
    #[arg(long)]
    dry_run: bool,
    /// Ask no agent: score what `suite infer` wrote to this file, in as many passes as it holds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["runner", "runs"])]
    inferences: Option<PathBuf>,
    #[command(flatten)]
    runner: RunnerFlags,
    #[command(flatten)]
    participants: ParticipantFlags,
    #[command(flatten)]
    evaluators: EvaluatorFlags,
    #[command(flatten)]
    regression: RegressionFlags,
    #[command(flatten)]
    patterns: Patterns,
    #[command(flatten)]
    settings: SettingFlags<OfSuites>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResultFormat {
    Compat,
    Latest,
}

/// Settings that suites have a use for.
#[derive(Debug)]
pub(in crate::cli) struct OfSuites;

impl Offer for OfSuites {
    fn offers(setting: &Setting) -> bool {
        const FURTHER: [&str; 3] = ["json", "threads", "offline"];
        const OF_TRACES: [&str; 16] = [
            "judge",
            "judge_model",
            "judge_config",
            "judge_url",
            "judge_protocol",
            "judge_key_file",
            "judge_where",
            "judge_only",
            "judge_tags",
            "judge_sample",
            "sample_seed",
            "judge_max_trace",
            "judge_long_traces",
            "judge_temperature",
            "judge_max_output",
            "judge_policy",
        ];
        FURTHER.contains(&setting.name)
            || of_encoder(setting)
            || (setting.of_judges()
                && !OF_TRACES.contains(&setting.name)
                && setting.name != "judge_unshared")
    }
}

/// Settings of the model that metrics compare meanings by.
fn of_encoder(setting: &Setting) -> bool {
    setting.theme == Theme::Encoder || ["model", "memory_limit"].contains(&setting.name)
}

pub(super) fn run(args: RunArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let (kind, config) = super::kind_of_run(&args.path, args.app.is_some(), config)?;
    if let SuiteKind::Regression(path) = kind {
        let regression = RegressionRun {
            path,
            out: args.out,
            sets: args.set,
            cases: args.cases,
            no_judge: args.no_judge,
            page: !args.no_report,
            dry_run: args.dry_run,
            settings: args.settings.given,
            given: args.given,
            flags: args.regression,
        };
        return regression.run(config);
    }
    run_regression::refuse_for_eval_sets(&args.given)?;
    let set = match args.set.as_slice() {
        [] => None,
        [set] => Some(set.as_str()),
        _ => return Err("--set: an evaluation set is run alone; name one".into()),
    };
    if args.out.is_none() && !args.dry_run {
        return Err("name a folder of results with --out".into());
    }
    let engine_flag = args.settings.given.names();
    let mut engine_flag = engine_flag.filter(|name| Setting::named(name).is_some_and(of_encoder));
    let engine_flag = engine_flag.next().map(|name| name.replace('_', "-"));
    // Other settings of the file and the environment are there for scoring.
    let given = args.settings.given.clone().complete(config)?;
    let given = given.only(|name| {
        let setting = Setting::named(name);
        setting.is_some_and(OfSuites::offers)
    });
    let job = Job::of(given)?;
    let (base, app, set) = found(&args.path, args.app.as_deref(), set, &args.patterns)?;
    let agent = match &args.inferences {
        Some(file) => {
            args.runner.agent(job.offline)?;
            Agent::Recorded(file.clone())
        }
        None => args.runner.agent(job.offline)?,
    };
    let providers = args
        .judge_provider
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, "openai")) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(format!("--judge-provider {pair}: expected NAME=openai")),
        });
    let request = EvalSetRequest {
        sets: args.patterns.sets(&base)?,
        metrics: args.patterns.metrics(&base)?,
        results: args
            .patterns
            .results(args.out.as_deref().unwrap_or(&base))?,
        app,
        set,
        cases: args.cases,
        runs: args.runs,
        cases_at_once: args.runner.cases_at_once(),
        agent: args.runner.described(),
        strict_metrics: args.strict_metrics,
        latest_format: matches!(args.result_format, ResultFormat::Latest),
        judge: (!args.no_judge).then(|| open::suite(&job)).transpose()?,
        providers: providers.collect::<Result<_, _>>()?,
        offline: job.offline,
        engine: open::engine(&job, CacheChoice::User)?,
        engine_flag,
        pass_k: args.pass_k,
        threads: threads(job.threads.map(|n| n.get())),
    };
    let mut inputs: Vec<PathBuf> = args.inferences.iter().cloned().collect();
    inputs.push(request.sets.path(&request.app, &request.set)?);
    inputs.push(request.metrics.path(&request.app, &request.set)?);
    args.participants.refuse_inputs(&inputs)?;
    let participants = Participants {
        own_evaluators: args.evaluators.names()?,
        evaluators: args.evaluators.registry()?,
        // A plan starts no process and writes no log.
        hooks: match args.dry_run {
            true => HookRegistry::default(),
            false => args.participants.hooks()?,
        },
        agent,
    };
    let progress = Arc::new(Progress::default());
    if args.dry_run {
        return print_plan(&plan(&request, &participants)?, job.json);
    }
    let bar = ProgressBar::start(Arc::clone(&progress));
    let result = crate::suite::evalset::run(&request, participants, &progress);
    bar.stop();
    let mut outcome = result?;
    if !args.no_report {
        write_page(&mut outcome, &args.path)?;
    }
    print(&outcome, job.json, args.participants.take_stdout())?;
    Ok(ended(&outcome))
}

/// How many threads work: as many as are asked for, or as the machine has.
pub(super) fn threads(asked: Option<usize>) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.unwrap_or_else(all)
}

/// The folder above the application, the application and the set that the flags name.
pub(super) fn found(
    path: &Path,
    app: Option<&str>,
    set: Option<&str>,
    patterns: &Patterns,
) -> Result<(PathBuf, String, String), AnyError> {
    let (base, app, sets) = match (app, set) {
        (Some(app), Some(set)) => return Ok((path.to_owned(), app.to_owned(), set.to_owned())),
        (Some(app), None) => {
            let sets = LocalSets::new(patterns.sets(path)?).list(app)?;
            (path.to_owned(), app.to_owned(), sets)
        }
        (None, _) => located(path).ok_or_else(|| {
            format!(
                "`{}`: no evaluation set is to be seen there (APP/NAME.evalset.json), or several applications are; name \
                 one with --app and --set",
                path.display()
            )
        })?,
    };
    let chosen = match (set, sets.as_slice()) {
        (Some(set), _) => set.to_owned(),
        (None, [set]) => set.clone(),
        (None, []) => {
            return Err(format!("`{}` has no set of {app}", path.display()).into());
        }
        (None, _) => {
            return Err(format!(
                "`{}` has several sets: {}; name one with --set",
                path.display(),
                sets.join(", ")
            )
            .into());
        }
    };
    Ok((base, app, chosen))
}

/// Writes the page beside the result.
fn write_page(outcome: &mut SuiteOutcome, input: &Path) -> Result<(), AnyError> {
    let Some(result) = outcome.files.first() else {
        return Ok(());
    };
    let stem = result
        .trim_end_matches(".json")
        .trim_end_matches(".evalset_result");
    let path = PathBuf::from(format!("{stem}.html"));
    outcome.files.push(path.display().to_string());
    let facts = PageFacts {
        created_at: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: vec![input.display().to_string()],
    };
    let html = page::html(outcome, &facts)?;
    write(&path, &html).map_err(|e| format!("{e}; the result itself is there"))?;
    Ok(())
}

/// Prints what a suite would ask.
pub(super) fn print_plan(plan: &SuitePlan, json: bool) -> Result<Outcome, AnyError> {
    outcome::print(&match json {
        true => format!("{}\n", serde_json::to_string_pretty(plan)?),
        false => plan.text(),
    })?;
    Ok(Outcome::Done)
}

/// Prints what a suite came to, to standard error where standard output is taken.
pub(super) fn print(outcome: &SuiteOutcome, json: bool, taken: bool) -> Result<(), AnyError> {
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(outcome)?),
        false => {
            let width = terminal_size::terminal_size().map_or(100, |(width, _)| width.0.into());
            crate::suite::terminal::text(outcome, Paint::of_stdout(), width)
        }
    };
    outcome::say(&text, taken)?;
    Ok(())
}
