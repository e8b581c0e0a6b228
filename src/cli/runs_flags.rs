//! Flags of `nightmill runs`.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use super::changes::ChangesArgs;
use super::delete::DeleteArgs;
use super::forget::ForgetArgs;
use super::list::ListArgs;
use super::named_values::{TARGETS, named};
use super::pooling::Pooling;
use super::prune::PruneArgs;
use super::retry::RetryArgs;
use super::scores::ScoresArgs;
use super::setting_flags::{OfJudges, SettingFlags};
use super::show::ShowArgs;
use super::verify::VerifyArgs;
use crate::conversation::Thresholds;
use crate::history::figures::{Buckets, DEFAULT_HISTORY, Interval, Order, Target};
use crate::metric::ALL;
use crate::text::parse_instant;

/// Arguments of `runs`.
#[derive(Args, Debug)]
pub(super) struct RunsArgs {
    #[command(subcommand)]
    pub command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
    /// Which runs there are and how they ended, by time; also those under way, and those that failed
    List(ListArgs),
    /// All that a run says of itself: what it was asked, what it read, what came of it
    Show(ShowArgs),
    /// Remove runs, with their scores or without
    Delete(DeleteArgs),
    /// Remove runs that are older than a time; what later nights still need of them is carried
    Prune(PruneArgs),
    /// Take traces of a user, of a session or by id out of runs, ledger and cache; exit code 3 if something can't be looked at
    Forget(ForgetArgs),
    /// Counts, mean, extremes and median of each metric
    Summary(SummaryArgs),
    /// The mean of a metric over time
    Trend(TrendArgs),
    /// How the scores of a metric spread
    Distribution(DistributionArgs),
    /// The scores of one session, oldest first; or the latest score of each metric of one trace
    History(HistoryArgs),
    /// The latest score of each session, worst first; or, without --metric, a baseline and a candidate side by side
    Comparison(Box<ComparisonArgs>),
    /// What changed since last night: sessions that went bad or recovered, and whether scores and volume drifted
    Changes(ChangesArgs),
    /// A new run that asks judges again where they failed, and takes the rest as it is
    Retry(Box<RetryArgs>),
    /// Whether the files of runs are what was written; exit code 1 if one is missing, changed, or one too many
    Verify(VerifyArgs),
    /// Add scores that people or other programs made, or change or remove scores of a run
    Scores(ScoresArgs),
}

/// What all analyses have in common.
#[derive(Args, Debug)]
pub(super) struct Looked {
    /// Run directories, and folders of them
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Only scores of runs made at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    pub from: Option<DateTime<Utc>>,
    /// Only scores of runs made before this time
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    pub to: Option<DateTime<Utc>>,
    /// Only scores of this project
    #[arg(long, value_name = "ID")]
    pub project: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(super) struct SummaryArgs {
    #[command(flatten)]
    pub looked: Looked,
    #[command(flatten)]
    pub pooling: Pooling,
    /// This metric only
    #[arg(long, value_name = "METRIC", value_parser = any_metric)]
    pub metric: Option<String>,
    /// Scores of traces or of sessions, or all figures of judged conversations, run by run [default: trace and session]
    #[arg(long, value_name = "TARGET", value_parser = named(SUMMARY_TARGETS))]
    pub target: Option<SummaryTarget>,
}

/// What a summary is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SummaryTarget {
    Scores(Target),
    Conversations,
}

#[derive(Args, Debug)]
pub(super) struct TrendArgs {
    #[command(flatten)]
    pub looked: Looked,
    #[command(flatten)]
    pub pooling: Pooling,
    /// The metric
    #[arg(long, value_name = "METRIC", value_parser = any_metric)]
    pub metric: String,
    /// Scores of traces or of sessions [default: what the metric is about]
    #[arg(long, value_name = "TARGET", value_parser = named(TARGETS))]
    pub target: Option<Target>,
    /// Length of a bucket, UTC; a week is from Monday
    #[arg(long, value_name = "LENGTH", default_value = "day", value_parser = named(INTERVALS))]
    pub interval: Interval,
}

#[derive(Args, Debug)]
pub(super) struct DistributionArgs {
    #[command(flatten)]
    pub looked: Looked,
    #[command(flatten)]
    pub pooling: Pooling,
    /// The metric
    #[arg(long, value_name = "METRIC", value_parser = any_metric)]
    pub metric: String,
    /// Scores of traces or of sessions [default: what the metric is about]
    #[arg(long, value_name = "TARGET", value_parser = named(TARGETS))]
    pub target: Option<Target>,
    /// Number of buckets, 1 to 100
    #[arg(long, value_name = "N", default_value = "10", value_parser = buckets)]
    pub buckets: Buckets,
    /// Count a score of exactly 1 in the last bucket, not in one of its own
    #[arg(long)]
    pub closed: bool,
}

#[derive(Args, Debug)]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    pub looked: Looked,
    #[command(flatten)]
    pub target: HistoryTarget,
    /// This metric only
    #[arg(long, value_name = "METRIC", value_parser = any_metric)]
    pub metric: Option<String>,
    /// Scores at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_HISTORY)]
    pub limit: usize,
}

/// What a history is about: one of them.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct HistoryTarget {
    /// The session: all of its scores
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// The trace: of each metric the latest score, whatever its status
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct ComparisonArgs {
    #[command(flatten)]
    pub looked: Looked,
    /// The metric; one of sessions. Without it, two runs are named, first the baseline, then the candidate, and their judged
    /// conversations compared, or else their scores
    #[arg(long, value_name = "METRIC", value_parser = metric)]
    pub metric: Option<String>,
    /// Which end comes first: ascending is the worst
    #[arg(long, value_name = "ORDER", default_value = "ascending", value_parser = named(ORDERS), requires = "metric")]
    pub order: Order,
    /// Sessions to pass over
    #[arg(long, value_name = "N", default_value_t = 0, requires = "metric")]
    pub offset: usize,
    /// Sessions at most, or cases that moved
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    #[command(flatten)]
    pub conversations: ConversationArgs,
}

/// What only matters where conversations are compared.
#[derive(Args, Debug)]
#[command(next_help_heading = "Conversations")]
pub(super) struct ConversationArgs {
    /// Regression if the pass rate, 0 to 1, drops by more
    #[arg(long, value_name = "SHARE", default_value_t = Thresholds::default().max_pass_rate_drop, value_parser = from_zero, conflicts_with = "metric")]
    pub max_pass_rate_drop: f64,
    /// Regression if the mean overall score, 0 to 100, drops by more
    #[arg(long, value_name = "POINTS", default_value_t = Thresholds::default().max_avg_score_drop, value_parser = from_zero, conflicts_with = "metric")]
    pub max_avg_score_drop: f64,
    /// Regression if the mean latency rises by more than this share of what it was; 0.2 is a fifth
    #[arg(long, value_name = "SHARE", default_value_t = Thresholds::default().max_latency_increase_pct, value_parser = from_zero, conflicts_with = "metric")]
    pub max_latency_increase_pct: f64,
    /// Also exit with 1 if the candidate misses a bar of its own (metrics_pass_threshold, cases_pass_threshold)
    #[arg(long, conflicts_with = "metric")]
    pub hold_bars: bool,
    /// Also write the comparison as tables: the folder to make, with run_comparison, run_comparison_cases and, by metric,
    /// run_comparison_metrics and run_comparison_case_metrics
    #[arg(long, value_name = "DIR", conflicts_with = "metric")]
    pub out: Option<PathBuf>,
    /// Replace an earlier comparison in --out
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Ask a judge for likely causes and suggestions, if anything moved: two calls
    #[arg(long, conflicts_with = "metric")]
    pub explain: bool,
    /// Refuse --explain, which would open a connection
    #[arg(long)]
    pub offline: bool,
    #[command(flatten)]
    pub judge: SettingFlags<OfJudges>,
}

impl ConversationArgs {
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            max_pass_rate_drop: self.max_pass_rate_drop,
            max_avg_score_drop: self.max_avg_score_drop,
            max_latency_increase_pct: self.max_latency_increase_pct,
        }
    }
}

fn from_zero(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number from 0 on".to_owned())
}

/// A registered metric by its name, and any other name as it is: people name their scores as they like.
fn any_metric(name: &str) -> Result<String, String> {
    Ok(metric(name).unwrap_or_else(|_| name.to_owned()))
}

fn metric(name: &str) -> Result<String, String> {
    match crate::metric::find(name) {
        Some(metric) => Ok(metric.name.to_owned()),
        None => Err(format!(
            "no such metric{}; `nightmill metrics` lists them",
            crate::text::nearest(name, ALL.iter().map(|m| m.name))
        )),
    }
}

const SUMMARY_TARGETS: &[(&str, SummaryTarget)] = &[
    ("trace", SummaryTarget::Scores(Target::Trace)),
    ("session", SummaryTarget::Scores(Target::Session)),
    ("conversation", SummaryTarget::Conversations),
];

const INTERVALS: &[(&str, Interval)] = &[
    ("hour", Interval::Hour),
    ("day", Interval::Day),
    ("week", Interval::Week),
];

const ORDERS: &[(&str, Order)] = &[
    ("ascending", Order::Ascending),
    ("descending", Order::Descending),
];

fn buckets(text: &str) -> Result<Buckets, String> {
    let count: u32 = text.parse().map_err(|_| "expected 1 to 100".to_owned())?;
    Buckets::try_from(count).map_err(|e| e.to_string())
}
