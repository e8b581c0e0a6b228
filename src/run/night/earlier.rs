//! Finding the rows of touched sessions in a chain of runs.
//!
//! Hashes of the ids of all traces of the chain are looked at, once, and no more; of the sessions that new rows touch, the
//! places are read. A row of a run counts unless a later run says in `replaced` that it took the session over.

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow::array::{Array, AsArray, RecordBatch, UInt64Array};
use arrow::datatypes::UInt64Type;
use rayon::prelude::*;

use super::EarlierSession;
use super::keys::{Ids, NewKeys, session_key};
use super::replaced::REPLACED;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{
    cell, for_each_batch, text, text_if_there, whole_number, whole_numbers,
};
use crate::history::{CARRIED, ChainRun};
use crate::output::RunError;
use crate::run::carried::{NIGHT, SESSION_HASH, TRACE_HASH};
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
    /// The night in which it was new.
    pub night: u64,
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

impl Found {
    /// When its traces were new.
    pub fn first_nights(&self) -> HashMap<String, u64> {
        let mut nights: HashMap<String, u64> = HashMap::with_capacity(self.traces.len());
        for trace in &self.traces {
            let first = nights.entry(trace.trace_id.clone()).or_insert(trace.night);
            *first = trace.night.min(*first);
        }
        nights
    }
}

/// Sessions, and traces without one, that later runs took over from a run.
#[derive(Clone, Default)]
struct TakenOver {
    sessions: HashSet<[u8; 16]>,
    traces: HashSet<String>,
}

/// A row of an earlier run that new rows touch.
struct Touched {
    /// Its number in the tables `traces` and `carried` of the run.
    row: u64,
    /// The id of its trace, canonical, and as tables show it.
    trace_id: String,
    shown: String,
    /// Where the row is: a session and a project.
    session_id: Option<String>,
    project_id: Option<String>,
    /// Whether new rows are of its trace; else they are of its session.
    again: bool,
}

impl Touched {
    fn session(&self) -> Option<SessionKey> {
        Some(SessionKey {
            project_id: self.project_id.clone(),
            session_id: self.session_id.clone()?,
        })
    }
}

/// Finds what new rows touch.
///
/// # Errors
/// [`RunError`] for a run that can't be read, or that left nothing to go on with.
pub(super) fn find(chain: &[ChainRun], mut new: NewKeys) -> Result<Found, RunError> {
    let taken = taken_over(chain)?;
    let mut found = Found::default();
    let mut touched = touched(chain, &taken, &new)?;
    // A new row of an old trace touches the session that the trace is in so far, and the one that it ends up in.
    let sessions = new.sessions();
    for row in touched.iter().flatten().filter(|row| row.again) {
        let (session, project) = (row.session_id.as_deref(), row.project_id.as_deref());
        if let Some(session) = session {
            new.add_session(session, project);
        }
        new.add_moved(&row.trace_id, session, project);
        found.again.insert(row.trace_id.clone());
    }
    if new.sessions() > sessions {
        touched = self::touched(chain, &taken, &new)?;
    }
    let mut keys: HashMap<SessionKey, usize> = HashMap::new();
    for (at, (run, rows)) in chain.iter().zip(touched).enumerate() {
        let mut places = places(run, &rows)?;
        for row in rows {
            match row.session() {
                Some(session) => {
                    keys.insert(session, at);
                }
                None => found.alone.push((row.shown, run.name.clone())),
            }
            let (night, places) = places.remove(&row.row).unwrap_or_default();
            found.traces.push(EarlierTrace {
                run: at,
                row: row.row,
                trace_id: row.trace_id,
                night,
                places,
            });
        }
    }
    found.sessions = earlier_sessions(chain, keys)?;
    Ok(found)
}

/// The canonical id of a row, whose id is as it was given.
fn canonical(ids: &Ids<'_>, row: usize) -> String {
    let shown = ids.trace_id.value(row);
    canonical_trace_id(shown).unwrap_or_else(|| shown.to_owned())
}

/// When the trace of a row was new, and where its rows are.
type NightAndPlaces = (u64, Vec<(usize, u64)>);

/// When traces of rows of a run were new, and their places. They are read only of runs that have such rows: most have none.
fn places(run: &ChainRun, rows: &[Touched]) -> Result<HashMap<u64, NightAndPlaces>, HistoryError> {
    let mut found = HashMap::new();
    if rows.is_empty() {
        return Ok(found);
    }
    let (mut wanted, mut first) = (rows.iter().map(|row| row.row).peekable(), 0);
    for_each_batch(&run.path, CARRIED, &["rows", NIGHT], |batch| {
        let end = first + batch.num_rows() as u64;
        let nights = numbers(batch, NIGHT)?;
        while let Some(row) = wanted.next_if(|row| *row < end) {
            let at = (row - first) as usize;
            found.insert(row, (nights.value(at), places_in(batch, at)));
        }
        first = end;
        Ok(())
    })?;
    Ok(found)
}

fn places_in(batch: &RecordBatch, row: usize) -> Vec<(usize, u64)> {
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

/// The rows of each run that new rows touch, and that still count, in the order of their tables.
fn touched(
    chain: &[ChainRun],
    taken: &[TakenOver],
    new: &NewKeys,
) -> Result<Vec<Vec<Touched>>, RunError> {
    let runs = chain.par_iter().zip(taken);
    runs.map(|(run, taken)| touched_in(run, taken, new))
        .collect()
}

fn touched_in(run: &ChainRun, taken: &TakenOver, new: &NewKeys) -> Result<Vec<Touched>, RunError> {
    if !run.path.join(CARRIED).is_dir() {
        return Err(of_earlier_version(run, "it has no table `carried`"));
    }
    let mut wanted = candidates(run, new)?.into_iter().peekable();
    let mut touched = Vec::new();
    if wanted.peek().is_none() {
        return Ok(touched);
    }
    let mut first = 0;
    for_each_batch(
        &run.path,
        CARRIED,
        &["trace_id", "session_id", "project_id"],
        |batch| {
            let ids = Ids::of(batch).ok_or("a column of ids is missing")?;
            let end = first + batch.num_rows() as u64;
            while let Some(number) = wanted.next_if(|number| *number < end) {
                let row = (number - first) as usize;
                touched.extend(touched_row(&ids, row, number, taken, new));
            }
            first = end;
            Ok(())
        },
    )?;
    Ok(touched)
}

/// The rows of a run that new rows may touch, by the hashes of their ids: few others are among them.
fn candidates(run: &ChainRun, new: &NewKeys) -> Result<Vec<u64>, RunError> {
    let (mut candidates, mut number, mut of_version) = (Vec::new(), 0, true);
    for_each_batch(&run.path, CARRIED, &[TRACE_HASH, SESSION_HASH], |batch| {
        if batch.num_columns() < 2 {
            of_version = false;
            return Ok(());
        }
        let (traces, sessions) = (numbers(batch, TRACE_HASH)?, numbers(batch, SESSION_HASH)?);
        // Rows of a session stand together.
        let mut last = (None, false);
        for row in 0..batch.num_rows() {
            let session = sessions.is_valid(row).then(|| sessions.value(row));
            if row == 0 || session != last.0 {
                last = (
                    session,
                    session.is_some_and(|hash| new.may_have_session(hash)),
                );
            }
            if last.1 || new.may_have_trace(traces.value(row)) {
                candidates.push(number);
            }
            number += 1;
        }
        Ok(())
    })?;
    match of_version {
        true => Ok(candidates),
        false => Err(of_earlier_version(
            run,
            "its table `carried` has no hashes of ids",
        )),
    }
}

fn of_earlier_version(run: &ChainRun, problem: &str) -> RunError {
    if !run.manifest["scores_kept_at"].is_null() {
        return RunError::Request(format!(
            "the run `{}` can't be continued: only its scores were kept (`runs delete --keep-scores`); score all files anew",
            run.path.display()
        ));
    }
    RunError::Request(format!(
        "the run `{}` can't be continued: {problem}; an earlier version made it, or another command than score: score all \
         files anew",
        run.path.display()
    ))
}

/// A column of whole numbers of 64 bits.
fn numbers<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b UInt64Array, String> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    column.ok_or_else(|| format!("column `{name}` is missing, or holds no numbers of 64 bits"))
}

/// The row, if new rows touch it and no later run took it over.
fn touched_row(
    ids: &Ids<'_>,
    row: usize,
    number: u64,
    taken: &TakenOver,
    new: &NewKeys,
) -> Option<Touched> {
    let (shown, session) = (ids.trace_id.value(row), ids.session(row));
    let gone = match &session {
        Some(session) => taken.sessions.contains(session),
        None => taken.traces.contains(shown),
    };
    let trace_id = canonical(ids, row);
    let again = new.has_trace(&trace_id);
    let goes_on = session.is_some_and(|session| new.has_session(&session));
    (!gone && (again || goes_on)).then(|| Touched {
        row: number,
        trace_id,
        shown: shown.to_owned(),
        session_id: ids.session_of(row).map(str::to_owned),
        project_id: ids.project_of(row).map(str::to_owned),
        again,
    })
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
