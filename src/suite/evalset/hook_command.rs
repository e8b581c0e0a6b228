//! Hooks that are a program: it gets a line for each point, and answers each with a line.
//!
//! The lines are those of the log of events; where hooks before have left values, they are in `context`. An answer is
//! an object with any of these members, `{}` for nothing:
//!
//! - `context`: values for later hooks, by name; those of other names stay.
//! - `error`: a text. The hook has failed.
//! - `request`, before a set is asked about or scored: `evalCaseIds`, and before scoring `metrics`, lists that take the
//!   place of those in the line. Metrics are named, and only those of the line are known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::criterion::only_value;
use super::hooks::{
    Changes, EvalHooks, HookAnswer, HookContext, HookFault, Line, LineHooks, TakesLines,
};
use super::model::EvalMetric;
use crate::suite::process::{Came, Deadline, Process, ProcessError, cut};

/// Characters of an answer that an error shows.
const SHOWN_ANSWER: usize = 200;

/// What a program of hooks did wrong.
#[derive(Debug, thiserror::Error)]
enum AnswerFault {
    #[error("{0}")]
    Said(String),
    #[error(
        "the hook's command answered with {line:?}, which is no answer: {reason}; correct the command"
    )]
    Bad { line: String, reason: String },
    #[error(
        "the hook's command wrote {line:?} before it was asked; have it write one line for each that it reads"
    )]
    Unasked { line: String },
    #[error("the hook's command had broken down at an earlier point")]
    Over,
}

/// Starts a program, which `sh -c` runs, and returns its hooks. Each answer may take `timeout`. Points of cases that
/// are worked on at the same time wait for each other here. The program ends when its input does.
///
/// # Errors
/// [`ProcessError`] if it can't be started.
pub fn hooks_of_command(
    command: &str,
    timeout: Duration,
) -> Result<Arc<dyn EvalHooks>, ProcessError> {
    let process = Mutex::new(Some(Process::start(command)?));
    Ok(Arc::new(LineHooks(CommandHooks { process, timeout })))
}

struct CommandHooks {
    /// None after it broke down.
    process: Mutex<Option<Process>>,
    timeout: Duration,
}

impl TakesLines for CommandHooks {
    fn take(&self, line: Line<'_>) -> HookAnswer {
        let Line {
            mut members,
            context,
            changes,
        } = line;
        if !context.values().is_empty() {
            members.insert("context".to_owned(), context.values().clone().into());
        }
        let answer = {
            let mut held = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            let mut process = held.take().ok_or(AnswerFault::Over)?;
            let answer = ask(&mut process, &Value::Object(members), self.timeout)?;
            *held = Some(process);
            answer
        };
        let bad = |reason: String| AnswerFault::Bad {
            line: cut(&answer, SHOWN_ANSWER),
            reason,
        };
        let read = only_value(&answer).map_err(|reason| format!("it is no JSON: {reason}"));
        let read = read.and_then(Answer::of).map_err(bad)?;
        if let Some(error) = read.error {
            return Err(AnswerFault::Said(error).into());
        }
        if let Some(request) = read.request {
            change(changes, request).map_err(bad)?;
        }
        Ok(read.context.map(|values| {
            let mut all = context.values().clone();
            all.extend(values);
            HookContext::from(all)
        }))
    }
}

/// The line that answers a line.
fn ask(process: &mut Process, line: &Value, timeout: Duration) -> Result<String, HookFault> {
    let unasked = process.line(&Deadline::after(Duration::ZERO))?;
    if let Came::Line(line) = unasked {
        let line = cut(&line, SHOWN_ANSWER);
        return Err(AnswerFault::Unasked { line }.into());
    }
    process.send(format!("{line}\n").as_bytes());
    let deadline = Deadline::after(timeout);
    match process.line(&deadline)? {
        Came::Line(answer) => Ok(answer),
        Came::Silence => Err(process.timed_out(&deadline).into()),
        Came::End => Err(process.ended().into()),
    }
}

#[derive(Default)]
struct Answer {
    context: Option<Map<String, Value>>,
    error: Option<String>,
    request: Option<Map<String, Value>>,
}

impl Answer {
    fn of(value: Value) -> Result<Self, String> {
        let Value::Object(members) = value else {
            return Err("it is no object".to_owned());
        };
        let mut answer = Self::default();
        for (name, value) in members {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("context", Value::Object(values)) => answer.context = Some(values),
                ("error", Value::String(text)) => answer.error = Some(text),
                ("request", Value::Object(request)) => answer.request = Some(request),
                ("context" | "request", _) => return Err(format!("`{name}` must be an object")),
                ("error", _) => return Err("`error` must be a text".to_owned()),
                // A wrong letter must not make nothing of an error.
                _ => return Err(format!("it has a member `{name}`, which no answer has")),
            }
        }
        Ok(answer)
    }
}

fn change(changes: Changes<'_>, request: Map<String, Value>) -> Result<(), String> {
    match changes {
        Changes::Nothing => Err("nothing can be changed at this point".to_owned()),
        Changes::Inference(asked) => {
            for (name, value) in request {
                match name.as_str() {
                    "evalCaseIds" => asked.case_ids = names(&name, value)?,
                    _ => return Err(format!("`{name}` can't be changed at this point")),
                }
            }
            Ok(())
        }
        Changes::Evaluate(asked) => {
            for (name, value) in request {
                match name.as_str() {
                    "evalCaseIds" => asked.case_ids = names(&name, value)?,
                    "metrics" => asked.metrics = chosen(&asked.metrics, names(&name, value)?)?,
                    _ => return Err(format!("`{name}` can't be changed at this point")),
                }
            }
            Ok(())
        }
    }
}

fn names(name: &str, value: Value) -> Result<Vec<String>, String> {
    let must = || format!("`{name}` must be a list of names");
    let Value::Array(items) = value else {
        return Err(must());
    };
    let items = items.into_iter();
    let items = items.map(|item| item.as_str().map(str::to_owned).ok_or_else(must));
    items.collect()
}

fn chosen(metrics: &[EvalMetric], names: Vec<String>) -> Result<Vec<EvalMetric>, String> {
    let names = names.into_iter();
    let named = names.map(|name| {
        let found = metrics.iter().find(|metric| metric.name == name);
        found
            .cloned()
            .ok_or_else(|| format!("there is no metric `{name}`"))
    });
    named.collect()
}

#[cfg(test)]
mod tests;
