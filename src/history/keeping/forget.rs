//! `nightmill runs forget`, as far as runs themselves go: no row, score, place or text of some traces is left in them.
//!
//! What was said of a whole session that loses a trace can't stand: its row of `sessions`, its scores and its verdicts go
//! too; its other traces stay, with their own scores.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use serde::Serialize;
use serde_json::{Value, json};

use super::carry::{CARRIED_REQUESTS, RowKey, each_batch, keys, tables_of};
use super::chain::check_at_rest;
use super::erased_rows::{ErasedRows, JUDGED, traces_of};
use super::scrub::{Scrub, TAKEN_OUT};
use super::{KeepingError, Turn, files_of, folders_of, replace, take_over};
use crate::history::StoredRun;
use crate::history::stored_run::{SUMMARY, read_json};
use crate::history::stored_table::{cell, text_if_there, trace_id};
use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError, manifest};

const REPORT: &str = "report.html";
const FORGOTTEN: &str = "forgotten";
/// Members of a request that choose traces, and so may name them.
const REQUESTED: [&str; 5] = [
    "/targets",
    "/settings/filters",
    "/settings/trace_ids",
    "/settings/session_ids",
    "/settings/judge_only",
];

/// What is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erasing {
    /// Canonical ids of traces.
    pub traces: BTreeSet<String>,
    /// Ids of sessions that are forgotten whole.
    pub sessions: BTreeSet<String>,
    /// The user that they are of, if one was named.
    pub user: Option<String>,
    /// Rows of the traces in the files that runs read, by the whole path of the file.
    pub rows: BTreeMap<String, BTreeSet<u64>>,
}

impl Erasing {
    /// The rows of the traces in a file, as a run names it.
    pub(super) fn rows_of(&self, file: &str) -> Option<&BTreeSet<u64>> {
        self.rows.get(file).or_else(|| {
            // A path that was given from another folder.
            let ends = format!("/{}", file.trim_start_matches("./"));
            let mut found = self.rows.iter().filter(|(path, _)| path.ends_with(&ends));
            found.next().map(|(_, rows)| rows)
        })
    }
}

/// What was taken out of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErasedFromRun {
    /// Its name.
    pub run: String,
    /// Traces.
    pub traces: u64,
    /// Rows, by table.
    pub rows: BTreeMap<String, u64>,
    /// Rows of other traces that named one of them, and name it no more.
    pub mended: u64,
    /// Sessions that have traces left and no scores of their own any more.
    pub sessions_without_scores: u64,
    /// Whether `report.html` went, which shows texts.
    pub report: bool,
}

/// The traces of sessions in the tables of a run, and the hashes of the questions that judges were asked about these
/// sessions and those of `traces`.
///
/// # Errors
/// [`KeepingError`] if a table can't be read.
pub fn traces_of_sessions(
    run: &StoredRun,
    what: &Erasing,
) -> Result<(BTreeSet<String>, BTreeSet<String>), KeepingError> {
    let (mut traces, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    let (mut sessions, tables) = (HashMap::<RowKey, u64>::new(), tables_of(&run.path)?);
    for (name, files) in &tables {
        each_batch(&run.path, files, |batch| {
            let (of, keys) = (traces_of(batch)?, keys(batch)?);
            let users = text_if_there(batch, "user_id")?;
            for (row, (trace, key)) in of.into_iter().zip(keys).enumerate() {
                let named = is_of(&key, what);
                let of_user = what.user.is_some() && cell(&users, row) == what.user.as_deref();
                let is_one = trace.as_ref().is_some_and(|id| what.traces.contains(id));
                if (named || of_user || is_one) && !JUDGED.contains(&name.as_str()) {
                    traces.extend(trace);
                    if let Some(key) = key {
                        sessions.insert(key, 0);
                    }
                }
            }
            Ok(())
        })?;
    }
    let verdicts = tables.get(JUDGED[0]).map(Vec::as_slice);
    each_batch(&run.path, verdicts.unwrap_or_default(), |batch| {
        let found = text_if_there(batch, "request_hash")?;
        for (row, key) in keys(batch)?.into_iter().enumerate() {
            if is_of(&key, what) || key.is_some_and(|key| sessions.contains_key(&key)) {
                hashes.extend(cell(&found, row).map(str::to_owned));
            }
        }
        Ok(())
    })?;
    Ok((traces, hashes))
}

/// Whether rows of this key are of a session that is forgotten whole.
fn is_of(key: &Option<RowKey>, what: &Erasing) -> bool {
    matches!(key, Some(RowKey::Session(_, session)) if what.sessions.contains(session))
}

/// Refuses runs beside which another one is under way.
///
/// # Errors
/// [`KeepingError::Refused`].
pub fn check_none_under_way(runs: &[StoredRun]) -> Result<(), KeepingError> {
    let paths: Vec<PathBuf> = runs.iter().map(|run| run.path.clone()).collect();
    check_at_rest(&folders_of(paths.iter()))
}

/// Takes traces out of runs, the oldest run first, so that no earlier row of a session counts again in between; `each` is told
/// of every run that changed.
///
/// # Errors
/// [`KeepingError`] if a run can't be read or made anew. Runs that were done by then are done.
pub fn erase(
    runs: &[StoredRun],
    what: &Erasing,
    dry_run: bool,
    mut each: impl FnMut(ErasedFromRun),
) -> Result<(), KeepingError> {
    let paths: Vec<PathBuf> = runs.iter().map(|run| run.path.clone()).collect();
    let folders = folders_of(paths.iter());
    let _turn = match dry_run {
        true => None,
        false => Some(Turn::wait(&folders)?),
    };
    check_at_rest(&folders)?;
    let mut runs: Vec<&StoredRun> = runs.iter().collect();
    runs.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
    let mut left: HashMap<RowKey, u64> = HashMap::new();
    for run in &runs {
        for (key, traces) in Seen::of(run, what)?.sessions {
            *left.entry(key).or_default() += traces;
        }
    }
    let gone = left.into_iter().filter(|(_, traces)| *traces == 0);
    let gone: HashSet<RowKey> = gone.map(|(key, _)| key).collect();
    for run in runs {
        if let Some(erased) = erase_from(run, what, &gone, dry_run)? {
            each(erased);
        }
    }
    Ok(())
}

/// What a first look at the tables of a run finds.
#[derive(Default)]
struct Seen {
    traces: BTreeSet<String>,
    /// Ids as the run spells them.
    spellings: BTreeSet<String>,
    /// Sessions that lose traces, and traces that they keep.
    sessions: HashMap<RowKey, u64>,
}

impl Seen {
    fn of(run: &StoredRun, what: &Erasing) -> Result<Self, KeepingError> {
        let mut seen = Self::default();
        let tables = tables_of(&run.path)?;
        for (name, files) in &tables {
            each_batch(&run.path, files, |batch| seen.look(name, batch, what))?;
        }
        // Traces that the sessions keep.
        let files = tables.get("traces").map(Vec::as_slice).unwrap_or_default();
        each_batch(&run.path, files, |batch| {
            for (trace, key) in traces_of(batch)?.into_iter().zip(keys(batch)?) {
                if let (Some(id), Some(key)) = (trace, key)
                    && !what.traces.contains(&id)
                    && let Some(left) = seen.sessions.get_mut(&key)
                {
                    *left += 1;
                }
            }
            Ok(())
        })?;
        Ok(seen)
    }

    fn look(&mut self, table: &str, batch: &RecordBatch, what: &Erasing) -> Result<(), String> {
        let shown = match batch.column_by_name("trace_id") {
            Some(_) => text_if_there(batch, "trace_id")?,
            None => text_if_there(batch, "target_id")?,
        };
        let rows = traces_of(batch)?.into_iter().zip(keys(batch)?);
        for (row, (trace, key)) in rows.enumerate() {
            let is_one = trace.is_some_and(|id| what.traces.contains(&id));
            if is_one {
                self.traces.extend(trace_id(&shown, row));
                self.spellings.extend(cell(&shown, row).map(str::to_owned));
                self.spellings.extend(trace_id(&shown, row));
            }
            // What a night replaces it does not hold.
            let loses = is_one && table != super::carry::REPLACED;
            if let (true, Some(key @ RowKey::Session(..))) = (loses || is_of(&key, what), key) {
                self.sessions.entry(key).or_default();
            }
        }
        Ok(())
    }
}

fn erase_from(
    run: &StoredRun,
    what: &Erasing,
    gone: &HashSet<RowKey>,
    dry_run: bool,
) -> Result<Option<ErasedFromRun>, KeepingError> {
    let path = &run.path;
    let text = fs::read(path.join(MANIFEST)).map_err(|e| RunError::write(path, e))?;
    let mut told: Value = read_json(path, MANIFEST)?;
    let mut summary: Value = read_json(path, SUMMARY)?;
    let seen = Seen::of(run, what)?;
    let others = what.sessions.iter().chain(&what.user).cloned();
    let exact = Scrub {
        traces: what.traces.clone(),
        others: others.collect(),
        spellings: BTreeSet::new(),
    };
    let mut rows = ErasedRows {
        what,
        sessions: seen.sessions,
        gone_sessions: gone,
        scrub: Scrub {
            spellings: seen.spellings.union(&what.sessions).cloned().collect(),
            ..exact.clone()
        },
        gone: BTreeMap::new(),
        scrubbed: 0,
        failures: BTreeSet::new(),
        codes: BTreeSet::new(),
    };
    let directory = match dry_run {
        false => RunDirectory::create(path, true, &[])?,
        // Nothing of it stays; beside the run there may be no room for it.
        true => scratch(run)?,
    };
    let mut changed = false;
    let mut others: Vec<PathBuf> = Vec::new();
    for file in files_of(path)? {
        let table = file
            .parent()
            .map(|folder| folder.to_string_lossy().into_owned());
        match table.filter(|_| file.extension().is_some_and(|e| e == "parquet")) {
            Some(table) => {
                let target = directory.path().join(&file);
                match rows.rewrite(path, &file, &table, &target)? {
                    true => changed = true,
                    false => others.push(file),
                }
            }
            None => others.push(file),
        }
    }
    changed |= tidy_manifest(&mut told, &exact);
    let summary_changed = tidy_summary(&mut summary, &rows, &exact);
    changed |= summary_changed;
    if !changed {
        return Ok(None);
    }
    let report = path.join(REPORT).exists();
    let partly = rows.sessions.values().filter(|left| **left > 0);
    let erased = ErasedFromRun {
        run: run.name.clone(),
        traces: seen.traces.len() as u64,
        mended: rows.scrubbed,
        sessions_without_scores: match path.join("sessions").is_dir() {
            true => partly.count() as u64,
            false => 0,
        },
        report,
        rows: rows
            .gone
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect(),
    };
    if dry_run {
        return Ok(Some(erased));
    }
    for file in others {
        let is = |name: &str| file == Path::new(name);
        if is(MANIFEST) || is(".lock") || is(REPORT) || (summary_changed && is(SUMMARY)) {
            continue;
        }
        take_over(path, &directory, &file)?;
    }
    if summary_changed {
        manifest::write_json(&directory.path().join(SUMMARY), &summary)?;
    }
    if let Some(members) = told.as_object_mut() {
        let before = members.get(FORGOTTEN).and_then(|f| f["count"].as_u64());
        let count = before.unwrap_or_default() + erased.traces;
        let at = manifest::now();
        members.insert(FORGOTTEN.into(), json!({ "count": count, "at": at }));
    }
    replace(path, directory, told, &text)?;
    Ok(Some(erased))
}

/// A directory that is never committed.
fn scratch(run: &StoredRun) -> Result<RunDirectory, RunError> {
    let folder = std::env::temp_dir();
    let name = format!("nightmill-forget-{}", std::process::id());
    let target = folder.join(format!("{name}-{}", run.name));
    RunDirectory::create(&target, false, &[])
}

/// Takes ids out of what a manifest says of its request.
fn tidy_manifest(told: &mut Value, exact: &Scrub) -> bool {
    let mut changed = false;
    // Filters name ids inside of longer texts too.
    let whole = Scrub {
        spellings: exact.traces.union(&exact.others).cloned().collect(),
        ..exact.clone()
    };
    let mut tidy = |request: &mut Value| {
        for member in REQUESTED {
            changed |= request
                .pointer_mut(member)
                .is_some_and(|part| whole.json(part));
        }
    };
    if let Some(request) = told.get_mut("request") {
        tidy(request);
    }
    let carried = told.get_mut(CARRIED_REQUESTS).and_then(Value::as_array_mut);
    carried.into_iter().flatten().for_each(tidy);
    if let Some(filters) = told.pointer_mut("/judge/filters") {
        changed |= whole.json(filters);
    }
    changed
}

/// Takes out of a summary what it shows of the traces; its counts and means stay as the run came to.
fn tidy_summary(summary: &mut Value, rows: &ErasedRows<'_>, exact: &Scrub) -> bool {
    let mut changed = false;
    if let Some(Value::Array(worst)) = summary.get_mut("worst_sessions") {
        let before = worst.len();
        worst.retain(|session| {
            let member = |name: &str| session.get(name).and_then(Value::as_str).map(str::to_owned);
            let key = member("session_id").map(|id| RowKey::Session(member("project_id"), id));
            key.is_none_or(|key| !rows.sessions.contains_key(&key))
        });
        changed |= worst.len() != before;
        for session in worst {
            changed |= exact.json(session);
        }
    }
    let shown = |list: &mut Value, text: &str, goes: &dyn Fn(&Value) -> bool| {
        let mut changed = false;
        for entry in list.as_array_mut().into_iter().flatten() {
            let goes = goes(entry);
            if let Some(Value::String(shown)) = entry.get_mut(text)
                && shown != TAKEN_OUT
                && (goes || rows.scrub.text(shown).is_some())
            {
                TAKEN_OUT.clone_into(shown);
                changed = true;
            }
        }
        changed
    };
    if let Some(list) = summary.get_mut("quarantine") {
        let of_code = |entry: &Value| {
            entry["code"]
                .as_str()
                .is_some_and(|c| rows.codes.contains(c))
        };
        changed |= shown(list, "example", &of_code);
    }
    if let Some(list) = summary.get_mut("failures") {
        let went = |entry: &Value| {
            let member = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            rows.failures
                .contains(&(member("metric"), member("reason")))
        };
        changed |= shown(list, "reason", &went);
    }
    changed
}
