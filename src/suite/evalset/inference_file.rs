//! Files of inferences, a line of JSON for each case and pass: what was done, kept apart from what it scores.
//!
//! A line is an inference result of trpc-agent-go with the pass it belongs to: `run`, `appName`, `evalSetId`,
//! `evalCaseId`, `evalMode`, `inferences`, `sessionId`, `userId`, `status`, `errorMessage`; and `asked`, a hash of what
//! the case asked then: an answer to something else is no answer.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::hooks::{Ended, EvalHooks, HookAnswer, HookContext, InferenceRequest, InferenceResult};
use super::inference::Inference;
use super::json_file::{FileError, ShapeFault, text_of, value_of};
use super::model::{EvalCase, Invocation, Message};
use super::result::EvalStatus;

/// Inferences of a file, by pass and id of the case.
pub(crate) type Recorded = HashMap<(u32, String), RecordedCase>;

/// What a file says of a case in a pass.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCase {
    pub result: InferenceResult,
    /// The hash of what was asked; empty in files that don't say it.
    pub asked: String,
}

/// Members of a line.
const MEMBERS: [&str; 11] = [
    "run",
    "appName",
    "evalSetId",
    "evalCaseId",
    "evalMode",
    "inferences",
    "sessionId",
    "userId",
    "status",
    "errorMessage",
    "asked",
];
/// Passes are at most so many, as with `--runs`.
const MOST_RUNS: u32 = 1000;

/// A hash of what a case asks, and of whom.
pub(crate) fn asked_of(case: &EvalCase, agent: &str) -> String {
    let said = |turn: &Option<Invocation>| {
        let said = turn.as_ref().and_then(|turn| turn.user_content.as_ref());
        said.map(Message::to_json)
    };
    let context = case.context_messages.iter().flatten().map(Message::to_json);
    let input = case.session_input.as_ref();
    let asked = json!({
        "mode": case.mode,
        "context": context.collect::<Vec<_>>(),
        "says": case.conversation.iter().map(said).collect::<Vec<_>>(),
        "did": case.actual_conversation.iter().map(said).collect::<Vec<_>>(),
        "user": input.map(|input| input.user_id.as_str()),
        "state": input.map(|input| &input.state),
    });
    let whole = format!("{agent}\n{asked}");
    blake3::hash(whole.as_bytes()).to_hex().to_string()
}

/// The line of a case in a pass.
pub(crate) fn line_of(run: u32, of: &InferenceResult, asked: &str) -> String {
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
        "asked": asked,
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

/// `torn`: lines may be half written, by runs that were killed; what can't be read is passed over then, and of a
/// repeated line the last counts.
fn read_lines(text: &str, path: &Path, torn: bool) -> Result<Recorded, FileError> {
    let mut recorded = Recorded::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let file = format!("{}, line {}", path.display(), at + 1);
        let read = value_of(line, &file)
            .and_then(|value| result_of(value).map_err(|fault| FileError::shape(&file, fault)));
        let (run, of) = match read {
            Ok(read) => read,
            Err(_) if torn => continue,
            Err(error) => return Err(error),
        };
        let key = (run, of.result.eval_id.clone());
        if recorded.contains_key(&key) && !torn {
            let found = format!("`{}` of pass {run} is there already", key.1);
            return Err(FileError::shape(
                &file,
                fault("evalCaseId", "one line a case and pass", &found),
            ));
        }
        recorded.insert(key, of);
    }
    Ok(recorded)
}

fn result_of(value: Value) -> Result<(u32, RecordedCase), ShapeFault> {
    let Value::Object(given) = value else {
        return Err(fault("", "an object", "another value"));
    };
    let mut members = Map::new();
    for (name, value) in given {
        // As everywhere in these files, letters may be of another case; a member that is passed over could be an error.
        let known = MEMBERS
            .iter()
            .find(|known| known.eq_ignore_ascii_case(&name));
        match known {
            Some(known) => members.insert((*known).to_owned(), value),
            None => return Err(fault(&name, "no such member", "one")),
        };
    }
    let run = match members.remove("run") {
        None | Some(Value::Null) => Some(1),
        Some(run) => run.as_u64().and_then(|run| u32::try_from(run).ok()),
    };
    let run = run.filter(|run| (1..=MOST_RUNS).contains(run));
    let run = run.ok_or_else(|| fault("run", "a whole number from 1 to 1000", "another value"))?;
    let mut text = |name: &str| take_text(&mut members, name);
    let asked = text("asked")?;
    let error_message = text("errorMessage")?;
    let result = InferenceResult {
        app_name: text("appName")?,
        eval_set_id: text("evalSetId")?,
        eval_id: text("evalCaseId")?,
        mode: text("evalMode")?,
        session_id: text("sessionId")?,
        user_id: text("userId")?,
        status: match text("status")?.as_str() {
            "failed" => EvalStatus::Failed,
            "" | "passed" if error_message.is_empty() => EvalStatus::Passed,
            "" | "passed" => EvalStatus::Failed,
            other => return Err(fault("status", "`passed` or `failed`", other)),
        },
        error_message,
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
    let result = InferenceResult {
        inferences: turns.collect::<Result<_, _>>()?,
        ..result
    };
    Ok((run, RecordedCase { result, asked }))
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
    let is_other = |of: &RecordedCase| match of.asked.split_once(' ') {
        Some((of_case, _)) => of_case != asked_of(case, ""),
        None => !still_asks(case, &of.result),
    };
    let other = || {
        Err("the case asks something else now than when its inferences were made; make them anew with `nightmill \
             suite infer`"
            .to_owned())
    };
    let is_other = found.is_some_and(is_other);
    let found = found.map(|of| &of.result);
    Inference {
        run,
        case: at,
        session_id: found.map(|of| of.session_id.clone()).unwrap_or_default(),
        user_id: found.map(|of| of.user_id.clone()).unwrap_or_default(),
        turns: match found {
            None => missing(),
            Some(_) if is_other => other(),
            Some(of) if of.status == EvalStatus::Failed => Err(match of.error_message.as_str() {
                "" => "the file of inferences says that it failed, and not why".to_owned(),
                why => why.to_owned(),
            }),
            Some(of) => Ok(of.inferences.clone()),
        },
        context: HookContext::default(),
    }
}

/// Whether what was done answers what the user says today.
fn still_asks(case: &EvalCase, of: &InferenceResult) -> bool {
    if of.status == EvalStatus::Failed {
        return true;
    }
    let turns = match case.actual_conversation.is_empty() {
        true => &case.conversation,
        false => &case.actual_conversation,
    };
    let asked = turns
        .iter()
        .map(|turn| turn.as_ref()?.user_content.as_ref());
    let done = of.inferences.iter().map(|turn| turn.user_content.as_ref());
    case.mode == of.mode && asked.eq(done)
}

/// What a line says of what was asked: of the case alone, and of the case and the agent.
pub(crate) fn asked_text(case: &EvalCase, agent: &str) -> String {
    format!("{} {}", asked_of(case, ""), asked_of(case, agent))
}

/// Cases as they end, line by line, so that a run that is broken off has lost none of them.
pub(crate) struct InferenceLog {
    path: PathBuf,
    out: Mutex<File>,
    /// What each case asks, by its id.
    asked: HashMap<String, String>,
}

impl InferenceLog {
    /// The log beside the file that will hold all cases in the end: `FILE.partial`.
    pub fn beside(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        name.into()
    }

    /// Opens the log, and returns what a run that was broken off has left in it of what is asked now, of the same agent.
    /// Cases that failed are not returned: they are asked anew.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn open(
        path: &Path,
        asked: HashMap<String, String>,
    ) -> Result<(Arc<Self>, Recorded), FileError> {
        let log = Self::beside(path);
        let access = |e: io::Error| FileError::access(&log, e);
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let mut file = file.map_err(access)?;
        // Two that write to one file would mix their agents.
        if file.try_lock().is_err() {
            let busy = io::Error::new(
                io::ErrorKind::WouldBlock,
                "another run writes to it; wait for its end, or name another --out",
            );
            return Err(access(busy));
        }
        let text = text_of(&log)?;
        let mut earlier = read_lines(&text, &log, true)?;
        earlier.retain(|(_, id), of| {
            of.result.status == EvalStatus::Passed && asked.get(id) == Some(&of.asked)
        });
        // A torn last line ends here.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(access)?;
        }
        let log = Arc::new(Self {
            path: log.clone(),
            out: Mutex::new(file),
            asked,
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
            let asked = self.asked.get(&result.eval_id).map_or("", String::as_str);
            let line = line_of(request.run, result, asked);
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            let written = out
                .write_all(line.as_bytes())
                .and_then(|()| out.sync_data());
            written.map_err(|e| FileError::access(&self.path, e))?;
        }
        Ok(None)
    }
}
