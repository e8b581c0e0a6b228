//! `nightmill suite`: evaluation sets with expectations, and regression suites.

mod baseline;
mod diff;
mod from_traces;
mod given_flags;
mod infer;
mod list;
mod list_regression;
mod participant_flags;
mod pin;
mod record_diff;
mod records;
mod regression_flags;
mod run;
mod run_regression;
mod runner_flags;
mod scaffold;
mod show;
mod unpin;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{AnyError, Outcome};
use crate::suite::evalset::locator::Locator;
use crate::suite::regression::SuitePath;
use crate::suite::{SuiteKind, SuiteOutcome, Verdict, suite_kind};

/// Flags of `suite`.
#[derive(Args, Debug)]
pub(super) struct SuiteArgs {
    #[command(subcommand)]
    command: SuiteCommand,
}

#[derive(Debug, Subcommand)]
enum SuiteCommand {
    /// Evaluate cases against what is expected of them: an evaluation set, or regression suites against a baseline.
    /// Exit codes: 0 passed, 1 a case or a gate failed, 2 wrong usage or input, 3 something was not evaluated
    Run(Box<run::RunArgs>),
    /// Ask the agent about the cases of a set, and keep what it does for `suite run --inferences`
    Infer(Box<infer::InferArgs>),
    /// The evaluation sets of a folder; the suites of a configuration, or the records of their runs
    List(list::ListArgs),
    /// Show the result of an evaluation, or the record of a regression suite's run
    Show(show::ShowArgs),
    /// What changed from one result or record to another; exit code 1 if something newly fails, 3 if something that
    /// passed is not there or not evaluated
    Diff(diff::DiffArgs),
    /// Make a run the baseline of its regression suite until it is unpinned
    Pin(pin::PinArgs),
    /// Let the newest run that passed be the baseline again
    Unpin(unpin::UnpinArgs),
    /// The runs that regression suites would be compared with now
    Baseline(baseline::BaselineArgs),
    /// Make a golden set that expects what models answered
    Scaffold(scaffold::ScaffoldArgs),
    /// Make an evaluation set of traces: a case for each session, a turn for each trace
    FromTraces(Box<from_traces::FromTracesArgs>),
}

/// What a shell says of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Has commands that a suite has started end with the program where that is interrupted: they lead groups of their own,
/// which no terminal reaches.
fn end_commands_when_interrupted() -> Result<(), AnyError> {
    ctrlc::set_handler(|| {
        crate::suite::process::kill_all();
        std::process::exit(INTERRUPTED);
    })
    .map_err(|e| format!("interruptions can't be handled: {e}").into())
}

pub(super) fn run(args: SuiteArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    if let SuiteCommand::Run(_) | SuiteCommand::Infer(_) = &args.command {
        end_commands_when_interrupted()?;
    }
    match args.command {
        SuiteCommand::Run(args) => run::run(*args, config),
        SuiteCommand::Infer(args) => infer::run(*args, config),
        SuiteCommand::List(args) => list::run(&args),
        SuiteCommand::Show(args) => show::run(&args),
        SuiteCommand::Diff(args) => diff::run(&args),
        SuiteCommand::Pin(args) => pin::run(&args),
        SuiteCommand::Unpin(args) => unpin::run(&args),
        SuiteCommand::Baseline(args) => baseline::run(&args),
        SuiteCommand::Scaffold(args) => scaffold::run(&args),
        SuiteCommand::FromTraces(args) => from_traces::run(*args, config),
    }
}

/// Where the files of a suite are, where that is not trpc-agent-go's own rule.
#[derive(Args, Clone, Debug)]
pub(super) struct Patterns {
    /// Where sets are, below the folder of suites [default: {app}/{id}.evalset.json]
    #[arg(long, value_name = "PATTERN")]
    evalset_pattern: Option<String>,
    /// Where their metrics are [default: {app}/{id}.metrics.json]
    #[arg(long, value_name = "PATTERN")]
    metrics_pattern: Option<String>,
    /// Where results go, below --out [default: {app}/{id}.evalset_result.json]
    #[arg(long, value_name = "PATTERN")]
    result_pattern: Option<String>,
}

impl Patterns {
    fn sets(&self, base: &Path) -> Result<Locator, AnyError> {
        located(
            "evalset-pattern",
            self.evalset_pattern.as_deref(),
            base,
            Locator::of_sets,
        )
    }

    fn metrics(&self, base: &Path) -> Result<Locator, AnyError> {
        located(
            "metrics-pattern",
            self.metrics_pattern.as_deref(),
            base,
            Locator::of_metrics,
        )
    }

    fn results(&self, base: &Path) -> Result<Locator, AnyError> {
        located(
            "result-pattern",
            self.result_pattern.as_deref(),
            base,
            Locator::of_results,
        )
    }
}

fn located(
    flag: &str,
    pattern: Option<&str>,
    base: &Path,
    usual: fn(PathBuf) -> Locator,
) -> Result<Locator, AnyError> {
    match pattern {
        None => Ok(usual(base.to_owned())),
        Some(pattern) => Locator::new(base, pattern).map_err(|e| format!("--{flag}: {e}").into()),
    }
}

/// The exit code of a suite: failed, or not evaluated as a whole or in part. A case passes by the metrics that were
/// evaluated, so that the others must be looked at too.
fn ended(outcome: &SuiteOutcome) -> Outcome {
    match outcome.verdict {
        Verdict::Failed => Outcome::GateFailed,
        Verdict::NotEvaluated => Outcome::Incomplete,
        Verdict::Passed if outcome.is_partial() => Outcome::Incomplete,
        Verdict::Passed => Outcome::Done,
    }
}

/// The kind of suite that PATH is. A settings file that is YAML is the configuration of regression suites: the second
/// value is what is left as a settings file.
fn kind_of_run<'c>(
    path: &Path,
    is_of_app: bool,
    config: Option<&'c Path>,
) -> Result<(SuiteKind, Option<&'c Path>), AnyError> {
    let is_yaml = |path: &&Path| {
        let ending = path.extension().and_then(|of| of.to_str());
        ending.is_some_and(|of| ["yaml", "yml"].contains(&of))
    };
    // An application's folder is one of evaluation sets, whatever its files are called.
    if is_of_app {
        return Ok((SuiteKind::EvalSet, config));
    }
    let Some(rules) = config.filter(is_yaml) else {
        return Ok((suite_kind(path)?, config));
    };
    let SuiteKind::Regression(SuitePath::Config(rules)) = suite_kind(rules)? else {
        return Err(format!(
            "--config `{}`: this is no configuration of regression suites, and settings are TOML",
            rules.display()
        )
        .into());
    };
    let named = match path == Path::new(".") {
        true => SuitePath::Config(rules),
        false => match suite_kind(path)? {
            SuiteKind::Regression(SuitePath::Suite { file, .. }) => SuitePath::Suite {
                file,
                rules: Some(rules),
            },
            _ => {
                return Err(format!(
                    "`{}` is no golden set, and --config `{}` names its own; leave one of them out",
                    path.display(),
                    rules.display()
                )
                .into());
            }
        },
    };
    Ok((SuiteKind::Regression(named), None))
}
