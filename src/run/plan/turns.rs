//! What judging conversations would ask, without a single call.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::conversation::from_tables::TableCounts;
use crate::conversation::from_traces::Conversation;
use crate::conversation::verdict_question::Asked;
use crate::conversation::{ConversationRequest, Listener, not_asked};
use crate::judge::answers::Answers;
use crate::judge::asker::{LookUp, Source};
use crate::judge::{CallHash, Usage};
use crate::metric::CONVERSATION;
use crate::output::{RunError, quarantine_rows};
use crate::run::judging::request::JudgeRequest;
use crate::run::plan::table::PlanTable;
use crate::run::plan::{PlanSummary, PlannedMetric, USUAL_REPLY_TOKENS, price_of, summed};
use crate::run::turns::{Opened, TurnsRequest};
use crate::trace::SessionKey;

/// Tokens of a reply about a conversation: some sentences for each of eight metrics.
const USUAL_CONVERSATION_REPLY_TOKENS: u64 = 4 * USUAL_REPLY_TOKENS;

/// What tables of turns hold for a run that would judge them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedTables {
    /// Conversations of the run.
    pub conversations: u64,
    /// Those of them that no judge would be shown: without turns, failed by themselves, with a bad row, or too long.
    pub not_asked: u64,
    /// What the tables held.
    #[serde(flatten)]
    pub counts: TableCounts,
    /// Rows that would be set aside.
    pub quarantined: u64,
    /// The problems of those rows, each with how many rows have it and where it is first.
    pub quarantine: Vec<crate::output::QuarantineSummary>,
}

/// What a judge would be asked about one conversation.
#[derive(Debug)]
pub(crate) struct PlannedConversation {
    pub key: SessionKey,
    pub test_case: String,
    pub repetition_index: i32,
    /// Traces of the session; none where it comes from a table of turns.
    traces: usize,
    /// Why it would be shown to nobody.
    pub not_asked: Option<String>,
    /// The call, unless it would be shown to nobody.
    pub call: Option<PlannedCall>,
}

/// A call that would be made.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub hash: CallHash,
    /// Whether the ledger has the answer, so that it costs nothing.
    pub known: bool,
    /// Tokens of question and reply, by rules of thumb.
    pub usage: Usage,
    /// Dollars still to be paid; none without a known price.
    pub cost: Option<f64>,
}

/// Counts what a judge would be asked about conversations of tables. With `out`, makes a folder with the table `judge_plan`,
/// a row a conversation, and returns where it is.
///
/// # Errors
/// [`RunError`]. Nothing is sent, and no key is needed.
pub fn plan_turns(
    request: &TurnsRequest,
    out: Option<&Path>,
) -> Result<(PlanSummary, Option<PathBuf>), RunError> {
    let conversation = request.conversation()?;
    let opened = Opened::of(request)?;
    let inputs = opened.paths();
    let Opened {
        tables, quarantine, ..
    } = opened;
    let table = out.map(|out| PlanTable::create(out, request, inputs));
    let mut table = table.transpose()?;
    let (sessions, mut counts) = tables.choose(request.choice())?;
    let answers = request.judge.answers()?;
    let read = |each: &mut Listener<'_>| tables.read_conversations(&sessions, each);
    let mut not_asked = 0;
    let planned = plan_conversations(conversation, &answers, &request.judge, read, |one| {
        not_asked += u64::from(one.not_asked.is_some());
        table.as_mut().map_or(Ok(()), |table| table.push(one))
    })?;
    counts.merged_turns = tables.merged_turns();
    let rows = counts.turn_rows + counts.case_rows;
    let plan = PlanSummary {
        tables: Some(PlannedTables {
            conversations: sessions.len() as u64,
            not_asked,
            counts,
            quarantined: quarantine.rows(),
            quarantine: quarantine_rows::summarise(&quarantine.sorted()),
        }),
        ..summed(&request.judge, vec![planned], rows, 0)
    };
    let written = table.map(|table| table.finish(&plan)).transpose()?;
    Ok((plan, written))
}

/// What judging the conversations that `read` hands out would ask: one call each at most. `each` is shown every one.
pub(crate) fn plan_conversations(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    judge: &JudgeRequest,
    read: impl FnOnce(&mut Listener<'_>) -> Result<(), RunError>,
    mut each: impl FnMut(PlannedConversation) -> Result<(), RunError>,
) -> Result<PlannedMetric, RunError> {
    let mut planned = PlannedMetric {
        name: CONVERSATION.into(),
        model: request.model.clone(),
        ..PlannedMetric::default()
    };
    let mut failed = None;
    read(&mut |conversation| {
        let one = plan_one(request, answers, judge, conversation).and_then(|one| {
            if let Some(call) = &one.call {
                planned.traces += one.traces as u64;
                planned.calls += 1;
                planned.prompt_tokens += call.usage.prompt;
                planned.reply_tokens += call.usage.completion;
                let to_pay = to_pay(call.usage, call.known);
                planned.to_pay.prompt += to_pay.prompt;
                planned.to_pay.completion += to_pay.completion;
                planned.known += u64::from(call.known);
            }
            each(one)
        });
        match one {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    match failed {
        Some(e) => Err(e),
        None => Ok(planned),
    }
}

fn plan_one(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    judge: &JudgeRequest,
    conversation: Conversation,
) -> Result<PlannedConversation, RunError> {
    let (not_asked, call) = match not_asked(&conversation) {
        Some(why) => (Some(why), None),
        None => match call_about(request, answers, judge, &conversation)? {
            Ok(call) => (None, Some(call)),
            Err(too_long) => (Some(too_long), None),
        },
    };
    let Conversation {
        key, case, traces, ..
    } = conversation;
    Ok(PlannedConversation {
        test_case: case.test_case().to_owned(),
        repetition_index: case.repetition_index,
        key,
        traces: traces.unwrap_or(0),
        not_asked,
        call,
    })
}

/// What of a call is still to be paid: nothing if its answer is known.
fn to_pay(usage: Usage, known: bool) -> Usage {
    match known {
        true => Usage::default(),
        false => usage,
    }
}

/// The call about a conversation, or why it is too long for one.
fn call_about(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    judge: &JudgeRequest,
    conversation: &Conversation,
) -> Result<Result<PlannedCall, String>, RunError> {
    let Conversation { case, turns, .. } = conversation;
    let look_up = LookUp::new(answers);
    let asked = request.ask(Source::Ledger(&look_up), case, turns);
    let (made, known) = match futures::executor::block_on(asked)? {
        Asked::Answered(made, _) => (made, true),
        Asked::Pending(made, _) | Asked::Failed(made, _) => (made, false),
        Asked::TooLong(why) => return Ok(Err(why)),
    };
    let usage = Usage {
        prompt: made.prompt_tokens,
        completion: USUAL_CONVERSATION_REPLY_TOKENS,
        cached: 0,
    };
    let to_pay = to_pay(usage, known);
    Ok(Ok(PlannedCall {
        known,
        hash: answers.hash(&made.call),
        usage,
        cost: price_of(judge, &made.call.model).map(|price| price.of(to_pay)),
    }))
}
