//! The embedding service: every distinct text of a run becomes one vector, once.

mod cache;
mod pack;
mod queue;
mod recent;
mod service;
mod store;
mod triage;

pub use cache::{
    CacheCounts, CacheError, CacheKey, EmbeddingCache, ForgottenVectors, forget_vectors,
};
pub use recent::RecentRecords;
pub use service::{EmbeddingCounts, EmbeddingMemory, EmbeddingService};
pub use store::{TextRecord, TextRef};
pub use triage::{LEAST_SAMPLE, QuickLook, SeenPair, Triage, TriageBars, TriageFit};

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
    /// A thread that embeds texts died.
    #[error("a thread that embeds texts died; this is a defect, its message is above")]
    Worker,
    /// The encoder threads could not be started.
    #[error("encoder threads could not be started: {0}")]
    Threads(String),
}
