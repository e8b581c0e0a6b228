//! Rows of nights that go, taken over by the oldest night that stays.
//!
//! The night is made anew as one that goes on from nothing: it holds the latest state of its chain up to itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::{BooleanArray, RecordBatch};
use serde_json::{Value, json};

use super::carried_files::CarriedFiles;
use super::chain::Night;
use super::merged_table::{Merging, OfRun, Source};
use super::{KeepingError, files_of, replace, take_over, take_over_as};
use crate::history::chain::{CARRIED, taken_over_file};
use crate::history::lineage::RunMark;
use crate::history::stored_run::{HistoryError, read_json};
use crate::history::stored_table::{cell, text_if_there, trace_id};
use crate::history::verify::check_file;
use crate::output::directory::MANIFEST;
use crate::output::manifest::buckets_of;
use crate::output::{RunDirectory, RunError};

/// The table that names what a night replaces.
pub(super) const REPLACED: &str = "replaced";
/// Tables that are about a run and not about its sessions: those of the night itself stay, the others go.
const OF_THE_RUN: [&str; 4] = ["quarantine", "run_summary", "attention", REPLACED];
/// The members of a manifest that name the runs whose rows are carried: by name, in full, and what they were asked.
pub(super) const CARRIES: &str = "carries";
const CARRIED_RUNS: &str = "carried_runs";
pub(super) const CARRIED_REQUESTS: &str = "carried_requests";

/// What was taken over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TakenOver {
    pub sessions: u64,
    pub traces: u64,
}

/// What names the rows that are replaced together: those of a session, or of a trace without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowKey {
    /// By project and id.
    Session(Option<String>, String),
    /// By its canonical id.
    Trace(String),
}

/// The keys of the rows of a batch; none for a row that is about neither.
pub(super) fn keys(batch: &RecordBatch) -> Result<Vec<Option<RowKey>>, String> {
    let sessions = text_if_there(batch, "session_id")?;
    let projects = text_if_there(batch, "project_id")?;
    let traces = match batch.column_by_name("trace_id") {
        Some(_) => text_if_there(batch, "trace_id")?,
        None => text_if_there(batch, "target_id")?,
    };
    let key = |row| match cell(&sessions, row) {
        Some(session) => {
            let project = cell(&projects, row).map(str::to_owned);
            Some(RowKey::Session(project, session.to_owned()))
        }
        None => trace_id(&traces, row).map(RowKey::Trace),
    };
    Ok((0..batch.num_rows()).map(key).collect())
}

/// The tables of a run: the files of each, in their order.
pub(super) fn tables_of(run: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>, RunError> {
    let mut tables: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files_of(run)? {
        let is_table = file.extension().is_some_and(|e| e == "parquet");
        if let (true, Some(folder)) = (is_table, file.parent()) {
            let name = folder.to_string_lossy().into_owned();
            tables.entry(name).or_default().push(file);
        }
    }
    Ok(tables)
}

/// Reads every batch of a table's files.
pub(super) fn each_batch(
    run: &Path,
    files: &[PathBuf],
    mut each: impl FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), KeepingError> {
    let mut source = Source::new(run, files.to_vec(), 0);
    while let Some(batch) = source.next()? {
        each(&batch).map_err(|e| source.damaged(e))?;
    }
    Ok(())
}

/// Makes `night` anew with the rows of `old`, the oldest first, that neither it nor one of the `later` runs replaces.
pub(super) fn carry(
    night: &Night,
    old: &[&Night],
    later: &[&Night],
) -> Result<TakenOver, KeepingError> {
    let run = &night.run.path;
    let text = fs::read(run.join(MANIFEST)).map_err(|e| RunError::write(run, e))?;
    let mut told: Value = read_json(run, MANIFEST)?;
    let all: Vec<&Night> = old.iter().copied().chain([night]).collect();
    let tables: Vec<BTreeMap<String, Vec<PathBuf>>> = all
        .iter()
        .map(|night| tables_of(&night.run.path))
        .collect::<Result<_, _>>()?;
    let last = all.len() - 1;
    let buckets: Vec<u32> = all
        .iter()
        .map(|night| read_json::<Value>(&night.run.path, MANIFEST))
        .map(|told| Ok(buckets_of(&told?).count()))
        .collect::<Result<_, HistoryError>>()?;
    let mut others = all.iter().zip(&buckets);
    if let Some((other, count)) = others.find(|(_, count)| **count != buckets[last]) {
        return Err(KeepingError::Refused(format!(
            "`{}` is in {count} buckets, and `{}`, which goes on from it, in {}: its rows can't be carried; score all again in one \
             run, or keep these runs",
            other.run.name, night.run.name, buckets[last]
        )));
    }
    // The last run that replaces each. Later runs name the run that held it: the rows of the night itself stay its own.
    let mut replaced: HashMap<RowKey, usize> = HashMap::new();
    for (at, run) in all.iter().chain(later).enumerate() {
        let tables = tables_of(&run.run.path)?;
        let files = tables.get(REPLACED).map(Vec::as_slice).unwrap_or_default();
        each_batch(&run.run.path, files, |batch| {
            for key in keys(batch)?.into_iter().flatten() {
                replaced.insert(key, at);
            }
            Ok(())
        })?;
    }
    let keep = |at: usize, batch: &RecordBatch| -> Result<BooleanArray, String> {
        let live = |key: &Option<RowKey>| match key {
            _ if at == last => true,
            Some(key) => replaced.get(key).is_none_or(|by| *by <= at),
            // Of no session and no trace: it is about its run.
            None => false,
        };
        Ok(keys(batch)?.iter().map(live).map(Some).collect())
    };
    let files = CarriedFiles::of(&all)?;
    let directory = RunDirectory::create(run, true, &[])?;
    let mut taken = TakenOver::default();
    let mut from: BTreeSet<usize> = BTreeSet::new();
    // `carried` has the rows of `traces`, one beside the other.
    let mut names: Vec<&String> = tables.iter().flat_map(BTreeMap::keys).collect();
    names.sort_by(|a, b| (a.as_str() != "traces", a).cmp(&(b.as_str() != "traces", b)));
    names.dedup();
    let mut order: Vec<usize> = Vec::new();
    let mut made: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        if OF_THE_RUN.contains(&name.as_str()) || name.contains('/') {
            continue;
        }
        let sources: Vec<OfRun<'_>> = tables
            .iter()
            .enumerate()
            .filter_map(|(at, tables)| {
                let files = tables.get(name)?.as_slice();
                let run = &all[at].run;
                Some((at, run.name.as_str(), run.path.as_path(), files))
            })
            .collect();
        let is_carried = name == CARRIED;
        let merging = Merging {
            table: name,
            keep: &keep,
            places: is_carried.then_some(&files),
            order: is_carried.then_some(order.as_slice()),
        };
        let picked = merging.write(&sources, &directory)?;
        let carried = picked.iter().filter(|at| **at != last).count() as u64;
        if name == "traces" {
            order.clone_from(&picked);
        }
        if carried == 0 && !is_carried {
            // As it was, whatever columns others have.
            let folder = directory.path().join(name);
            if folder.exists() {
                fs::remove_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
            }
            continue;
        }
        from.extend(picked.iter().copied());
        made.insert(name);
        match name.as_str() {
            "sessions" => taken.sessions = carried,
            "traces" => taken.traces = carried,
            _ => {}
        }
    }
    if made.contains(CARRIED) {
        files.write(&directory)?;
        take_made_files(old, &directory)?;
    }
    for file in files_of(run)? {
        let folder = file.parent().map(|folder| folder.to_string_lossy());
        let folder = folder.unwrap_or_default();
        // What a night replaces is gone with the nights that held it.
        let is = |name: &str| file == Path::new(name);
        let left = is(MANIFEST) || is(".lock") || folder == REPLACED;
        if left || made.contains(&*folder) {
            continue;
        }
        check_file(run, &file.to_string_lossy())?;
        take_over(run, &directory, &file)?;
    }
    tell(&mut told, night, old, &from)?;
    replace(run, directory, told, &text)?;
    Ok(taken)
}

/// Takes over what old nights made of files of other formats, and what they took over themselves.
fn take_made_files(old: &[&Night], directory: &RunDirectory) -> Result<(), KeepingError> {
    for other in old {
        let path = &other.run.path;
        let told: Value = read_json(path, MANIFEST)?;
        let number = other.continues.as_ref().and_then(|c| c.night);
        let number = number.or_else(|| told["night"].as_u64()).unwrap_or(1);
        for file in files_of(path)? {
            let named = file.to_string_lossy().into_owned();
            let target = match file.strip_prefix(CARRIED) {
                Ok(inside) if inside.starts_with("made") => {
                    PathBuf::from(taken_over_file(number, &named))
                }
                Ok(inside) if inside.components().count() > 1 => file.clone(),
                _ => continue,
            };
            check_file(path, &named)?;
            take_over_as(&path.join(&file), directory, &target)?;
        }
    }
    Ok(())
}

/// What the manifest says of the runs whose rows it holds.
fn tell(
    told: &mut Value,
    night: &Night,
    old: &[&Night],
    from: &BTreeSet<usize>,
) -> Result<(), KeepingError> {
    let Some(members) = told.as_object_mut() else {
        return Ok(());
    };
    members.shift_remove("continues");
    if let Some(number) = night.continues.as_ref().and_then(|c| c.night) {
        members.insert("night".into(), json!(number));
    }
    let mut names: Vec<String> = Vec::new();
    let mut requests: Vec<Value> = Vec::new();
    let mut marks: Vec<RunMark> = Vec::new();
    for (at, other) in old.iter().enumerate() {
        let other_told: Value = read_json(&other.run.path, MANIFEST)?;
        names.extend(other.carries.iter().cloned());
        names.push(other.run.name.clone());
        marks.push(RunMark::of(&other.run));
        if from.contains(&at) {
            requests.extend(listed(&other_told, CARRIED_REQUESTS));
            requests.extend(other_told.get("request").cloned());
        }
    }
    names.extend(night.carries.iter().cloned());
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    requests.extend(listed(&Value::Object(members.clone()), CARRIED_REQUESTS));
    requests.dedup();
    members.insert(CARRIES.into(), json!(names));
    members.insert(CARRIED_RUNS.into(), json!(marks));
    members.insert(CARRIED_REQUESTS.into(), json!(requests));
    members.insert("carried_at".into(), json!(crate::output::manifest::now()));
    Ok(())
}

fn listed(told: &Value, member: &str) -> Vec<Value> {
    told.get(member)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}
