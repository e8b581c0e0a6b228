//! Rows and files that could not be read or scored, each with a reason.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Why rows were set aside; the code is what programs look at, the reason is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// `trace_id` is null or empty.
    MissingTraceId,
    /// `started_at` is null or no time.
    BadStartedAt,
    /// A string cell is not UTF-8.
    InvalidUtf8,
    /// A cell of a JSON column, or a line of a JSON Lines file, is not a JSON document.
    InvalidJson,
    /// A cell has a type or value that its column can't have.
    InvalidValue,
    /// A text or line is longer than any that is read.
    TooLong,
    /// The file, or this part of it, could not be read.
    UnreadableFile,
}

impl Code {
    /// The code as it stands in the quarantine table.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingTraceId => "missing_trace_id",
            Self::BadStartedAt => "bad_started_at",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::InvalidJson => "invalid_json",
            Self::InvalidValue => "invalid_value",
            Self::TooLong => "too_long",
            Self::UnreadableFile => "unreadable_file",
        }
    }
}

/// Consecutive rows of a file with one problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QuarantinedRows {
    /// The file.
    pub file: PathBuf,
    /// The first row, from 0; for JSON Lines the first line.
    pub first_row: u64,
    /// How many rows. 0 if a file is unreadable and does not say how many rows it holds.
    pub rows: u64,
    /// The column at fault, empty if it is the whole row or file.
    pub column: String,
    /// What kind of problem.
    pub code: Code,
    /// The problem in words.
    pub reason: String,
}

/// Collects what was set aside, from many threads.
#[derive(Debug, Default)]
pub struct Quarantine {
    entries: Mutex<Vec<QuarantinedRows>>,
}

impl Quarantine {
    /// Sets rows aside. A row that follows the entry before it with the same problem extends it, so
    /// that a file of a million bad rows is one entry.
    pub fn add(&self, entry: QuarantinedRows) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let next = entries.iter_mut().rev().take(4).find(|last| {
            last.file == entry.file
                && last.first_row + last.rows == entry.first_row
                && last.code == entry.code
                && last.column == entry.column
                && last.reason == entry.reason
        });
        match next {
            Some(last) => last.rows += entry.rows,
            None => entries.push(entry),
        }
    }

    /// Sets one row aside.
    pub fn add_row(
        &self,
        file: &Path,
        row: u64,
        column: &str,
        code: Code,
        reason: impl Into<String>,
    ) {
        self.add(QuarantinedRows {
            file: file.to_owned(),
            first_row: row,
            rows: 1,
            column: column.to_owned(),
            code,
            reason: reason.into(),
        });
    }

    /// Sets a file aside, or what is left of it from a row on.
    pub(super) fn add_unreadable(&self, file: &Path, first_row: u64, rows: u64, reason: String) {
        self.add(QuarantinedRows {
            file: file.to_owned(),
            first_row,
            rows,
            column: String::new(),
            code: Code::UnreadableFile,
            reason,
        });
    }

    /// Names another file where this one is named: what a file was made of tells more than a file that is gone.
    pub fn rename(&self, made: &Path, of: &Path) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.iter_mut().filter(|entry| entry.file == made) {
            entry.file = of.to_owned();
        }
    }

    /// How many rows were set aside.
    pub fn rows(&self) -> u64 {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|e| e.rows)
            .sum()
    }

    /// Everything set aside, by file and row: the same whatever thread read what.
    pub fn sorted(&self) -> Vec<QuarantinedRows> {
        let mut entries = self
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        entries.sort();
        // Threads may have cut a run of equal rows in two.
        entries.dedup_by(|later, earlier| {
            let follows = later.file == earlier.file
                && earlier.first_row + earlier.rows == later.first_row
                && later.code == earlier.code
                && later.column == earlier.column
                && later.reason == earlier.reason;
            if follows {
                earlier.rows += later.rows;
            }
            follows
        });
        entries
    }
}
