//! What models answered, from a table of its own, joined onto suites.

use std::collections::HashMap;
use std::path::Path;

use arrow::array::RecordBatch;

use super::GoldenSet;
use super::rows::{batches_of_parquet, rows_of};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::members::{Findings, Members};

const COLUMNS: [&str; 3] = ["suite", "id", "actual_output"];

/// Outputs by suite and case. Files of suites are never written to.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    of: HashMap<(String, String), Output>,
}

#[derive(Clone, Debug)]
struct Output {
    row: usize,
    text: Option<String>,
    used: bool,
}

impl Outputs {
    /// The outputs of a Parquet file with the columns `suite`, `id` and `actual_output`.
    ///
    /// # Errors
    /// As [`Outputs::of_rows`].
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let batches = batches_of_parquet(path, &COLUMNS)?;
        Self::of_rows(path, &batches)
    }

    /// The outputs of rows; `path` is what messages name.
    ///
    /// # Errors
    /// [`FileError::Faults`] if a column is missing, or a case has two rows: which of them is meant is not known.
    pub fn of_rows(path: &Path, batches: &[RecordBatch]) -> Result<Self, FileError> {
        let findings = Findings::default();
        let mut outputs = Self::default();
        let rows = rows_of(path, batches, &COLUMNS, &findings)?;
        for (row, value) in rows.iter().flatten().enumerate() {
            let columns = Members::of(&findings, format!("rows[{row}]"), value);
            let key = (columns.required_text("suite"), columns.required_text("id"));
            let text = columns.text("actual_output").map(str::to_owned);
            if let Some(other) = outputs.of.get(&key) {
                let (suite, id) = &key;
                let problem = format!(
                    "`{id}` of suite `{suite}` is also in rows[{}]; keep one output of a case",
                    other.row
                );
                columns.fault("id", problem);
                continue;
            }
            let used = false;
            outputs.of.insert(key, Output { row, text, used });
        }
        findings.finish().map_err(FileError::faults(path))?;
        Ok(outputs)
    }

    /// Sets the outputs of a suite's cases: one of the table replaces one of the suite, a null replaces none.
    /// Returns how many were set.
    pub fn join(&mut self, set: &mut GoldenSet) -> usize {
        let mut joined = 0;
        for case in &mut set.cases {
            let key = (set.name.clone(), case.id.clone());
            let Some(output) = self.of.get_mut(&key) else {
                continue;
            };
            output.used = true;
            if let Some(text) = &output.text {
                case.actual_output = Some(text.clone());
                joined += 1;
            }
        }
        joined
    }

    /// What to say of rows that no join has used; none where each has its case.
    pub fn unused(&self) -> Option<String> {
        let unused = self.of.iter().filter(|(_, output)| !output.used);
        let ((suite, id), _) = unused.clone().min_by_key(|(_, output)| output.row)?;
        let count = unused.count();
        Some(format!(
            "{count} rows of outputs belong to no case of these suites; the first is `{id}` of `{suite}`"
        ))
    }
}
