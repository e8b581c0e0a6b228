//! Finding the rows of touched sessions in a chain of runs.
//!
//! The ids of all traces of the chain are looked at, no more; of the sessions that new rows touch, the places are kept. A
//! row of a run counts unless a later run says in `replaced` that it took the session over.

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;

use super::EarlierSession;
use super::keys::{Ids, NewKeys, session_key};
use super::replaced::REPLACED;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{
    cell, for_each_batch, text, text_if_there, whole_number, whole_numbers,
};
use crate::history::{CARRIED, ChainRun};
use crate::output::RunError;
use crate::trace::{SessionKey, canonical_trace_id};

/// A trace of an earlier night whose session goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EarlierTrace {
    /// The run that has its latest row: a number of the chain.
    pub run: usize,
    /// The number of its row in the tables `traces` and `carried` of that run.
    pub row: u64,
    /// Its canonical id.
    pub trace_id: String,
    /// Where its rows are: a number of the run's list of files, and a row.
    pub places: Vec<(usize, u64)>,
}

/// What earlier nights say of touched sessions.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub sessions: HashMap<SessionKey, EarlierSession>,
    /// Traces without session, by the ids that tables show, and the run that has each.
    pub alone: Vec<(String, String)>,
    /// Traces of earlier nights that new rows are of, by canonical id.
    pub again: BTreeSet<String>,
    /// All traces of both, in the order of the chain and of its tables.
    pub traces: Vec<EarlierTrace>,
}

/// Sessions, and traces without one, that later runs took over from a run.
#[derive(Clone, Default)]
struct TakenOver {
    sessions: HashSet<[u8; 16]>,
    traces: HashSet<String>,
}

/// Finds what new rows touch.
///
/// # Errors
/// [`RunError`] for a run that can't be read, or that left nothing to go on with.
pub(super) fn find(chain: &[ChainRun], mut new: NewKeys) -> Result<Found, RunError> {
    let taken = taken_over(chain)?;
    let mut found = Found::default();
    // A new row of an old trace touches the session that the trace is in so far, and the one that it ends up in.
    for (run, taken) in chain.iter().zip(&taken) {
        each_row(run, taken, |ids, row, _, _| {
            let trace_id = canonical(ids, row);
            if !new.has_trace(&trace_id) {
                return;
            }
            if let Some(session) = ids.session(row) {
                new.add_session(session);
            }
            new.add_moved(&trace_id, ids.session_of(row), ids.project_of(row));
            found.again.insert(trace_id);
        })?;
    }
    let mut keys: HashMap<SessionKey, usize> = HashMap::new();
    for (at, run) in chain.iter().enumerate() {
        let Some(taken) = taken.get(at) else { break };
        each_row(run, taken, |ids, row, number, batch| {
            let trace_id = canonical(ids, row);
            match ids.session(row) {
                Some(session) if new.has_session(&session) => {
                    let project = ids.project_id;
                    keys.insert(
                        SessionKey {
                            project_id: project
                                .is_valid(row)
                                .then(|| project.value(row).to_owned()),
                            session_id: ids.session_id.value(row).to_owned(),
                        },
                        at,
                    );
                }
                None if new.has_trace(&trace_id) => {
                    let shown = ids.trace_id.value(row).to_owned();
                    found.alone.push((shown, run.name.clone()));
                }
                _ => return,
            }
            found.traces.push(EarlierTrace {
                run: at,
                row: number,
                trace_id,
                places: places(batch, row),
            });
        })?;
    }
    found.sessions = earlier_sessions(chain, keys)?;
    Ok(found)
}

/// The canonical id of a row, whose id is as it was given.
fn canonical(ids: &Ids<'_>, row: usize) -> String {
    let shown = ids.trace_id.value(row);
    canonical_trace_id(shown).unwrap_or_else(|| shown.to_owned())
}

fn places(batch: &RecordBatch, row: usize) -> Vec<(usize, u64)> {
    let lists = batch.column_by_name("rows");
    let Some(lists) = lists.and_then(|column| column.as_list_opt::<i32>()) else {
        return Vec::new();
    };
    let places = lists.value(row);
    let places = places.as_primitive_opt::<UInt64Type>();
    let places = places.into_iter().flatten().flatten();
    places
        .map(|place| crate::trace::RowAt::from_position(place).parts())
        .collect()
}

/// Shows every row of `carried` that still counts, with its number.
fn each_row(
    run: &ChainRun,
    taken: &TakenOver,
    mut each: impl FnMut(&Ids<'_>, usize, u64, &RecordBatch),
) -> Result<(), RunError> {
    const COLUMNS: [&str; 4] = ["trace_id", "session_id", "project_id", "rows"];
    if !run.path.join(CARRIED).is_dir() {
        return Err(RunError::Request(format!(
            "the run `{}` can't be continued: it has no table `{CARRIED}`; an earlier version made it, or another command \
             than score: score all files anew",
            run.path.display()
        )));
    }
    let mut number = 0;
    for_each_batch(&run.path, CARRIED, &COLUMNS, |batch| {
        let ids = Ids::of(batch).ok_or("a column of ids is missing")?;
        for row in 0..batch.num_rows() {
            let counts = match ids.session(row) {
                Some(session) => !taken.sessions.contains(&session),
                None => !taken.traces.contains(ids.trace_id.value(row)),
            };
            if counts {
                each(&ids, row, number, batch);
            }
            number += 1;
        }
        Ok(())
    })?;
    Ok(())
}

/// What later runs took over of each run of the chain. Runs are told by their places: their directories may be renamed.
fn taken_over(chain: &[ChainRun]) -> Result<Vec<TakenOver>, HistoryError> {
    let columns = ["session_id", "project_id", "trace_id"];
    let mut later = TakenOver::default();
    let mut taken = Vec::with_capacity(chain.len());
    for run in chain.iter().rev() {
        taken.push(later.clone());
        if !run.path.join(REPLACED).is_dir() {
            continue;
        }
        for_each_batch(&run.path, REPLACED, &columns, |batch| {
            let [sessions, projects, traces] = columns.map(|name| text(batch, name));
            let (sessions, projects, traces) = (sessions?, projects?, traces?);
            for row in 0..batch.num_rows() {
                match (cell(&sessions, row), cell(&traces, row)) {
                    (Some(session), _) => {
                        let key = session_key(session, cell(&projects, row));
                        later.sessions.insert(key);
                    }
                    (None, Some(trace)) => {
                        later.traces.insert(trace.to_owned());
                    }
                    (None, None) => {}
                }
            }
            Ok(())
        })?;
    }
    taken.reverse();
    Ok(taken)
}

/// What the tables `sessions` say of touched sessions; `keys` names the run of each.
fn earlier_sessions(
    chain: &[ChainRun],
    keys: HashMap<SessionKey, usize>,
) -> Result<HashMap<SessionKey, EarlierSession>, HistoryError> {
    let columns = ["session_id", "project_id", "first_run", "revision"];
    let mut found = HashMap::new();
    for (at, run) in chain.iter().enumerate() {
        if !keys.values().any(|of| *of == at) {
            continue;
        }
        for_each_batch(&run.path, "sessions", &columns, |batch| {
            let (sessions, projects) = (text(batch, "session_id")?, text(batch, "project_id")?);
            let firsts = text_if_there(batch, "first_run")?;
            let revisions = whole_numbers(batch, "revision")?;
            for row in 0..batch.num_rows() {
                let key = SessionKey {
                    project_id: cell(&projects, row).map(str::to_owned),
                    session_id: cell(&sessions, row).unwrap_or_default().to_owned(),
                };
                if keys.get(&key) != Some(&at) {
                    continue;
                }
                let revision = whole_number(&revisions, row).unwrap_or(1);
                let earlier = EarlierSession {
                    run: run.name.clone(),
                    first_run: cell(&firsts, row).unwrap_or(&run.name).to_owned(),
                    revision: u32::try_from(revision).unwrap_or(1),
                };
                found.insert(key, earlier);
            }
            Ok(())
        })?;
    }
    // Where sessions were not asked for, there is no row of them.
    for (key, at) in keys {
        let run = chain
            .get(at)
            .map(|run| run.name.clone())
            .unwrap_or_default();
        found.entry(key).or_insert_with(|| EarlierSession {
            first_run: run.clone(),
            run,
            revision: 1,
        });
    }
    Ok(found)
}
