//! `exhaustion`: the share of traces whose answer was cut off, or which say that a limit was reached.
//!
//! A trace counts if the finish reason of one of its model calls is that of a limit of length, or if its output has one of
//! the phrases below as whole words in any case. Sessions that stop in the middle without a word of it are seen by
//! `unfinished`.
//!
//! Languages: finish reasons any, phrases English. It can't see a limit that the agent talks about and does not reach.

use super::{SessionSignal, share};

pub(super) const SIGNAL: SessionSignal = share(
    "exhaustion",
    1.0,
    "of outputs were cut off or speak of a limit",
);

/// Phrases of an agent that has come to a limit.
pub(super) const PHRASES: [&str; 20] = [
    "maximum number of steps",
    "maximum number of iterations",
    "maximum number of turns",
    "maximum iterations",
    "max iterations",
    "max turns",
    "iteration limit",
    "step limit",
    "recursion limit",
    "out of steps",
    "context length",
    "context window",
    "token limit",
    "maximum tokens",
    "rate limit",
    "quota exceeded",
    "budget exceeded",
    "time limit exceeded",
    "timed out",
    "too many requests",
];
