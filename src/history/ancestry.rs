//! Which run goes on from which: a night continues an earlier one, and says so in its manifest.
//!
//! A run is known by its identity. A retry stands for the runs whose scores it holds. A run that continues one that is not
//! there is the first of its chain.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::history::StoredRun;
use crate::history::lineage::RunMark;
use crate::history::stored_run::{HistoryError, read_json, read_run};
use crate::output::directory::MANIFEST;

/// What a manifest says of the run that its run goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct GoesOn {
    /// The name of its directory.
    pub run: String,
    /// Its directory.
    path: Option<String>,
    /// Its identity.
    id: Option<String>,
    /// Which night of the chain the run is that goes on.
    pub night: Option<u64>,
}

impl GoesOn {
    /// What the manifest in a run directory says; none if the run goes on from nothing.
    ///
    /// # Errors
    /// [`HistoryError`] if it can't be read.
    pub fn read(run: &Path) -> Result<Option<Self>, HistoryError> {
        let manifest: Value = read_json(run, MANIFEST)?;
        Self::of(&manifest)
            .map_err(|e| HistoryError::damaged(run, MANIFEST, format!("`continues`: {e}")))
    }

    /// The same of a manifest that was read.
    ///
    /// # Errors
    /// If it is written in another way.
    pub fn of(manifest: &Value) -> Result<Option<Self>, serde_json::Error> {
        match manifest.get("continues") {
            None | Some(Value::Null) => Ok(None),
            Some(said) => Self::deserialize(said).map(Some),
        }
    }

    /// Whether `run` is the one that `later` goes on from.
    fn means(&self, run: &StoredRun, later: &Path) -> bool {
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
    fn places(&self, later: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let beside = later.parent().map(|folder| folder.join(&self.run));
        let then = self.path.as_ref().map(PathBuf::from);
        [then, beside].into_iter().flatten()
    }
}

/// The chains of a list of runs.
#[derive(Debug)]
pub(crate) struct Ancestry {
    /// By run: the one that it goes on from, as a place in the list.
    before: Vec<Option<usize>>,
    /// By run: which night of its chain it is.
    nights: Vec<u64>,
}

impl Ancestry {
    /// Of runs, and what each says that it goes on from.
    pub fn of(runs: &[StoredRun], said: &[Option<GoesOn>]) -> Self {
        let find = |later: &StoredRun, said: &Option<GoesOn>| {
            let said = said.as_ref()?;
            let mut found = runs.iter().enumerate();
            found
                .find(|(_, run)| run.path != later.path && said.means(run, &later.path))
                .map(|(at, _)| at)
        };
        let before: Vec<Option<usize>> = runs
            .iter()
            .zip(said)
            .map(|(run, said)| find(run, said))
            .collect();
        let mut ancestry = Self {
            before,
            nights: Vec::new(),
        };
        let nights = (0..runs.len()).map(|run| {
            let told = said.get(run).and_then(Option::as_ref);
            let told = told.and_then(|said| said.night);
            told.unwrap_or_else(|| ancestry.earlier(run).len() as u64 + 1)
        });
        ancestry.nights = nights.collect();
        ancestry
    }

    /// The run that a run goes on from.
    pub fn before(&self, run: usize) -> Option<usize> {
        self.before.get(run).copied().flatten()
    }

    /// Which night of its chain a run is, from 1.
    pub fn night(&self, run: usize) -> u64 {
        self.nights.get(run).copied().unwrap_or(1)
    }

    /// All runs that a run goes on from, the latest first.
    pub fn earlier(&self, run: usize) -> Vec<usize> {
        let (mut earlier, mut at) = (Vec::new(), run);
        while let Some(before) = self.before(at)
            && before != run
            && !earlier.contains(&before)
        {
            earlier.push(before);
            at = before;
        }
        earlier
    }

    /// Whether all runs are of one chain without branches, so that no session is in it twice.
    pub fn is_one_line(&self) -> bool {
        let mut known = HashSet::new();
        let firsts = self.before.iter().filter(|before| before.is_none()).count();
        let mut others = self.before.iter().flatten();
        firsts <= 1 && others.all(|before| known.insert(*before))
    }
}

/// The runs that a run goes on from, the latest first, at most so many. One that is not there any more ends the list, and
/// its name is given.
///
/// # Errors
/// [`HistoryError`] if one that is there can't be read.
pub(crate) fn nights_before(
    run: &StoredRun,
    most: usize,
) -> Result<(Vec<StoredRun>, Option<String>), HistoryError> {
    let mut found: Vec<StoredRun> = Vec::new();
    let mut known = HashSet::from([run.path.clone()]);
    while found.len() < most {
        let last = found.last().unwrap_or(run);
        let Some(said) = GoesOn::read(&last.path)? else {
            return Ok((found, None));
        };
        let mut earlier = None;
        for place in said.places(&last.path) {
            if place.join(MANIFEST).exists() {
                let other = read_run(&place)?;
                if said.means(&other, &last.path) {
                    earlier = Some(other);
                    break;
                }
            }
        }
        match earlier {
            Some(earlier) if known.insert(earlier.path.clone()) => found.push(earlier),
            Some(_) => {
                let problem = "`continues` leads in a circle";
                return Err(HistoryError::damaged(&last.path, MANIFEST, problem));
            }
            None => return Ok((found, Some(said.run))),
        }
    }
    Ok((found, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::lineage::retried_with;
    use crate::history::lineage::samples::run;

    fn said(of: &StoredRun) -> Option<GoesOn> {
        let manifest = json!({"continues": {"run": of.name, "path": of.path, "id": of.identity}});
        GoesOn::of(&manifest).unwrap()
    }

    #[test]
    fn nights_stand_in_their_order_whatever_the_order_of_the_list() {
        let one = run("one", 1, Some("a"), None);
        let two = run("two", 2, Some("b"), None);
        let three = run("three", 3, Some("c"), None);
        let other = run("other", 3, Some("d"), None);
        let runs = [three.clone(), one.clone(), two.clone(), other];
        let chain = Ancestry::of(&runs, &[said(&two), None, said(&one), None]);
        assert_eq!(chain.earlier(0), [2, 1]);
        assert_eq!([0, 1, 2, 3].map(|run| chain.night(run)), [3, 1, 2, 1]);
        assert!(!chain.is_one_line());
        let alone = Ancestry::of(&runs[..3], &[said(&two), None, said(&one)]);
        assert!(alone.is_one_line());
        // Two nights that both go on from one.
        let fork = Ancestry::of(&runs[..3], &[said(&one), None, said(&one)]);
        assert!(!fork.is_one_line());
    }

    #[test]
    fn a_retry_stands_for_the_run_that_it_asks_again() {
        let one = run("one", 1, Some("a"), None);
        let again = StoredRun {
            retried: retried_with(&one),
            ..run("again", 2, Some("z"), None)
        };
        let two = run("two", 3, Some("b"), None);
        let chain = Ancestry::of(&[again, two], &[None, said(&one)]);
        assert_eq!(chain.before(1), Some(0));
    }

    #[test]
    fn a_run_under_an_old_name_is_another_one() {
        let one = run("one", 1, Some("a"), None);
        let replaced = run("one", 1, Some("z"), None);
        let two = run("two", 3, Some("b"), None);
        let chain = Ancestry::of(&[replaced, two], &[None, said(&one)]);
        assert_eq!((chain.before(1), chain.night(1)), (None, 1));
    }

    #[test]
    fn a_circle_ends() {
        let one = run("one", 1, Some("a"), None);
        let two = run("two", 2, Some("b"), None);
        let runs = [one.clone(), two.clone()];
        let chain = Ancestry::of(&runs, &[said(&two), said(&one)]);
        assert_eq!(chain.earlier(0), [1]);
    }
}
