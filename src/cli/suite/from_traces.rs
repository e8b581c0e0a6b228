//! `nightmill suite from-traces`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Patterns;
use crate::cli::setting_flags::{Offer, SettingFlags};
use crate::cli::{AnyError, Outcome, local_out, outcome};
use crate::job::{Job, Setting};
use crate::report::counted;
use crate::run::{open, own_columns};
use crate::suite::evalset::{CaseRules, FromTracesRequest, from_traces};
use crate::text::TextMode;

/// Bytes of spans of other formats that are kept in memory.
const MEMORY: usize = 512 << 20;

/// Flags of `suite from-traces`.
#[derive(Args, Debug)]
pub(in crate::cli) struct FromTracesArgs {
    /// Files, folders and globs of traces, also of other formats
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// The folder that gets APP/ID.evalset.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The application that the cases are of
    #[arg(long)]
    app: String,
    /// The id of the set
    #[arg(long, value_name = "ID")]
    set: String,
    /// Which member says what was done. Traces with a column `expected` fill both
    #[arg(long = "as", value_enum, value_name = "MEMBER", default_value_t = Side::Conversation)]
    side: Side,
    #[command(flatten)]
    patterns: Patterns,
    #[command(flatten)]
    settings: SettingFlags<OfTraces>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Side {
    /// `conversation`, as old versions read it
    Conversation,
    /// `actualConversation`, with the user's messages alone as `conversation`
    Actual,
}

/// Settings of reading traces.
#[derive(Debug)]
pub(in crate::cli) struct OfTraces;

impl Offer for OfTraces {
    fn offers(setting: &Setting) -> bool {
        [
            "overwrite",
            "format",
            "mapping",
            "map",
            "time_unit",
            "on_bad_file",
        ]
        .contains(&setting.name)
    }
}

pub(super) fn run(args: FromTracesArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let given = args.settings.given.complete(config)?;
    let job = Job::of(given.only(|name| Setting::named(name).is_some_and(OfTraces::offers)))?;
    let is_remote = args.paths.iter().any(|path| path.contains("://"));
    let offline = is_remote && crate::cli::offline(config)?;
    local_out(
        &args.out,
        "sets are written to local folders; name one, and copy it there",
    )?;
    let inputs = crate::store::fetched(args.paths, offline)?;
    let found = open::found(&job, &inputs.paths)?;
    let read = own_columns(
        inputs.paths.clone(),
        &found,
        TextMode::Content,
        open::on_bad_file(&job),
        MEMORY,
    )?;
    let request = FromTracesRequest {
        paths: read.paths.clone(),
        format: open::native_format(&job),
        map: open::column_map(&job)?,
        on_bad_file: open::on_bad_file(&job),
        sets: args.patterns.sets(&args.out)?,
        set: args.set,
        overwrite: job.overwrite,
        rules: CaseRules {
            app_name: args.app,
            as_actual: matches!(args.side, Side::Actual),
        },
    };
    let made = from_traces(&request)?;
    let mut text = read.told();
    text.push_str(&format!(
        "{} with {}: {}\n",
        counted(made.cases, "case", "cases"),
        counted(made.turns, "turn", "turns"),
        made.file.display()
    ));
    let left_out = [
        (
            counted(made.set_aside, "trace", "traces"),
            made.set_aside,
            "without a session or a start",
        ),
        (
            counted(made.unreadable, "row", "rows"),
            made.unreadable,
            "that can't be read as traces; `nightmill score` says why in its quarantine",
        ),
    ];
    for (counted, count, why) in &left_out {
        if *count > 0 {
            text.push_str(&format!("{counted} left out: {why}\n"));
        }
    }
    outcome::print(&text)?;
    Ok(match made.set_aside + made.unreadable {
        0 if read.set_aside.is_empty() => Outcome::Done,
        _ => Outcome::Incomplete,
    })
}
