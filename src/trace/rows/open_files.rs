//! Opening the files of a source, and what is done about those that can't be.

use super::super::TraceError;
use super::super::discover::SourceFile;
use super::super::quarantine::Quarantine;
use super::RowFile;

/// What to do about a file that can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OnBadFile {
    /// Stop: the run fails and writes nothing.
    #[default]
    Fail,
    /// Quarantine what can't be read and go on.
    Skip,
}

impl OnBadFile {
    /// Opens files. One that can't be opened, or lacks a column, fails the call or goes to quarantine.
    ///
    /// # Errors
    /// [`TraceError`] naming the file and column.
    pub(in crate::trace) fn open(
        self,
        files: Vec<SourceFile>,
        quarantine: &Quarantine,
        open: impl Fn(SourceFile) -> Result<RowFile, TraceError>,
    ) -> Result<Vec<RowFile>, TraceError> {
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path.clone();
            match (open(file), self) {
                (Ok(file), _) => opened.push(file),
                (Err(error), Self::Skip) => {
                    quarantine.add_unreadable(&path, 0, 0, error.of_file()?);
                }
                (Err(error), Self::Fail) => return Err(error),
            }
        }
        Ok(opened)
    }
}
