//! A conversation as a question: one call for its verdict.

use std::ops::ControlFlow;

use super::ConversationRequest;
use crate::conversation::{Case, RequestError, SchemaPlace, Turn, Verdict};
use crate::judge::asker::{Asker, End, Question, Source, Tries};
use crate::judge::{Call, CallLabel, Reply, Unanswered};
use crate::metric::CONVERSATION;
use crate::output::RunError;

/// What came of asking about a conversation.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The judge answered, and what follows from it; the verdict has an error if the reply can't be used.
    Answered(Made, Box<(Reply, Verdict)>),
    /// The call failed for good, and what happened.
    Failed(Made, String),
    /// The request is longer than the configuration allows, and by how much.
    TooLong(String),
    /// The judge was not asked, and why; the call is still to be made.
    Pending(Made, String),
}

/// A call that was made, or is still to be.
#[derive(Debug)]
pub(crate) struct Made {
    pub call: Call,
    /// Tokens of its question, estimated.
    pub prompt_tokens: u64,
}

impl ConversationRequest {
    /// Asks for the verdict on a conversation, wherever answers come from.
    ///
    /// # Errors
    /// [`RunError`] if the ledger can't be used, or a prompt can't be filled in.
    pub(crate) async fn ask(
        &self,
        source: Source<'_>,
        case: &Case,
        turns: &[Turn],
    ) -> Result<Asked, RunError> {
        let asker = Asker {
            source,
            rounds: self.rounds,
            anew: self.anew,
        };
        let request = self;
        asker
            .put(&VerdictQuestion {
                request,
                case,
                turns,
            })
            .await
    }
}

struct VerdictQuestion<'q> {
    request: &'q ConversationRequest,
    case: &'q Case,
    turns: &'q [Turn],
}

impl Question for VerdictQuestion<'_> {
    type Output = Result<Asked, RunError>;

    fn label(&self) -> CallLabel<'_> {
        CallLabel {
            metric: CONVERSATION,
            stage: "score",
        }
    }

    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output> {
        VerdictTries {
            question: self,
            round,
            place: Some(SchemaPlace::ResponseFormat),
            prompt_tokens: 0,
            asked: None,
        }
    }
}

/// The schema goes as the reply's format; where the endpoint does not take that, in the prompt.
struct VerdictTries<'q> {
    question: &'q VerdictQuestion<'q>,
    round: u32,
    /// Where the next call has the schema; none if nothing is left to try.
    place: Option<SchemaPlace>,
    /// Of the call that was made last.
    prompt_tokens: u64,
    asked: Option<Asked>,
}

impl Tries for VerdictTries<'_> {
    type Output = Result<Asked, RunError>;

    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>> {
        let VerdictQuestion {
            request,
            case,
            turns,
        } = self.question;
        let Some(place) = self.place else {
            return ControlFlow::Continue(None);
        };
        ControlFlow::Break(match request.judge.request(case, turns, place) {
            Ok(built) => {
                self.prompt_tokens = built.estimated_tokens;
                let call = request.call(built, place, self.round);
                return ControlFlow::Continue(Some(call));
            }
            Err(e @ RequestError::TooLong { .. }) => Ok(Asked::TooLong(e.to_string())),
            Err(e @ RequestError::Prompt(_)) => Err(RunError::Plan(e.to_string())),
        })
    }

    fn take(&mut self, call: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output> {
        let place = self.place.take();
        let made = Made {
            call,
            prompt_tokens: self.prompt_tokens,
        };
        let unanswered = match answer {
            Ok(reply) => {
                let verdict = self.question.verdict(&reply);
                self.asked = Some(Asked::Answered(made, Box::new((reply, verdict))));
                return ControlFlow::Continue(());
            }
            Err(unanswered) => unanswered,
        };
        let why = unanswered.to_string();
        let may_be_plain = match &unanswered {
            Unanswered::Ledger(problem) => {
                return ControlFlow::Break(Err(RunError::Plan(problem.clone())));
            }
            // Without a judge to ask, nothing says in which form an earlier run was answered.
            Unanswered::NotInLedger => true,
            other => other.is_of_format(),
        };
        if may_be_plain && place == Some(SchemaPlace::ResponseFormat) {
            self.place = Some(SchemaPlace::Prompt);
        }
        self.asked = Some(match unanswered.pending() {
            // A call with the format comes first.
            true => match self.asked.take() {
                Some(first @ Asked::Pending(..)) => first,
                _ => Asked::Pending(made, why),
            },
            false => Asked::Failed(made, why),
        });
        ControlFlow::Continue(())
    }

    fn end(self) -> End<Self::Output> {
        match self.asked {
            Some(Asked::Answered(made, answer)) => {
                let unusable = answer.1.judge_error.is_some();
                let asked = Ok(Asked::Answered(made, answer));
                match unusable {
                    true => End::Unusable(asked),
                    false => End::Final(asked),
                }
            }
            Some(asked) => End::Final(Ok(asked)),
            None => End::Final(Err(RunError::Plan("a conversation was not asked".into()))),
        }
    }
}

impl VerdictQuestion<'_> {
    fn verdict(&self, reply: &Reply) -> Verdict {
        let judge = &self.request.judge;
        judge.verdict(self.case, self.turns, Ok(&reply.text))
    }
}
