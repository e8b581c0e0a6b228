//! `nightmill runs scores`: scores that people or other programs made.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{AnyError, Outcome, listing};
use crate::history::{Edit, StoredRun, edit_scores, find_runs, import_scores, read_run};
use crate::report::counted;

/// Flags of `runs scores`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct ScoresArgs {
    /// The run directory whose traces are scored
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Scores to add: trace_id, name, value, and where wanted data_type (NUMERIC), source (ANNOTATION), reason, metadata
    #[arg(long, value_name = "FILE", group = "what")]
    import: Option<String>,
    /// Scores of the run to change: trace_id, name, and value, reason or metadata
    #[arg(long, value_name = "FILE", group = "what")]
    edit: Option<String>,
    /// Scores of the run to remove: trace_id, name
    #[arg(long, value_name = "FILE", group = "what")]
    delete: Option<String>,
    /// The directory for imported scores [default: DIR-scores]
    #[arg(long, value_name = "DIR", requires = "import")]
    out: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: ScoresArgs) -> Result<Outcome, AnyError> {
    let run = one_run(&args.dir)?;
    if let Some(file) = &args.import {
        let out = args.out.unwrap_or_else(|| beside(&run.path, "scores"));
        let imported = import_scores(&run, file, &out)?;
        listing::print(args.json, &imported, || {
            format!(
                "{} of {}: {}\nresults: {}\n{}",
                counted(imported.scores, "score", "scores"),
                counted(imported.traces, "trace", "traces"),
                imported
                    .names
                    .iter()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", "),
                imported.path.display(),
                match imported.names.iter().any(|name| is_signal(name)) {
                    true => format!(
                        "session scores with them: nightmill aggregate {} {} --out NEW\n",
                        run.path.display(),
                        imported.path.display()
                    ),
                    false => String::new(),
                }
            )
        })?;
    }
    let edit = args
        .edit
        .as_ref()
        .map(|file| (file, Edit::Change, "edited"));
    let delete = args
        .delete
        .as_ref()
        .map(|file| (file, Edit::Remove, "removed"));
    if let Some((file, what, done)) = edit.or(delete) {
        let edited = edit_scores(&run, file, what)?;
        listing::print(args.json, &edited, || {
            let (scores, path) = (edited.scores, edited.path.display());
            let traces = if scores == 1 {
                "its trace"
            } else {
                "their traces"
            };
            let scores = counted(scores, "score", "scores");
            format!(
                "{scores} {done}, and {traces} mended; figures in summary and report, and session scores, are as before: nightmill \
                 aggregate {path} --out NEW computes session scores with them\n"
            )
        })?;
    }
    Ok(Outcome::Done)
}

/// Whether session metrics fold scores of this name.
fn is_signal(name: &str) -> bool {
    crate::metric::SIGNALS
        .iter()
        .any(|(signal, _)| *signal == name)
}

/// The one run that a path names.
pub(super) fn one_run(dir: &Path) -> Result<StoredRun, AnyError> {
    let folders = find_runs(&[dir.to_owned()])?;
    match folders.as_slice() {
        [folder] => Ok(read_run(folder)?),
        _ => Err(format!("`{}` holds several runs; name one", dir.display()).into()),
    }
}

/// A directory that is not there yet, named after an old one.
pub(super) fn beside(old: &Path, suffix: &str) -> PathBuf {
    let name = old.file_name().unwrap_or_default().to_string_lossy();
    let first = old.with_file_name(format!("{name}-{suffix}"));
    let more = (2u32..).map(|n| old.with_file_name(format!("{name}-{suffix}-{n}")));
    let mut all = std::iter::once(first).chain(more);
    all.find(|path| !path.exists()).unwrap_or_default()
}
