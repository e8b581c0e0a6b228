//! Batch files of judge calls, OpenAI's form: requests out, results in. Nothing in here sends or fetches them, and no
//! command does either: a library's part.
//!
//! A request's hash is its `custom_id`: results come in any order and over several nights, and find their request by it.

mod object;
mod request_file;
mod result_file;
mod result_join;

pub use object::{BatchError, BatchObject, BatchObjectError, BatchStatus, RequestCounts};
pub use request_file::{BatchLimits, MAX_CUSTOM_ID, RequestFileError, RequestFiles, WrittenFile};
pub use result_file::{
    BadLine, BatchOutcome, BatchReply, BatchResult, BatchUsage, ReadSummary, read_results,
};
pub use result_join::{JoinSummary, ResultJoin};

/// The endpoint that lines of a batch are for, unless another is given.
pub const CHAT_COMPLETIONS: &str = "/v1/chat/completions";
