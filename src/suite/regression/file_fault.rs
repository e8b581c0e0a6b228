//! What is wrong in a file, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// Faults that a message lists one by one.
const MOST_LISTED: usize = 30;

/// What is wrong, or remarkable, at one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place, as in `metrics.regression.tolerance` or `test_cases[3].context`; empty for the whole file.
    pub path: String,
    /// What is wrong there and what to do about it.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => f.write_str(&self.problem),
            false => write!(f, "{}: {}", self.path, self.problem),
        }
    }
}

/// All faults of a file, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.0.iter().take(MOST_LISTED) {
            write!(f, "\n  {fault}")?;
        }
        match self.0.len().checked_sub(MOST_LISTED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n  and {more} more"),
        }
    }
}

/// Why a file of a regression suite can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("can't read `{}`: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// It is larger than what is read.
    #[error(
        "`{}` has {bytes} bytes and at most {limit} are read; split it, or keep the rows in a Parquet file",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The most that is read.
        limit: u64,
    },
    /// It is no YAML, JSON or Parquet.
    #[error("`{}` can't be read as {format}: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What it ought to be.
        format: &'static str,
        /// What the reader says, with line and column where it knows them.
        problem: String,
    },
    /// It is well-formed and says what can't be done.
    #[error("`{}` can't be used:{faults}", path.display())]
    Faults {
        /// The file.
        path: PathBuf,
        /// All of them.
        faults: Faults,
    },
    /// It can't be written.
    #[error("can't write `{}`: {problem}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
}

impl FileError {
    pub(super) fn read(path: &Path, problem: impl ToString) -> Self {
        Self::Read {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// What makes an error of all faults of `path`.
    pub(super) fn faults(path: &Path) -> impl FnOnce(Faults) -> Self {
        let path = path.to_owned();
        |faults| Self::Faults { path, faults }
    }

    pub(super) fn write(path: &Path, problem: impl ToString) -> Self {
        Self::Write {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn syntax(path: &Path, format: &'static str, problem: impl ToString) -> Self {
        Self::Syntax {
            path: path.to_owned(),
            format,
            problem: problem.to_string(),
        }
    }
}
