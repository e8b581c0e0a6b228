//! Conversations judged: one call each, from the transcript to the verdict. They come from sessions of traces or from a
//! table of turns.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::StreamExt;

use super::from_traces::{ChosenSession, Conversation, read_conversations};
use super::judged::{Answer, JudgedConversation, Recorded};
use super::summary::Tally;
use super::tables::rows::{ConversationScores, ConversationTables};
use super::verdict_question::{Asked, Made};
use super::{ConversationRequest, ConversationSummary};
use crate::conversation::{CaseLatency, JudgeError, NotJudged, Role, Turn, Verdict, not_judged};
use crate::judge::JudgeService;
use crate::judge::asker::Source;
use crate::metric::{CONVERSATION, Rules};
use crate::output::{Distribution, RunDirectory, RunError, Status};
use crate::trace::DocumentSource;

/// Results are written in the order of sessions. So that one slow answer does not hold up all others, this many times
/// the calls that may be under way can wait for their turn.
const WAITING_PER_CALL: usize = 4;

/// Judged conversations, whose tables are written.
#[derive(Debug)]
pub(crate) struct Conversations {
    pub summary: ConversationSummary,
    pub distribution: Distribution,
    /// Still to be put behind the scores of traces and sessions.
    pub scores: ConversationScores,
}

/// Judges sessions of traces, each as one conversation, and writes their tables in the order of the sessions.
pub(crate) async fn judge_all(
    request: &ConversationRequest,
    concurrency: usize,
    rules: &Rules,
    service: &JudgeService,
    documents: Arc<DocumentSource>,
    sessions: Vec<ChosenSession>,
    run: &RunDirectory,
) -> Result<Conversations, RunError> {
    tracing::info!(conversations = sessions.len(), "judging conversations");
    let read = move |each: &mut Listener<'_>| read_conversations(&documents, &sessions, each);
    judge_each(request, concurrency, rules, service, read, run).await
}

/// Takes a conversation and says whether to go on.
pub(crate) type Listener<'l> = dyn FnMut(Conversation) -> ControlFlow<()> + 'l;

/// Judges the conversations that `read` hands out, and writes their tables in that order. A few of them are in memory at
/// once: reading waits for judging.
pub(crate) async fn judge_each(
    request: &ConversationRequest,
    concurrency: usize,
    rules: &Rules,
    service: &JudgeService,
    read: impl FnOnce(&mut Listener<'_>) -> Result<(), RunError> + Send + 'static,
    run: &RunDirectory,
) -> Result<Conversations, RunError> {
    let mut tables = ConversationTables::create(run, rules, request)?;
    let mut tally = Tally::default();
    let waiting = WAITING_PER_CALL * concurrency.max(1);
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Conversation>(waiting);
    // Files are read by blocking calls, on a thread of their own.
    let reader = tokio::task::spawn_blocking(move || {
        read(&mut |conversation| {
            // Whoever judges has stopped listening: its own error is the one to report.
            match sender.blocking_send(conversation) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })
    });
    let arriving = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    // The service bounds the calls that are under way.
    let mut judged = arriving
        .map(|conversation| judge_one(request, service, conversation))
        .buffered(waiting);
    while let Some(one) = judged.next().await {
        let one = one?;
        tally.add(&one, rules.threshold(CONVERSATION));
        tables.push(one)?;
    }
    drop(judged);
    let read = reader
        .await
        .map_err(|e| RunError::Plan(format!("reading sessions failed: {e}")))?;
    read?;
    let (summary, distribution) = tally.finish(request);
    let scores = tables.finish(run, &summary.run)?;
    Ok(Conversations {
        summary,
        distribution,
        scores,
    })
}

async fn judge_one(
    request: &ConversationRequest,
    service: &JudgeService,
    conversation: Conversation,
) -> Result<JudgedConversation, RunError> {
    let not_asked = not_asked(&conversation);
    let Conversation {
        key,
        traces,
        mut case,
        turns,
        ..
    } = conversation;
    let asked = match &not_asked {
        Some(_) => None,
        None => Some(request.ask(Source::Service(service), &case, &turns).await?),
    };
    let failed = |fault: JudgeError| Some(request.judge.verdict(&case, &turns, Err(fault)));
    let hash = |made: &Made| Some(service.hash(&made.call));
    let (status, verdict, reason, request_hash, answer) = match asked {
        None => {
            let why = not_asked.unwrap_or_default();
            (Status::Failed, None, why, None, None)
        }
        Some(Asked::Pending(made, why)) => (Status::Pending, None, why, hash(&made), None),
        Some(Asked::TooLong(why)) => {
            let verdict = failed(JudgeError::TranscriptTooLong);
            (Status::Failed, verdict, why, None, None)
        }
        Some(Asked::Failed(made, why)) => {
            let verdict = failed(JudgeError::LlmCallFailed);
            (Status::Failed, verdict, why, hash(&made), None)
        }
        Some(Asked::Answered(made, answer)) => {
            let (reply, verdict) = *answer;
            let (status, reason) = match verdict.judge_error {
                None => (Status::Success, reason_of(&verdict)),
                Some(fault) if reply.cut_off => (
                    Status::Failed,
                    format!("{fault}; it ends at its largest size, raise --judge-max-output"),
                ),
                Some(fault) => (Status::Failed, fault.to_string()),
            };
            let hash = service.hash(&made.call);
            let taken = service.ledger().taken(&hash);
            let taken = taken.map_err(|e| RunError::Plan(e.to_string()))?;
            let answer = Answer {
                model: reply.model,
                usage: reply.usage,
                taken: taken.unwrap_or_default(),
            };
            (status, Some(verdict), reason, Some(hash), Some(answer))
        }
    };
    Ok(JudgedConversation {
        recorded: Recorded::take(&mut case),
        test_case: case.test_case().to_owned(),
        repetition_index: case.repetition_index,
        key,
        traces,
        turns: turns.len(),
        latency: CaseLatency::of_turns(&turns),
        total_latency_ms: total_latency(&turns),
        status,
        verdict,
        reason,
        request_hash,
        answer,
    })
}

/// Why a conversation is shown to no judge; none if it is shown to one (as in Connexity).
pub(crate) fn not_asked(conversation: &Conversation) -> Option<String> {
    let Conversation {
        case,
        turns,
        set_aside,
        ..
    } = conversation;
    match (not_judged(case, turns), set_aside) {
        (Some(NotJudged::Failed), _) => {
            let error = case.error.as_deref().unwrap_or_default();
            Some(format!("the session itself failed: {error}"))
        }
        (_, Some(why)) => Some(why.clone()),
        (Some(NotJudged::NoTurns), None) => Some("the session has no text to judge".to_owned()),
        (None, None) => None,
    }
}

fn total_latency(turns: &[Turn]) -> Option<i64> {
    let spoken = turns.iter().filter(|turn| turn.role == Role::Assistant);
    let known = spoken.filter_map(|turn| turn.latency_ms);
    known.reduce(i64::saturating_add)
}

/// The highlights of a verdict in words.
fn reason_of(verdict: &Verdict) -> String {
    let highlights = &verdict.highlights;
    let named = |what: &str, at: &crate::conversation::Highlight| {
        format!("{what} {} ({} of 5)", at.metric, at.score)
    };
    let weakest = highlights.weakest.iter().map(|at| named("weakest", at));
    let strongest = highlights.strongest.iter().map(|at| named("strongest", at));
    let failed = highlights.failed_binary.iter();
    let failed = failed.map(|metric| format!("failed {metric}"));
    let parts: Vec<String> = weakest.chain(failed).chain(strongest).collect();
    match parts.is_empty() {
        true => "no metric stands out".to_owned(),
        false => parts.join(", "),
    }
}

#[cfg(test)]
mod tests;
