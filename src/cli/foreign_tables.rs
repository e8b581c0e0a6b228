//! Files of other formats as tables of `nightmill sql`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::outcome;
use crate::job::Job;
use crate::output::directory::MANIFEST;
use crate::run::{OwnColumns, open, own_columns};
use crate::text::TextMode;
use crate::trace::discover;

/// Makes tables of files of other formats, each once. They are gone when this is dropped.
#[derive(Debug)]
pub(super) struct ForeignTables {
    /// Says what the files are.
    job: Job,
    mode: TextMode,
    memory: usize,
    made: Mutex<HashMap<String, Option<OwnColumns>>>,
}

impl ForeignTables {
    pub fn new(job: Job, mode: TextMode, memory: usize) -> Self {
        Self {
            job,
            mode,
            memory,
            made: Mutex::default(),
        }
    }

    /// The file to read for a path; none where that is read as it is. What there is to say of it goes to standard error.
    pub fn table(&self, path: &str) -> Result<Option<PathBuf>, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains_key(path) {
            let own = self.make(path)?;
            made.insert(path.to_owned(), own);
        }
        let own = made.get(path).and_then(Option::as_ref);
        Ok(own.and_then(|own| own.paths.first().map(PathBuf::from)))
    }

    fn make(&self, path: &str) -> Result<Option<OwnColumns>, String> {
        if is_of_a_run(path) || open::native_format(&self.job).is_some() {
            return Ok(None);
        }
        let paths = vec![path.to_owned()];
        let found = match open::found(&self.job, &paths) {
            Ok(found) => found,
            // Files without bytes, and the like: whoever reads them as they are says what is wrong.
            Err(_) if discover(&paths, None).is_ok() => return Ok(None),
            Err(problem) => return Err(problem.to_string()),
        };
        let Some(first) = found.foreign.first() else {
            return Ok(None);
        };
        let format = first.reader.name();
        let own = own_columns(
            paths,
            &found,
            self.mode,
            open::on_bad_file(&self.job),
            self.memory,
        );
        let own = own.map_err(|e| e.to_string())?;
        let told = format!(
            "`{path}` is read as {format}; --input-format parquet and jsonl take such files as they are\n{}",
            own.told()
        );
        outcome::say(&told, true).map_err(|e| e.to_string())?;
        Ok(Some(own))
    }

    /// Whether all documents could be read.
    pub fn are_whole(&self) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().flatten().all(|own| own.set_aside.is_empty())
    }
}

/// Whether a path names a table of a run, or files of one.
fn is_of_a_run(path: &str) -> bool {
    let mut folders = Path::new(path).ancestors().take(3);
    folders.any(|folder| folder.join(MANIFEST).is_file())
}
