//! Which run goes on from which: a night continues an earlier one, and says so in its manifest.
//!
//! A run is known by its identity. A retry stands for the runs whose scores it holds. A run that continues one that is not
//! there is the first of its chain.

use std::collections::HashSet;

use crate::history::StoredRun;
use crate::history::continues::Continues;
use crate::history::stored_run::HistoryError;
use crate::output::directory::MANIFEST;

/// The chains of a list of runs.
#[derive(Debug)]
pub(crate) struct Ancestry {
    /// By run: the one that it goes on from, as a place in the list.
    before: Vec<Option<usize>>,
    /// By run: which night of its chain it is.
    nights: Vec<u64>,
}

impl Ancestry {
    /// Of runs, and what each says that it goes on from, and which night it is.
    pub fn of(runs: &[StoredRun], said: &[Option<Continues>], nights: &[Option<u64>]) -> Self {
        let find = |later: &StoredRun, said: &Option<Continues>| {
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
            let told = nights.get(run).copied().flatten();
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

/// A run of a chain that is not where its later runs look for it.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    /// Its name.
    pub run: String,
    /// The same with what is known of it, in words.
    pub told: String,
}

/// The runs that a run goes on from, the latest first, at most so many. One that is not there any more ends the list, and
/// what is said of it is given.
///
/// # Errors
/// [`HistoryError`] if one that is there can't be read.
pub(crate) fn nights_before(
    run: &StoredRun,
    most: usize,
) -> Result<(Vec<StoredRun>, Option<Missing>), HistoryError> {
    let mut found: Vec<StoredRun> = Vec::new();
    let mut known = HashSet::from([run.path.clone()]);
    while found.len() < most {
        let last = found.last().unwrap_or(run);
        let Some(said) = Continues::read(&last.path)? else {
            return Ok((found, None));
        };
        match said.find(&last.path)? {
            Some(earlier) if known.insert(earlier.path.clone()) => found.push(earlier),
            Some(_) => {
                let problem = "`continues` leads in a circle";
                return Err(HistoryError::damaged(&last.path, MANIFEST, problem));
            }
            None => {
                let told = said.missing(&last.path);
                return Ok((
                    found,
                    Some(Missing {
                        run: said.run,
                        told,
                    }),
                ));
            }
        }
    }
    Ok((found, None))
}

/// What is missing between runs that are read together, in lines: a run goes on from one that is not among them, and an
/// older run is, whose rows may have been replaced by the one that is missing.
///
/// # Errors
/// [`HistoryError`] if a manifest can't be read.
pub fn gaps(runs: &[StoredRun]) -> Result<Vec<String>, HistoryError> {
    let mut gaps = Vec::new();
    for run in runs {
        let Some(said) = Continues::read(&run.path)? else {
            continue;
        };
        let there = runs.iter().any(|other| said.means(other, &run.path));
        let older = runs.iter().any(|other| other.created_at < run.created_at);
        if there || !older {
            continue;
        }
        let missing = match said.find(&run.path)? {
            Some(found) => format!("`{}`, which is not among these runs", found.name),
            None => said.missing(&run.path),
        };
        gaps.push(format!(
            "`{}` continues {missing}: rows of earlier nights that were replaced there may count again",
            run.name
        ));
    }
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::history::lineage::retried_with;
    use crate::history::lineage::samples::run;

    fn said(of: &StoredRun) -> Option<Continues> {
        let manifest = json!({"continues": {"run": of.name, "path": of.path, "id": of.identity}});
        Continues::of(Path::new("later"), &manifest).unwrap()
    }

    #[test]
    fn nights_stand_in_their_order_whatever_the_order_of_the_list() {
        let one = run("one", 1, Some("a"), None);
        let two = run("two", 2, Some("b"), None);
        let three = run("three", 3, Some("c"), None);
        let other = run("other", 3, Some("d"), None);
        let runs = [three.clone(), one.clone(), two.clone(), other];
        let chain = Ancestry::of(&runs, &[said(&two), None, said(&one), None], &[]);
        assert_eq!(chain.earlier(0), [2, 1]);
        assert_eq!([0, 1, 2, 3].map(|run| chain.night(run)), [3, 1, 2, 1]);
        assert!(!chain.is_one_line());
        let alone = Ancestry::of(&runs[..3], &[said(&two), None, said(&one)], &[]);
        assert!(alone.is_one_line());
        // Two nights that both go on from one.
        let fork = Ancestry::of(&runs[..3], &[said(&one), None, said(&one)], &[]);
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
        let chain = Ancestry::of(&[again, two], &[None, said(&one)], &[]);
        assert_eq!(chain.before(1), Some(0));
        // A night that took over the rows of those before it goes on from none, and says which it is.
        let runs = [
            run("one", 1, Some("a"), None),
            run("two", 3, Some("b"), None),
        ];
        let carrier = Ancestry::of(&runs, &[None, said(&runs[0])], &[Some(5), Some(6)]);
        assert_eq!([carrier.night(0), carrier.night(1)], [5, 6]);
    }

    #[test]
    fn a_run_under_an_old_name_is_another_one() {
        let one = run("one", 1, Some("a"), None);
        let replaced = run("one", 1, Some("z"), None);
        let two = run("two", 3, Some("b"), None);
        let chain = Ancestry::of(&[replaced, two], &[None, said(&one)], &[]);
        assert_eq!((chain.before(1), chain.night(1)), (None, 1));
    }

    #[test]
    fn a_circle_ends() {
        let one = run("one", 1, Some("a"), None);
        let two = run("two", 2, Some("b"), None);
        let runs = [one.clone(), two.clone()];
        let chain = Ancestry::of(&runs, &[said(&two), said(&one)], &[]);
        assert_eq!(chain.earlier(0), [1]);
    }
}
