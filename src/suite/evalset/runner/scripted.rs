//! An agent that does what it is told: for tests of agents' evaluations, and of programs that use this library.

use serde_json::Value;

use super::event::{Said, read};
use super::{Runner, RunnerError, RunnerEvent, RunnerProblem, Session, SessionStart, shown};
use crate::suite::evalset::model::Message;

/// What is done after a user's message.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The text of the message.
    pub user: String,
    /// What is done then, or the error that the agent reports.
    pub answer: Result<Vec<RunnerEvent>, String>,
}

/// Answers each user's message by its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptedRunner {
    scripts: Vec<Script>,
}

impl ScriptedRunner {
    /// An agent with these answers; of several to one text the first one is given.
    pub fn new(scripts: Vec<Script>) -> Self {
        Self { scripts }
    }

    /// Reads a list of objects: `user` with `events`, as commands write them, or with `run_error`, a text.
    ///
    /// # Errors
    /// What is wrong with it, for a reader.
    pub fn from_json(scripts: &Value) -> Result<Self, String> {
        let scripts = scripts.as_array().ok_or("a script is a list of objects")?;
        let scripts = scripts.iter().enumerate();
        let scripts = scripts.map(|(at, script)| {
            script_of(script).map_err(|reason| format!("script [{at}]: {reason}"))
        });
        Ok(Self::new(scripts.collect::<Result<_, _>>()?))
    }
}

fn script_of(script: &Value) -> Result<Script, String> {
    let user = script.get("user").and_then(Value::as_str);
    let user = user.ok_or("it has no text `user`")?.to_owned();
    if let Some(error) = script.get("run_error").and_then(Value::as_str) {
        let answer = Err(error.to_owned());
        return Ok(Script { user, answer });
    }
    let events = script.get("events").and_then(Value::as_array);
    let events = events.ok_or("it has neither a list `events` nor a text `run_error`")?;
    let mut done = Vec::with_capacity(events.len());
    for event in events {
        match read(event.clone())? {
            Said::Event(event) => done.push(event),
            Said::End => break,
            Said::Error(error) => {
                let answer = Err(error);
                return Ok(Script { user, answer });
            }
        }
    }
    let answer = Ok(done);
    Ok(Script { user, answer })
}

struct ScriptedSession<'a> {
    scripts: &'a [Script],
    start: SessionStart,
}

impl Runner for ScriptedRunner {
    fn open(&self, session: &SessionStart) -> Result<Box<dyn Session + '_>, RunnerError> {
        Ok(Box::new(ScriptedSession {
            scripts: &self.scripts,
            start: session.clone(),
        }))
    }
}

impl Session for ScriptedSession<'_> {
    fn invoke(&mut self, turn: usize, message: &Message) -> Result<Vec<RunnerEvent>, RunnerError> {
        let found = self
            .scripts
            .iter()
            .find(|script| script.user == message.content);
        let answer = match found.map(|script| &script.answer) {
            Some(Ok(events)) => Ok(events.clone()),
            Some(Err(said)) => Err(RunnerProblem::Said(said.clone())),
            None => Err(RunnerProblem::NotInScript {
                user: shown(&message.content),
            }),
        };
        answer.map_err(|problem| RunnerError::new(&self.start, Some(turn), problem))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_go_by_the_users_text() {
        let runner = ScriptedRunner::from_json(&json!([
            {"user": "a", "events": [{"type": "tool_call", "id": "1", "name": "t"}, {"type": "end"}, {"type": "end"}]},
            {"user": "a", "run_error": "never"},
            {"user": "b", "run_error": "boom"},
            {"user": "c", "events": [{"type": "error", "message": "bang"}]},
        ]))
        .unwrap();
        let start = SessionStart {
            eval_id: "x".into(),
            ..SessionStart::default()
        };
        let mut session = runner.open(&start).unwrap();
        let mut asked = |user: &str| {
            let message = Message {
                content: user.into(),
                ..Message::default()
            };
            session.invoke(0, &message).map_err(|e| e.to_string())
        };
        assert_eq!(asked("a").unwrap().len(), 1);
        assert_eq!(
            asked("b").unwrap_err(),
            "case `x`, turn 1: the agent reports an error: boom"
        );
        assert!(asked("c").unwrap_err().contains("bang"));
        assert!(asked("d").unwrap_err().contains("no answer to \"d\""));
    }

    #[test]
    fn a_script_that_is_none_is_told() {
        for (bad, reason) in [
            (json!({}), "a list"),
            (json!([{"events": []}]), "script [0]: it has no text `user`"),
            (json!([{"user": "a"}]), "neither"),
            (json!([{"user": "a", "events": [{"type": "x"}]}]), "no type"),
        ] {
            let told = ScriptedRunner::from_json(&bad).unwrap_err();
            assert!(told.contains(reason), "{told}");
        }
    }
}
