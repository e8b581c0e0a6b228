//! How a command ends, and how it says so.

use std::io::Write;
use std::process::ExitCode;

use crate::report::plain;
use crate::run::Summary;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; every gate passed.
    Done,
    /// Done; a gate failed, or a run is worse than the one it was compared with.
    GateFailed,
    /// Done, but something could not be scored.
    Incomplete,
}

impl Outcome {
    pub(super) fn of(summary: &Summary) -> Self {
        if !summary.gates_passed() {
            Self::GateFailed
        } else if !summary.complete() {
            Self::Incomplete
        } else {
            Self::Done
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::GateFailed => 1,
            Outcome::Incomplete => 3,
        })
    }
}

/// Prints an error and its causes.
pub(super) fn print_error(error: &dyn std::error::Error) {
    let mut message = format!("error: {error}");
    let mut cause = error.source();
    while let Some(source) = cause {
        let text = source.to_string();
        if !message.contains(&text) {
            message.push_str(&format!("\n  cause: {text}"));
        }
        cause = source.source();
    }
    // Names and texts of inputs and servers may hold anything.
    let lines: Vec<String> = message.split('\n').map(plain).collect();
    let message = lines.join("\n");
    // Nothing can be done about a closed standard error.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Prints to standard output. A reader that closed its end early (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<(), std::io::Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
