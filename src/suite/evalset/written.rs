//! The files of a run under way: the result and its table.

use std::path::PathBuf;

use super::result::{CaseResult, EvalSetResult, ResultSummary};
use super::result_writer::ResultWriter;
use super::rows::{self, TurnTable};
use super::run::EvalSetRequest;
use super::store::{LocalResults, named_result};
use crate::output::RunError;

/// The files of a run under way: nothing of them is there before it ends.
pub(super) struct Written {
    /// The result but for its cases.
    pub head: EvalSetResult,
    result: PathBuf,
    writer: ResultWriter,
    table: TurnTable,
    table_path: PathBuf,
}

impl Written {
    /// Begins both files.
    ///
    /// # Errors
    /// [`RunError`] if they can't be made.
    pub fn begin(request: &EvalSetRequest, set: &str) -> Result<Self, RunError> {
        let head = EvalSetResult {
            set_id: set.to_owned(),
            ..EvalSetResult::default()
        };
        let head = named_result(&request.app, &head)?;
        let store = LocalResults::new(request.results.clone());
        let result = store.path(&request.app, &head.id)?;
        let table_path = rows::beside(&result);
        Ok(Self {
            writer: ResultWriter::begin(&result, &head)?,
            table: TurnTable::begin(&table_path)?,
            table_path,
            result,
            head,
        })
    }

    /// Writes results behind those that are there.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn write(&mut self, app: &str, set: &str, results: &[CaseResult]) -> Result<(), RunError> {
        self.writer.write(results)?;
        self.table.write((app, set), results)
    }

    /// Gives the files their names, and returns them. The table first: a result that is there has its table.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn end(self, summary: Option<ResultSummary>) -> Result<Vec<String>, RunError> {
        self.table.end()?;
        let tail = EvalSetResult {
            summary,
            ..self.head
        };
        self.writer.end(&tail)?;
        let files = [self.result, self.table_path];
        Ok(files
            .iter()
            .map(|file| file.display().to_string())
            .collect())
    }
}
