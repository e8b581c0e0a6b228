//! `nightmill score`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::progress::ProgressBar;
use super::{AnyError, Outcome, outcome, request};
use crate::config::Settings;
use crate::run::{Progress, ScoreRequest, score};

/// Flags of `score`.
#[derive(Args, Debug)]
pub(super) struct ScoreArgs {
    /// Files, folders (also Hive-partitioned) and globs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// The run directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write no report.html
    #[arg(long)]
    no_report: bool,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: ScoreArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let settings = args.settings.complete(config)?;
    let request = ScoreRequest {
        overwrite: settings.overwrite,
        report: !args.no_report,
        ..request::score(&settings, args.paths, args.out)?
    };
    carry_out(&request, settings.json)
}

/// Scores, with a progress bar, and prints what came of it.
pub(super) fn carry_out(request: &ScoreRequest, json: bool) -> Result<Outcome, AnyError> {
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::start(Arc::clone(&progress));
    let result = score(request, &progress);
    bar.stop();
    let (summary, folder) = result?;
    if json {
        outcome::print(&format!("{}\n", serde_json::to_string_pretty(&summary)?))?;
    } else {
        let mut text = crate::report::text(&summary);
        text.push_str(&format!("results: {}\n", folder.display()));
        if request.report {
            text.push_str(&format!(
                "report:  {}\n",
                folder.join("report.html").display()
            ));
        }
        outcome::print(&text)?;
    }
    Ok(Outcome::of(&summary))
}
