//! Finding the directories of finished runs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{HistoryError, SCORES, SUMMARY};
use crate::output::directory::MANIFEST;
use crate::output::table_folder::is_no_run;

/// The run directories that paths name: each is one, or a folder of them. In the order given, those of a
/// folder by name, each once. Other folders, hidden ones, and comparisons of runs are passed over.
///
/// # Errors
/// [`HistoryError::Nothing`] for a path that leads to no run.
pub fn find_runs(paths: &[PathBuf]) -> Result<Vec<PathBuf>, HistoryError> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for given in paths {
        // The name of `.` is the name of the folder that it means.
        let path = given.canonicalize().map_err(|_| nothing(given))?;
        let runs = if is_run(&path) {
            vec![path]
        } else {
            let entries = fs::read_dir(&path).map_err(|_| nothing(given))?;
            let mut runs: Vec<PathBuf> = entries
                .flatten()
                .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
                .map(|entry| entry.path())
                .filter(|path| is_run(path))
                .collect();
            runs.sort();
            runs
        };
        if runs.is_empty() {
            return Err(nothing(given));
        }
        found.extend(runs.into_iter().filter(|run| known.insert(run.clone())));
    }
    Ok(found)
}

/// What is said of a path with no run in it.
fn nothing(path: &Path) -> HistoryError {
    match path.to_string_lossy().contains("://") {
        true => HistoryError::Remote(path.to_owned()),
        false => HistoryError::Nothing(path.to_owned()),
    }
}

/// The same with all runs below folders, however deep.
///
/// # Errors
/// As [`find_runs`].
pub fn find_runs_below(paths: &[PathBuf]) -> Result<Vec<PathBuf>, HistoryError> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for given in paths {
        let path = given.canonicalize().map_err(|_| nothing(given))?;
        let before = found.len();
        let mut walk = walkdir::WalkDir::new(&path).sort_by_file_name().into_iter();
        while let Some(entry) = walk.next() {
            let Ok(entry) = entry else { continue };
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !entry.file_type().is_dir() {
                continue;
            }
            if entry.depth() > 0 && hidden {
                walk.skip_current_dir();
            } else if is_run(entry.path()) {
                // A run holds no runs.
                walk.skip_current_dir();
                if known.insert(entry.path().to_owned()) {
                    found.push(entry.into_path());
                }
            }
        }
        if found.len() == before {
            return Err(nothing(given));
        }
    }
    Ok(found)
}

/// Whether a folder is a run directory, be it a broken one.
fn is_run(folder: &Path) -> bool {
    let mut parts = [MANIFEST, SUMMARY, SCORES].iter();
    parts.any(|name| folder.join(name).exists()) && !is_no_run(folder)
}
