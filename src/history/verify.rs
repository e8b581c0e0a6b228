//! Whether the files of a finished run are what was written: for `nightmill runs verify`, and once a process for every
//! file that another command takes scores from. A byte that changed on disk must not change a number in silence.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::history::continues::Continues;
use crate::history::stored_run::HistoryError;
use crate::output::directory::MANIFEST;
use crate::output::manifest::{Sealed, hash_of, sealed};

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFault {
    /// The manifest names it, and it is not there.
    Missing,
    /// Its bytes are others.
    Changed,
    /// The manifest does not name it.
    Extra,
}

impl FileFault {
    /// In a word: `missing`, `changed` or `extra`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Extra => "extra",
        }
    }
}

/// A file that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultyFile {
    /// Seen from the run directory.
    pub file: String,
    /// What is wrong with it.
    pub fault: FileFault,
}

/// What a run directory was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifiedRun {
    /// The run directory.
    pub path: PathBuf,
    /// Files that are as they were written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the manifest itself could be checked: those of earlier versions have no check.
    pub manifest_checked: bool,
    /// All others.
    pub faults: Vec<FaultyFile>,
    /// The run that it continues, in words, if that is not there any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    bytes: u64,
    blake3: String,
}

#[derive(Deserialize)]
struct FileList {
    #[serde(default)]
    files: BTreeMap<String, Listed>,
}

/// Reads every file of a run directory, or of a folder of tables that has a manifest, and compares it with the manifest.
///
/// # Errors
/// [`HistoryError`] if there is no manifest, or one that can't be read at all.
pub fn verify_run(folder: &Path) -> Result<VerifiedRun, HistoryError> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Err(HistoryError::Unfinished(folder.to_owned()));
    }
    let failed = |e: std::io::Error| HistoryError::damaged(folder, MANIFEST, e);
    let text = std::fs::read(&path).map_err(failed)?;
    let mut verified = VerifiedRun {
        path: folder.to_owned(),
        files: 0,
        bytes: 0,
        manifest_checked: false,
        faults: Vec::new(),
        missing: None,
    };
    let fault = |file: &str, fault| FaultyFile {
        file: file.to_owned(),
        fault,
    };
    match sealed(&text) {
        Sealed::Whole => {
            verified.manifest_checked = true;
            verified.files += 1;
            verified.bytes += text.len() as u64;
        }
        Sealed::Unsealed => {}
        Sealed::Broken => verified.faults.push(fault(MANIFEST, FileFault::Changed)),
    }
    let Ok(list) = serde_json::from_slice::<FileList>(&text) else {
        // Which files there should be is not known any more.
        if verified.faults.is_empty() {
            verified.faults.push(fault(MANIFEST, FileFault::Changed));
        }
        return Ok(verified);
    };
    for (name, listed) in &list.files {
        match compare(&folder.join(name), listed) {
            Compared::Same => {
                verified.files += 1;
                verified.bytes += listed.bytes;
            }
            Compared::Missing => verified.faults.push(fault(name, FileFault::Missing)),
            Compared::Changed(_) => verified.faults.push(fault(name, FileFault::Changed)),
        }
    }
    if let (true, Ok(Some(said))) = (verified.manifest_checked, Continues::read(folder)) {
        // Where it was made in a bucket, others are looked for there, and not here.
        let remote = said.path.as_ref().is_some_and(|path| path.contains("://"));
        if !remote && matches!(said.find(folder), Ok(None)) {
            verified.missing = Some(said.missing(folder));
        }
    }
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|e| failed(e.into()))?;
        let name = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let name = name.to_string_lossy();
        let known = list.files.contains_key(&*name) || name == MANIFEST;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !entry.file_type().is_dir() && !known && !hidden {
            verified.faults.push(fault(&name, FileFault::Extra));
        }
    }
    Ok(verified)
}

enum Compared {
    Same,
    Missing,
    Changed(String),
}

fn compare(path: &Path, listed: &Listed) -> Compared {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Compared::Missing,
        Err(e) => return Compared::Changed(e.to_string()),
        Ok(found) if found.len() != listed.bytes => {
            let (found, bytes) = (found.len(), listed.bytes);
            return Compared::Changed(format!("{found} bytes, and {bytes} were written"));
        }
        Ok(_) => {}
    }
    match hash_of(path) {
        Ok((_, hash)) if hash == listed.blake3 => Compared::Same,
        Ok(_) => Compared::Changed("its hash is not that of what was written".to_owned()),
        Err(e) => Compared::Changed(e.to_string()),
    }
}

/// The text of a manifest, if its check fits or it has none.
///
/// # Errors
/// [`HistoryError::Damaged`].
pub(crate) fn check_manifest(run: &Path, text: &[u8]) -> Result<(), HistoryError> {
    match sealed(text) {
        Sealed::Whole | Sealed::Unsealed => Ok(()),
        Sealed::Broken => Err(HistoryError::damaged(
            run,
            MANIFEST,
            "its check does not fit: it was changed after it was written",
        )),
    }
}

/// A file as it was when it was checked.
type Seen = (PathBuf, u64, Option<SystemTime>);

/// Checks a file of a run against the manifest, once a process as long as it stays the same. Files that the manifest does
/// not name are not checked: earlier versions named none.
///
/// # Errors
/// [`HistoryError::Damaged`] if it is missing or another.
pub(crate) fn check_file(run: &Path, file: &str) -> Result<(), HistoryError> {
    static CHECKED: Mutex<Option<HashSet<Seen>>> = Mutex::new(None);
    let path = run.join(file);
    let seen = std::fs::metadata(&path).ok();
    let seen = seen.map(|seen| (path.clone(), seen.len(), seen.modified().ok()));
    let known = |seen: &Seen| {
        let checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
        checked
            .as_ref()
            .is_some_and(|checked| checked.contains(seen))
    };
    if seen.as_ref().is_some_and(known) {
        return Ok(());
    }
    let mut problem = String::new();
    // A run that is replaced between the two looks is as good as the one that was there before.
    for _ in 0..2 {
        let text = std::fs::read(run.join(MANIFEST));
        let text = text.map_err(|e| HistoryError::damaged(run, MANIFEST, e))?;
        check_manifest(run, &text)?;
        let list: FileList =
            serde_json::from_slice(&text).map_err(|e| HistoryError::damaged(run, MANIFEST, e))?;
        let Some(listed) = list.files.get(file) else {
            return Ok(());
        };
        match compare(&path, listed) {
            Compared::Same => {
                let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
                checked.get_or_insert_default().extend(seen);
                return Ok(());
            }
            Compared::Missing => problem = "it is missing".to_owned(),
            Compared::Changed(how) => problem = how,
        }
    }
    Err(HistoryError::damaged(run, file, problem))
}

/// Checks a file if it belongs to a run; any other is as good as it is.
///
/// # Errors
/// [`HistoryError::Damaged`] if it is not what the run wrote.
pub fn check_if_of_run(file: &Path) -> Result<(), HistoryError> {
    let Ok(file) = file.canonicalize() else {
        return Ok(());
    };
    for run in file.ancestors().skip(1).take(2) {
        if run.join(MANIFEST).is_file()
            && let Ok(name) = file.strip_prefix(run)
        {
            return check_file(run, &name.to_string_lossy());
        }
    }
    Ok(())
}
