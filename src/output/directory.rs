//! Output that is either whole or not there: written under a hidden name, renamed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::leftovers;
use crate::output::RunError;

/// Written last: a directory without it is not finished.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Everything that a run directory, or a folder of tables that is no run, may hold.
const CONTENT: [&str; 20] = [
    LOCK,
    MANIFEST,
    "summary.json",
    "report.html",
    "traces",
    "sessions",
    "attention",
    "scores",
    "quarantine",
    "carried",
    "replaced",
    "judge_verdicts",
    "judge_metric_scores",
    "judge_outcomes",
    "run_summary",
    "judge_plan",
    "run_comparison",
    "run_comparison_metrics",
    "run_comparison_cases",
    "run_comparison_case_metrics",
];
pub(super) const LOCK: &str = ".lock";

/// The names that a run directory may hold, for whoever keeps runs elsewhere.
pub(crate) fn names_of_a_run() -> &'static [&'static str] {
    &CONTENT
}

/// A target must be local: commands that write elsewhere carry what was made there.
fn check_local(target: &Path) -> Result<(), RunError> {
    match target.to_str().is_some_and(|target| target.contains("://")) {
        false => Ok(()),
        true => Err(RunError::Request(format!(
            "`{}`: this command writes here only; name a local --out, and copy it there",
            target.display()
        ))),
    }
}

/// In the hidden names of outputs under construction.
pub(super) const PARTIAL: &str = ".nightmill-partial-";

/// The folder of the marks of finished buckets, among the working files of a run that is not finished.
pub(crate) const UNFINISHED: &str = "buckets";

/// The folder of what other processes are at, likewise.
pub(crate) const ATTEMPTS: &str = "attempts";

/// The file that holds the hash of the job that other processes are at, likewise. Without it nobody may be at any.
pub(crate) const CURRENT_JOB: &str = "current-job";

/// A run directory under construction. Dropping it without [`RunDirectory::commit`] removes it, unless it holds finished
/// buckets, which another run can go on with.
#[derive(Debug)]
pub struct RunDirectory {
    target: PathBuf,
    overwrite: bool,
    partial: Hidden,
    _lock: fs::File,
}

/// A folder under a hidden name.
#[derive(Debug)]
struct Hidden {
    path: PathBuf,
    /// Whether it has another name by now.
    moved: bool,
}

impl Hidden {
    fn new(path: PathBuf) -> Self {
        Self { path, moved: false }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if self.moved {
            return;
        }
        match leftovers::finished_buckets(&self.path) {
            // If it can't be removed, the next run tries again.
            0 => drop(fs::remove_dir_all(&self.path)),
            finished => tracing::warn!(
                "{finished} finished buckets are kept for a week; the same command with --resume goes on with them"
            ),
        }
    }
}

/// Whether two paths are of one file that is there.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// The folder that a target is in.
pub(crate) fn parent_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

pub(crate) fn name_of(target: &Path) -> Result<String, RunError> {
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned());
    name.ok_or_else(|| {
        RunError::Request(format!(
            "`{}` can't be an output folder; name a new one",
            target.display()
        ))
    })
}

impl RunDirectory {
    /// Starts a directory that will become `target`. Leftovers of runs that were killed are removed.
    /// `inputs` are files and folders that the run reads: replacing `target` must not remove them.
    ///
    /// # Errors
    /// If `target` exists and `overwrite` is false or it is no run directory; if its parent can't be
    /// written to.
    pub fn create(target: &Path, overwrite: bool, inputs: &[PathBuf]) -> Result<Self, RunError> {
        Self::check(target, overwrite, inputs)?;
        let name = name_of(target)?;
        let parent = parent_of(target);
        fs::create_dir_all(&parent).map_err(|e| RunError::write(&parent, e))?;
        leftovers::remove_leftovers(&parent, Some(&name));
        let (partial, lock) = loop {
            let partial = tempfile::Builder::new()
                .prefix(&format!(".{name}{PARTIAL}"))
                .tempdir_in(&parent)
                .map_err(|e| RunError::write(&parent, e))?;
            let partial = Hidden::new(partial.keep());
            let lock_path = partial.path.join(LOCK);
            let lock = match fs::File::create(&lock_path) {
                Ok(lock) => lock,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(RunError::write(&lock_path, e)),
            };
            lock.lock().map_err(|e| RunError::write(&lock_path, e))?;
            // Another run may have taken it for a leftover before it was locked.
            if is_at(&lock, &lock_path) {
                break (partial, lock);
            }
        };
        let work = partial.path.join("work");
        fs::create_dir(&work).map_err(|e| RunError::write(&work, e))?;
        Ok(Self {
            target: target.to_owned(),
            overwrite,
            partial,
            _lock: lock,
        })
    }

    fn check(target: &Path, overwrite: bool, inputs: &[PathBuf]) -> Result<(), RunError> {
        check_local(target)?;
        check_target(target, overwrite)?;
        check_inputs(target, inputs)
    }

    /// Goes on with the directory that a run to this target left with finished buckets; starts one if there is none.
    ///
    /// # Errors
    /// As those of [`RunDirectory::create`].
    pub fn resume(target: &Path, overwrite: bool, inputs: &[PathBuf]) -> Result<Self, RunError> {
        Self::check(target, overwrite, inputs)?;
        let Some((path, lock)) = leftovers::broken_off(target)? else {
            return Self::create(target, overwrite, inputs);
        };
        leftovers::clean(&path)?;
        leftovers::remove_leftovers(&parent_of(target), None);
        tracing::info!(path = %path.display(), "going on with a run that was broken off");
        Ok(Self {
            target: target.to_owned(),
            overwrite,
            partial: Hidden::new(path),
            _lock: lock,
        })
    }

    /// Where result files are written.
    pub fn path(&self) -> &Path {
        &self.partial.path
    }

    /// For vectors, spilled rows and other things that no result holds.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Makes the directory visible under its name, whole.
    ///
    /// # Errors
    /// If renaming fails, or if somebody else made `target` in the meantime.
    pub fn commit(mut self) -> Result<PathBuf, RunError> {
        check_target(&self.target, self.overwrite)?;
        let failed = |path: &Path, e| RunError::write(path, e);
        let work = self.work();
        match work.join(ATTEMPTS).exists() {
            false => fs::remove_dir_all(&work).map_err(|e| failed(&work, e))?,
            true => self.set_work_aside(&work)?,
        }
        set_readable(self.path());
        // Nothing is visible under its name before it is on disk.
        sync_tree(self.path())?;
        if self.overwrite && self.target.exists() {
            // The old run gets a lock that nobody holds: should this process die before it has removed
            // the old run under the hidden name, the next run does.
            // (Where it can't be made, the old run is merely not cleaned up.)
            let old = self.target.join(LOCK);
            let _ = fs::File::create(&old);
            if let Err(e) = exchange(self.path(), &self.target) {
                let _ = fs::remove_file(&old);
                return Err(e);
            }
            // Dropping the guard removes what is now under the hidden name: the old run.
        } else {
            move_to(self.path(), &self.target, self.overwrite)?;
            // Nothing is left for the guard to remove.
            self.partial.moved = true;
        }
        // The new name is on disk before the guard removes the old run.
        sync_name(&self.target)?;
        let _ = fs::remove_file(self.target.join(LOCK));
        Ok(self.target.clone())
    }
}

impl RunDirectory {
    /// Takes the working files out of the way in one step: other processes may still write there, and must find nothing.
    fn set_work_aside(&self, work: &Path) -> Result<(), RunError> {
        let (parent, name) = (parent_of(&self.target), name_of(&self.target)?);
        let aside = tempfile::Builder::new()
            .prefix(&format!(".{name}{PARTIAL}"))
            .tempdir_in(&parent)
            .map_err(|e| RunError::write(&parent, e))?;
        fs::rename(work, aside.path().join("work")).map_err(|e| RunError::write(work, e))?;
        // What is written there meanwhile is a leftover, which the next run removes.
        let _ = aside.close();
        Ok(())
    }
}

/// Waits until all files and folders below `folder`, and it itself, are on disk.
fn sync_tree(folder: &Path) -> Result<(), RunError> {
    for entry in walkdir::WalkDir::new(folder).contents_first(true) {
        let entry = entry.map_err(|e| RunError::write(folder, e))?;
        let path = entry.path();
        if entry.file_type().is_dir() {
            sync_folder(path)?;
            continue;
        }
        let opened = fs::File::open(path).map_err(|e| RunError::write(path, e))?;
        opened.sync_all().map_err(|e| RunError::write(path, e))?;
    }
    Ok(())
}

/// Waits until the names in a folder are on disk, where the file system can do that: some of networks can't, and a
/// finished run must not fail for it.
fn sync_folder(folder: &Path) -> Result<(), RunError> {
    use std::io::ErrorKind::{InvalidInput, Unsupported};
    let opened = fs::File::open(folder).map_err(|e| RunError::write(folder, e))?;
    match opened.sync_all() {
        Err(e) if !matches!(e.kind(), InvalidInput | Unsupported) => {
            Err(RunError::write(folder, e))
        }
        _ => Ok(()),
    }
}

/// Waits until the name of what was just moved to `target` is on disk. If that fails, what is there is whole.
fn sync_name(target: &Path) -> Result<(), RunError> {
    sync_folder(&parent_of(target)).map_err(|e| {
        let problem =
            format!("it is written and whole, but a loss of power may still undo its name: {e}");
        RunError::write(target, problem)
    })
}

/// Whether an open file is the one of this name.
fn is_at(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |of: fs::Metadata| (of.dev(), of.ino());
    let (open, named) = (file.metadata().map(place), fs::metadata(path).map(place));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// Gives a run its name. Another run may have taken it since it was looked at: unless it may be overwritten, it stays.
fn move_to(fresh: &Path, target: &Path, overwrite: bool) -> Result<(), RunError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if !overwrite {
        match renameat_with(CWD, fresh, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            // It is there, or the file system does not know this way.
            Err(_) => check_target(target, false)?,
        }
    }
    fs::rename(fresh, target).map_err(|e| RunError::write(target, e))
}

/// Swaps two directories; in one step where the system can, so that `target` is never missing.
fn exchange(fresh: &Path, target: &Path) -> Result<(), RunError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let failed = |e: std::io::Error| RunError::write(target, e);
    if renameat_with(CWD, fresh, CWD, target, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    // Not a partial name: until the new run is in place, this is the only copy of the old one, and
    // nobody may take it for a leftover.
    let name = fresh.file_name().unwrap_or_default().to_string_lossy();
    let aside = fresh.with_file_name(name.replace(PARTIAL, ".nightmill-replaced-"));
    fs::rename(target, &aside).map_err(failed)?;
    if let Err(e) = fs::rename(fresh, target) {
        let _ = fs::rename(&aside, target);
        return Err(failed(e));
    }
    let _ = fs::remove_dir_all(&aside);
    Ok(())
}

/// Temporary folders are private; a result is as readable as the umask would have made it.
fn set_readable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let probe = folder.join("summary.json");
    let readable = fs::metadata(&probe).map_or(0o755, |m| {
        let mode = m.permissions().mode() & 0o777;
        // Whoever may read a file may enter its folder.
        mode | ((mode & 0o444) >> 2)
    });
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(readable));
}

fn check_target(target: &Path, overwrite: bool) -> Result<(), RunError> {
    let Ok(metadata) = fs::symlink_metadata(target) else {
        return Ok(());
    };
    let shown = target.display();
    if !overwrite {
        return Err(RunError::Request(format!(
            "`{shown}` exists; choose another --out, or give --overwrite to replace it"
        )));
    }
    let entries: Vec<String> = fs::read_dir(target)
        .map(|entries| {
            entries
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    let manifest = fs::read(target.join(MANIFEST)).ok();
    let manifest: Option<serde_json::Value> =
        manifest.and_then(|m| serde_json::from_slice(&m).ok());
    let is_run = manifest.is_some_and(|m| m.get("nightmill").is_some());
    let foreign = entries
        .iter()
        .find(|name| !CONTENT.contains(&name.as_str()));
    if metadata.is_dir() && (entries.is_empty() || (is_run && foreign.is_none())) {
        return Ok(());
    }
    let why = match foreign {
        Some(name) if is_run => format!("holds `{name}`, which is no part of a run"),
        _ => format!("is not a run directory (it has no {MANIFEST} of nightmill)"),
    };
    Err(RunError::Request(format!(
        "`{shown}` {why}, so --overwrite leaves it alone; choose another --out"
    )))
}

/// Refuses to replace a directory that holds what the run reads.
fn check_inputs(target: &Path, inputs: &[PathBuf]) -> Result<(), RunError> {
    let Ok(target) = target.canonicalize() else {
        return Ok(());
    };
    match inputs.iter().find(|input| {
        input
            .canonicalize()
            .is_ok_and(|input| input.starts_with(&target))
    }) {
        None => Ok(()),
        Some(input) => Err(RunError::Request(format!(
            "`{}` is inside `{}`, which --overwrite would remove; choose another --out",
            input.display(),
            target.display()
        ))),
    }
}

/// Removes a run directory: at once under its name, then file by file.
///
/// # Errors
/// If it holds what is no part of a run, or can't be removed.
pub fn delete_run(folder: &Path) -> Result<(), RunError> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|e| RunError::write(folder, e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !CONTENT.contains(&&*name) {
            return Err(RunError::Request(format!(
                "`{shown}` holds `{name}`, which is no part of a run; move it away first"
            )));
        }
    }
    // Under a name that the next run cleans up, should this process die.
    let hidden = format!(
        ".{}{PARTIAL}deleted-{}",
        name_of(folder)?,
        std::process::id()
    );
    let hidden = parent_of(folder).join(hidden);
    fs::rename(folder, &hidden).map_err(|e| RunError::write(folder, e))?;
    fs::remove_dir_all(&hidden).map_err(|e| RunError::write(&hidden, e))
}

/// A single output file under construction, with the same promise.
#[derive(Debug)]
pub struct PartialFile {
    target: PathBuf,
    overwrite: bool,
    partial: tempfile::TempPath,
    /// Shares its lock with the handle that is written to, and outlives it.
    lock: fs::File,
}

impl PartialFile {
    /// Starts a file that will become `target`.
    ///
    /// # Errors
    /// If `target` exists and `overwrite` is false, or its folder can't be written to.
    pub fn create(target: &Path, overwrite: bool) -> Result<(Self, fs::File), RunError> {
        check_local(target)?;
        let shown = target.display();
        if target.is_dir() {
            return Err(RunError::Request(format!(
                "`{shown}` is a folder; name a file with --out"
            )));
        }
        if target.exists() && !overwrite {
            return Err(RunError::Request(format!(
                "`{shown}` exists; choose another --out, or give --overwrite to replace it"
            )));
        }
        let parent = parent_of(target);
        fs::create_dir_all(&parent).map_err(|e| RunError::write(&parent, e))?;
        leftovers::remove_leftovers(&parent, None);
        let name = name_of(target)?;
        let (file, partial) = loop {
            use std::os::unix::fs::PermissionsExt;
            let (file, partial) = tempfile::Builder::new()
                .prefix(&format!(".{name}{PARTIAL}"))
                // What the umask leaves of it, as for any new file.
                .permissions(fs::Permissions::from_mode(0o666))
                .tempfile_in(&parent)
                .map_err(|e| RunError::write(&parent, e))?
                .into_parts();
            file.lock().map_err(|e| RunError::write(&partial, e))?;
            if partial.exists() {
                break (file, partial);
            }
        };
        let lock = file.try_clone().map_err(|e| RunError::write(&partial, e))?;
        Ok((
            Self {
                target: target.to_owned(),
                overwrite,
                partial,
                lock,
            },
            file,
        ))
    }

    /// Where it is while it is made.
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Makes the file visible under its name.
    ///
    /// # Errors
    /// If renaming fails, or if somebody else made the file in the meantime and it is not to be
    /// replaced.
    pub fn commit(self) -> Result<PathBuf, RunError> {
        let synced = self.lock.sync_all();
        synced.map_err(|e| RunError::write(&self.target, e))?;
        let moved = match self.overwrite {
            true => self.partial.persist(&self.target),
            false => self.partial.persist_noclobber(&self.target),
        };
        moved.map_err(|e| RunError::write(&self.target, e.error))?;
        sync_name(&self.target)?;
        Ok(self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_begin_at_once_take_none_for_a_leftover() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let target = folder.path().join(format!("run{thread}"));
                scope.spawn(move || {
                    for _ in 0..300 {
                        let run = RunDirectory::create(&target, false, &[]).unwrap();
                        fs::write(run.work().join("vectors"), "v").unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
