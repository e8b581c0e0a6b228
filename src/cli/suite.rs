//! `nightmill suite`: evaluation sets with expectations.

mod diff;
mod from_traces;
mod infer;
mod list;
mod participant_flags;
mod run;
mod runner_flags;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{AnyError, Outcome};
use crate::suite::evalset::locator::Locator;
use crate::suite::{SuiteOutcome, Verdict};

/// Flags of `suite`.
#[derive(Args, Debug)]
pub(super) struct SuiteArgs {
    #[command(subcommand)]
    command: SuiteCommand,
}

#[derive(Debug, Subcommand)]
enum SuiteCommand {
    /// Evaluate a set of cases against what is expected of them
    Run(Box<run::RunArgs>),
    /// Ask the agent about the cases of a set, and keep what it does for `suite run --inferences`
    Infer(Box<infer::InferArgs>),
    /// The evaluation sets of a folder
    List(list::ListArgs),
    /// Show the result of an evaluation
    Show(show::ShowArgs),
    /// What changed from one result to another; exit code 1 if something newly fails, 3 if something that passed is
    /// not there or not evaluated
    Diff(diff::DiffArgs),
    /// Make an evaluation set of traces: a case for each session, a turn for each trace
    FromTraces(Box<from_traces::FromTracesArgs>),
}

pub(super) fn run(args: SuiteArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    match args.command {
        SuiteCommand::Run(args) => run::run(*args, config),
        SuiteCommand::Infer(args) => infer::run(*args, config),
        SuiteCommand::List(args) => list::run(&args),
        SuiteCommand::Show(args) => show::run(&args),
        SuiteCommand::Diff(args) => diff::run(&args),
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
    let cases = outcome.cases.iter();
    let unsaid = cases
        .filter(|case| case.verdict == Verdict::NotEvaluated)
        .count();
    let metrics = outcome.metrics.iter().map(|metric| metric.not_evaluated);
    let unsaid = unsaid + metrics.sum::<usize>() > 0;
    match outcome.verdict {
        Verdict::Failed => Outcome::GateFailed,
        Verdict::NotEvaluated => Outcome::Incomplete,
        Verdict::Passed if unsaid => Outcome::Incomplete,
        Verdict::Passed => Outcome::Done,
    }
}
