//! What killed processes left behind under hidden names: removed, unless another run can go on with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::{LOCK, PARTIAL, UNFINISHED, name_of, parent_of};
use crate::output::RunError;

/// How long a run that was broken off waits for somebody to go on with it.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many buckets a run directory under construction has finished.
pub(super) fn finished_buckets(partial: &Path) -> usize {
    let markers = fs::read_dir(partial.join("work").join(UNFINISHED));
    let names = markers.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_marker = |name: &String| {
        let bucket = name.strip_suffix(".json");
        bucket.is_some_and(|bucket| bucket.parse::<u32>().is_ok())
    };
    names.filter(is_marker).count()
}

/// Whether a hidden name is of what would have become a target of this name.
fn is_of(hidden: &str, name: &str) -> bool {
    let rest = hidden.strip_prefix('.').and_then(|h| h.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with(PARTIAL))
}

/// The directory that a run to this target left, with finished buckets, and its lock; none if there is none, or if it is at
/// work.
pub(super) fn broken_off(target: &Path) -> Result<Option<(PathBuf, fs::File)>, RunError> {
    let (parent, name) = (parent_of(target), name_of(target)?);
    let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
    let mut found: Option<(usize, PathBuf, fs::File)> = None;
    for entry in entries.filter(|e| is_of(&e.file_name().to_string_lossy(), &name)) {
        let path = entry.path();
        let finished = finished_buckets(&path);
        let best = found.as_ref().map_or(0, |(most, ..)| *most);
        if finished <= best {
            continue;
        }
        let lock = fs::File::options()
            .append(true)
            .create(true)
            .open(path.join(LOCK));
        if let Ok(lock) = lock
            && lock.try_lock().is_ok()
        {
            found = Some((finished, path, lock));
        }
    }
    Ok(found.map(|(_, path, lock)| (path, lock)))
}

/// Removes what is not of finished buckets from a directory that a run left.
pub(super) fn clean(partial: &Path) -> Result<(), RunError> {
    let work = partial.join("work");
    let keep = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let inside_markers = path.starts_with(work.join(UNFINISHED));
        name == LOCK || inside_markers || name.starts_with("bucket-")
    };
    for entry in walkdir::WalkDir::new(partial)
        .contents_first(true)
        .min_depth(1)
    {
        let entry = entry.map_err(|e| RunError::write(partial, e))?;
        let path = entry.path();
        if keep(path) || path == work {
            continue;
        }
        match entry.file_type().is_dir() {
            // One that holds what is kept stays.
            true => drop(fs::remove_dir(path)),
            false => fs::remove_file(path).map_err(|e| RunError::write(path, e))?,
        }
    }
    Ok(())
}

/// Whether somebody may still go on with a run that was broken off: it has finished buckets, and not for long.
fn is_kept(partial: &Path) -> bool {
    let changed = fs::metadata(partial.join("work").join(UNFINISHED)).and_then(|m| m.modified());
    let age = changed.map(|then| SystemTime::now().duration_since(then).unwrap_or_default());
    age.is_ok_and(|age| age < KEPT_FOR) && finished_buckets(partial) > 0
}

/// Removes all that killed processes left, also what another run could go on with: none of it may be kept.
pub(crate) fn remove_all_leftovers(parent: &Path) {
    remove(parent, |_, _| true);
}

/// Removes partial outputs whose process is gone: nobody holds their lock. A directory's lock is the file in it, a file is its
/// own. Runs that another run may go on with stay for some days; one of the name `anew` does not.
pub(super) fn remove_leftovers(parent: &Path, anew: Option<&str>) {
    remove(parent, |path, name| {
        anew.is_some_and(|anew| is_of(name, anew)) || !is_kept(path)
    });
}

fn remove(parent: &Path, goes: impl Fn(&Path, &str) -> bool) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') || !name.contains(PARTIAL) {
            continue;
        }
        let path = entry.path();
        if !goes(&path, &name) {
            continue;
        }
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // The lock is held while removing: a process that is just starting waits for it, then looks whether its output is
        // still there. A folder without a lock gets one: it is a leftover of somebody who was killed while removing it, or
        // its maker is about to lock it.
        let lock = match is_dir {
            true => fs::File::options()
                .append(true)
                .create(true)
                .open(path.join(LOCK)),
            false => fs::File::open(&path),
        };
        let Ok(lock) = lock else {
            continue;
        };
        if lock.try_lock().is_ok() {
            match finished_buckets(&path) {
                0 => {
                    tracing::info!(path = %path.display(), "removing what a killed process left behind")
                }
                finished => tracing::warn!(
                    "{finished} finished buckets of a run that was broken off are removed"
                ),
            }
            let _ = match is_dir {
                true => remove_locked(&path),
                false => fs::remove_file(&path),
            };
        }
    }
}

/// Removes a folder that has a lock file: the lock last, so that a clean-up that is killed can be told from a run.
fn remove_locked(folder: &Path) -> std::io::Result<()> {
    remove_all_but_lock(folder)?;
    fs::remove_dir_all(folder)
}

fn remove_all_but_lock(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::RunDirectory;

    #[test]
    fn a_clean_up_that_was_killed_is_ended_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        // As an earlier clean-up left it: content, and no lock.
        let leaked = folder.path().join(format!(".run{PARTIAL}leaked"));
        fs::create_dir_all(leaked.join("traces")).unwrap();
        fs::write(leaked.join("traces/part-0.parquet"), "x").unwrap();
        // As a killed run left it.
        let killed = folder.path().join(format!(".run{PARTIAL}killed"));
        fs::create_dir_all(killed.join("work")).unwrap();
        fs::write(killed.join(LOCK), "").unwrap();
        // A run that is alive.
        let alive = RunDirectory::create(&folder.path().join("alive"), false, &[]).unwrap();
        assert!(!leaked.exists() && !killed.exists());
        let other = RunDirectory::create(&folder.path().join("other"), false, &[]).unwrap();
        assert!(alive.path().join(LOCK).exists() && other.path().exists());
    }

    #[test]
    fn the_lock_is_the_last_to_go() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir_all(run.join("traces")).unwrap();
        fs::write(run.join(LOCK), "").unwrap();
        fs::write(run.join("traces/part-0.parquet"), "x").unwrap();
        fs::write(run.join("summary.json"), "{}").unwrap();
        remove_all_but_lock(&run).unwrap();
        let left: Vec<_> = fs::read_dir(&run)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left, [LOCK]);
        remove_locked(&run).unwrap();
        assert!(!run.exists());
    }
}
