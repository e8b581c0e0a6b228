//! What commands of the user do wrong, in words that name the command.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use super::streams::LONGEST_ANSWER;

/// What a command of the user did wrong.
#[derive(Debug, thiserror::Error)]
#[error("the command `{command}` {fault}")]
pub struct ProcessError {
    /// The command, cut.
    pub command: String,
    /// What it did.
    pub fault: ProcessFault,
}

/// Kinds of faults of a command. After any of them its process is killed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessFault {
    /// The shell could not be started.
    #[error("can't be started: {0}")]
    Start(io::Error),
    /// The system refused to move its streams.
    #[error("can't be spoken to: {0}")]
    Streams(io::Error),
    /// There was no answer, or no end of it, in time.
    #[error(
        "gave no whole answer within {} s{}; allow it more time, or correct it",
        .limit.as_secs_f64(),
        last_words(.errors)
    )]
    TimedOut {
        /// The time it had.
        limit: Duration,
        /// What it last said on its error stream; may be empty.
        errors: String,
    },
    /// The answer is too long.
    #[error("wrote more than {} MiB in one answer; correct it", LONGEST_ANSWER >> 20)]
    TooMuch,
    /// It ended, or closed its output, before the answer was whole.
    #[error("{how} before its answer was whole{}; correct it", last_words(.errors))]
    Ended {
        /// `ended (exit status: 3)` or the like.
        how: String,
        /// What it last said on its error stream; may be empty.
        errors: String,
    },
    /// It answered and ended with a status that is no success.
    #[error("failed ({status}){}; correct it", last_words(.errors))]
    Failed {
        /// The status.
        status: ExitStatus,
        /// What it last said on its error stream; may be empty.
        errors: String,
    },
}

fn last_words(errors: &str) -> String {
    match errors {
        "" => String::new(),
        errors => format!(", its last words on stderr: {errors:?}"),
    }
}
