//! What stands beside the record of a run, in a folder of its name: tables and a page.

use std::path::{Path, PathBuf};

use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError, manifest, table_folder};
use crate::suite::outcome::SuiteOutcome;
use crate::suite::page::{self, PageFacts};
use crate::suite::regression::record::RunRecord;
use crate::suite::regression::record_store::RecordStore;
use crate::suite::regression::tables::suite_tables;
use crate::text::format_instant;

const PAGE: &str = "report.html";

/// The folder of a run.
#[derive(Debug)]
pub(super) struct ResultFolder {
    path: PathBuf,
}

impl ResultFolder {
    pub fn of(records: &RecordStore, run_id: &str) -> Self {
        Self {
            path: records.folder().join(run_id),
        }
    }

    /// What it holds, for readers.
    pub fn files(&self, page: bool) -> Vec<String> {
        let mut files = vec![self.path.display().to_string()];
        if page {
            files.push(self.path.join(PAGE).display().to_string());
        }
        files
    }

    /// Writes it whole or not at all.
    ///
    /// # Errors
    /// [`RunError::Write`] if the disk refuses.
    pub fn write(
        &self,
        record: &RunRecord,
        outcome: &SuiteOutcome,
        page: bool,
        inputs: &[PathBuf],
    ) -> Result<(), RunError> {
        let folder = RunDirectory::create(&self.path, false, &[])?;
        for (name, batch) in suite_tables(std::slice::from_ref(record))? {
            let mut table = TableWriter::create(folder.path(), name, batch.schema())?;
            table.write(&batch)?;
            table.finish()?;
        }
        if page {
            let facts = PageFacts {
                created_at: format_instant(record.head.timestamp),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                inputs: inputs.iter().map(|of| of.display().to_string()).collect(),
            };
            let html = page::html(outcome, &facts).map_err(RunError::Plan)?;
            let path = folder.path().join(PAGE);
            std::fs::write(&path, html).map_err(|e| RunError::write(&path, e))?;
        }
        let inputs: Vec<&PathBuf> = inputs.iter().collect();
        manifest::write_of_inputs(&folder, "suite run", &inputs)?;
        folder.commit()?;
        Ok(())
    }

    /// Removes it; what is no folder of a suite's run stays.
    pub fn remove(&self) {
        if is_of_suite(&self.path) {
            // What is left behind is in nobody's way.
            let _gone = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn is_of_suite(folder: &Path) -> bool {
    folder.join(table_folder::SUITE).is_dir()
}
