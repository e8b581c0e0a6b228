//! Output that is either whole or not there: written under a hidden name, renamed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::RunError;

/// Written last: a directory without it is not finished.
pub(super) const MANIFEST: &str = "manifest.json";
/// Everything that a run directory may hold.
const CONTENT: [&str; 7] = [
    MANIFEST,
    "summary.json",
    "report.html",
    "traces",
    "sessions",
    "scores",
    "quarantine",
];
const LOCK: &str = ".lock";

/// A run directory under construction. Dropping it without [`RunDirectory::commit`] removes it.
#[derive(Debug)]
pub struct RunDirectory {
    target: PathBuf,
    overwrite: bool,
    partial: tempfile::TempDir,
    _lock: fs::File,
}

fn name_of(target: &Path) -> Result<String, RunError> {
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
        check_target(target, overwrite)?;
        check_inputs(target, inputs)?;
        let name = name_of(target)?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(|e| RunError::write(&parent, e))?;
        let prefix = format!(".{name}.partial-");
        remove_leftovers(&parent, &prefix);
        let partial = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(&parent)
            .map_err(|e| RunError::write(&parent, e))?;
        let lock_path = partial.path().join(LOCK);
        let lock = fs::File::create(&lock_path).map_err(|e| RunError::write(&lock_path, e))?;
        lock.lock().map_err(|e| RunError::write(&lock_path, e))?;
        let work = partial.path().join("work");
        fs::create_dir(&work).map_err(|e| RunError::write(&work, e))?;
        Ok(Self {
            target: target.to_owned(),
            overwrite,
            partial,
            _lock: lock,
        })
    }

    /// Where result files are written.
    pub fn path(&self) -> &Path {
        self.partial.path()
    }

    /// For vectors, spilled rows and other things that no result holds.
    pub fn work(&self) -> PathBuf {
        self.partial.path().join("work")
    }

    /// Makes the directory visible under its name, whole.
    ///
    /// # Errors
    /// If renaming fails, or if somebody else made `target` in the meantime.
    pub fn commit(self) -> Result<PathBuf, RunError> {
        check_target(&self.target, self.overwrite)?;
        let failed = |path: &Path, e| RunError::write(path, e);
        let work = self.work();
        fs::remove_dir_all(&work).map_err(|e| failed(&work, e))?;
        let lock = self.path().join(LOCK);
        fs::remove_file(&lock).map_err(|e| failed(&lock, e))?;
        set_readable(self.path());
        let own = self
            .path()
            .file_name()
            .map(|n| n.to_string_lossy().replace(".partial-", ".replaced-"));
        let aside = self
            .path()
            .with_file_name(own.unwrap_or_else(|| ".replaced".into()));
        let replaces = self.target.exists();
        if replaces {
            fs::rename(&self.target, &aside).map_err(|e| failed(&self.target, e))?;
        }
        if let Err(e) = fs::rename(self.path(), &self.target) {
            if replaces {
                let _ = fs::rename(&aside, &self.target);
            }
            return Err(failed(&self.target, e));
        }
        // The folder has moved: nothing is left for the guard to remove.
        let _ = self.partial.keep();
        if replaces {
            let _ = fs::remove_dir_all(&aside);
        }
        Ok(self.target)
    }
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

/// Removes partial directories whose process is gone: nobody holds their lock.
fn remove_leftovers(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let lock = fs::File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            tracing::info!(folder = %entry.path().display(), "removing what a killed run left behind");
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A single output file under construction, with the same promise.
#[derive(Debug)]
pub struct PartialFile {
    target: PathBuf,
    partial: tempfile::TempPath,
}

impl PartialFile {
    /// Starts a file that will become `target`.
    ///
    /// # Errors
    /// If `target` exists and `overwrite` is false, or its folder can't be written to.
    pub fn create(target: &Path, overwrite: bool) -> Result<(Self, fs::File), RunError> {
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
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(|e| RunError::write(&parent, e))?;
        let file = tempfile::Builder::new()
            .prefix(&format!(".{}.partial-", name_of(target)?))
            .tempfile_in(&parent)
            .map_err(|e| RunError::write(&parent, e))?;
        let (file, partial) = file.into_parts();
        Ok((
            Self {
                target: target.to_owned(),
                partial,
            },
            file,
        ))
    }

    /// Makes the file visible under its name.
    ///
    /// # Errors
    /// If renaming fails.
    pub fn commit(self) -> Result<PathBuf, RunError> {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(&self.partial, fs::Permissions::from_mode(0o644));
        self.partial
            .persist(&self.target)
            .map_err(|e| RunError::write(&self.target, e.error))?;
        Ok(self.target)
    }
}
