//! Which sessions are judged as conversations, and reading their traces.
//!
//! Traces of one session may lie anywhere in the files. So a first pass over small columns notes where each session's
//! rows are, and sessions are then read group by group, each group by one pass over the files that decodes its rows only.
//! A group has at most 4096 rows; a longer session is a group of its own. The documents of one group are in memory at
//! once, and none of another; transcripts that wait for the judge are beside them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use crate::conversation::transcript_of_traces::transcript;
use crate::conversation::{Case, Turn};
use crate::output::RunError;
use crate::selection::{Ranking, sample_of_sessions};
use crate::text::parse_instant;
use crate::trace::{DocumentSource, Members, SessionKey, TextAt, merge_documents};

/// Rows of a group. Fewer would mean more passes over JSON Lines files, which are read from their start each time.
const MOST_ROWS: usize = 4096;

/// A session that is judged, and where the rows of each of its traces are.
#[derive(Debug)]
pub(crate) struct ChosenSession {
    key: SessionKey,
    traces: Vec<Vec<TextAt>>,
}

impl ChosenSession {
    fn rows(&self) -> usize {
        self.traces.iter().map(Vec::len).sum()
    }
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
    traces: Vec<Vec<TextAt>>,
    passes: bool,
}

impl Sessions {
    /// Adds a trace to its session, if it has one. A trace without a start is not scored, so that it is no part of a
    /// conversation either.
    fn add(
        &mut self,
        members: &Map<String, Value>,
        rows: Vec<TextAt>,
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
    for group in groups(sessions, MOST_ROWS, ChosenSession::rows) {
        let found = read_group(documents, group)?;
        for (session, traces) in group.iter().zip(found) {
            if each(&session.key, traces).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Cuts sessions into groups of at most `most` rows, or of one session.
pub(crate) fn groups<S>(sessions: &[S], most: usize, rows_of: impl Fn(&S) -> usize) -> Vec<&[S]> {
    let mut groups = Vec::new();
    let (mut rest, mut count, mut rows) = (sessions, 0, 0);
    for session in sessions {
        if count > 0 && rows + rows_of(session) > most {
            let (group, others) = rest.split_at(count);
            groups.push(group);
            (rest, count, rows) = (others, 0, 0);
        }
        count += 1;
        rows += rows_of(session);
    }
    if count > 0 {
        groups.push(rest);
    }
    groups
}

/// The traces of each session of a group, rows of one trace as one.
fn read_group(
    documents: &DocumentSource,
    group: &[ChosenSession],
) -> Result<Vec<Vec<Map<String, Value>>>, RunError> {
    let mut places: Vec<(TextAt, usize, usize)> = Vec::new();
    for (session_at, session) in group.iter().enumerate() {
        for (trace_at, rows) in session.traces.iter().enumerate() {
            places.extend(rows.iter().map(|place| (*place, session_at, trace_at)));
        }
    }
    places.sort_unstable_by_key(|(place, ..)| *place);
    let rows: Vec<TextAt> = places.iter().map(|(place, ..)| *place).collect();
    let mut found: Vec<Vec<Option<Map<String, Value>>>> = group
        .iter()
        .map(|session| vec![None; session.traces.len()])
        .collect();
    documents.read(Members::All, Some(&rows), |document| {
        let at = places.binary_search_by_key(&document.at, |(place, ..)| *place);
        let Some(&(_, session_at, trace_at)) = at.ok().and_then(|at| places.get(at)) else {
            return ControlFlow::Continue(());
        };
        let traces = found.get_mut(session_at);
        match traces.and_then(|traces| traces.get_mut(trace_at)) {
            Some(Some(earlier)) => merge_documents(earlier, document.members),
            Some(empty) => *empty = Some(document.members),
            None => {}
        }
        ControlFlow::Continue(())
    })?;
    let whole = |traces: Vec<Option<Map<String, Value>>>| traces.into_iter().flatten().collect();
    Ok(found.into_iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(rows: &[usize]) -> ChosenSession {
        let traces = rows
            .iter()
            .map(|count| vec![TextAt::from_position(0); *count]);
        ChosenSession {
            key: SessionKey {
                project_id: None,
                session_id: "s".into(),
            },
            traces: traces.collect(),
        }
    }

    #[test]
    fn groups_are_full_whole_and_in_order() {
        let sizes = |sessions: &[ChosenSession]| -> Vec<Vec<usize>> {
            groups(sessions, 4, ChosenSession::rows)
                .iter()
                .map(|group| group.iter().map(ChosenSession::rows).collect())
                .collect()
        };
        let rows: [&[usize]; 6] = [&[1, 1], &[2], &[1], &[9], &[3], &[1, 1]];
        let sessions: Vec<ChosenSession> = rows.into_iter().map(session).collect();
        assert_eq!(
            sizes(&sessions),
            [vec![2, 2], vec![1], vec![9], vec![3], vec![2]]
        );
        assert!(sizes(&[]).is_empty());
    }

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
