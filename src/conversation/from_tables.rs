//! Which transcripts of the tables `turns` and `cases` are judged, and reading them (as in Connexity).
//!
//! A first pass checks every row and notes where the rows of each session are: one entry for rows that follow each other,
//! so that a table sorted by session needs about 300 bytes a session, and one whose sessions are mixed up to
//! 16 bytes more for each turn. The rows of the chosen transcripts are then read once more, in the order of the files, and
//! set aside on disk, from where transcripts come in the order of session ids. The turns of one are in memory at once, and
//! 16 bytes for each row.
//!
//! A transcript of which a row was set aside is not judged: a verdict would be about another conversation.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::conversation::from_traces::Conversation;
use crate::conversation::tables::turns_and_cases::{case_of, session_of, turn_of};
use crate::conversation::{Case, Turn, takes_part};
use crate::output::RunError;
use crate::selection::{Ranking, SamplingRate};
use crate::trace::{BadRow, KeptDocuments, RowAt, RowRun, SessionKey, TableSource, push_row};

/// What the tables of turns and cases held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableCounts {
    /// Rows of turns.
    pub turn_rows: u64,
    /// Rows of cases.
    pub case_rows: u64,
    /// Turns that were there twice, equal in everything, and count once.
    pub merged_turns: u64,
    /// Transcripts that no case names; they were judged without expectations.
    pub without_case: u64,
    /// Transcripts left out because their case is a draft or archived.
    pub not_active: u64,
    /// Transcripts left out by the sample.
    pub not_sampled: u64,
}

/// The opened tables of a run.
#[derive(Debug)]
pub(crate) struct Tables {
    pub turns: TableSource<'static>,
    pub cases: Option<TableSource<'static>>,
    merged: AtomicU64,
    /// Rows that were set aside while transcripts were read: they may be read more than once, and count once.
    doubted: Mutex<BTreeSet<RowAt>>,
}

/// A transcript that is judged, and where its rows are.
#[derive(Debug)]
pub(crate) struct TabledSession {
    session_id: String,
    turns: Vec<RowRun>,
    case: Option<RowRun>,
    set_aside: Option<String>,
}

impl TabledSession {
    fn turn_rows(&self) -> u64 {
        self.turns.iter().map(RowRun::rows).sum()
    }
}

/// Which transcripts are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Drafts and archived cases too.
    pub all_statuses: bool,
    /// The share of them, by session id.
    pub sample: SamplingRate,
    /// The seed of the sample.
    pub seed: u64,
}

#[derive(Debug, Default)]
struct FoundSession {
    turns: Vec<RowRun>,
    case: Option<RowRun>,
    left_out: bool,
    /// The first row of it that was set aside, and why.
    set_aside: Option<String>,
}

impl Tables {
    pub fn new(turns: TableSource<'static>, cases: Option<TableSource<'static>>) -> Self {
        Self {
            turns,
            cases,
            merged: AtomicU64::new(0),
            doubted: Mutex::default(),
        }
    }

    /// Turns that were there twice, in what was read until now.
    pub fn merged_turns(&self) -> u64 {
        self.merged.load(Relaxed)
    }

    /// Checks all rows and chooses the transcripts to judge, in the order of their ids. Bad rows go to quarantine.
    ///
    /// # Errors
    /// If a file breaks in the middle.
    pub fn choose(&self, choice: Choice) -> Result<(Vec<TabledSession>, TableCounts), RunError> {
        let mut found: HashMap<String, FoundSession> = HashMap::new();
        let turn_rows = self.turns.scan(|row| {
            let (session_id, checked) = checked(row.cells, turn_of);
            let at = row.at;
            note(&self.turns, &mut found, session_id, at, checked, |s, _| {
                push_row(&mut s.turns, at);
                Ok(())
            });
        })?;
        let mut counts = TableCounts {
            turn_rows,
            ..TableCounts::default()
        };
        if let Some(cases) = &self.cases {
            counts.case_rows = cases.scan(|row| {
                let (session_id, checked) = checked(row.cells, case_of);
                let at = row.at;
                note(cases, &mut found, session_id, at, checked, |s, case| {
                    if s.case.is_some() {
                        return Err(BadRow::value(
                            "session_id",
                            "the session has a case already; give each transcript one row",
                        ));
                    }
                    let mut run = Vec::new();
                    push_row(&mut run, at);
                    s.case = run.pop();
                    s.left_out = !takes_part(&case, choice.all_statuses);
                    Ok(())
                });
            })?;
        }
        let mut sessions: Vec<TabledSession> = Vec::new();
        for (session_id, session) in found {
            match session.left_out {
                true => counts.not_active += 1,
                false => sessions.push(TabledSession {
                    session_id,
                    turns: session.turns,
                    case: session.case,
                    set_aside: session.set_aside,
                }),
            }
        }
        let all = sessions.len();
        sessions.sort_unstable_by(|a, b| a.session_id.cmp(&b.session_id));
        let ids: Vec<&str> = sessions.iter().map(|s| s.session_id.as_str()).collect();
        let kept: std::collections::HashSet<String> = Ranking::new(choice.seed)
            .sample(ids, choice.sample)
            .into_iter()
            .map(str::to_owned)
            .collect();
        sessions.retain(|session| kept.contains(&session.session_id));
        counts.not_sampled = (all - sessions.len()) as u64;
        if self.cases.is_some() {
            let without = sessions
                .iter()
                .filter(|session| session.case.is_none() && session.set_aside.is_none());
            counts.without_case = without.count() as u64;
        }
        Ok((sessions, counts))
    }

    /// Reads transcripts in the order given; `each` says whether to go on.
    ///
    /// # Errors
    /// If a file has gone or changed since the rows were chosen.
    pub fn read_conversations(
        &self,
        sessions: &[TabledSession],
        each: &mut dyn FnMut(Conversation) -> ControlFlow<()>,
    ) -> Result<(), RunError> {
        self.merged.store(0, Relaxed);
        let places: HashMap<&str, usize> = sessions
            .iter()
            .enumerate()
            .map(|(at, session)| (session.session_id.as_str(), at))
            .collect();
        let mut aside = KeptDocuments::create(&std::env::temp_dir())?;
        let mut turns: Vec<Vec<(RowAt, u64)>> = sessions.iter().map(|_| Vec::new()).collect();
        let mut cases: Vec<Option<u64>> = sessions.iter().map(|_| None).collect();
        // The row of a session that is one of those wanted.
        let of = |cells: &Cells| {
            let session_id = session_of(cells).ok()?;
            places.get(session_id.as_str()).copied()
        };
        let runs = sessions.iter().flat_map(|session| &session.turns);
        self.turns.read(runs.copied(), |row| {
            if let Ok(cells) = &row.cells
                && let Some(turns) = of(cells).and_then(|at| turns.get_mut(at))
            {
                turns.push((row.at, aside.push(row.at.position(), cells)?));
            }
            Ok(())
        })?;
        if let Some(table) = &self.cases {
            let runs = sessions.iter().filter_map(|session| session.case);
            table.read(runs, |row| {
                if let Ok(cells) = &row.cells
                    && let Some(case) = of(cells).and_then(|at| cases.get_mut(at))
                {
                    *case = Some(aside.push(row.at.position(), cells)?);
                }
                Ok(())
            })?;
        }
        aside.flush()?;
        for ((session, rows), case) in sessions.iter().zip(turns).zip(cases) {
            let mut turns = Vec::with_capacity(rows.len());
            for (at, kept) in rows {
                if let Ok(turn) = turn_of(aside.read(kept)?.1) {
                    turns.push((turn, at));
                }
            }
            let case = case.map(|kept| aside.read(kept)).transpose()?;
            let case = case.and_then(|(_, cells)| case_of(cells).ok());
            if each(self.conversation(session, turns, case)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn conversation(
        &self,
        session: &TabledSession,
        turns: Vec<(Turn, RowAt)>,
        case: Option<Case>,
    ) -> Result<Conversation, RunError> {
        let session_id = &session.session_id;
        if (turns.len() as u64, case.is_some()) != (session.turn_rows(), session.case.is_some()) {
            return Err(RunError::Plan(format!(
                "the rows of session `{session_id}` changed while they were read; run again when the files rest"
            )));
        }
        let mut set_aside = session.set_aside.clone();
        let turns = self.in_order(turns, &mut set_aside);
        Ok(Conversation {
            key: SessionKey {
                project_id: None,
                session_id: session_id.clone(),
            },
            traces: None,
            case: case.unwrap_or_else(|| Case {
                session_id: session_id.clone(),
                ..Case::default()
            }),
            turns,
            set_aside,
        })
    }

    /// Turns by their index, each once. Two that differ under one index leave it open what was said.
    fn in_order(&self, mut turns: Vec<(Turn, RowAt)>, set_aside: &mut Option<String>) -> Vec<Turn> {
        turns.sort_by_key(|(turn, at)| (turn.turn_index, *at));
        let mut ordered: Vec<Turn> = Vec::with_capacity(turns.len());
        for (turn, at) in turns {
            match ordered.last() {
                Some(last) if *last == turn => {
                    self.merged.fetch_add(1, Relaxed);
                }
                Some(last) if last.turn_index == turn.turn_index => {
                    let reason = format!(
                        "the session has another turn {} already; number its turns apart",
                        turn.turn_index
                    );
                    let bad = BadRow::value("turn_index", reason);
                    let mut doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
                    if doubted.insert(at) {
                        self.turns.set_aside(at, &bad);
                    }
                    set_aside.get_or_insert_with(|| why(&self.turns, at, &bad));
                }
                _ => ordered.push(turn),
            }
        }
        ordered
    }
}

type Cells = serde_json::Map<String, serde_json::Value>;

/// The session of a row, as far as it names one, and what the row holds.
fn checked<T>(
    cells: Result<Cells, BadRow>,
    read: impl FnOnce(Cells) -> Result<T, BadRow>,
) -> (Option<String>, Result<T, BadRow>) {
    let cells = match cells {
        Ok(cells) => cells,
        Err(bad) => return (None, Err(bad)),
    };
    match session_of(&cells) {
        Ok(session_id) => (Some(session_id), read(cells)),
        Err(bad) => (None, Err(bad)),
    }
}

/// Adds a row to its session, or sets it aside with a note at the session.
fn note<T>(
    table: &TableSource<'_>,
    found: &mut HashMap<String, FoundSession>,
    session_id: Option<String>,
    at: RowAt,
    checked: Result<T, BadRow>,
    add: impl FnOnce(&mut FoundSession, T) -> Result<(), BadRow>,
) {
    let session = session_id.map(|id| found.entry(id).or_default());
    let bad = match (session, checked) {
        (Some(session), Ok(row)) => match add(session, row) {
            Ok(()) => return,
            Err(bad) => {
                session
                    .set_aside
                    .get_or_insert_with(|| why(table, at, &bad));
                bad
            }
        },
        (Some(session), Err(bad)) => {
            session
                .set_aside
                .get_or_insert_with(|| why(table, at, &bad));
            bad
        }
        (None, Err(bad)) => bad,
        (None, Ok(_)) => return,
    };
    table.set_aside(at, &bad);
}

fn why(table: &TableSource<'_>, at: RowAt, bad: &BadRow) -> String {
    let column = match bad.column.as_str() {
        "" => String::new(),
        column => format!("column {column}: "),
    };
    format!(
        "not judged, because {} was set aside ({column}{})",
        table.describe(at),
        bad.reason
    )
}
