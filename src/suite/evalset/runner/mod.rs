//! Agents under evaluation: what is asked of them turn by turn, and what they are seen to do.
//!
//! A runner blocks until a turn is over. Sessions of one runner may go on at the same time, each on a thread of its
//! own; the turns of a session come one after another.

mod chat_message;
mod command;
mod event;
mod openai;
mod recording;
mod scripted;

use serde_json::{Map, Value};

use super::model::Message;
use crate::judge::CallError;
use crate::suite::process::{ProcessError, cut};

pub use command::{CommandRunner, CommandSettings};
pub use openai::{OpenAiRunner, OpenAiSettings};
pub use recording::record;
pub use scripted::{Script, ScriptedRunner};

/// Characters of a line that an error shows.
const SHOWN_LINE: usize = 200;

/// What an agent is told when a session begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionStart {
    /// The application.
    pub app_name: String,
    /// The evaluation set.
    pub eval_set_id: String,
    /// The case.
    pub eval_id: String,
    /// The user.
    pub user_id: String,
    /// The session: a new one for each case and run.
    pub session_id: String,
    /// The state that the session begins with.
    pub state: Map<String, Value>,
    /// What the agent is given before every turn.
    pub context_messages: Vec<Message>,
}

/// Something that an agent did in a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerEvent {
    /// It called a tool.
    ToolCall {
        /// What the result names.
        id: String,
        /// The tool.
        name: String,
        /// A string is the text of JSON, or some other text; null is no arguments.
        arguments: Value,
    },
    /// A tool answered.
    ToolResult {
        /// The id of the call.
        id: String,
        /// A string is the text of JSON, or some other text.
        content: Value,
    },
    /// It said something that is not its last word.
    Message(Message),
    /// It gave a final response; of several in a turn the last one counts.
    Final {
        /// The response.
        message: Message,
        /// What the agent calls the turn, if it has a name for it.
        invocation_id: Option<String>,
    },
}

/// Starts sessions with an agent.
pub trait Runner: Send + Sync {
    /// Starts a session.
    ///
    /// # Errors
    /// [`RunnerError`] if the agent can't be reached.
    fn open(&self, session: &SessionStart) -> Result<Box<dyn Session + '_>, RunnerError>;
}

/// A session with an agent.
pub trait Session {
    /// Sends a user's message and waits until the turn, numbered from 0, is over. After an error the session is over
    /// too.
    ///
    /// # Errors
    /// [`RunnerError`], which fails the case.
    fn invoke(&mut self, turn: usize, message: &Message) -> Result<Vec<RunnerEvent>, RunnerError>;
}

/// Why an agent gave no turn: the case fails.
#[derive(Debug, thiserror::Error)]
#[error("case `{case}`{}: {problem}", of_turn(.turn))]
pub struct RunnerError {
    /// The case.
    pub case: String,
    /// The turn, from 0; none before the first one. Messages count from 1.
    pub turn: Option<usize>,
    /// What went wrong.
    pub problem: RunnerProblem,
}

impl RunnerError {
    /// A problem in a turn of a session, or in its beginning.
    pub fn new(session: &SessionStart, turn: Option<usize>, problem: RunnerProblem) -> Self {
        Self {
            case: session.eval_id.clone(),
            turn,
            problem,
        }
    }
}

fn of_turn(turn: &Option<usize>) -> String {
    turn.map_or_else(String::new, |turn| {
        format!(", turn {}", turn.saturating_add(1))
    })
}

/// What can go wrong with an agent.
#[derive(Debug, thiserror::Error)]
pub enum RunnerProblem {
    /// Its command broke down.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its command wrote a line that is no event.
    #[error("the agent's line {line:?} is no event of a runner: {reason}; correct the command")]
    BadLine {
        /// The line, cut.
        line: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Its command wrote a line while no turn was open.
    #[error(
        "the agent's line {line:?} came before it was asked, or after its turn had seemed to be over; have it write \
         lines for a turn alone, and {{\"type\":\"end\"}} when that is over"
    )]
    LateLine {
        /// The line, cut.
        line: String,
    },
    /// More events than a turn can have.
    #[error("the agent wrote more than {most} events in one turn; correct the command")]
    TooManyEvents {
        /// The most.
        most: usize,
    },
    /// It says that it failed.
    #[error("the agent reports an error: {0}")]
    Said(String),
    /// A result of a tool that was not called.
    #[error(
        "the agent reports a result for the tool call `{id}`, which it did not announce; announce each call before its result"
    )]
    NotAnnounced {
        /// The id.
        id: String,
    },
    /// The chat endpoint did not answer.
    #[error("the agent's endpoint did not answer: {0}")]
    Endpoint(#[from] CallError),
    /// The chat endpoint's answers took too long in all.
    #[error("the agent gave no final response within {seconds} s; allow it more time")]
    TimedOut {
        /// The time it had.
        seconds: f64,
    },
    /// The answer of the chat endpoint holds no message.
    #[error(
        "the answer of the agent's endpoint holds no `choices[0].message`; check that it speaks OpenAI's protocol"
    )]
    NoMessage,
    /// The answer of the chat endpoint is not whole.
    #[error(
        "the agent's endpoint ended its answer early (`{why}`); allow it more tokens in --runner-body, or mend the case"
    )]
    CutOff {
        /// `length` or `content_filter`.
        why: String,
    },
    /// The model calls tools without end.
    #[error(
        "the agent still called tools after {rounds} rounds; allow it more rounds, or correct its tools"
    )]
    TooManyRounds {
        /// The rounds it had.
        rounds: u32,
    },
    /// What the command for tools wrote is no JSON.
    #[error(
        "the command for tools answered the call of `{tool}` with {output:?}, which is no JSON: {reason}"
    )]
    ToolOutput {
        /// The tool.
        tool: String,
        /// The answer, cut.
        output: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The session had an error before.
    #[error("the session had broken off in an earlier turn")]
    Over,
    /// A script without an answer.
    #[error("the script has no answer to {user:?}")]
    NotInScript {
        /// The user's text, cut.
        user: String,
    },
}

/// A line as errors show it.
fn shown(line: &str) -> String {
    cut(line, SHOWN_LINE)
}
