//! Why scores can't be held against labels.

use std::path::PathBuf;

use crate::history::HistoryError;
use crate::trace::TraceError;

/// Why scores can't be held against labels.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// A run that can't be read.
    #[error("{0}")]
    Run(#[from] HistoryError),
    /// A file of labels that can't be read.
    #[error("labels: {0}")]
    Labels(#[from] TraceError),
    /// A file of labels in CSV that can't be read.
    #[error("labels: `{file}`: {problem}")]
    Csv {
        /// The file.
        file: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// Labels of which none says what is bad.
    #[error("{0}")]
    Refused(String),
}
