//! Which run goes on from which: the chains that nights make.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::carry::CARRIES;
use super::{KeepingError, folders_of};
use crate::history::continues::Continues;
use crate::history::stored_run::read_json;
use crate::history::{StoredRun, find_runs, read_run};
use crate::output::directory::MANIFEST;
use crate::output::{BegunStatus, begun_runs};

/// A run with what its manifest says of other runs.
#[derive(Clone, Debug)]
pub(super) struct Night {
    pub run: StoredRun,
    pub continues: Option<Continues>,
    /// Names of removed runs whose rows it holds.
    pub carries: Vec<String>,
    /// The run that scores of people are about, if it holds such scores.
    pub scores_of: Option<String>,
    /// Whether it was named, or is in a folder that was.
    pub named: bool,
    /// The run that it goes on from, among those that are known.
    pub earlier: Option<usize>,
}

impl Night {
    fn read(path: &Path, named: bool) -> Result<Self, KeepingError> {
        let told: Value = read_json(path, MANIFEST)?;
        let names = told[CARRIES].as_array().into_iter().flatten();
        let names = names.filter_map(Value::as_str);
        Ok(Self {
            run: read_run(path)?,
            continues: Continues::of(path, &told)?,
            carries: names.map(str::to_owned).collect(),
            scores_of: told["scores_of"].as_str().map(str::to_owned),
            named,
            earlier: None,
        })
    }

    fn is(&self, continued: &Continues) -> bool {
        match (&self.run.identity, &continued.id) {
            (Some(identity), Some(id)) => identity == id,
            // Without identities, the place tells.
            (None, None) => {
                let path = continued.path.as_deref().map(Path::new);
                path == Some(self.run.path.as_path())
            }
            _ => false,
        }
    }
}

/// The runs that paths name, all runs beside them, and those that these go on from, wherever they are.
///
/// # Errors
/// [`KeepingError`] if one can't be read, or is under way: what it goes on from can't be known.
pub(super) fn nights(paths: &[PathBuf]) -> Result<Vec<Night>, KeepingError> {
    let named = find_runs(paths)?;
    let folders = folders_of(named.iter());
    check_at_rest(&folders)?;
    let mut nights = Vec::new();
    for path in &named {
        nights.push(Night::read(path, true)?);
    }
    for folder in &folders {
        for path in find_runs(std::slice::from_ref(folder))? {
            if !named.contains(&path) {
                nights.push(Night::read(&path, false)?);
            }
        }
    }
    let mut at = 0;
    while let Some(night) = nights.get(at) {
        if let Some(continued) = night.continues.clone() {
            let mut earlier = nights.iter().position(|other| other.is(&continued));
            if earlier.is_none()
                && let Some(path) = &continued.path
                && let Ok(path) = Path::new(path).canonicalize()
                && path.join(MANIFEST).is_file()
            {
                let other = Night::read(&path, false)?;
                if other.is(&continued) {
                    earlier = Some(nights.len());
                    nights.push(other);
                }
            }
            nights[at].earlier = earlier;
        }
        at += 1;
    }
    for first in 0..nights.len() {
        if ancestors(&nights, first).len() > nights.len() {
            return Err(KeepingError::Refused(format!(
                "the run `{}` goes on from itself: its manifest, or that of an earlier night, is not what was written; see \
                 `nightmill runs verify`",
                nights[first].run.path.display()
            )));
        }
    }
    Ok(nights)
}

/// Refuses folders in which a run is under way: it may read what is about to go, and write it again.
pub(super) fn check_at_rest(folders: &BTreeSet<PathBuf>) -> Result<(), KeepingError> {
    for folder in folders {
        let mut begun = begun_runs(folder).into_iter();
        if let Some(run) = begun.find(|run| run.status == BegunStatus::Running) {
            return Err(KeepingError::Refused(format!(
                "`{}` is under way and may go on from one of these runs; wait for its end, or stop it first",
                run.path.display()
            )));
        }
    }
    Ok(())
}

/// The earlier nights of a run's chain, the latest first. In a circle, more than there are.
pub(super) fn ancestors(nights: &[Night], of: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = nights[of].earlier;
    while let Some(earlier) = at {
        found.push(earlier);
        if found.len() > nights.len() {
            break;
        }
        at = nights[earlier].earlier;
    }
    found
}
