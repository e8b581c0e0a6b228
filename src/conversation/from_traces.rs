//! Which sessions are judged as conversations, and reading their traces.
//!
//! Traces of one session may lie anywhere in the files. So the rows of all chosen sessions are read once, in the order of
//! the files, and their documents are set aside on disk, from where they come back session by session. The documents of
//! one session are in memory at once; transcripts that wait for the judge are beside them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::conversation::transcript_of_traces::transcript;
use crate::conversation::{Case, Turn};
use crate::output::RunError;
use crate::selection::{Ranking, sample_of_sessions};
use crate::text::parse_instant;
use crate::trace::{DocumentSource, RowAt, SessionKey, TraceError, merge_documents};

/// A session that is judged, and where the rows of each of its traces are.
#[derive(Debug)]
pub(crate) struct ChosenSession {
    key: SessionKey,
    traces: Vec<Vec<RowAt>>,
}

/// A session as the judge reads it.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub key: SessionKey,
    /// How many traces it has; none where it comes from a table of turns.
    pub traces: Option<usize>,
    pub case: Case,
    pub turns: Vec<Turn>,
    /// Why it is not judged, if something of it could not be read.
    pub set_aside: Option<String>,
}

/// The sessions to judge, in the order of their keys: a sample of those that `takes` lets in and that have a trace which
/// passes. Each has all of its traces, also those that pass not, since a conversation is judged whole.
pub(crate) fn choose(
    documents: &DocumentSource,
    passes: impl Fn(&str, &Map<String, Value>) -> bool,
    takes: impl Fn(&SessionKey) -> bool,
    ranking: &Ranking,
    rate: crate::selection::SamplingRate,
) -> Result<Vec<ChosenSession>, RunError> {
    let mut sessions = Sessions::default();
    documents.read_facts(|trace_id, members, rows| {
        sessions.add(members, rows.to_vec(), || passes(trace_id, members));
    })?;
    let mut found = sessions.passing();
    found.retain(|session| takes(&session.key));
    let mut chosen = sample_of_sessions(found, |session| &session.key, ranking, rate);
    chosen.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(chosen)
}

#[derive(Debug, Default)]
struct Sessions(HashMap<SessionKey, FoundSession>);

#[derive(Debug, Default)]
struct FoundSession {
    traces: Vec<Vec<RowAt>>,
    passes: bool,
}

impl Sessions {
    /// Adds a trace to its session, if it has one. A trace without a start is not scored, so that it is no part of a
    /// conversation either.
    fn add(
        &mut self,
        members: &Map<String, Value>,
        rows: Vec<RowAt>,
        passes: impl FnOnce() -> bool,
    ) {
        let started_at = members.get("started_at").and_then(Value::as_str);
        if started_at.is_none_or(|text| parse_instant(text).is_err()) {
            return;
        }
        let Some(key) = SessionKey::of_document(members) else {
            return;
        };
        let session = self.0.entry(key).or_default();
        session.passes = session.passes || passes();
        session.traces.push(rows);
    }

    /// The sessions with a trace that passes, in no order.
    fn passing(self) -> Vec<ChosenSession> {
        let passing = self.0.into_iter().filter(|(_, session)| session.passes);
        passing
            .map(|(key, session)| ChosenSession {
                key,
                traces: session.traces,
            })
            .collect()
    }
}

/// Reads sessions in the order given and makes conversations of them; `each` says whether to go on.
pub(crate) fn read_conversations(
    documents: &DocumentSource,
    sessions: &[ChosenSession],
    mut each: impl FnMut(Conversation) -> ControlFlow<()>,
) -> Result<(), RunError> {
    read_sessions(documents, sessions, |key, traces| {
        let count = traces.len();
        let (case, turns) = transcript(key.project_id.as_deref(), &key.session_id, traces);
        each(Conversation {
            key: key.clone(),
            traces: Some(count),
            case,
            turns,
            set_aside: None,
        })
    })
}

/// Reads the trace documents of sessions, session by session in the order given; `each` says whether to go on.
pub(crate) fn read_sessions(
    documents: &DocumentSource,
    sessions: &[ChosenSession],
    mut each: impl FnMut(&SessionKey, Vec<Map<String, Value>>) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let rows = sessions
        .iter()
        .flat_map(|session| &session.traces)
        .flatten();
    let mut places: Vec<RowAt> = rows.copied().collect();
    places.sort_unstable();
    let mut aside = documents.keep()?;
    let mut kept: Vec<Option<u64>> = vec![None; places.len()];
    let at = |row: &RowAt| places.binary_search(row).ok();
    documents.read(&places, |document| {
        if let Some(place) = at(&document.at).and_then(|at| kept.get_mut(at)) {
            *place = Some(aside.push(document.at.position(), &document.members)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    aside.flush()?;
    for session in sessions {
        let traces = session.traces.iter().map(|rows| {
            let kept = rows.iter().filter_map(|row| *kept.get(at(row)?)?);
            let mut documents = kept.map(|kept| aside.read(kept));
            let Some(first) = documents.next() else {
                return Ok(None);
            };
            let (_, mut whole) = first?;
            for later in documents {
                merge_documents(&mut whole, later?.1);
            }
            Ok(Some(whole))
        });
        let traces: Result<Vec<_>, TraceError> = traces.collect();
        if each(&session.key, traces?.into_iter().flatten().collect()).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_ordered_by_project_then_by_id() {
        let key = |project: Option<&str>, session: &str| SessionKey {
            project_id: project.map(str::to_owned),
            session_id: session.to_owned(),
        };
        let sorted = [key(None, "z"), key(Some("a"), "y"), key(Some("b"), "x")];
        assert!(sorted.is_sorted());
    }
}
