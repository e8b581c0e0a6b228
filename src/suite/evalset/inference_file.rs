//! Files of inferences, a line of JSON for each case and pass: what was done, kept apart from what it scores.
//!
//! A line is an inference result of trpc-agent-go with the pass it belongs to: `run`, `appName`, `evalSetId`,
//! `evalCaseId`, `evalMode`, `inferences`, `sessionId`, `userId`, `status`, `errorMessage`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::hooks::{Ended, EvalHooks, HookAnswer, HookContext, InferenceRequest, InferenceResult};
use super::inference::Inference;
use super::json_file::{FileError, ShapeFault, text_of, value_of};
use super::model::{EvalCase, Invocation};
use super::result::EvalStatus;

/// Inferences of a file, by pass and id of the case; of a repeated one the last counts.
pub(crate) type Recorded = HashMap<(u32, String), InferenceResult>;

/// The line of a case in a pass.
pub(crate) fn line_of(run: u32, of: &InferenceResult) -> String {
    let turns: Vec<Value> = of.inferences.iter().map(Invocation::to_json).collect();
    let line = json!({
        "run": run,
        "appName": of.app_name,
        "evalSetId": of.eval_set_id,
        "evalCaseId": of.eval_id,
        "evalMode": of.mode,
        "inferences": turns,
        "sessionId": of.session_id,
        "userId": of.user_id,
        "status": of.status.name(),
        "errorMessage": of.error_message,
    });
    format!("{line}\n")
}

/// Reads a file of inferences.
///
/// # Errors
/// [`FileError`], which names the line.
pub(crate) fn read(path: &Path) -> Result<Recorded, FileError> {
    read_lines(&text_of(path)?, path, false)
}

/// `torn`: the last line may be half written; it is passed over then.
fn read_lines(text: &str, path: &Path, torn: bool) -> Result<Recorded, FileError> {
    let mut recorded = Recorded::new();
    let whole = text.ends_with('\n');
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() || (torn && !whole && at + 1 == lines.len()) {
            continue;
        }
        let file = format!("{}, line {}", path.display(), at + 1);
        let value = value_of(line, &file)?;
        let (run, result) = result_of(value).map_err(|fault| FileError::shape(&file, fault))?;
        recorded.insert((run, result.eval_id.clone()), result);
    }
    Ok(recorded)
}

fn result_of(value: Value) -> Result<(u32, InferenceResult), ShapeFault> {
    let Value::Object(mut members) = value else {
        return Err(fault("", "an object", "another value"));
    };
    let run = match members.remove("run") {
        None | Some(Value::Null) => Some(1),
        Some(run) => run.as_u64().and_then(|run| u32::try_from(run).ok()),
    };
    let run = run.filter(|run| *run > 0);
    let run = run.ok_or_else(|| fault("run", "a whole number from 1", "another value"))?;
    let mut text = |name: &str| take_text(&mut members, name);
    let result = InferenceResult {
        app_name: text("appName")?,
        eval_set_id: text("evalSetId")?,
        eval_id: text("evalCaseId")?,
        mode: text("evalMode")?,
        session_id: text("sessionId")?,
        user_id: text("userId")?,
        status: match text("status")?.as_str() {
            "" | "passed" => EvalStatus::Passed,
            "failed" => EvalStatus::Failed,
            other => return Err(fault("status", "`passed` or `failed`", other)),
        },
        error_message: text("errorMessage")?,
        inferences: Vec::new(),
    };
    if result.eval_id.is_empty() {
        return Err(fault("evalCaseId", "the id of a case", "none"));
    }
    let turns = match members.remove("inferences") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(turns)) => turns,
        Some(_) => return Err(fault("inferences", "a list of turns", "another value")),
    };
    let turns = turns.into_iter().map(Invocation::from_json);
    Ok((
        run,
        InferenceResult {
            inferences: turns.collect::<Result<_, _>>()?,
            ..result
        },
    ))
}

fn take_text(members: &mut Map<String, Value>, name: &str) -> Result<String, ShapeFault> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(fault(name, "a string", "another value")),
    }
}

fn fault(path: &str, expected: &'static str, found: &str) -> ShapeFault {
    ShapeFault {
        path: path.to_owned(),
        expected,
        found: found.to_owned(),
    }
}

/// What a file says of a case in a pass. A case that it does not hold has failed.
pub(crate) fn recorded_inference(
    recorded: &Recorded,
    run: u32,
    (at, case): (usize, &EvalCase),
) -> Inference {
    let missing = || {
        Err(format!(
            "the file of inferences holds nothing of this case in pass {run}; make it anew with `nightmill suite infer`"
        ))
    };
    let found = recorded.get(&(run, case.id.clone()));
    Inference {
        run,
        case: at,
        session_id: found.map(|of| of.session_id.clone()).unwrap_or_default(),
        user_id: found.map(|of| of.user_id.clone()).unwrap_or_default(),
        turns: match found {
            None => missing(),
            Some(of) if of.status == EvalStatus::Failed => Err(of.error_message.clone()),
            Some(of) => Ok(of.inferences.clone()),
        },
        context: HookContext::default(),
    }
}

/// Cases as they end, line by line, so that a run that is broken off has lost none of them.
pub(crate) struct InferenceLog {
    path: PathBuf,
    out: Mutex<File>,
}

impl InferenceLog {
    /// The log beside the file that will hold all cases in the end: `FILE.partial`.
    pub fn beside(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        name.into()
    }

    /// Opens the log, and returns what a run that was broken off has left in it. Cases that failed are not returned:
    /// they are asked anew.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn open(path: &Path) -> Result<(Arc<Self>, Recorded), FileError> {
        let log = Self::beside(path);
        let access = |e: io::Error| FileError::access(&log, e);
        let mut earlier = match log.exists() {
            true => read_lines(&text_of(&log)?, &log, true)?,
            false => Recorded::new(),
        };
        earlier.retain(|_, of| of.status == EvalStatus::Passed);
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let mut file = file.map_err(access)?;
        // A torn last line ends here.
        let torn = std::fs::read(&log)
            .map_err(access)?
            .last()
            .is_some_and(|b| *b != b'\n');
        if torn {
            file.write_all(b"\n").map_err(access)?;
        }
        let log = Arc::new(Self {
            path: log.clone(),
            out: Mutex::new(file),
        });
        Ok((log, earlier))
    }

    /// Removes the log: all that it held stands elsewhere.
    pub fn remove(&self) {
        // If it can't be removed, the next run reads it and finds nothing new.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl EvalHooks for InferenceLog {
    fn after_inference_case(
        &self,
        _: &HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, InferenceResult>,
    ) -> HookAnswer {
        if let Some(result) = ended.result {
            let line = line_of(request.run, result);
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            let written = out
                .write_all(line.as_bytes())
                .and_then(|()| out.sync_data());
            written.map_err(|e| FileError::access(&self.path, e))?;
        }
        Ok(None)
    }
}
