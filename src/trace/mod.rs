//! Traces: from files of any layout to canonical record batches. Beside them, tables of named columns (`table.rs`).
//!
//! A reader knows no model and no metric. Bad rows go to the [`Quarantine`]; nothing is dropped
//! without being counted.

mod bucket;
mod calls;
mod cells;
mod digest;
mod discover;
mod document;
mod duplicates;
mod epoch;
pub mod format;
mod kept_documents;
mod lowest;
mod members;
mod merge;
mod native;
mod quarantine;
mod rows;
mod schema;
mod session_key;
mod source;
mod span;
mod table;
mod texts;
mod trace_id;
mod undeclared_json;

use std::path::PathBuf;

pub use bucket::Buckets;
pub use calls::CalledTool;
pub use digest::{CALLS_KEPT, CallDigest, OutputDigest, SpanDigest};
pub use discover::{SourceFile, SourceFormat, discover};
pub use document::{DocumentSource, FactRoom, any_id_repeats, read_documents};
pub use epoch::EpochUnit;
pub(crate) use kept_documents::KeptDocuments;
pub use members::{TraceDocument, label};
pub use merge::merge_documents;
pub use quarantine::{Code, Quarantine, QuarantinedRows};
pub use rows::{BatchLimits, OnBadFile, RowAt, RowRun, push_row};
pub use schema::{ColumnMap, TextEncoding, TraceColumns, canonical_schema};
pub(crate) use session_key::SessionKey;
pub use source::{ReadCounts, ReadOptions, TraceSource};
pub(crate) use span::json_text;
pub use span::{Span, ToolCall};
pub use table::{BadRow, TableColumns, TableRow, TableSource};
pub use texts::RowToShow;
pub use trace_id::canonical_trace_id;

/// Why traces could not be read at all. Problems of single rows are quarantined instead.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A path on the command line leads nowhere.
    #[error("`{path}`: {problem}")]
    Path {
        /// The path as given.
        path: String,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// A file can't be read.
    #[error("file `{file}`: {problem}")]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it, with row group and column where known.
        problem: String,
    },
    /// Texts that look like JSON, and nobody said whether they are.
    #[error(
        "file `{file}`, column of `{column}`, row {row}: the cell is a JSON document, as are {documents} of the first {cells}; scores differ \
         much by how it is read: give --json-columns {column} to embed what the documents say, or --text-columns {column} to \
         embed them as plain text"
    )]
    UndeclaredJson {
        /// The file.
        file: PathBuf,
        /// `input` or `output`.
        column: &'static str,
        /// The row of the first such cell, from 0.
        row: u64,
        /// Cells that are documents.
        documents: u32,
        /// Cells looked at.
        cells: u32,
    },
    /// What is known of traces can't be set aside on disk, or is not there any more.
    #[error("`{folder}`: {problem}")]
    Kept {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A column that is needed is not there.
    #[error("file `{file}` has no column `{column}`; {hint}")]
    MissingColumn {
        /// The file.
        file: PathBuf,
        /// The column looked for.
        column: String,
        /// The nearest names and what to do.
        hint: String,
    },
    /// A column has a type that can't be read as what it should be.
    #[error("file `{file}`, column `{column}`: {problem}")]
    ColumnType {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
        /// The type found and the types that can be read.
        problem: String,
    },
}

impl TraceError {
    /// What is wrong with a file, where it is the fault of one file alone, which can be left out.
    ///
    /// # Errors
    /// This error, if it is another one.
    fn of_file(self) -> Result<String, Self> {
        match self {
            Self::File { problem, .. } => Ok(problem),
            Self::MissingColumn { column, hint, .. } => Ok(format!("no column `{column}`; {hint}")),
            Self::ColumnType {
                column, problem, ..
            } => Ok(format!("column `{column}`: {problem}")),
            other => Err(other),
        }
    }
}
