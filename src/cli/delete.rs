//! `nightmill runs delete`: removes runs, with their scores or without.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{AnyError, Outcome, outcome};
use crate::history::{continued_beside, keep_scores, read_run};
use crate::output::{BegunStatus, begun_runs, delete_run};
use crate::report::plain;

/// Flags of `runs delete`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct DeleteArgs {
    /// Run directories, or those that runs were to make that failed
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Remove everything
    #[arg(long, group = "what")]
    with_scores: bool,
    /// Keep the scores: they still count in summaries, trends and histories; all other tables and the report go
    #[arg(long, group = "what")]
    keep_scores: bool,
}

pub(super) fn run(args: &DeleteArgs) -> Result<Outcome, AnyError> {
    // All are looked at before the first goes.
    let mut failed = Vec::new();
    for dir in &args.dirs {
        failed.push(match dir.exists() {
            true => {
                let run = dir.canonicalize()?;
                read_run(&run)?;
                refuse_continued(&run, &args.dirs)?;
                None
            }
            false => Some(records_of(dir)?),
        });
    }
    let mut text = String::new();
    for (dir, records) in args.dirs.iter().zip(failed) {
        let shown = plain(&dir.display().to_string());
        match records {
            Some(records) => {
                for record in records {
                    std::fs::remove_file(record)?;
                }
                text.push_str(&format!("{shown}: its record removed\n"));
            }
            None if args.keep_scores => {
                keep_scores(&read_run(&dir.canonicalize()?)?)?;
                text.push_str(&format!("{shown}: removed but for its scores\n"));
            }
            None => {
                delete_run(&dir.canonicalize()?)?;
                text.push_str(&format!("{shown}: removed\n"));
            }
        }
    }
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

/// A run that nights go on from can't go without them: their sessions rest on its rows.
fn refuse_continued(run: &Path, with: &[PathBuf]) -> Result<(), AnyError> {
    let goes = |path: &Path| {
        let mut dirs = with.iter().filter_map(|dir| dir.canonicalize().ok());
        dirs.any(|dir| dir == path)
    };
    let later = continued_beside(run)?
        .into_iter()
        .find(|later| !goes(later));
    match later {
        None => Ok(()),
        Some(later) => Err(format!(
            "`{}` continues `{}`, and its sessions rest on the rows of it: delete it too, or use `nightmill runs prune`, which \
             carries what later nights need",
            later.display(),
            run.display()
        )
        .into()),
    }
}

/// The records of runs that failed to make this directory.
fn records_of(dir: &Path) -> Result<Vec<PathBuf>, AnyError> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut begun = begun_runs(parent.unwrap_or(Path::new(".")));
    begun.retain(|run| run.name == name);
    if begun.iter().any(|run| run.status == BegunStatus::Running) {
        return Err(format!(
            "`{}` is under way; wait for its end, or stop it first",
            dir.display()
        )
        .into());
    }
    if begun.is_empty() {
        return Err(format!("`{}` is no run, and none that failed", dir.display()).into());
    }
    Ok(begun.into_iter().map(|run| run.record).collect())
}
