//! The judged part of a run: what a request says of judges, which traces they see, what they said, and what it cost.

pub(in crate::run) mod answers;
pub(in crate::run) mod cap_use;
pub(in crate::run) mod judgements;
pub(in crate::run) mod metric_draft;
pub(in crate::run) mod plan;
pub(in crate::run) mod prompt_preview;
pub(in crate::run) mod questions;
pub(in crate::run) mod request;
pub(in crate::run) mod summary;
pub(in crate::run) mod trace_evidence;
pub(in crate::run) mod traces;
