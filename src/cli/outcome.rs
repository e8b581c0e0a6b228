//! How a command ends, and how it says so.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::job::SettingsError;
use crate::report::{Paint, answer, plain};
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

/// What a run came to, as text: the short answer, or with -v the whole summary.
pub(super) fn told(summary: &Summary, folder: &Path, report: bool) -> String {
    let (results, paint) = (origin_of(folder), Paint::of_stdout());
    let report = report.then(|| origin_of(&folder.join("report.html")));
    if !tracing::enabled!(tracing::Level::INFO) {
        return answer(summary, paint, &results, report.as_deref());
    }
    let mut text = crate::report::text(summary, paint);
    text.push_str(&format!("results: {results}\n"));
    if let Some(report) = report {
        text.push_str(&format!("report:  {report}\n"));
    }
    text
}

/// Whether the command line of this process asks for JSON: then what ends it is told as JSON too.
pub(super) fn wants_json() -> bool {
    let mut flags = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    flags.any(|arg| arg == "--json")
}

/// An error that ends the command, as one JSON object in one line on standard output. `hint` is what to do next, where that
/// is known apart from the message.
pub(super) fn print_json_error(
    message: &str,
    causes: &[String],
    exit_code: u8,
    hint: Option<&str>,
) {
    let mut told = serde_json::json!({ "message": message.trim_end(), "exit_code": exit_code });
    if let Some(hint) = hint {
        told["hint"] = hint.into();
    }
    if !causes.is_empty() {
        told["causes"] = causes.into();
    }
    let error = serde_json::json!({ "error": told });
    // Nothing can be done about a closed standard output.
    let _ = print(&format!("{error}\n"));
}

/// Says that a command line can't be understood: to people, and where JSON was asked for to programs too.
pub(super) fn print_usage_error(error: &clap::Error) {
    if wants_json() {
        let text = error.render().to_string();
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.trim_start_matches("error: ");
        // A tip where there is one, else where help is.
        let parts = || {
            rest.split("\n\n")
                .map(str::trim)
                .filter(|part| !part.is_empty())
        };
        let tip = parts().find(|part| part.starts_with("tip:"));
        let hint = tip.or_else(|| parts().last());
        let exit_code = u8::try_from(error.exit_code()).unwrap_or(2);
        print_json_error(message, &[], exit_code, hint);
    }
    // Nothing can be done about a closed standard error.
    let _ = error.print();
}

/// The causes of an error that it does not tell itself.
fn causes_of(error: &dyn std::error::Error) -> Vec<String> {
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
    causes
}

/// Prints an error that ends the command with this exit code: to people, and with `json` to programs too.
pub(super) fn print_failure(error: &dyn std::error::Error, exit_code: u8, json: bool) {
    if json {
        let causes: Vec<String> = causes_of(error)
            .iter()
            .map(|cause| with_origins(cause))
            .collect();
        print_json_error(&with_origins(&error.to_string()), &causes, exit_code, None);
    }
    print_error(error);
}

/// Prints an error and its causes to standard error.
pub(super) fn print_error(error: &dyn std::error::Error) {
    let mut message = format!("error: {error}");
    causes_of(error)
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
