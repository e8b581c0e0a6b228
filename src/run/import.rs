//! From files of any format to one Parquet file of nightmill's own columns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::output::RunError;
use crate::output::directory::PartialFile;
use crate::run::inputs::passed_over;
use crate::text::{TextMode, origin_of};
use crate::trace::format::{Found, convert};
use crate::trace::{OnBadFile, Quarantine, QuarantinedRows};

/// A validated request.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The files, of other formats alone.
    pub found: Found,
    /// The file to make.
    pub out: PathBuf,
    /// Replace an existing file.
    pub overwrite: bool,
    /// What the text columns hold.
    pub text_mode: TextMode,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Bytes of spans that are kept in memory.
    pub memory: usize,
}

/// What an import came to.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// The file that was made.
    pub out: PathBuf,
    /// Traces in it.
    pub traces: u64,
    /// Documents read.
    pub documents: u64,
    /// Bytes of the files read.
    pub bytes: u64,
    /// Documents and files that could not be read.
    pub set_aside: u64,
    /// Why not, and how often.
    pub reasons: BTreeMap<String, u64>,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// Why documents were set aside, and how often.
pub(super) fn reasons(entries: &[QuarantinedRows]) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for entry in entries {
        let first = format!(
            "{}, row {}: {}",
            origin_of(&entry.file),
            entry.first_row,
            entry.reason
        );
        *reasons.entry(first).or_insert(0) += entry.rows.max(1);
    }
    reasons
}

/// Carries out an import. The file is there whole or not at all.
///
/// # Errors
/// [`RunError`] for files that can't be read, for an existing file, and where there is no trace.
pub fn import(request: &ImportRequest) -> Result<Imported, RunError> {
    let (partial, file) = PartialFile::create(&request.out, request.overwrite)?;
    drop(file);
    let parent = match request.out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let work = tempfile::Builder::new()
        .prefix(".nightmill-import-")
        .tempdir_in(parent);
    let work = work.map_err(|e| RunError::write(parent, e))?;
    let quarantine = Quarantine::default();
    request.found.set_damaged_aside(&quarantine);
    let (files, mode) = (&request.found.foreign, request.text_mode);
    let on_bad_file = request.on_bad_file;
    let converted = convert(
        files,
        partial.path(),
        work.path(),
        mode,
        request.memory,
        on_bad_file,
        &quarantine,
    )?;
    let entries = quarantine.sorted();
    let reasons = reasons(&entries);
    if converted.file.is_none() {
        let why = reasons
            .keys()
            .next()
            .map_or_else(String::new, |reason| format!(": {reason}"));
        return Err(RunError::Request(format!(
            "there is no trace in these files{why}"
        )));
    }
    partial.commit()?;
    let mut notes = converted.lines;
    notes.extend(passed_over(&request.found.passed_over));
    Ok(Imported {
        out: request.out.clone(),
        traces: converted.traces,
        documents: converted.documents,
        bytes: converted.bytes,
        set_aside: entries.iter().map(|entry| entry.rows.max(1)).sum(),
        reasons,
        notes,
    })
}
