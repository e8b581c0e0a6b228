//! Batches of judge calls, OpenAI's form: cheaper, and answered within a day.
//!
//! ```text
//! calls ─ submitter ─ request files ─ client ─ endpoint
//! ledger ─ collection ─ result files ─ client ─ endpoint
//! ```
//!
//! A request's hash is its `custom_id`: results come in any order and over several nights, and find their request by it.

mod client;
mod collection;
mod object;
mod request_file;
mod result_file;
mod result_join;
mod submitter;

pub use client::{BatchClient, BatchClientError};
pub use collection::Collected;
pub use object::{BatchError, BatchObject, BatchObjectError, BatchStatus, RequestCounts};
pub use request_file::{BatchLimits, MAX_CUSTOM_ID, RequestFileError, RequestFiles, WrittenFile};
pub use result_file::{
    BadLine, BatchOutcome, BatchReply, BatchResult, BatchUsage, ReadSummary, read_results,
};
pub use result_join::{JoinSummary, ResultJoin};
pub(super) use submitter::PutError;
pub use submitter::{BatchCounts, BatchSubmitter, BatchSubmitterError};

/// The endpoint that lines of a batch are for.
pub const CHAT_COMPLETIONS: &str = "/v1/chat/completions";
