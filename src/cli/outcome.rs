//! How a command ends, and how it says so.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::job::SettingsError;
use crate::report::plain;
use crate::summary::Summary;
use crate::text::{origin_of, with_origins};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; every gate passed.
    Done,
    /// Done; a gate failed, a run is worse than the one it was compared with, or is not what was written.
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

    /// The exit code.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::GateFailed => 1,
            Self::Incomplete => 3,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// Whether this process was asked for JSON: then its errors are JSON too.
pub(super) fn wants_json() -> bool {
    let mut flags = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    flags.any(|arg| arg == "--json")
}

/// Prints an error as one JSON object in one line.
pub(super) fn print_json_error(message: &str, causes: &[String]) {
    let error = serde_json::json!({ "error": message.trim_end(), "causes": causes });
    let _ = writeln!(std::io::stderr(), "{error}");
}

/// Prints an error and its causes.
pub(super) fn print_error(error: &dyn std::error::Error) {
    let mut causes: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(source) = cause {
        let text = source.to_string();
        let told = error.to_string().contains(&text);
        if !told && !causes.iter().any(|known| known.contains(&text)) {
            causes.push(text);
        }
        cause = source.source();
    }
    if wants_json() {
        let causes: Vec<String> = causes.iter().map(|cause| with_origins(cause)).collect();
        return print_json_error(&with_origins(&error.to_string()), &causes);
    }
    let mut message = format!("error: {error}");
    causes
        .iter()
        .for_each(|cause| message.push_str(&format!("\n  cause: {cause}")));
    let message = with_origins(&message);
    // Names and texts of inputs and servers may hold anything.
    let lines: Vec<String> = message.split('\n').map(plain).collect();
    let message = lines.join("\n");
    // Nothing can be done about a closed standard error.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Prints what came of a result that is there already: where that fails, the error says where it is.
pub(super) fn print_of(result: &Path, text: &str) -> Result<(), SettingsError> {
    print(text).map_err(|e| {
        SettingsError(format!(
            "`{}` is there, whole; only what came of it could not be printed: {e}",
            origin_of(result)
        ))
    })
}

/// Prints to standard output or, where that is taken by something else, to standard error. Nothing can be done about a
/// closed standard error.
pub(super) fn say(text: &str, taken: bool) -> Result<(), std::io::Error> {
    match taken {
        true => {
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
            Ok(())
        }
        false => print(text),
    }
}

/// Prints to standard output. A reader that closed its end early (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<(), std::io::Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
