//! What judging conversations would ask, without a single call.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::judge::conversation::{RequestError, SchemaPlace};
use crate::metric::CONVERSATION;
use crate::run::conversations::from_tables::{Opened, TurnsRequest};
use crate::run::conversations::tabled_sessions::TableCounts;
use crate::run::conversations::{Conversation, ConversationRequest, Listener, not_asked};
use crate::run::judging::plan::{Answers, PlanSummary, PlannedMetric, USUAL_REPLY_TOKENS, summed};
use crate::run::{RunError, quarantine_rows};

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
    pub quarantine: Vec<crate::run::summary::QuarantineSummary>,
}

/// Counts what a judge would be asked about conversations of tables.
///
/// # Errors
/// [`RunError`]. Nothing is sent, no key is needed, and no run directory is made.
pub fn plan_turns(request: &TurnsRequest) -> Result<PlanSummary, RunError> {
    let conversation = request.conversation()?;
    let Opened {
        tables, quarantine, ..
    } = Opened::of(request)?;
    let (sessions, mut counts) = tables.choose(request.choice())?;
    let answers = Answers::of(&request.judge)?;
    let read = |each: &mut Listener<'_>| tables.read_conversations(&sessions, each);
    let (planned, not_asked) = plan_conversations(conversation, &answers, read)?;
    counts.merged_turns = tables.merged_turns();
    let rows = counts.turn_rows + counts.case_rows;
    Ok(PlanSummary {
        tables: Some(PlannedTables {
            conversations: sessions.len() as u64,
            not_asked,
            counts,
            quarantined: quarantine.rows(),
            quarantine: quarantine_rows::summarise(&quarantine.sorted()),
        }),
        ..summed(&request.judge, vec![planned], rows, 0)
    })
}

/// What judging the conversations that `read` hands out would ask: one call each. Also how many would be shown to nobody.
pub(in crate::run) fn plan_conversations(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    read: impl FnOnce(&mut Listener<'_>) -> Result<(), RunError>,
) -> Result<(PlannedMetric, u64), RunError> {
    let mut planned = PlannedMetric {
        name: CONVERSATION.into(),
        model: request.model.clone(),
        ..PlannedMetric::default()
    };
    let (mut unasked, mut failed) = (0, None);
    read(
        &mut |conversation| match add(request, answers, &conversation, &mut planned) {
            Ok(asked) => {
                unasked += u64::from(!asked);
                ControlFlow::Continue(())
            }
            Err(e) => {
                failed = Some(e);
                ControlFlow::Break(())
            }
        },
    )?;
    match failed {
        Some(e) => Err(e),
        None => Ok((planned, unasked)),
    }
}

/// Adds the call about a conversation; says whether there is one.
fn add(
    request: &ConversationRequest,
    answers: &Answers<'_>,
    conversation: &Conversation,
    planned: &mut PlannedMetric,
) -> Result<bool, RunError> {
    if not_asked(conversation).is_some() {
        return Ok(false);
    }
    let place = SchemaPlace::ResponseFormat;
    let asked = request
        .judge
        .request(&conversation.case, &conversation.turns, place);
    let asked = match asked {
        Ok(asked) => asked,
        Err(RequestError::TooLong { .. }) => return Ok(false),
        Err(e @ RequestError::Prompt(_)) => return Err(RunError::Plan(e.to_string())),
    };
    planned.traces += conversation.traces.unwrap_or(0) as u64;
    planned.calls += 1;
    planned.prompt_tokens += asked.estimated_tokens;
    planned.reply_tokens += USUAL_CONVERSATION_REPLY_TOKENS;
    planned.known += u64::from(answers.hold(&request.call(asked, place, 0))?);
    Ok(true)
}
