//! What becomes of old runs, and of what must not be kept: `nightmill runs prune` and `runs forget`.
//!
//! Both make a run anew beside the old one and swap the two in one step ([`RunDirectory`]), so that a run is the old or the
//! new one at every moment. One at a time works in a folder of runs.

mod carried_files;
mod carry;
mod chain;
mod erased_rows;
mod forget;
mod merged_table;
mod prune;
mod scrub;

pub use forget::{ErasedFromRun, Erasing, check_none_under_way, erase, traces_of_sessions};
pub use prune::{CarriedRows, KeptRun, Pruned, prune};

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::history::stored_run::HistoryError;
use crate::output::directory::MANIFEST;
use crate::output::remove_all_leftovers;
use crate::output::{RunDirectory, RunError, manifest};

/// Why runs can't be pruned, or forget nothing.
#[derive(Debug, thiserror::Error)]
pub enum KeepingError {
    /// A run can't be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A run can't be written or removed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Something stands in the way.
    #[error("{0}")]
    Refused(String),
}

/// The folders that runs are in, each once.
fn folders_of<'r>(runs: impl Iterator<Item = &'r PathBuf>) -> BTreeSet<PathBuf> {
    runs.filter_map(|run| run.parent().map(Path::to_owned))
        .collect()
}

/// The right to change runs in folders. The system takes it back when the process ends.
struct Turn {
    _folders: Vec<File>,
}

impl Turn {
    /// Waits until nobody else prunes, or forgets, in these folders; then removes what killed processes left there.
    fn wait(folders: &BTreeSet<PathBuf>) -> Result<Self, KeepingError> {
        let mut locked = Vec::new();
        // In one order, so that two that want several folders never wait for each other.
        for folder in folders {
            let file = File::open(folder).map_err(|e| RunError::write(folder, e))?;
            // Some file systems of networks have no locks: there the user must see to it.
            if let Err(problem) = file.lock() {
                tracing::warn!(folder = %folder.display(), %problem, "the folder can't be locked");
            }
            remove_all_leftovers(folder);
            locked.push(file);
        }
        Ok(Self { _folders: locked })
    }
}

/// The files of a run, seen from its directory, by name.
fn files_of(run: &Path) -> Result<Vec<PathBuf>, RunError> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(run).sort_by_file_name() {
        let entry = entry.map_err(|e| RunError::write(run, e))?;
        if entry.file_type().is_file() {
            let inside = entry.path().strip_prefix(run).unwrap_or(entry.path());
            files.push(inside.to_owned());
        }
    }
    Ok(files)
}

/// Takes a file over as it is. A finished file is never written to again, so that both directories can share it.
fn take_over(run: &Path, directory: &RunDirectory, file: &Path) -> Result<(), RunError> {
    take_over_as(&run.join(file), directory, file)
}

/// The same under another name.
fn take_over_as(from: &Path, directory: &RunDirectory, file: &Path) -> Result<(), RunError> {
    let to = directory.path().join(file);
    if to.exists() {
        // Copying would write into what is shared.
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
    }
    fs::hard_link(from, &to)
        .or_else(|_| fs::copy(from, &to).map(drop))
        .map_err(|e| RunError::write(&to, e))
}

/// Writes the manifest of a run that was made anew, and puts it in the place of the old one; `old` is the old manifest's text.
fn replace(
    run: &Path,
    directory: RunDirectory,
    mut told: Value,
    old: &[u8],
) -> Result<(), KeepingError> {
    if let Some(members) = told.as_object_mut() {
        let files = manifest::checksums(directory.path())?;
        members.insert("files".into(), json!(files));
    }
    manifest::write_sealed(&directory.path().join(MANIFEST), &told)?;
    let now = fs::read(run.join(MANIFEST)).map_err(|e| RunError::write(run, e))?;
    if now != old {
        return Err(KeepingError::Refused(format!(
            "`{}` was changed by another program in the meantime; run the command again",
            run.display()
        )));
    }
    directory.commit()?;
    Ok(())
}
