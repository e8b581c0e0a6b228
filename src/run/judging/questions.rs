//! Single questions to the judge of conversations, outside of a scoring run: through the ledger and inside the caps like
//! all others.

use std::ops::ControlFlow;

use crate::conversation::ConversationRequest;
use crate::judge::asker::{Asker, End, Question, Source, Tries};
use crate::judge::{
    Call, CallCounts, CallLabel, JudgeService, PromptLabel, Reply, Spend, Unanswered,
};
use crate::metric::{CONVERSATION, SYSTEM_MESSAGE};
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

    /// Puts a prompt until `read` makes something of a reply, at most `rounds` times.
    pub fn ask<T>(
        &self,
        (prompt, user): (PromptLabel, String),
        rounds: u32,
        read: impl Fn(&Reply) -> Result<T, String>,
    ) -> Result<Said<T>, RunError> {
        let asker = Asker {
            source: Source::Service(&self.service),
            rounds,
            anew: false,
        };
        let question = PlainQuestion {
            conversation: &self.conversation,
            prompt,
            user,
            read,
        };
        self.runtime.block_on(asker.put(&question))
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

/// What came of a question.
pub(crate) enum Said<T> {
    /// What the reply was read as.
    Read(T),
    /// No reply could be read; why the last one could not.
    Unusable(String),
    Unanswered(Unanswered),
}

/// A prompt in plain words.
struct PlainQuestion<'q, F> {
    conversation: &'q ConversationRequest,
    prompt: PromptLabel,
    user: String,
    read: F,
}

impl<T, F: Fn(&Reply) -> Result<T, String>> Question for PlainQuestion<'_, F> {
    type Output = Result<Said<T>, RunError>;

    fn label(&self) -> CallLabel<'_> {
        CallLabel {
            metric: CONVERSATION,
            stage: self.prompt.name,
        }
    }

    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output> {
        let call = Call {
            model: self.conversation.model.clone(),
            system: SYSTEM_MESSAGE.into(),
            user: self.user.clone(),
            format: None,
            temperature: self.conversation.temperature.of(&self.conversation.model),
            max_output_tokens: self.conversation.max_output_tokens,
            prompt: self.prompt,
            apart: match round {
                0 => String::new(),
                round => format!("attempt {round}"),
            },
            body: None,
        };
        PlainTries {
            read: &self.read,
            call: Some(call),
            said: None,
        }
    }
}

/// The one call of a round.
struct PlainTries<'q, T, F> {
    read: &'q F,
    call: Option<Call>,
    said: Option<Said<T>>,
}

impl<T, F: Fn(&Reply) -> Result<T, String>> Tries for PlainTries<'_, T, F> {
    type Output = Result<Said<T>, RunError>;

    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>> {
        ControlFlow::Continue(self.call.take())
    }

    fn take(&mut self, _: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output> {
        self.said = Some(match answer {
            Ok(reply) => (self.read)(&reply).map_or_else(Said::Unusable, Said::Read),
            Err(Unanswered::Ledger(problem)) => {
                return ControlFlow::Break(Err(RunError::Plan(problem)));
            }
            Err(unanswered) => Said::Unanswered(unanswered),
        });
        ControlFlow::Continue(())
    }

    fn end(self) -> End<Self::Output> {
        match self.said {
            Some(said @ Said::Unusable(_)) => End::Unusable(Ok(said)),
            Some(said) => End::Final(Ok(said)),
            None => End::Final(Err(RunError::Plan("a question was not asked".into()))),
        }
    }
}
