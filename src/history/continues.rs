//! What a manifest says of the run that its run goes on from.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stored_run::{HistoryError, StoredRun, find_runs, read_json, read_run};
use crate::history::lineage::RunMark;
use crate::output::directory::MANIFEST;
use crate::output::manifest::CONTINUES;

/// The run that a night goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Continues {
    /// The name of its directory.
    pub run: String,
    /// Its directory, a whole path.
    pub path: Option<String>,
    /// What no other run has.
    pub id: Option<String>,
    /// Which night of its chain the continuing run is: 2 or more.
    pub night: Option<u64>,
}

impl Continues {
    /// What the manifest in a run directory says; none if the run goes on from nothing.
    ///
    /// # Errors
    /// [`HistoryError`] if it can't be read.
    pub fn read(run: &Path) -> Result<Option<Self>, HistoryError> {
        Self::of(run, &read_json(run, MANIFEST)?)
    }

    /// The same of the manifest of a run that was read.
    ///
    /// # Errors
    /// [`HistoryError`] if it is written in another way.
    pub fn of(run: &Path, manifest: &Value) -> Result<Option<Self>, HistoryError> {
        match manifest.get(CONTINUES) {
            None | Some(Value::Null) => Ok(None),
            Some(said) => Self::deserialize(said)
                .map(Some)
                .map_err(|e| HistoryError::damaged(run, MANIFEST, format!("`{CONTINUES}`: {e}"))),
        }
    }

    /// Whether `run` is the one that `later` goes on from. A retry stands for the runs whose scores it holds; a run without
    /// identity is known by its name and place.
    pub fn means(&self, run: &StoredRun, later: &Path) -> bool {
        let mark = RunMark::of(run);
        let mut marks = std::iter::once(&mark).chain(&run.retried);
        marks.any(|mark| match (&self.id, &mark.identity) {
            (Some(id), Some(known)) => id == known,
            (None, None) => {
                let beside = later.parent() == run.path.parent();
                mark.name == self.run && (beside || mark.path == self.path)
            }
            _ => false,
        })
    }

    /// Where the run may be: where it was, and beside the one that goes on, if both were moved.
    pub fn places(&self, later: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let beside = later.parent().map(|folder| folder.join(&self.run));
        let then = self.path.as_ref().map(PathBuf::from);
        let places = [then, beside].into_iter().flatten();
        places.filter(|place| place.join(MANIFEST).exists())
    }

    /// What is said of it where it is at none of its places: if a run beside has its identity, under which name.
    pub fn missing(&self, later: &Path) -> String {
        let name = &self.run;
        if let Some(renamed) = self.renamed(later) {
            return format!("the run `{name}`, which is now called `{renamed}`");
        }
        let at = match &self.path {
            Some(path) => format!("neither at `{path}` nor beside it"),
            None => "not beside it".to_owned(),
        };
        match self.places(later).next() {
            Some(place) => format!(
                "the run `{name}`, which is {at} any more: `{}` is another run of that name",
                place.display()
            ),
            None => format!("the run `{name}`, which is {at} any more"),
        }
    }

    /// The name of a run beside `later` that is this one by its identity.
    fn renamed(&self, later: &Path) -> Option<String> {
        let id = self.id.as_ref()?;
        let beside = find_runs(&[later.parent()?.to_owned()]).ok()?;
        let runs = beside.iter().filter_map(|path| read_run(path).ok());
        let mut same = runs.filter(|run| run.identity.as_ref() == Some(id));
        same.next().map(|run| run.name)
    }

    /// The run itself; none if it is at none of its places.
    ///
    /// # Errors
    /// [`HistoryError`] if a run there can't be read.
    pub fn find(&self, later: &Path) -> Result<Option<StoredRun>, HistoryError> {
        for place in self.places(later) {
            let found = read_run(&place)?;
            if self.means(&found, later) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
