//! Who takes part in an evaluation beside its files.

use std::path::PathBuf;

use tokio::runtime::Handle;

use super::evaluator::Registry;
use super::hooks::HookRegistry;
use super::runner::{OpenAiRunner, OpenAiSettings, Runner};
use crate::judge::Chat;

/// Who takes part in an evaluation beside its files.
#[derive(Default)]
pub struct Participants {
    /// What computes metrics.
    pub evaluators: Registry,
    /// Names of evaluators that are the user's own: each must have its metric.
    pub own_evaluators: Vec<String>,
    /// Who looks on, and may steer.
    pub hooks: HookRegistry,
    /// Who is evaluated.
    pub agent: Agent,
}

/// Who is asked in cases of the default mode.
#[derive(Default)]
pub enum Agent {
    /// Nobody: such cases fail.
    #[default]
    None,
    /// A runner.
    Runner(Box<dyn Runner>),
    /// A model behind a chat endpoint.
    Chat(Box<Chat>, OpenAiSettings),
    /// Nobody in any case: a file of inferences says what was done.
    Recorded(PathBuf),
}

impl Agent {
    /// The runner, if somebody is asked. Its sessions must not be used on a thread of the runtime.
    pub(super) fn runner(self, runtime: &Handle) -> Option<Box<dyn Runner>> {
        match self {
            Self::None | Self::Recorded(_) => None,
            Self::Runner(runner) => Some(runner),
            Self::Chat(chat, settings) => Some(Box::new(OpenAiRunner::new(
                *chat,
                settings,
                runtime.clone(),
            ))),
        }
    }
}
