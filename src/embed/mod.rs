//! The embedding service: every distinct text of a run becomes one vector, once.

mod pack;
mod service;
mod store;

pub use service::{EmbeddingCounts, EmbeddingService};
pub use store::{TextRecord, TextRef};

/// Why texts could not be embedded. None of these is the fault of a single row.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// The tokenizer failed on a text.
    #[error("a text could not be tokenised: {0}")]
    Tokenise(String),
    /// The encoder refused a batch.
    #[error("a batch could not be encoded: {0}")]
    Encode(String),
    /// Vectors could not be kept on disk.
    #[error(
        "vectors could not be kept in `{folder}`: {problem}; free some disk space or name another folder with --out or TMPDIR"
    )]
    Store {
        /// The folder of the vector file.
        folder: String,
        /// What the system says.
        problem: String,
    },
    /// Another thread failed while embedding a text that this one waits for.
    #[error("a text could not be embedded because another batch failed")]
    OtherBatch,
    /// The pool of encoder threads could not be started.
    #[error("encoder threads could not be started: {0}")]
    Threads(String),
}
