//! `nightmill runs changes`: what changed since last night.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{AnyError, Outcome, listing, outcome};
use crate::history::changes::{
    CONFIDENCE, Changes, LEAST_CHANGE, MOST_NIGHTS, MetricChange, SHOWN_SESSIONS, SessionChanges,
    Verdict,
};
use crate::history::figures::{ScoreFilter, Target};
use crate::history::{
    ChangeQuery, StoredRun, find_runs, leave_out_retried, read_changes, read_run,
};
use crate::report::{changes_page, counted, drift, plain};

/// Flags of `runs changes`.
#[derive(Args, Debug)]
pub(super) struct ChangesArgs {
    /// A run directory, or a folder of runs: its latest
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Hold the run, and the nights since, against this run and the nights before it [default: the nights before RUN]
    #[arg(long, value_name = "RUN")]
    since: Option<PathBuf>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,
    /// Exit with 1 if a metric, or the share of empty or unreadable rows, is worse by more than chance, or if there are not as
    /// many traces or sessions as usual
    #[arg(long)]
    fail_on_drift: bool,
    /// The least change of a mean that counts as drift; of shares of faults a tenth of it
    #[arg(long, value_name = "SCORE", default_value_t = LEAST_CHANGE, value_parser = share)]
    least_change: f64,
    /// Sessions shown of each kind, worst first
    #[arg(long, value_name = "N", default_value_t = SHOWN_SESSIONS)]
    limit: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
    /// One page with charts, without outside resources
    Html,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

pub(super) fn run(args: &ChangesArgs) -> Result<Outcome, AnyError> {
    let run = latest_of(&args.run)?;
    let since = args.since.as_deref().map(latest_of).transpose()?;
    let changes = read_changes(&ChangeQuery {
        since: since.as_ref(),
        limit: args.limit,
        least: args.least_change,
        ..ChangeQuery::of(&run)
    })?;
    match args.format {
        Format::Html => outcome::print(&changes_page(&changes)?)?,
        Format::Json => listing::print(true, &changes, String::new)?,
        Format::Table => listing::print(false, &changes, || text(&changes))?,
    }
    Ok(match args.fail_on_drift && !changes.drift().is_empty() {
        true => Outcome::GateFailed,
        false => Outcome::Done,
    })
}

/// The run that a path names: itself, or the latest of a folder.
fn latest_of(path: &Path) -> Result<StoredRun, AnyError> {
    let folders = find_runs(&[path.to_owned()])?;
    let runs: Result<Vec<StoredRun>, _> = folders.iter().map(|run| read_run(run)).collect();
    let (runs, _) = leave_out_retried(runs?, &ScoreFilter::all(Target::Trace));
    let latest = runs.into_iter().max_by(|a, b| {
        let time = a.created_at.cmp(&b.created_at);
        time.then_with(|| a.name.cmp(&b.name))
    });
    latest.ok_or_else(|| format!("`{}` holds no run", path.display()).into())
}

fn text(changes: &Changes) -> String {
    let mut text = format!(
        "{}, night {}, against {}\n",
        plain(&changes.nights.join(", ")),
        changes.night,
        match changes.before.as_slice() {
            [one] => plain(one),
            [latest, .., first] => format!(
                "{}: {} to {}",
                counted(changes.before.len() as u64, "night", "nights"),
                plain(first),
                plain(latest)
            ),
            [] => "nothing".to_owned(),
        }
    );
    if let Some(missing) = &changes.missing_told
        && changes.before.len() < MOST_NIGHTS
    {
        let missing = plain(missing);
        text.push_str(&format!("nothing before counts: it continues {missing}\n"));
    }
    if changes.few_nights() {
        text.push_str("few nights: how much nights differ is not known, and a change may be nothing but that\n");
    }
    text.push_str(&drift(&changes.drift(), &changes.untold()));
    text.push('\n');
    text.push_str(&means(changes));
    text.push('\n');
    for volume in &changes.volume {
        text.push_str(&format!("{}\n", volume.sentence));
    }
    let of_slices = changes.slices.iter().filter(|slice| slice.change.moved());
    let of_slices: Vec<String> = of_slices
        .map(|slice| plain(&slice.change.sentence))
        .collect();
    if !of_slices.is_empty() {
        text.push_str(&format!(
            "\nby slice: of {}, one in a hundred moves by chance\n  {}\n",
            counted(changes.slices.len() as u64, "mean", "means"),
            of_slices.join("\n  ")
        ));
    }
    text.push('\n');
    text.push_str(&sessions(&changes.sessions));
    if changes.untold_sessions > 0 {
        let (gone, verb) = match changes.untold_sessions {
            1 => ("1 session".to_owned(), "goes"),
            more => (format!("{more} sessions"), "go"),
        };
        text.push_str(&format!(
            "{gone} more {verb} on from nights whose scores are not there any more: what became of them is not told\n"
        ));
    }
    text
}

fn means(changes: &Changes) -> String {
    let rows = changes.metrics.iter().chain(&changes.faults);
    let rows = rows.map(|change| {
        [
            change.metric.clone(),
            change.now.count.to_string(),
            listing::score(change.now.mean),
            change.before.count.to_string(),
            listing::score(change.before.mean),
            difference(change),
            match change.verdict {
                Verdict::Fell => "fell",
                Verdict::Rose => "rose",
                Verdict::NoChange => "no change beyond chance",
                Verdict::TooFew => "none: too few sessions",
                Verdict::NotComparable => "none: of several models",
            }
            .to_owned(),
        ]
    });
    let interval = format!("difference, {:.0} %", CONFIDENCE * 100.0);
    let header = [
        "metric",
        "now",
        "mean",
        "before",
        "mean",
        interval.as_str(),
        "verdict",
    ];
    let mut text = listing::table(header, rows.collect());
    let mixed = changes.metrics.iter();
    for change in mixed.filter(|change| change.verdict == Verdict::NotComparable) {
        text.push_str(&format!("{}\n", plain(&change.sentence)));
    }
    text
}

fn difference(change: &MetricChange) -> String {
    match (change.difference, change.interval) {
        (Some(difference), Some([low, high])) => {
            format!("{difference:+.4} ({low:+.4} to {high:+.4})")
        }
        _ => "–".to_owned(),
    }
}

fn sessions(metrics: &[SessionChanges]) -> String {
    let counts = metrics.iter().map(|of| {
        [
            of.metric.clone(),
            of.newly_bad.to_string(),
            of.new_and_bad.to_string(),
            of.still_bad.to_string(),
            of.recovered.to_string(),
            of.worse.to_string(),
            of.better.to_string(),
        ]
    });
    let header = [
        "sessions by",
        "newly bad",
        "new and bad",
        "still bad",
        "recovered",
        "worse",
        "better",
    ];
    let mut text = listing::table(header, counts.collect());
    let shown = metrics
        .iter()
        .flat_map(|of| of.rows.iter().map(move |row| (of, row)));
    let shown: Vec<[String; 5]> = shown
        .filter(|(_, row)| !matches!(row.state.as_str(), "worse" | "better"))
        .map(|(of, row)| {
            let id = match &row.project_id {
                None => row.session_id.clone(),
                Some(project) => format!("{} of {project}", row.session_id),
            };
            let mut state = row.state.replace('_', " ");
            if let Some(nights) = row.bad_nights {
                state.push_str(&format!(", {}", counted(nights, "night", "nights")));
            }
            let scores = [row.before, row.after].map(listing::score);
            let [before, after] = scores;
            [of.metric.clone(), state, before, after, id]
        })
        .collect();
    if !shown.is_empty() {
        text.push('\n');
        text.push_str(&listing::table(
            ["metric", "", "before", "now", "session"],
            shown,
        ));
    }
    text
}
