//! Runs that go on with one another: which run a night continues, and the chain behind it.
//!
//! A run's manifest names the run that it continues by path, name and identity. A chain that can't be followed to its
//! first run is an error: sessions of the missing part would count as new.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::continues::Continues;
use super::stored_run::{HistoryError, StoredRun, find_runs, read_json, read_run};
use crate::history::figures::{ScoreFilter, Target};
use crate::history::lineage::leave_out_retried;
use crate::output::directory::MANIFEST;

/// A run of a chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainRun {
    /// Its directory.
    pub path: PathBuf,
    /// The name of its directory, which results know it by.
    pub name: String,
    /// What no other run has.
    pub id: Option<String>,
    /// Which run of the chain it is, from 1.
    pub night: u64,
    /// Its manifest.
    pub manifest: Value,
}

impl ChainRun {
    fn read(path: &Path) -> Result<Self, HistoryError> {
        let manifest: Value = read_json(path, MANIFEST)?;
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let continues = Continues::of(path, &manifest)?;
        Ok(Self {
            path: path.to_owned(),
            name: name.unwrap_or_else(|| path.display().to_string()),
            id: manifest["identity"].as_str().map(str::to_owned),
            // A run that took over the rows of those before it continues none, and counts on.
            night: continues
                .and_then(|continues| continues.night)
                .or_else(|| manifest["night"].as_u64())
                .unwrap_or(1),
            manifest,
        })
    }

    /// What a run that continues this one says of it.
    pub fn continued(&self) -> Continues {
        Continues {
            run: self.name.clone(),
            path: Some(self.path.display().to_string()),
            id: self.id.clone(),
            night: Some(self.night + 1),
        }
    }
}

/// The run that a night continues: a run directory, or the run of a folder that a night can continue and no other does.
/// A retry stands for the run that it asks again: where that one is continued, so is the retry.
///
/// # Errors
/// [`HistoryError`] if there is none, and if there are several: each holds a part of the truth.
pub(crate) fn latest(path: &Path) -> Result<PathBuf, HistoryError> {
    let found = find_runs(&[path.to_owned()])?;
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if found.first() == Some(&whole) {
        return Ok(whole);
    }
    let runs: Vec<StoredRun> = found
        .iter()
        .filter(|run| run.join(CARRIED).is_dir() && run.join(MANIFEST).exists())
        .map(|run| read_run(run))
        .collect::<Result<_, _>>()?;
    let (runs, _) = leave_out_retried(runs, &ScoreFilter::all(Target::Trace));
    let mut continued = Vec::new();
    for later in found.iter().filter(|run| run.join(MANIFEST).exists()) {
        continued.extend(Continues::read(later)?.map(|before| (later, before)));
    }
    // A run that took over the rows of others holds these, too: what goes on among them goes on in itself.
    let holds = |run: &StoredRun, later: &Path| {
        let name = later.file_name().unwrap_or_default();
        run.retried.iter().any(|old| name == old.name.as_str())
    };
    let goes_on = |run: &StoredRun| {
        let mut later = continued.iter();
        later.any(|(later, before)| before.means(run, later) && !holds(run, later))
    };
    let mut ends: Vec<StoredRun> = runs.into_iter().filter(|run| !goes_on(run)).collect();
    ends.sort_by(|a, b| {
        a.created_at
            .cmp(&b.created_at)
            .then_with(|| a.name.cmp(&b.name))
    });
    if ends.len() > 1 {
        let names: Vec<String> = ends.iter().map(|run| format!("`{}`", run.name)).collect();
        return Err(HistoryError::Refused(format!(
            "`{}` holds several runs that no other run continues: {}; each would go on without the sessions of the others: \
             name the one to continue, or move the others away",
            path.display(),
            names.join(", ")
        )));
    }
    ends.pop()
        .map(|run| run.path)
        .ok_or_else(|| HistoryError::Nothing(path.to_owned()))
}

/// Where a run keeps the files that a night made of files of other formats, seen from its directory: its own, or those
/// of a night whose rows it took over.
pub(crate) fn made_in(chain: &[ChainRun], run: &ChainRun, night: u64, file: &str) -> PathBuf {
    if let Some(of) = chain.iter().find(|run| run.night == night) {
        return of.path.join(file);
    }
    let first = chain.first().unwrap_or(run);
    first.path.join(taken_over_file(night, file))
}

/// The place of a file of a removed night in the run that took over its rows.
pub(crate) fn taken_over_file(night: u64, file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{CARRIED}/night-{night}/{name}")
}

/// The table by which a later run finds the rows of sessions again.
pub(crate) const CARRIED: &str = "carried";

/// The chain that ends with a run, its first run first.
///
/// # Errors
/// [`HistoryError`] if a run of it can't be found or read.
pub(crate) fn chain(last: &Path) -> Result<Vec<ChainRun>, HistoryError> {
    let mut chain = vec![ChainRun::read(last)?];
    let mut seen = HashSet::new();
    while let Some(run) = chain.last() {
        let Some(before) = Continues::of(&run.path, &run.manifest)? else {
            break;
        };
        if !seen.insert(run.path.clone()) {
            let problem = "`continues` leads back to this run";
            return Err(HistoryError::damaged(&run.path, MANIFEST, problem));
        }
        let earlier = find(&run.path, &before)?;
        chain.push(earlier);
    }
    chain.reverse();
    Ok(chain)
}

/// The run that `continues` names: where it was, or beside the run that continues it, if both were moved.
fn find(run: &Path, continues: &Continues) -> Result<ChainRun, HistoryError> {
    for place in continues.places(run) {
        let found = ChainRun::read(&place)?;
        if found.id == continues.id {
            return Ok(found);
        }
    }
    let problem = format!(
        "it continues {}; put it back, or score all files anew",
        continues.missing(run)
    );
    Err(HistoryError::damaged(run, MANIFEST, problem))
}

/// The runs of a folder that continue a run, or one that it asks again, by the names of their directories.
///
/// # Errors
/// [`HistoryError`] if a manifest can't be read.
pub(crate) fn continued_by(run: &ChainRun, folder: &Path) -> Result<Vec<String>, HistoryError> {
    let Ok(found) = find_runs(&[folder.to_owned()]) else {
        return Ok(Vec::new());
    };
    let paths = continuing(&read_run(&run.path)?, found)?;
    let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(paths.iter().filter_map(name).collect())
}

/// The directories of the runs beside a run that continue it.
///
/// # Errors
/// [`HistoryError`] if a manifest can't be read.
pub(crate) fn continued_beside(run: &Path) -> Result<Vec<PathBuf>, HistoryError> {
    let folder = run.parent().unwrap_or(run);
    let found = find_runs(&[folder.to_owned()]).unwrap_or_default();
    // Runs that go on from the one that it asks again have that one.
    let run = StoredRun {
        retried: Vec::new(),
        ..read_run(run)?
    };
    continuing(&run, found)
}

/// Those of the runs at these places that continue a run, or one that it asks again.
fn continuing(run: &StoredRun, found: Vec<PathBuf>) -> Result<Vec<PathBuf>, HistoryError> {
    let mut later = Vec::new();
    for path in found
        .into_iter()
        .filter(|path| path.join(MANIFEST).exists())
    {
        if Continues::read(&path)?.is_some_and(|before| before.means(run, &path)) {
            later.push(path);
        }
    }
    Ok(later)
}
