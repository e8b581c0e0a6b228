//! Flags of `nightmill monitor`.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use super::named_values::{TARGETS, named};
use crate::history::figures::Target;
use crate::text::parse_instant;

/// Arguments of `monitor`.
#[derive(Args, Debug)]
pub(super) struct MonitorArgs {
    /// The folder of the monitors [default: monitors in $STATE_DIRECTORY, which systemd sets, else
    /// nightmill/monitors in the user's data folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub monitors: Option<PathBuf>,
    /// Do as if it were this time
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_instant)]
    pub now: Option<DateTime<Utc>>,
    #[command(subcommand)]
    pub command: MonitorCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum MonitorCommand {
    /// Create a monitor: a scoring run that is made again and again
    Add(AddArgs),
    /// List all monitors
    List(ListMonitorsArgs),
    /// Show a monitor
    Show(ShowArgs),
    /// Stop running a monitor on its cadence
    Pause(NamedArgs),
    /// Run a paused monitor on its cadence again
    Resume(NamedArgs),
    /// Change a monitor
    Set(SetArgs),
    /// Remove a monitor; its runs stay
    Remove(NamedArgs),
    /// Run a monitor at once
    Trigger(NamedArgs),
    /// Run all monitors that are due; for a scheduler to call every few minutes
    Tick(TickArgs),
}

/// Flags of `monitor add`.
#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// A name for people
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Files, folders and globs to score; local ones
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,
    /// What to score
    #[arg(long, value_name = "TARGET", value_parser = named(TARGETS))]
    pub target: Target,
    /// Metrics of the target, but not loop_detection for traces; session monitors with a judge also get the signals that it gives
    #[arg(
        long,
        required = true,
        value_name = "METRIC,...",
        value_delimiter = ','
    )]
    pub metrics: Vec<String>,
    /// When: every_6h, daily, weekly, or 'cron:MINUTE HOUR DAY MONTH WEEKDAY' in UTC
    #[arg(long, value_name = "CADENCE")]
    pub cadence: String,
    /// The folder that gets one run directory per run; a local one
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Which targets to score, as JSON. Traces: '{"environment": "production", "tags": ["new"]}'; sessions, each scored
    /// whole: '{"user_id": "u1", "has_error": true}'
    #[arg(long, value_name = "JSON")]
    pub filters: Option<String>,
    /// Share of those targets to score, 0 to 1, chosen by id
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub sample: f64,
    /// The judge model [default: the one of nightmill.toml or NIGHTMILL_JUDGE when it runs]
    #[arg(long, value_name = "MODEL")]
    pub judge: Option<String>,
    /// Signal weights of a session monitor: tool_correctness=0.5
    #[arg(long, value_name = "SIGNAL=WEIGHT,...", value_delimiter = ',')]
    pub weights: Option<Vec<String>>,
    /// Run even if no file is new or changed
    #[arg(long)]
    pub always: bool,
    /// A label of the monitor, for a project; it selects nothing
    #[arg(long, value_name = "ID")]
    pub project: Option<String>,
    /// Another setting of `score`: --set threads=2 --set memory_limit=4G
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Flags of `monitor set`. What is not given stays.
#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// Id or name of the monitor
    #[arg(value_name = "MONITOR")]
    pub monitor: String,
    /// Another name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Other files, folders and globs; once for each
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<String>,
    /// Other metrics
    #[arg(long, value_name = "METRIC,...", value_delimiter = ',')]
    pub metrics: Option<Vec<String>>,
    /// Another cadence, counted from now
    #[arg(long, value_name = "CADENCE")]
    pub cadence: Option<String>,
    /// Another folder for runs
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Other filters, in place of all; signal weights stay
    #[arg(long, value_name = "JSON")]
    pub filters: Option<String>,
    /// Another share of targets
    #[arg(long, value_name = "SHARE")]
    pub sample: Option<f64>,
    /// Another judge model; empty for none
    #[arg(long, value_name = "MODEL")]
    pub judge: Option<String>,
    /// Other signal weights, in place of all
    #[arg(long, value_name = "SIGNAL=WEIGHT,...", value_delimiter = ',')]
    pub weights: Option<Vec<String>>,
    /// Run even if no file is new or changed: true or false
    #[arg(long, value_name = "BOOL")]
    pub always: Option<bool>,
    /// Change or add a setting of `score`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Remove a setting of `score`
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
}

/// A monitor.
#[derive(Args, Debug)]
pub(super) struct NamedArgs {
    /// Id or name of the monitor
    #[arg(value_name = "MONITOR")]
    pub monitor: String,
}

/// Flags of `monitor list`.
#[derive(Args, Debug)]
pub(super) struct ListMonitorsArgs {
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `monitor show`.
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// Id or name of the monitor
    #[arg(value_name = "MONITOR")]
    pub monitor: String,
    /// Print the whole record as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `monitor tick`.
#[derive(Args, Debug)]
pub(super) struct TickArgs {
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
