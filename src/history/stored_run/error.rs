//! Why finished runs can't be read.

use std::path::{Path, PathBuf};

use crate::output::RunError;

/// Why a run, or its scores, can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A path with no run in it.
    #[error("`{0}` is no run directory and holds none; name run directories, or a folder of them")]
    Nothing(PathBuf),
    /// A run on another machine, where only local ones are read.
    #[error(
        "`{0}`: only `runs show` and `runs verify` read runs in buckets; copy the run here first, with any tool: it stays a run"
    )]
    Remote(PathBuf),
    /// A run directory without manifest.
    #[error(
        "`{0}` is not a finished run (it has no manifest.json); run it again, or move it away to go on without it; of a folder of runs, \
         `nightmill runs list` names them"
    )]
    Unfinished(PathBuf),
    /// A run directory with a file that can't be read.
    #[error(
        "the run `{run}` is damaged: `{file}`: {problem}; run it again, or move it away to go on without it"
    )]
    Damaged {
        /// The run directory.
        run: PathBuf,
        /// The file, seen from the run directory.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A query over the tables of runs that failed.
    #[error("the tables of these runs can't be read: {0}")]
    Query(String),
    /// Runs that can't be looked at as was asked.
    #[error("{0}")]
    Refused(String),
}

impl HistoryError {
    pub(crate) fn damaged(run: &Path, file: &str, problem: impl ToString) -> Self {
        Self::Damaged {
            run: run.to_owned(),
            file: file.to_owned(),
            problem: problem.to_string(),
        }
    }
}

impl From<HistoryError> for RunError {
    fn from(error: HistoryError) -> Self {
        Self::Request(error.to_string())
    }
}
