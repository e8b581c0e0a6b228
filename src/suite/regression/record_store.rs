//! The folder of run records: written whole or not at all, by several runs at the same time.

mod pins;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::baseline::{baseline_notices, choose_baseline};
use super::config::{BaselineStrategy, RegressionConfig};
use super::file_fault::FileError;
use super::record::{RunHead, RunRecord, RunStatus};
use super::whole_file::MAX_FILE_BYTES;
use crate::metric::comparison::Compat;
use crate::text::nearest;

const LOCK: &str = ".lock";
/// In the names of records under construction.
const PARTIAL: &str = ".nightmill-partial-";

/// Why the folder of records can't do what is asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such run.
    #[error("`{}` has no run `{run_id}`{near}", folder.display())]
    NoSuchRun {
        /// What was asked for.
        run_id: String,
        /// The nearest one, in words.
        near: String,
        /// The records.
        folder: PathBuf,
    },
    /// No run has such an id.
    #[error("`{0}` is no id of a run; ids have letters, digits, `_` and `-`")]
    BadId(String),
    /// A run of this id is there already.
    #[error("a run `{0}` is there already; records are never replaced")]
    Taken(String),
}

/// The folder of run records. One file a run: `RUN_ID.json`, as the tool has them in `.regtrace/runs`.
#[derive(Clone, Debug)]
pub struct RecordStore {
    folder: PathBuf,
}

/// The records of a folder.
#[derive(Debug, Default)]
pub struct Listing {
    /// Newest first.
    pub runs: Vec<RunHead>,
    /// Files that are no records, each with what is wrong: to warn of.
    pub skipped: Vec<FileError>,
}

/// Which records are listed; what is none or 0 restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Those of this suite.
    pub suite: Option<String>,
    /// Those that ended so.
    pub status: Option<RunStatus>,
    /// Those of this branch.
    pub branch: Option<String>,
    /// The newest so many.
    pub limit: usize,
}

/// A baseline with what a reader should know of it.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// None where there is no run to compare with.
    pub record: Option<RunRecord>,
    /// One line each.
    pub notices: Vec<String>,
}

impl RecordStore {
    /// The records of a folder, which is made when the first one is saved.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Where the records of a configuration are: `.regtrace/runs` beside it where the tool has left records there, else
    /// `.nightmill/suite-runs`.
    pub fn beside(config_file: &Path) -> Self {
        let root = config_file.parent().unwrap_or(Path::new(""));
        let of_tool = root.join(".regtrace/runs");
        match of_tool.is_dir() {
            true => Self::at(of_tool),
            false => Self::at(root.join(".nightmill/suite-runs")),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a record under its id.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if the id is; [`FileError::Write`] if the disk refuses. No part of a record is left
    /// behind.
    pub fn save(&self, record: &RunRecord) -> Result<PathBuf, StoreError> {
        let path = self.path_of(&record.head.run_id)?;
        let mut text =
            serde_json::to_vec_pretty(&record.to_json()).map_err(|e| FileError::write(&path, e))?;
        text.push(b'\n');
        let bytes = text.len() as u64;
        // What can't be read again can't be compared with.
        if bytes > MAX_FILE_BYTES {
            let problem = format!(
                "the record would have {bytes} bytes, and at most {MAX_FILE_BYTES} can be read again; split the suite into several"
            );
            return Err(FileError::write(&path, problem).into());
        }
        let _lock = self.lock()?;
        self.write_new(&path, &text, false)
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::AlreadyExists => StoreError::Taken(record.head.run_id.clone()),
                _ => FileError::write(&path, e).into(),
            })?;
        Ok(path)
    }

    /// Removes the records of each suite beyond its newest `limit`. Pinned ones stay, and so do `keep` and the newest
    /// run of each branch that passed: without it, enough runs that fail would leave nothing to fail against. Returns
    /// the ids of what was removed.
    ///
    /// # Errors
    /// [`FileError`] if the folder can't be read or a file not removed.
    pub fn prune(&self, limit: usize, keep: Option<&str>) -> Result<Vec<String>, StoreError> {
        if !self.folder.is_dir() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let pins = self.pins()?;
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let listing = self.list(&RunFilter::default())?;
        let mut removed = Vec::new();
        let mut passed: HashSet<(&str, Option<&str>)> = HashSet::new();
        for run in &listing.runs {
            let of_branch = (run.golden_set_name.as_str(), run.branch.as_deref());
            // The records are newest first.
            let is_baseline = run.status == RunStatus::Passed && passed.insert(of_branch);
            let count = seen.entry(&run.golden_set_name).or_default();
            *count += 1;
            let is_pinned = pins.values().any(|id| *id == run.run_id);
            if *count <= limit || is_pinned || is_baseline || keep == Some(&run.run_id) {
                continue;
            }
            let path = self.path_of(&run.run_id)?;
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FileError::write(&path, e).into());
                }
                _ => removed.push(run.run_id.clone()),
            }
        }
        Ok(removed)
    }

    /// The records, newest first. A file that is no record is skipped and told of.
    ///
    /// # Errors
    /// [`FileError::Read`] if the folder is there and can't be read.
    pub fn list(&self, filter: &RunFilter) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        for path in self.record_paths()? {
            match self.read_head(&path) {
                Ok(head) => listing.runs.push(head),
                // Another run has removed it in the meantime.
                Err(_) if !path.exists() => {}
                Err(e) => listing.skipped.push(e),
            }
        }
        let branch = filter.branch.as_deref().map(super::baseline::clean_branch);
        listing.runs.retain(|run| {
            let own = run.branch.as_deref().map(super::baseline::clean_branch);
            let is_suite = |suite: &String| run.golden_set_name == *suite;
            filter.suite.as_ref().is_none_or(is_suite)
                && filter.status.is_none_or(|status| run.status == status)
                && (branch.is_none() || own == branch)
        });
        listing.runs.sort_by(|a, b| {
            let newest = (b.timestamp, &b.run_id);
            newest.cmp(&(a.timestamp, &a.run_id))
        });
        if filter.limit > 0 {
            listing.runs.truncate(filter.limit);
        }
        Ok(listing)
    }

    /// The whole record of a run.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`] with the nearest id; [`FileError`] if the file is no record.
    pub fn load(&self, run_id: &str) -> Result<RunRecord, StoreError> {
        let path = self.path_of(run_id)?;
        if !path.is_file() {
            let paths = self.record_paths()?;
            let known = paths.iter().filter_map(|path| path.file_stem()?.to_str());
            return Err(StoreError::NoSuchRun {
                run_id: run_id.to_owned(),
                near: nearest(run_id, known),
                folder: self.folder.clone(),
            });
        }
        let record = RunRecord::read(&path)?;
        check_name(&path, &record.head.run_id)?;
        Ok(record)
    }

    /// The baseline of a suite. The run that is pinned here ([`RecordStore::pin`]) goes before what the configuration
    /// says. A record that fails to load is told of and the next best one is taken.
    ///
    /// # Errors
    /// [`FileError::Read`] if the folder is there and can't be read.
    pub fn baseline(
        &self,
        suite: &str,
        branch: Option<&str>,
        config: &RegressionConfig,
        compat: Compat,
        now: DateTime<Utc>,
    ) -> Result<Baseline, StoreError> {
        let mut notices = Vec::new();
        if !config.enabled {
            let record = None;
            return Ok(Baseline { record, notices });
        }
        let mut config = config.clone();
        if let Some(id) = self.pins()?.get(suite) {
            config.strategy = BaselineStrategy::Pinned(id.clone());
        }
        let mut listing = self.list(&RunFilter::default())?;
        notices.extend(listing.skipped.iter().map(|e| format!("skipped: {e}")));
        loop {
            let chosen = choose_baseline(&listing.runs, suite, branch, &config, compat);
            let Some((head, found)) = chosen else {
                if let BaselineStrategy::Pinned(id) = &config.strategy {
                    notices.push(format!(
                        "the pinned run `{id}` is not among the records; there is no baseline"
                    ));
                }
                let record = None;
                return Ok(Baseline { record, notices });
            };
            let id = head.run_id.clone();
            match self.load(&id) {
                Ok(record) => {
                    let head = &record.head;
                    notices.extend(baseline_notices(head, found, suite, branch, now));
                    let record = Some(record);
                    return Ok(Baseline { record, notices });
                }
                Err(e) => notices.push(format!("skipped: {e}")),
            }
            listing.runs.retain(|run| run.run_id != id);
        }
    }

    fn read_head(&self, path: &Path) -> Result<RunHead, FileError> {
        let head = RunHead::read(path)?;
        check_name(path, &head.run_id)?;
        Ok(head)
    }

    /// Files that may be records, in no order.
    fn record_paths(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(FileError::read(&self.folder, e).into()),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| FileError::read(&self.folder, e))?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let is_json = path.extension().is_some_and(|of| of == "json");
            if is_json && stem.is_some_and(is_id) && path.is_file() {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn path_of(&self, run_id: &str) -> Result<PathBuf, StoreError> {
        match is_id(run_id) {
            true => Ok(self.folder.join(format!("{run_id}.json"))),
            false => Err(StoreError::BadId(run_id.to_owned())),
        }
    }

    /// Makes the folder and keeps other writers out until the lock is dropped; what writers that were killed have left
    /// is removed.
    fn lock(&self) -> Result<fs::File, FileError> {
        let path = self.folder.join(LOCK);
        fs::create_dir_all(&self.folder).map_err(|e| FileError::write(&self.folder, e))?;
        let lock = fs::File::create(&path).map_err(|e| FileError::write(&path, e))?;
        lock.lock().map_err(|e| FileError::write(&path, e))?;
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // Whoever writes holds the lock: these belong to nobody.
            if name.to_string_lossy().starts_with(PARTIAL) {
                let _gone = fs::remove_file(entry.path());
            }
        }
        Ok(lock)
    }

    /// Writes a file whole under another name and then renames it. The lock must be held.
    fn write_new(&self, path: &Path, text: &[u8], replace: bool) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let mut partial = loop {
            let partial = tempfile::Builder::new()
                .prefix(PARTIAL)
                // What the umask leaves of it, as for any new file.
                .permissions(fs::Permissions::from_mode(0o666))
                .tempfile_in(&self.folder)?;
            // Whoever writes tables or reports to this folder removes partial outputs that nobody has locked.
            partial.as_file().lock()?;
            if partial.path().exists() {
                break partial;
            }
        };
        partial.write_all(text)?;
        partial.as_file().sync_all()?;
        match replace {
            true => partial.persist(path).map_err(|e| e.error)?,
            false => partial.persist_noclobber(path).map_err(|e| e.error)?,
        };
        // The name must outlive a power cut too.
        fs::File::open(&self.folder)?.sync_all()
    }
}

fn is_id(text: &str) -> bool {
    let allowed = |of: char| of.is_ascii_alphanumeric() || of == '_' || of == '-';
    !text.is_empty() && text.len() <= 200 && text.chars().all(allowed)
}

/// A record under the name of another run would be two runs at once.
fn check_name(path: &Path, run_id: &str) -> Result<(), FileError> {
    match path.file_stem().is_some_and(|stem| stem == run_id) {
        true => Ok(()),
        false => {
            let problem = format!("it says that it is the run `{run_id}`");
            Err(FileError::syntax(path, "the record of its name", problem))
        }
    }
}

#[cfg(test)]
mod tests;
