//! Agents behind a command: JSON lines over its standard input and output.
//!
//! For each turn the command gets one line, `{"type":"invoke", …}`, and answers with any number of events, each a line:
//! `tool_call`, `tool_result`, `message`, `final`, or `error` in their place, and then `end`.
//!
//! `end` may be left out directly after `final`. Whether something follows can't be known then, so the turn is over
//! when the command ends or has been silent for a second. Of a command that was seen to write `end` after `final` it is
//! waited for, for as long as a turn may take. An `end` that comes too late is recognised in the next turn; any other
//! line that comes too late is an error.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::event::{Said, read};
use super::{Runner, RunnerError, RunnerEvent, RunnerProblem, Session, SessionStart, shown};
use crate::suite::evalset::criterion::only_value;
use crate::suite::evalset::model::Message;
use crate::suite::process::{Came, Deadline, Process};

#[cfg(test)]
mod tests;

/// Events of one turn, at most.
const MOST_EVENTS: usize = 100_000;

/// How a command is run.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSettings {
    /// What `sh -c` runs.
    pub command: String,
    /// How long a turn may take.
    pub timeout: Duration,
    /// One process for many cases: as many processes as there are sessions at the same time. Else each case has its
    /// own.
    pub reuse: bool,
    /// After so long a silence a turn whose last line is `final` is over.
    pub silence: Duration,
}

impl Default for CommandSettings {
    /// No command, 300 seconds a turn, a process a case, a second of silence.
    fn default() -> Self {
        Self {
            command: String::new(),
            timeout: Duration::from_secs(300),
            reuse: false,
            silence: Duration::from_secs(1),
        }
    }
}

/// Asks an agent by running a command.
#[derive(Debug)]
pub struct CommandRunner {
    settings: CommandSettings,
    /// Processes that wait for their next case.
    idle: Mutex<Vec<Agent>>,
    /// Whether `end` was seen to come after `final`.
    ends_turns: AtomicBool,
}

impl CommandRunner {
    /// A runner; its command is started with the first session.
    pub fn new(settings: CommandSettings) -> Self {
        Self {
            settings,
            idle: Mutex::default(),
            ends_turns: AtomicBool::new(false),
        }
    }

    /// A process that waits, or a new one.
    fn agent(&self) -> Result<Agent, RunnerProblem> {
        loop {
            let idle = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            match idle {
                Some(mut agent) => {
                    // One that has ended, or has said too much, is of no use to the next case.
                    if !agent.process.has_ended() && agent.is_silent(&self.ends_turns).is_ok() {
                        return Ok(agent);
                    }
                }
                None => {
                    return Ok(Agent {
                        process: Process::start(&self.settings.command)?,
                        owes_end: false,
                    });
                }
            }
        }
    }
}

impl Runner for CommandRunner {
    fn open(&self, session: &SessionStart) -> Result<Box<dyn Session + '_>, RunnerError> {
        let agent = self.agent();
        let agent = agent.map_err(|problem| RunnerError::new(session, None, problem))?;
        Ok(Box::new(CommandSession {
            runner: self,
            agent: Some(agent),
            start: session.clone(),
        }))
    }
}

/// A process that speaks for an agent.
#[derive(Debug)]
struct Agent {
    process: Process,
    /// Its last turn was over without `end`, which may come yet.
    owes_end: bool,
}

impl Agent {
    /// Makes sure that nothing of an earlier turn is left to read, but for the `end` that is owed.
    fn is_silent(&mut self, ends_turns: &AtomicBool) -> Result<(), RunnerProblem> {
        loop {
            match self.process.line(&Deadline::after(Duration::ZERO))? {
                Came::Silence => return Ok(()),
                Came::End => return Err(self.process.ended().into()),
                Came::Line(line) if line.trim().is_empty() => {}
                Came::Line(line) => match (self.owes_end, read_line(&line)) {
                    (true, Ok(Said::End)) => {
                        self.owes_end = false;
                        ends_turns.store(true, Relaxed);
                    }
                    _ => return Err(RunnerProblem::LateLine { line: shown(&line) }),
                },
            }
        }
    }

    /// Sends a turn and takes its events.
    fn turn(
        &mut self,
        request: &Value,
        runner: &CommandRunner,
    ) -> Result<Vec<RunnerEvent>, RunnerProblem> {
        self.is_silent(&runner.ends_turns)?;
        let deadline = Deadline::after(runner.settings.timeout);
        self.process.send(format!("{request}\n").as_bytes());
        let mut events = Vec::new();
        loop {
            let may_be_over = matches!(events.last(), Some(RunnerEvent::Final { .. }));
            let wait = match may_be_over && !runner.ends_turns.load(Relaxed) {
                true => deadline.or_after(runner.settings.silence),
                false => deadline,
            };
            let line = match self.process.line(&wait)? {
                Came::Line(line) => line,
                Came::Silence if may_be_over => {
                    self.owes_end = true;
                    return Ok(events);
                }
                Came::End if may_be_over => return Ok(events),
                Came::Silence => return Err(self.process.timed_out(&deadline).into()),
                Came::End => return Err(self.process.ended().into()),
            };
            if line.trim().is_empty() {
                continue;
            }
            match read_line(&line)? {
                Said::End if self.owes_end && events.is_empty() => self.owes_end = false,
                Said::End => {
                    if may_be_over {
                        runner.ends_turns.store(true, Relaxed);
                    }
                    self.owes_end = false;
                    return Ok(events);
                }
                Said::Error(said) => return Err(RunnerProblem::Said(shown(&said))),
                Said::Event(event) if events.len() < MOST_EVENTS => events.push(event),
                Said::Event(_) => return Err(RunnerProblem::TooManyEvents { most: MOST_EVENTS }),
            }
        }
    }
}

fn read_line(line: &str) -> Result<Said, RunnerProblem> {
    let said = match only_value(line) {
        Ok(value) => read(value),
        Err(reason) => Err(format!("it is no JSON: {reason}")),
    };
    said.map_err(|reason| RunnerProblem::BadLine {
        line: shown(line),
        reason,
    })
}

struct CommandSession<'a> {
    runner: &'a CommandRunner,
    /// None after an error.
    agent: Option<Agent>,
    start: SessionStart,
}

impl Session for CommandSession<'_> {
    fn invoke(&mut self, turn: usize, message: &Message) -> Result<Vec<RunnerEvent>, RunnerError> {
        let failed = |problem| RunnerError::new(&self.start, Some(turn), problem);
        let Some(mut agent) = self.agent.take() else {
            return Err(failed(RunnerProblem::Over));
        };
        let done = agent.turn(&request(&self.start, turn, message), self.runner);
        match done {
            Ok(events) => {
                self.agent = Some(agent);
                Ok(events)
            }
            Err(problem) => {
                // What it would say next belongs to no turn.
                agent.process.kill();
                Err(failed(problem))
            }
        }
    }
}

impl Drop for CommandSession<'_> {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take().filter(|_| self.runner.settings.reuse) {
            let idle = self.runner.idle.lock();
            idle.unwrap_or_else(PoisonError::into_inner).push(agent);
        }
    }
}

fn request(start: &SessionStart, turn: usize, message: &Message) -> Value {
    let context = start.context_messages.iter().map(Message::to_json);
    json!({
        "type": "invoke",
        "appName": start.app_name,
        "evalSetId": start.eval_set_id,
        "evalId": start.eval_id,
        "userId": start.user_id,
        "sessionId": start.session_id,
        "turn": turn,
        "state": start.state,
        "contextMessages": context.collect::<Vec<_>>(),
        "message": message.to_json(),
    })
}
