//! Files of other formats for commands that read nightmill's own columns: a file of those is made first, in a folder that
//! goes with the value.

use std::collections::BTreeMap;

use super::import::reasons;
use super::inputs::passed_over;
use crate::output::RunError;
use crate::text::TextMode;
use crate::trace::format::{Found, convert};
use crate::trace::{OnBadFile, Quarantine};

/// What a command reads.
#[derive(Debug)]
pub struct OwnColumns {
    /// The paths as they were given, or that of the file that was made.
    pub paths: Vec<String>,
    /// What there is to say of files of other formats.
    pub notes: Vec<String>,
    /// Documents and files that could not be read: why, and how often.
    pub set_aside: BTreeMap<String, u64>,
    /// What holds the file that was made.
    #[allow(dead_code, reason = "it is there to be dropped")]
    folder: Option<tempfile::TempDir>,
}

/// The files behind `paths`, which were found to be `found`, as files of nightmill's own columns.
///
/// # Errors
/// [`RunError`] for a file that can't be read, where nothing is in the files, and where files of both kinds are named.
pub fn own_columns(
    paths: Vec<String>,
    found: &Found,
    mode: TextMode,
    on_bad_file: OnBadFile,
    memory: usize,
) -> Result<OwnColumns, RunError> {
    let Some(foreign) = found.foreign.first() else {
        return Ok(OwnColumns {
            paths,
            notes: Vec::new(),
            set_aside: BTreeMap::new(),
            folder: None,
        });
    };
    if let Some(own) = found.native.first() {
        return Err(RunError::Request(format!(
            "`{}` is in the format {} and `{}` has columns of its own; name files of one kind",
            foreign.path.display(),
            foreign.reader.name(),
            own.path.display()
        )));
    }
    let folder = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let quarantine = Quarantine::default();
    let converted = convert(
        &found.foreign,
        &folder.path().join("traces.parquet"),
        folder.path(),
        mode,
        memory,
        on_bad_file,
        &quarantine,
    )?;
    let set_aside = reasons(&quarantine.sorted());
    let Some(file) = converted.file else {
        let why = set_aside.keys().next();
        let why = why.map_or_else(String::new, |reason| format!(": {reason}"));
        return Err(RunError::Request(format!(
            "there is no trace in these files{why}"
        )));
    };
    let mut notes: Vec<String> = passed_over(&found.passed_over).into_iter().collect();
    notes.extend(converted.lines);
    Ok(OwnColumns {
        paths: vec![file.path.display().to_string()],
        notes,
        set_aside,
        folder: Some(folder),
    })
}

impl OwnColumns {
    /// The notes, and what could not be read, a line each.
    pub fn told(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        for (reason, count) in &self.set_aside {
            text.push_str(&format!("{count} documents could not be read: {reason}\n"));
        }
        text
    }
}
