//! `tool_calls`, `failed_calls` and `repeated_calls`: what the agent did, how often it failed ("failure"), and how often it
//! did the same again ("loop").
//!
//! All are counts over the tool spans of a session. A call failed if its span has an error or a status that says so. It is
//! repeated if the session made a call of the same name and arguments before; JSON arguments are equal in any order of
//! their members. Null where no trace of the session has spans.
//!
//! It can't see a failure that a tool reports as an ordinary result, nor a call repeated in other words (`stuck` does), and
//! a second look that is right counts as a repetition too.

use super::{SessionSignal, count};

pub(super) const TOOL_CALLS: SessionSignal = count("tool_calls", 1.0, "tool calls");
pub(super) const FAILED_CALLS: SessionSignal = count("failed_calls", 1.0, "failed tool calls");
pub(super) const REPEATED_CALLS: SessionSignal = count(
    "repeated_calls",
    1.0,
    "tool calls made before in the session",
);
