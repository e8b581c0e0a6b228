//! Single questions to the judge of conversations, outside of a scoring run: through the ledger and inside the caps like
//! all others.

use crate::conversation::ConversationRequest;
use crate::judge::{
    Call, CallCounts, CallLabel, JudgeService, PromptLabel, Reply, SYSTEM_MESSAGE, Spend,
    Unanswered,
};
use crate::metric::CONVERSATION;
use crate::output::RunError;
use crate::run::engine::runtime;
use crate::run::judging::request::JudgeRequest;

/// Asks one question after the other.
pub(crate) struct Questions {
    conversation: ConversationRequest,
    service: JudgeService,
    runtime: tokio::runtime::Runtime,
}

impl Questions {
    /// Checks provider, key and prices; sends nothing.
    pub fn new(request: &JudgeRequest) -> Result<Self, RunError> {
        let Some(conversation) = request.conversation.clone() else {
            let problem = "there is no judge of conversations; name a model with --judge";
            return Err(RunError::Request(problem.into()));
        };
        Ok(Self {
            conversation,
            service: request.service(&[])?,
            runtime: runtime(1)?,
        })
    }

    /// The answer to a prompt. `attempt` counts from 0; each attempt has an answer of its own in the ledger.
    pub fn ask(
        &self,
        prompt: PromptLabel,
        attempt: usize,
        user: String,
    ) -> Result<Result<Reply, Unanswered>, RunError> {
        let call = Call {
            model: self.conversation.model.clone(),
            system: SYSTEM_MESSAGE.into(),
            user,
            format: None,
            temperature: self.conversation.temperature.of(&self.conversation.model),
            max_output_tokens: self.conversation.max_output_tokens,
            prompt,
            apart: match attempt {
                0 => String::new(),
                attempt => format!("attempt {attempt}"),
            },
        };
        let label = CallLabel {
            metric: CONVERSATION,
            stage: prompt.name,
        };
        match self.runtime.block_on(self.service.answer(&call, label)) {
            Err(Unanswered::Ledger(problem)) => Err(RunError::Plan(problem)),
            answer => Ok(answer),
        }
    }

    /// Where answers came from so far.
    pub fn counts(&self) -> CallCounts {
        self.service.counts()
    }

    /// What was sent so far.
    pub fn spend(&self) -> Result<Vec<Spend>, RunError> {
        let spend = self.service.ledger().spend();
        spend.map_err(|e| RunError::Plan(e.to_string()))
    }
}
