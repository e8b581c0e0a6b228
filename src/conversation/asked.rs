//! Conversations judged: one call each, from the transcript to the verdict. They come from sessions of traces or from a
//! table of turns.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::StreamExt;

use super::from_traces::{ChosenSession, Conversation, read_conversations};
use super::judged::{Answer, JudgedConversation, Recorded};
use super::summary::Tally;
use super::tables::rows::{ConversationScores, ConversationTables};
use super::{ConversationRequest, ConversationSummary};
use crate::conversation::{
    Case, CaseLatency, JudgeError, NotJudged, RequestError, Role, SchemaPlace, Turn, Verdict,
    not_judged,
};
use crate::judge::{
    CallErrorKind, CallHash, CallLabel, JudgeService, MOST_ROUNDS, Reply, Unanswered,
};
use crate::metric::{CONVERSATION, Rules};
use crate::output::{Distribution, RunDirectory, RunError, Status};
use crate::trace::DocumentSource;

/// Results are written in the order of sessions. So that one slow answer does not hold up all others, this many times
/// the calls that may be under way can wait for their turn.
const WAITING_PER_CALL: usize = 4;

const LABEL: CallLabel<'static> = CallLabel {
    metric: CONVERSATION,
    stage: "score",
};

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
    let format_refused = AtomicBool::new(false);
    let arriving = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    // The service bounds the calls that are under way.
    let mut judged = arriving
        .map(|conversation| judge_one(request, service, &format_refused, conversation))
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
    format_refused: &AtomicBool,
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
    let asked = match not_asked {
        Some(why) => Asked::Nothing(why),
        None => {
            let mut round = 0;
            let mut asked_here = false;
            loop {
                let asked = ask(request, service, format_refused, &case, &turns, round).await?;
                let unusable = |reply: &Reply| {
                    let verdict = request.judge.verdict(&case, &turns, Ok(&reply.text));
                    verdict.judge_error.is_some()
                };
                match &asked {
                    Asked::Answered(reply, hash) if unusable(reply) => {
                        asked_here |= request.anew && sent_here(service, hash)?;
                        let anew = request.anew && !asked_here && round + 1 < MOST_ROUNDS;
                        if round + 1 >= request.rounds && !anew {
                            break asked;
                        }
                        round += 1;
                    }
                    _ => break asked,
                }
            }
        }
    };
    let verdict_on = |reply: Result<&str, JudgeError>| request.judge.verdict(&case, &turns, reply);
    let (status, verdict, reason, request_hash, answer) = match asked {
        Asked::Nothing(why) => (Status::Failed, None, why, None, None),
        Asked::Pending(why, hash) => (Status::Pending, None, why, Some(hash), None),
        Asked::Failed(fault, why, hash) => {
            let verdict = verdict_on(Err(fault));
            (Status::Failed, Some(verdict), why, hash, None)
        }
        Asked::Answered(reply, hash) => {
            let verdict = verdict_on(Ok(reply.text.as_str()));
            let (status, reason) = match verdict.judge_error {
                None => (Status::Success, reason_of(&verdict)),
                Some(fault) if reply.cut_off => (
                    Status::Failed,
                    format!("{fault}; it ends at its largest size, raise --judge-max-output"),
                ),
                Some(fault) => (Status::Failed, fault.to_string()),
            };
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

fn sent_here(service: &JudgeService, hash: &CallHash) -> Result<bool, RunError> {
    let sent = service.ledger().asked_here(hash);
    sent.map_err(|e| RunError::Plan(e.to_string()))
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

/// What came of asking.
enum Asked {
    /// There is nothing to ask about, and why.
    Nothing(String),
    Answered(Reply, CallHash),
    /// The judge failed for good, and what happened; with the call, if there was one.
    Failed(JudgeError, String, Option<CallHash>),
    /// The judge was not asked, and why; with the call that is still to be made.
    Pending(String, CallHash),
}

/// Asks for the verdict. A provider that does not take the reply's schema as a format gets it in the prompt, now and for
/// the rest of the run.
async fn ask(
    request: &ConversationRequest,
    service: &JudgeService,
    format_refused: &AtomicBool,
    case: &Case,
    turns: &[Turn],
    round: u32,
) -> Result<Asked, RunError> {
    let mut place = match format_refused.load(Relaxed) {
        true => SchemaPlace::Prompt,
        false => SchemaPlace::ResponseFormat,
    };
    loop {
        let built = match request.judge.request(case, turns, place) {
            Ok(built) => built,
            Err(e @ RequestError::TooLong { .. }) => {
                let fault = JudgeError::TranscriptTooLong;
                return Ok(Asked::Failed(fault, e.to_string(), None));
            }
            Err(e @ RequestError::Prompt(_)) => return Err(RunError::Plan(e.to_string())),
        };
        let call = request.call(built, place, round);
        let unanswered = match service.answer(&call, LABEL).await {
            Ok(reply) => return Ok(Asked::Answered(reply, service.hash(&call))),
            Err(unanswered) => unanswered,
        };
        let in_format = place == SchemaPlace::ResponseFormat;
        match &unanswered {
            Unanswered::Ledger(problem) => return Err(RunError::Plan(problem.clone())),
            Unanswered::Failed { code, .. }
                if in_format && *code == CallErrorKind::FormatRejected.code() =>
            {
                format_refused.store(true, Relaxed);
            }
            // Without a judge to ask, nothing says in which form an earlier run was answered.
            Unanswered::NotInLedger if in_format => {}
            Unanswered::Failed { .. } => {
                let (fault, hash) = (JudgeError::LlmCallFailed, service.hash(&call));
                return Ok(Asked::Failed(fault, unanswered.to_string(), Some(hash)));
            }
            Unanswered::Capped(_)
            | Unanswered::NotInLedger
            | Unanswered::InBatch
            | Unanswered::DeadlinePassed
            | Unanswered::AskedElsewhere
            | Unanswered::Stopped(_) => {
                let hash = service.hash(&call);
                return Ok(Asked::Pending(unanswered.to_string(), hash));
            }
        }
        place = SchemaPlace::Prompt;
    }
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
