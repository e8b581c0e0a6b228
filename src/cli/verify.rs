//! `nightmill runs verify`: whether the files of runs are what was written.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{AnyError, Outcome, brought, listing};
use crate::history::{VerifiedRun, find_runs, verify_run};
use crate::report::{counted, plain};
use crate::text::origin_of;

/// Flags of `runs verify`.
#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// Run directories, and folders of them, here or in buckets
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VerifyArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let mut folders = Vec::new();
    let (dirs, _fetched) = brought(&args.dirs, config)?;
    for dir in &dirs {
        // Comparisons and plans are no runs, and have a manifest too.
        match dir.join("manifest.json").is_file() {
            true => folders.push(dir.clone()),
            false => folders.extend(find_runs(std::slice::from_ref(dir))?),
        }
    }
    let verified = folders.iter().map(|folder| verify_run(folder));
    let mut verified: Vec<VerifiedRun> = verified.collect::<Result<_, _>>()?;
    for run in &mut verified {
        run.path = PathBuf::from(origin_of(&run.path));
    }
    listing::print(args.json, &verified, || {
        verified.iter().map(|run| told(run, &run.path)).collect()
    })?;
    Ok(match verified.iter().all(|run| run.faults.is_empty()) {
        true => Outcome::Done,
        false => Outcome::GateFailed,
    })
}

fn told(run: &VerifiedRun, path: &Path) -> String {
    let files = counted(run.files, "file", "files");
    let mut text = format!(
        "{}: {files}, {} bytes, as written",
        plain(&path.display().to_string()),
        run.bytes
    );
    if !run.manifest_checked && run.faults.iter().all(|f| f.file != "manifest.json") {
        text.push_str("; the manifest has no check of its own (an earlier version wrote it)");
    }
    text.push('\n');
    if let Some(missing) = &run.missing {
        text.push_str(&format!("  it continues {}\n", plain(missing)));
    }
    for faulty in &run.faults {
        text.push_str(&format!(
            "  {:<8} {}\n",
            faulty.fault.name(),
            plain(&faulty.file)
        ));
    }
    text
}
