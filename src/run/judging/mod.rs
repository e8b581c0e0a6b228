//! The judged part of a run: what a request says of judges, which traces they see, what they said, and what it cost.

pub(crate) mod cap_use;
pub(crate) mod explanation;
pub(crate) mod judgements;
pub(crate) mod metric_draft;
pub(crate) mod prompt_preview;
pub(crate) mod questions;
pub(crate) mod request;
pub(crate) mod summary;
pub(crate) mod trace_evidence;
pub(crate) mod traces;
