//! `nightmill runs list`: which runs there are, finished, under way and failed.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::named_values::{TARGETS, named};
use super::{AnyError, Outcome, listing, outcome};
use crate::history::figures::{ScoreFilter, Target};
use crate::history::{StoredRun, find_runs, find_runs_below, leave_out_retried, read_run};
use crate::metric::Level;
use crate::output::{BegunRun, begun_runs};
use crate::report::{brief, counted, plain};

/// Flags of `runs list`.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Run directories, and folders of them
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Only runs of this status
    #[arg(long, value_name = "STATUS", value_parser = named(STATUSES), ignore_case = true)]
    status: Option<&'static str>,
    /// Only runs that were asked for a metric of traces, or of sessions
    #[arg(long, value_name = "TARGET", value_parser = named(TARGETS))]
    target: Option<Target>,
    /// Only the newest of them
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Pass over so many of the newest
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Also runs in folders within the folders
    #[arg(long)]
    nested: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const STATUSES: &[(&str, &str)] = &[
    ("RUNNING", "RUNNING"),
    ("FAILED", "FAILED"),
    ("COMPLETED", "COMPLETED"),
    ("INCOMPLETE", "INCOMPLETE"),
];

/// A run in the list.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Stored(StoredRun),
    Begun(BegunRun),
}

impl Listed {
    fn created_at(&self) -> DateTime<Utc> {
        match self {
            Self::Stored(run) => run.created_at,
            Self::Begun(run) => run.created_at,
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Stored(run) => &run.path,
            Self::Begun(run) => &run.path,
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Stored(run) => run.status.name(),
            Self::Begun(run) => run.status.name(),
        }
    }

    fn is_about(&self, target: Target) -> bool {
        let names = match self {
            Self::Stored(run) => run.record.metric_names.as_deref(),
            Self::Begun(run) => Some(run.metric_names.as_slice()),
        };
        let level = match target {
            Target::Trace => Level::Trace,
            Target::Session => Level::Session,
        };
        // Scores of people are of traces.
        let of = |name: &String| crate::metric::find(name).map_or(Level::Trace, |m| m.level);
        names
            .unwrap_or_default()
            .iter()
            .any(|name| of(name) == level)
    }

    /// Its cells below [`HEADER`].
    fn row(&self) -> Vec<String> {
        let created = self.created_at().format("%Y-%m-%d %H:%M").to_string();
        match self {
            Self::Stored(run) => vec![
                match &run.title {
                    Some(title) => format!("{} ({title})", run.name),
                    None => run.name.clone(),
                },
                created,
                run.command.clone(),
                run.status.name().to_owned(),
                run.traces.to_string(),
                run.sessions.to_string(),
                run.judged.to_string(),
                match run.failed_signals {
                    0 => run.failed.to_string(),
                    count => format!("{} and {}", run.failed, counted(count, "signal", "signals")),
                },
                run.pending.to_string(),
            ],
            Self::Begun(run) => {
                let (name, command) = (run.name.clone(), run.command.clone());
                let mut row = vec![name, created, command, run.status.name().to_owned()];
                row.resize(HEADER.len(), String::new());
                row
            }
        }
    }
}

/// The columns for people. Those from the fourth on are left out where nothing is in them but zeros.
const HEADER: [&str; 9] = [
    "name",
    "created, UTC",
    "command",
    "status",
    "traces",
    "sessions",
    "judged",
    "failed",
    "pending",
];

fn table(runs: &[Listed]) -> String {
    let rows: Vec<Vec<String>> = runs.iter().map(Listed::row).collect();
    let says = |row: &Vec<String>, at: usize| {
        row.get(at)
            .is_some_and(|cell| !matches!(cell.as_str(), "" | "0"))
    };
    let shown: Vec<usize> = (0..HEADER.len())
        .filter(|at| *at < 4 || rows.iter().any(|row| says(row, *at)))
        .collect();
    let pick = |row: &[String]| {
        let cells = shown.iter().filter_map(|at| row.get(*at));
        cells.map(|cell| plain(cell)).collect::<Vec<String>>()
    };
    let header: Vec<&str> = shown
        .iter()
        .filter_map(|at| HEADER.get(*at).copied())
        .collect();
    let rows = rows.iter().map(|row| pick(row)).collect();
    listing::laid_out(&header, rows, listing::terminal_width())
}

/// The runs without a directory in folders, each record once.
fn begun_in(dirs: &[PathBuf], nested: bool) -> Vec<BegunRun> {
    let mut begun: Vec<BegunRun> = Vec::new();
    for dir in dirs {
        let depth = if nested { usize::MAX } else { 0 };
        let folders = walkdir::WalkDir::new(dir)
            .max_depth(depth)
            .into_iter()
            .flatten();
        for folder in folders.filter(|entry| entry.file_type().is_dir()) {
            begun.extend(begun_runs(folder.path()));
        }
    }
    begun.sort_by(|a, b| a.record.cmp(&b.record));
    begun.dedup_by(|a, b| a.record == b.record);
    begun
}

/// Runs that can't be read are named, and stop no other from being listed.
pub(super) fn run(args: &ListArgs) -> Result<Outcome, AnyError> {
    let begun = begun_in(&args.dirs, args.nested);
    let find = if args.nested {
        find_runs_below
    } else {
        find_runs
    };
    let mut folders = Vec::new();
    for dir in &args.dirs {
        match find(std::slice::from_ref(dir)) {
            Ok(found) => folders.extend(found),
            // A folder may hold nothing but runs that failed.
            Err(_) if begun.iter().any(|run| run.path.starts_with(dir)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    folders.sort();
    folders.dedup();
    let mut ended = Outcome::Done;
    let mut runs: Vec<Listed> = begun.into_iter().map(Listed::Begun).collect();
    for folder in folders {
        match read_run(&folder) {
            Ok(run) => runs.push(Listed::Stored(run)),
            Err(error) => {
                outcome::print_error(&error);
                ended = Outcome::Incomplete;
            }
        }
    }
    let stored = runs.iter().filter_map(|run| match run {
        Listed::Stored(run) => Some(run.clone()),
        Listed::Begun(_) => None,
    });
    let (_, left_out) = leave_out_retried(stored.collect(), &ScoreFilter::all(Target::Trace));
    runs.retain(|run| args.status.is_none_or(|status| run.status() == status));
    runs.retain(|run| args.target.is_none_or(|target| run.is_about(target)));
    runs.sort_by(|a, b| (a.created_at(), a.path()).cmp(&(b.created_at(), b.path())));
    let found = runs.len();
    runs.truncate(found.saturating_sub(args.offset));
    if let Some(limit) = args.limit {
        runs.drain(..runs.len().saturating_sub(limit));
    }
    listing::print(args.json, &runs, || {
        let mut text = table(&runs);
        for run in &runs {
            if let Listed::Begun(run) = run
                && let Some(why) = &run.error
            {
                text.push_str(&format!(
                    "{} {}: {}\n",
                    plain(&run.name),
                    run.status.name(),
                    brief(why)
                ));
            }
        }
        if runs.len() < found {
            text.push_str(&format!(
                "{} of {} shown\n",
                runs.len(),
                counted(found as u64, "run", "runs")
            ));
        }
        for left in left_out {
            text.push_str(&format!(
                "{} is retried by {}, which holds all of its scores: where both are read, it is left out of figures\n",
                plain(&left.run),
                plain(&left.retry)
            ));
        }
        text
    })?;
    Ok(ended)
}
