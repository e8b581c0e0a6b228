//! Why a run failed. A failed run leaves no directory that looks finished.

use std::path::{Path, PathBuf};

use datafusion::error::DataFusionError;

use crate::embed::EmbedError;
use crate::model::ModelError;
use crate::trace::TraceError;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The request can't be carried out as it stands.
    #[error("{0}")]
    Request(String),
    /// Reading traces failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Loading the model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Embedding failed.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// Writing failed: a full disk, a missing permission.
    #[error("can't write `{path}`: {problem}; no result was left behind")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// Rows or vectors that are set aside for a while could not be kept, or read again.
    #[error("{0}")]
    Scratch(String),
    /// Everything that goes wrong inside the plan and is none of the above.
    #[error("{0}")]
    Plan(String),
}

impl RunError {
    pub(crate) fn write(path: &Path, problem: impl ToString) -> Self {
        Self::Write {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// Finds our own error again after its way through DataFusion, so that users read what happened and
/// not where.
impl From<crate::judge::LedgerError> for RunError {
    fn from(error: crate::judge::LedgerError) -> Self {
        Self::Plan(error.to_string())
    }
}

impl From<crate::question::PromptError> for RunError {
    fn from(error: crate::question::PromptError) -> Self {
        Self::Plan(error.to_string())
    }
}

impl From<DataFusionError> for RunError {
    fn from(error: DataFusionError) -> Self {
        let root = error.find_root();
        if let DataFusionError::External(inner) = root {
            if let Some(RunError::Write { path, problem }) = inner.downcast_ref() {
                return Self::Write {
                    path: path.clone(),
                    problem: problem.clone(),
                };
            }
            if let Some(embed) = inner.downcast_ref::<EmbedError>() {
                return Self::Embed(embed.clone());
            }
            return Self::Plan(inner.to_string());
        }
        if let DataFusionError::ResourcesExhausted(what) = root {
            return Self::Plan(format!(
                "the memory limit is too small for this step ({what}); raise --memory-limit"
            ));
        }
        if let DataFusionError::IoError(io) = root {
            return Self::Scratch(format!(
                "writing temporary data failed: {io}; free some disk space"
            ));
        }
        Self::Plan(error.strip_backtrace())
    }
}
