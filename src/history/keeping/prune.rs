//! `nightmill runs prune`: removes runs that are older than is wanted, and breaks no chain of nights.
//!
//! A run that a later run goes on from holds rows that are still the latest. They are carried into the oldest run of the
//! chain that stays (`carry.rs`); only then the old runs go, the latest of them first: what is left at any moment is a whole
//! chain. Rows that are in both for that moment count once, since the manifest names the runs that it carries.

use std::collections::HashSet;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::carry::carry;
use super::chain::{Night, ancestors, nights};
use super::{KeepingError, Turn, folders_of};
use crate::history::find_runs;
use crate::history::lineage::RunMark;
use crate::output::delete_run;

/// A run that took over rows of runs that went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CarriedRows {
    /// The run.
    pub into: String,
    /// The runs whose rows it holds from now on, the oldest first.
    pub of: Vec<String>,
    /// Sessions; null where nothing was done.
    pub sessions: Option<u64>,
    /// Traces; null where nothing was done.
    pub traces: Option<u64>,
}

/// A run that is old and stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptRun {
    /// Its name.
    pub run: String,
    /// Why it stays.
    pub why: String,
}

/// What was pruned, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Runs that went, in this order.
    pub removed: Vec<String>,
    /// Runs that took over rows.
    pub carried: Vec<CarriedRows>,
    /// Old runs that stay.
    pub kept: Vec<KeptRun>,
    /// Runs that are not old.
    pub young: u64,
}

/// Removes the runs that paths name and that were made before a moment; `dry_run` only says which.
///
/// # Errors
/// [`KeepingError`] if a run can't be read, is under way, or can't be changed. Runs that were done by then are whole.
pub fn prune(
    paths: &[PathBuf],
    before: DateTime<Utc>,
    dry_run: bool,
) -> Result<Pruned, KeepingError> {
    let folders = folders_of(find_runs(paths)?.iter());
    let _turn = match dry_run {
        true => None,
        false => Some(Turn::wait(&folders)?),
    };
    let nights = nights(paths)?;
    let chosen = choose(&nights, before);
    let mut pruned = Pruned {
        kept: chosen.kept,
        young: chosen.young,
        ..Pruned::default()
    };
    for (into, of) in &chosen.carriers {
        let old: Vec<&Night> = of.iter().map(|at| &nights[*at]).collect();
        let named = old.iter().map(|night| night.run.name.clone());
        let mut carried = CarriedRows {
            into: nights[*into].run.name.clone(),
            of: named.collect(),
            ..CarriedRows::default()
        };
        if !dry_run {
            let later = descendants(&nights, *into);
            let later: Vec<&Night> = later.into_iter().map(|at| &nights[at]).collect();
            let rows = carry(&nights[*into], &old, &later)?;
            carried.sessions = Some(rows.sessions);
            carried.traces = Some(rows.traces);
        }
        pruned.carried.push(carried);
    }
    for at in chosen.removed {
        let run = &nights[at].run;
        if !dry_run {
            delete_run(&run.path)?;
        }
        pruned.removed.push(run.name.clone());
    }
    Ok(pruned)
}

/// What is done with which run.
struct Chosen {
    /// In the order in which they go.
    removed: Vec<usize>,
    /// Runs that stay and go on from one that does not, and the runs whose rows they take over, the oldest first.
    carriers: Vec<(usize, Vec<usize>)>,
    kept: Vec<KeptRun>,
    young: u64,
}

/// A retry of this run that stays. Which rows of it are still the latest is known through this run: without it, they
/// would hide those of later nights.
fn retry_that_stays(nights: &[Night], goes: &[bool], at: usize) -> Option<usize> {
    let run = &nights[at].run;
    let mark = RunMark::of(run);
    let is_retry = |other: &usize| {
        let other = *other;
        // A run that took over rows names those that it has them of, too.
        let took_over = nights[other].carries.contains(&run.name);
        let mut retried = nights[other].run.retried.iter();
        !goes[other] && !took_over && retried.any(|old| old.is(&mark))
    };
    (0..nights.len()).find(is_retry)
}

fn choose(nights: &[Night], before: DateTime<Utc>) -> Chosen {
    let old = |night: &Night| night.named && night.run.created_at < before;
    let mut goes: Vec<bool> = nights.iter().map(old).collect();
    let mut why: Vec<String> = vec![String::new(); nights.len()];
    loop {
        let mut stays: Option<(usize, String)> = None;
        let carried = carried_by_those_that_stay(nights, &goes);
        for (at, night) in nights.iter().enumerate().filter(|(at, _)| goes[*at]) {
            // Rows are carried forward only: a chain goes from its first night on.
            if let Some(earlier) = night.earlier.filter(|earlier| !goes[*earlier]) {
                let name = &nights[earlier].run.name;
                stays = Some((at, format!("it goes on from {name}, which stays")));
            } else if let Some(forked) = forked(nights, &goes, at) {
                let name = &nights[forked].run.name;
                let problem =
                    format!("several runs go on from {name}, and each needs other rows of it");
                stays = Some((at, problem));
            } else if let Some(retry) = retry_that_stays(nights, &goes, at) {
                let name = &nights[retry].run.name;
                stays = Some((at, format!("{name}, which stays, asked it again")));
            } else if let Some(about) = &night.scores_of {
                let folder = night.run.path.parent();
                let needed = nights.iter().enumerate().find(|(other, run)| {
                    let beside = run.run.path.parent() == folder;
                    let named =
                        run.run.name == *about && (!goes[*other] || carried.contains(other));
                    let held = !goes[*other] && run.carries.contains(about);
                    beside && (named || held)
                });
                if needed.is_some() {
                    let problem = format!(
                        "it holds scores that people gave to traces of {about}, which are still there"
                    );
                    stays = Some((at, problem));
                }
            }
            if stays.is_some() {
                break;
            }
        }
        match stays {
            None => break,
            Some((at, reason)) => {
                goes[at] = false;
                why[at] = reason;
            }
        }
    }
    let mut carriers = Vec::new();
    for (at, night) in nights.iter().enumerate() {
        if !goes[at] && night.earlier.is_some_and(|earlier| goes[earlier]) {
            let mut of = ancestors(nights, at);
            of.reverse();
            carriers.push((at, of));
        }
    }
    let mut removed: Vec<usize> = (0..nights.len()).filter(|at| goes[*at]).collect();
    // Whatever goes on from a run goes before it.
    removed.sort_by_key(|at| {
        let depth = ancestors(nights, *at).len();
        let run = &nights[*at].run;
        (std::cmp::Reverse(depth), run.created_at, run.name.clone())
    });
    let kept = nights.iter().zip(why).filter(|(_, why)| !why.is_empty());
    let kept: Vec<KeptRun> = kept
        .map(|(night, why)| KeptRun {
            run: night.run.name.clone(),
            why,
        })
        .collect();
    let young = nights.iter().filter(|night| night.named && !old(night));
    Chosen {
        removed,
        carriers,
        young: young.count() as u64,
        kept,
    }
}

/// The runs that go on from a run, and from those.
fn descendants(nights: &[Night], of: usize) -> Vec<usize> {
    let all = 0..nights.len();
    let mut found: Vec<usize> = all
        .filter(|at| ancestors(nights, *at).contains(&of))
        .collect();
    found.sort_by_key(|at| ancestors(nights, *at).len());
    found
}

/// A run that stays and whose chain holds the run `at`, and that several runs go on from.
fn forked(nights: &[Night], goes: &[bool], at: usize) -> Option<usize> {
    let stays = descendants(nights, at).into_iter().filter(|at| !goes[*at]);
    let mut stays = stays.filter(|run| {
        let next = nights.iter().filter(|night| night.earlier == Some(*run));
        next.count() > 1
    });
    stays.next()
}

/// Runs that go, and whose rows a run that stays takes over.
fn carried_by_those_that_stay(nights: &[Night], goes: &[bool]) -> HashSet<usize> {
    let stay = (0..nights.len()).filter(|at| !goes[*at]);
    let carried = stay.flat_map(|at| ancestors(nights, at));
    carried.filter(|at| goes[*at]).collect()
}
