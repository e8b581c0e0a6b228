//! Before conversations are asked again: those that have a score must be in the ledger.
//!
//! A new run writes all conversations of the old one. The ledger gives what is known of them, so that only those that
//! failed, or were never asked, are sent.

use std::ops::ControlFlow;

use crate::conversation::from_traces::Conversation;
use crate::conversation::verdict_question::Asked;
use crate::conversation::{ConversationRequest, Listener, from_traces};
use crate::judge::answers::Answers;
use crate::judge::asker::{LookUp, Source};
use crate::output::{RunError, Status};
use crate::run::ScoreRequest;
use crate::run::judging::request::JudgeRequest;
use crate::run::retry::Retry;
use crate::trace::DocumentSource;

/// Looks up the conversations of the old run in the ledger.
///
/// # Errors
/// [`RunError::Request`] if one that has a score would be asked, and paid, again.
pub(crate) fn prepare(request: &ScoreRequest, documents: &DocumentSource) -> Result<(), RunError> {
    let Some(judge) = &request.judge else {
        return Ok(());
    };
    let (Some(retry), Some(conversations)) = (&judge.retry, &judge.conversation) else {
        return Ok(());
    };
    let sessions = judge.choose_sessions(documents, None)?;
    let read =
        |each: &mut Listener<'_>| from_traces::read_conversations(documents, &sessions, each);
    check(judge, retry, conversations, read)
}

/// Looks up the conversations that `read` hands out.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn check(
    judge: &JudgeRequest,
    retry: &Retry,
    conversations: &ConversationRequest,
    read: impl FnOnce(&mut Listener<'_>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let old = Old {
        retry,
        conversations,
        answers: judge.answers()?,
    };
    let (mut unknown, mut failed) = (0u64, None);
    read(&mut |conversation| {
        match old.known(&conversation) {
            Ok(known) => unknown += u64::from(!known),
            Err(e) => failed = Some(e),
        }
        match failed {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    match (failed, unknown) {
        (Some(error), _) => Err(error),
        (None, 0) => Ok(()),
        (None, count) => Err(RunError::Request(format!(
            "{count} conversations of the run `{}` that have a score are not in the ledger `{}` for this judge and this version, so \
             that they would be paid again; name the ledger of that run with --ledger and its endpoint with --judge-url, or make \
             the run again",
            retry.id(),
            judge.ledger.display()
        ))),
    }
}

struct Old<'r> {
    retry: &'r Retry,
    conversations: &'r ConversationRequest,
    answers: Answers<'r>,
}

impl Old<'_> {
    /// Whether a conversation is answered by the ledger, or may be asked.
    fn known(&self, conversation: &Conversation) -> Result<bool, RunError> {
        let Conversation {
            key, case, turns, ..
        } = conversation;
        let session = (key.project_id.clone(), key.session_id.clone());
        if self.retry.status(&session) != Some(Status::Success) {
            return Ok(true);
        }
        let look_up = LookUp::new(&self.answers);
        let asked = self
            .conversations
            .ask(Source::Ledger(&look_up), case, turns);
        Ok(match futures::executor::block_on(asked)? {
            Asked::Answered(_, answer) => answer.1.judge_error.is_none(),
            _ => false,
        })
    }
}
