//! From a case and its transcript to a request, and from the reply to a verdict.

pub(in crate::conversation) mod catalogue;
pub(in crate::conversation) mod draft;
pub(in crate::conversation) mod evidence;
pub(in crate::conversation) mod judge;
pub(in crate::conversation) mod metric;
pub(in crate::conversation) mod reply;
pub(in crate::conversation) mod request;
pub(in crate::conversation) mod schema;
pub(in crate::conversation) mod token_usage;
pub(in crate::conversation) mod transcript;
pub(in crate::conversation) mod verdict;
pub(in crate::conversation) mod weights;
