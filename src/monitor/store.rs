//! Monitors on disk: a folder with one JSON file per monitor.
//!
//! `ID.json` is the record. It is replaced whole, by renaming, so that a reader or a power cut never
//! meets half of one. `.records.lock` is held while records are changed, for moments;
//! `.ID.running` is held while a monitor runs, so that no two processes run one monitor at once. Locks
//! belong to open files: they end with their process, whatever ends it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::record::Monitor;
use crate::text::nearest;

const RECORDS_LOCK: &str = ".records.lock";
const EXTENSION: &str = "json";

/// A folder of monitors.
#[derive(Clone, Debug)]
pub struct MonitorStore {
    folder: PathBuf,
}

/// What went wrong with the folder or one of its files.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file that is no record of a monitor.
    #[error(
        "`{path}` is damaged: {problem}; repair it, or move it away to go on without this monitor"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No such monitor.
    #[error("there is no monitor `{name}` in `{folder}`{hint}")]
    Missing {
        /// The id or name looked for.
        name: String,
        /// The folder of the monitors.
        folder: PathBuf,
        /// The nearest name, if one is near.
        hint: String,
    },
    /// Several monitors have the name.
    #[error("{count} monitors are called `{name}`; use the id: {ids}")]
    Ambiguous {
        /// The name looked for.
        name: String,
        /// How many monitors have it.
        count: usize,
        /// Their ids.
        ids: String,
    },
    /// Another monitor has the name, or has it as its id.
    #[error(
        "the monitor `{id}` is called `{name}` already; choose another name, or change that one with `monitor set {id}`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Id of the monitor that has it.
        id: String,
    },
    /// A monitor of this id exists.
    #[error("the monitor `{0}` exists already")]
    Exists(String),
    /// The monitor runs at this moment.
    #[error("the monitor `{0}` is running; try again when its run has ended")]
    Running(String),
    /// The system refuses to read or write.
    #[error("can't access `{path}`: {problem}")]
    Access {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// A change that the monitor itself refuses.
    #[error(transparent)]
    Refused(#[from] super::record::MonitorError),
}

impl StoreError {
    fn access(path: &Path, problem: io::Error) -> Self {
        Self::Access {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// All records of a folder.
#[derive(Debug)]
pub struct Listing {
    /// The monitors, by id.
    pub monitors: Vec<Monitor>,
    /// One error per file that is no monitor. The others can be used all the same.
    pub damaged: Vec<StoreError>,
}

/// The right to run a monitor. It ends when this is dropped.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl MonitorStore {
    /// Opens a folder, making it if it is not there: settings of monitors are nobody else's business.
    ///
    /// # Errors
    /// [`StoreError::Access`] if the folder can't be made.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        if !folder.is_dir() {
            make_private(folder).map_err(|e| StoreError::access(folder, e))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Reads all monitors.
    ///
    /// # Errors
    /// [`StoreError::Access`] if the folder can't be listed.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let failed = |e| StoreError::access(&self.folder, e);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = PathBuf::from(entry.map_err(failed)?.file_name());
            if path.extension().is_some_and(|e| e == EXTENSION)
                && let Some(id) = path.file_stem().and_then(|stem| stem.to_str())
                && !id.starts_with('.')
            {
                ids.push(id.to_owned());
            }
        }
        ids.sort_unstable();
        let mut listing = Listing {
            monitors: Vec::new(),
            damaged: Vec::new(),
        };
        for id in ids {
            match self.read(&id) {
                Ok(monitor) => listing.monitors.push(monitor),
                // Deleted since the folder was listed.
                Err(StoreError::Missing { .. }) => {}
                Err(error) => listing.damaged.push(error),
            }
        }
        Ok(listing)
    }

    /// Finds a monitor by id or else by name.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Ambiguous`], or that the folder or the record can't be read.
    pub fn find(&self, id_or_name: &str) -> Result<Monitor, StoreError> {
        if is_file_name(id_or_name) {
            match self.read(id_or_name) {
                Err(StoreError::Missing { .. }) => {}
                other => return other,
            }
        }
        let monitors = self.list()?.monitors;
        let hint = nearest(id_or_name, monitors.iter().map(|m| m.name.as_str()));
        let mut named: Vec<Monitor> = monitors
            .into_iter()
            .filter(|m| m.name == id_or_name)
            .collect();
        match (named.pop(), named.len()) {
            (None, _) => Err(StoreError::Missing {
                name: id_or_name.to_owned(),
                folder: self.folder.clone(),
                hint,
            }),
            (Some(one), 0) => Ok(one),
            (Some(last), others) => {
                named.push(last);
                let ids: Vec<&str> = named.iter().map(|m| m.id.as_str()).collect();
                Err(StoreError::Ambiguous {
                    name: id_or_name.to_owned(),
                    count: others + 1,
                    ids: ids.join(", "),
                })
            }
        }
    }

    /// Stores a new monitor.
    ///
    /// # Errors
    /// [`StoreError::Exists`] or [`StoreError::NameTaken`] if another has its id or name, or that it can't be written.
    pub fn add(&self, monitor: &Monitor) -> Result<(), StoreError> {
        let _lock = self.lock_records()?;
        if self.path(&monitor.id).exists() {
            return Err(StoreError::Exists(monitor.id.clone()));
        }
        self.check_name(monitor)?;
        self.write(monitor)
    }

    /// Changes a monitor: reads it, lets `change` work on it and stores the result, while no other process
    /// can. If `change` fails nothing is stored.
    ///
    /// # Errors
    /// What `change` returns, [`StoreError::Missing`], [`StoreError::NameTaken`] for a new name, or that the record can't be
    /// read or written.
    pub fn update<E: From<StoreError>>(
        &self,
        id: &str,
        change: impl FnOnce(&mut Monitor) -> Result<(), E>,
    ) -> Result<Monitor, E> {
        let _lock = self.lock_records()?;
        let before = self.read(id)?;
        let mut monitor = before.clone();
        change(&mut monitor)?;
        if monitor.name != before.name {
            self.check_name(&monitor)?;
        }
        if monitor != before {
            self.write(&monitor)?;
        }
        Ok(monitor)
    }

    /// Removes a monitor. Its runs stay.
    ///
    /// # Errors
    /// [`StoreError::Running`] during a run, [`StoreError::Missing`], or that it can't be removed.
    pub fn remove(&self, id: &str) -> Result<(), StoreError> {
        // Before the lock, which would leave a file behind for a monitor that never was. A damaged
        // record may be removed too.
        if !is_file_name(id) || !self.path(id).exists() {
            return Err(self.missing(id));
        }
        let _run = self
            .try_lock_run(id)?
            .ok_or_else(|| StoreError::Running(id.to_owned()))?;
        let _lock = self.lock_records()?;
        let path = self.path(id);
        fs::remove_file(&path).map_err(|e| StoreError::access(&path, e))?;
        // Whoever waits for this file gets the lock of a file without a name, and then finds no record.
        let _ = fs::remove_file(self.run_lock_path(id));
        Ok(())
    }

    /// Takes the right to run a monitor; none if another process has it.
    ///
    /// # Errors
    /// [`StoreError::Access`] if the lock file can't be made.
    pub fn try_lock_run(&self, id: &str) -> Result<Option<RunLock>, StoreError> {
        let path = self.run_lock_path(id);
        let file = open_lock(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RunLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(StoreError::access(&path, e)),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.{EXTENSION}"))
    }

    fn run_lock_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!(".{id}.running"))
    }

    fn missing(&self, id: &str) -> StoreError {
        StoreError::Missing {
            name: id.to_owned(),
            folder: self.folder.clone(),
            hint: String::new(),
        }
    }

    /// Refuses a name by which another monitor is found: the name of one, or its id.
    fn check_name(&self, monitor: &Monitor) -> Result<(), StoreError> {
        let others = self.list()?.monitors.into_iter();
        let taken = others
            .filter(|other| other.id != monitor.id)
            .find(|other| other.name == monitor.name || other.id == monitor.name);
        match taken {
            None => Ok(()),
            Some(other) => Err(StoreError::NameTaken {
                name: monitor.name.clone(),
                id: other.id,
            }),
        }
    }

    fn lock_records(&self) -> Result<File, StoreError> {
        let path = self.folder.join(RECORDS_LOCK);
        let file = open_lock(&path)?;
        file.lock().map_err(|e| StoreError::access(&path, e))?;
        Ok(file)
    }

    fn read(&self, id: &str) -> Result<Monitor, StoreError> {
        let path = self.path(id);
        let damaged = |problem: String| StoreError::Damaged {
            path: path.clone(),
            problem,
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.missing(id)),
            Err(e) => return Err(StoreError::access(&path, e)),
        };
        let text = String::from_utf8(bytes).map_err(|e| damaged(e.to_string()))?;
        let monitor = Monitor::from_json(&text).map_err(damaged)?;
        if monitor.id != id {
            return Err(damaged(format!(
                "it holds the monitor `{}`, whose file is `{}.{EXTENSION}`",
                monitor.id, monitor.id
            )));
        }
        Ok(monitor)
    }

    fn write(&self, monitor: &Monitor) -> Result<(), StoreError> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(&monitor.id);
        let failed = |e| StoreError::access(&path, e);
        let text = serde_json::to_string_pretty(monitor).map_err(|e| failed(e.into()))?;
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(&self.folder)
            .map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.as_file().sync_all())
            .map_err(failed)?;
        file.persist(&path).map_err(|e| failed(e.error))?;
        // The new name lasts only once the folder is on disk.
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }
}

/// An id comes from the command line: it must not lead out of the folder.
fn is_file_name(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '\\', '\0'])
}

/// Makes a folder that its owner alone can look into, and the folders above it as usual.
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        // Another process was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

fn open_lock(path: &Path) -> Result<File, StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .mode(0o600)
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| StoreError::access(path, e))
}

#[cfg(test)]
mod tests;
