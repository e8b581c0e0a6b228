//! The command line: one file a subcommand.

mod aggregate;
mod analysed_runs;
mod bench;
mod calibrate;
mod changes;
mod completions;
mod computed_comparison;
mod conversation_comparison;
mod conversation_explanation;
mod conversation_summary;
mod conversations;
mod delete;
mod embed;
#[cfg(feature = "cluster")]
mod executor;
mod export;
mod foreign_tables;
mod forget;
mod idle_flags;
mod import;
mod judge;
#[cfg(feature = "cluster")]
mod keys;
mod list;
mod listing;
mod metrics;
mod models;
mod monitor;
mod monitor_flags;
mod monitor_run;
mod named_values;
mod notify;
mod outcome;
mod panics;
mod piped;
mod plan;
mod pooling;
mod progress;
mod prune;
mod retry;
mod runs;
mod runs_flags;
#[cfg(feature = "cluster")]
mod scheduler;
mod score;
mod scores;
mod setting_flags;
mod show;
mod simulation;
mod sql;
mod suite;
mod target_flags;
mod validate;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use outcome::Outcome;

/// Scores warehouses of agent traces offline.
#[derive(Debug, Parser)]
#[command(
    name = "nightmill",
    version,
    about,
    after_help = "Exit codes: 0 done, gates passed; 1 a gate failed, a compared run is worse, or a verified one is not what was written; 2 wrong usage, configuration or input, or the run failed; 3 done, but something could not be scored."
)]
pub struct Cli {
    /// Settings file [default: nightmill.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Log what is being done, and print the whole summary; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log as JSON lines
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Score traces: coherence, loops, and the reliability and consistency of sessions
    Score(score::ScoreArgs),
    /// Judge conversations that come as a table of turns, with or without test cases
    Conversations(conversations::ConversationsArgs),
    /// Count what judges would be asked and what it would cost; sends nothing
    Plan(plan::PlanArgs),
    /// The ledger's batches of calls to judges, and fetching their results
    Judge(judge::JudgeArgs),
    /// Session scores from trace signals that exist already; loads no model
    Aggregate(aggregate::AggregateArgs),
    /// Make traces of any format into Parquet of nightmill's own columns, or say how they would be read
    Import(import::ImportArgs),
    /// Write vectors beside the columns of a file
    Embed(embed::EmbedArgs),
    /// Finished runs and their scores over time
    Runs(runs::RunsArgs),
    /// Hold the scores of runs against labels: what each tells, and what tells nothing
    Validate(validate::ValidateArgs),
    /// Thresholds and an order of sessions that fit a warehouse, out of its own runs and labels
    Calibrate(calibrate::CalibrateArgs),
    /// Give the scores of a run to another system: as a file of what it takes in, or sent to it
    Export(export::ExportArgs),
    /// Runs that are made again and again
    Monitor(monitor::MonitorArgs),
    /// Evaluation sets with expectations: run them, and make them of traces
    Suite(suite::SuiteArgs),
    /// Query files with SQL and nightmill's functions
    Sql(sql::SqlArgs),
    /// Embedding models: which there are, what they are, and how they come to sites without a network
    Models(models::ModelsArgs),
    /// What models are worth here: quality, speed and memory, side by side
    Bench(bench::BenchArgs),
    /// Hand out the parts of runs to executors, on other machines or this one
    #[cfg(feature = "cluster")]
    Scheduler(scheduler::SchedulerArgs),
    /// Do parts of runs that a scheduler hands out
    #[cfg(feature = "cluster")]
    Executor(executor::ExecutorArgs),
    /// Make the keys by which the members of a cluster know each other
    #[cfg(feature = "cluster")]
    Keys(keys::KeysArgs),
    /// List all metrics
    Metrics(metrics::MetricsArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// What the command line of this process says. Wrong usage and calls for help end the process.
    pub fn of_process() -> Self {
        let command = Self::command();
        let parsed = command
            .try_get_matches()
            .and_then(|matches| Self::from_arg_matches(&matches));
        parsed.unwrap_or_else(|error| {
            if error.use_stderr() {
                outcome::print_usage_error(&error);
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }

    /// Runs the command; prints errors to standard error, and as JSON to standard output where that was asked for.
    pub fn run(self) -> ExitCode {
        const FAILED: u8 = 2;
        start_logs(self.verbose, self.log_json);
        let config = self.config.as_deref();
        let reads_settings = self.command.reads_whether_json();
        panics::watch();
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match self.command {
                Command::Score(args) => score::run(args, config),
                Command::Conversations(args) => conversations::run(args, config),
                Command::Plan(args) => plan::run(args, config),
                Command::Judge(args) => judge::run(args, config),
                Command::Aggregate(args) => aggregate::run(args, config),
                Command::Import(args) => import::run(args, config),
                Command::Embed(args) => embed::run(args, config),
                Command::Runs(args) => runs::run(args, config),
                Command::Validate(args) => validate::run(args, config),
                Command::Calibrate(args) => calibrate::run(args, config),
                Command::Export(args) => export::run(args, config),
                Command::Monitor(args) => monitor::run(args, config),
                Command::Suite(args) => suite::run(args, config),
                Command::Sql(args) => sql::run(args, config),
                Command::Bench(args) => bench::run(&args),
                Command::Models(args) => models::run(args, config),
                #[cfg(feature = "cluster")]
                Command::Scheduler(args) => scheduler::run(&args),
                #[cfg(feature = "cluster")]
                Command::Executor(args) => executor::run(args),
                #[cfg(feature = "cluster")]
                Command::Keys(args) => keys::run(&args),
                Command::Metrics(args) => metrics::run(args, config),
                Command::Completions(args) => completions::run(&args),
            }));
        let result = result.unwrap_or_else(|panic| Err(panics::told(panic.as_ref()).into()));
        match result {
            Ok(outcome) => outcome.into(),
            Err(error) => {
                let json = outcome::wants_json() || (reads_settings && settings_say_json(config));
                outcome::print_failure(error.as_ref(), FAILED, json);
                ExitCode::from(FAILED)
            }
        }
    }
}

impl Command {
    /// Whether the environment and the settings file can ask it for JSON, too.
    fn reads_whether_json(&self) -> bool {
        matches!(
            self,
            Self::Score(_)
                | Self::Conversations(_)
                | Self::Plan(_)
                | Self::Aggregate(_)
                | Self::Embed(_)
                | Self::Export(_)
        )
    }
}

/// Whether the environment or the settings file asks for JSON; no, where they can't be read.
fn settings_say_json(config: Option<&std::path::Path>) -> bool {
    let given = crate::job::Given::default().complete(config);
    given.is_ok_and(|given| given.has("json"))
}

/// Anything that stops a command.
type AnyError = Box<dyn std::error::Error>;

/// Refuses an address where a local path is written: it would become a folder of that name.
fn local_out(out: &std::path::Path, advice: &str) -> Result<(), AnyError> {
    match out.to_string_lossy().contains("://") {
        true => Err(format!("--out {}: {advice}", out.display()).into()),
        false => Ok(()),
    }
}

/// Run directories, with copies of those in buckets. Whether connections may be opened is asked where one would be.
fn brought(
    dirs: &[std::path::PathBuf],
    config: Option<&std::path::Path>,
) -> Result<(Vec<std::path::PathBuf>, crate::store::Fetched), AnyError> {
    let is_remote = |dir: &std::path::PathBuf| dir.to_string_lossy().contains("://");
    let offline = dirs.iter().any(is_remote) && offline(config)?;
    Ok(crate::store::fetched_runs(dirs, offline)?)
}

/// What the environment and the settings file say of connections.
fn offline(config: Option<&std::path::Path>) -> Result<bool, AnyError> {
    let given = crate::job::Given::default().complete(config)?;
    let given = given.only(|name| name == "offline");
    Ok(crate::job::Job::of(given)?.offline)
}

fn start_logs(verbose: u8, json: bool) {
    // Members of a cluster: who has come and gone, and what is done again.
    let level = match verbose {
        0 => "nightmill=warn,ballista_scheduler=error,ballista_executor=error",
        1 => "nightmill=info,ballista_scheduler=warn,ballista_executor=warn",
        _ => "nightmill=debug,ballista_scheduler=info,ballista_executor=info",
    };
    let filter = tracing_subscriber::EnvFilter::new(level);
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    // A second start in one process (tests) keeps the first.
    let _ = if json {
        logs.json().try_init()
    } else {
        logs.with_target(false).try_init()
    };
}
