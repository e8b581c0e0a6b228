//! Which run a retry asks again, so that scores that both hold are counted once (as in PandaProbe).
//!
//! A retry holds every score of the run that it asks again. Names and paths of runs are used again, so that a run is told by
//! its `identity`; a run without one by its path and the time of its manifest.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::history::StoredRun;
use crate::history::figures::ScoreFilter;
use crate::text::instant;

/// A run as the manifests of its retries know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMark {
    /// What no other run has; none if its manifest names none.
    pub identity: Option<String>,
    /// The name of its directory.
    pub name: String,
    /// Its directory, a whole path; none if it is not UTF-8.
    pub path: Option<String>,
    /// When its manifest was written.
    #[serde(with = "instant")]
    pub created_at: DateTime<Utc>,
}

impl RunMark {
    pub(crate) fn of(run: &StoredRun) -> Self {
        Self {
            identity: run.identity.clone(),
            name: run.name.clone(),
            path: run.path.to_str().map(str::to_owned),
            created_at: run.created_at,
        }
    }

    /// Whether both are surely the same run.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.identity, &other.identity) {
            (Some(identity), Some(other)) => identity == other,
            (None, None) => {
                self.path.is_some()
                    && self.path == other.path
                    && self.created_at == other.created_at
            }
            _ => false,
        }
    }
}

/// The runs whose scores a retry of `old` holds: `old` first, then the run that `old` asked again, and so on.
pub(crate) fn retried_with(old: &StoredRun) -> Vec<RunMark> {
    let mut marks = vec![RunMark::of(old)];
    marks.extend(old.retried.iter().cloned());
    marks
}

/// A run that an analysis leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The run.
    pub run: String,
    /// The retry that holds all of its scores.
    pub retry: String,
}

/// Leaves out each run of which a retry is there too, be it a retry of a retry. Only runs of the time that the filter
/// covers leave another one out.
pub fn leave_out_retried(
    runs: Vec<StoredRun>,
    filter: &ScoreFilter,
) -> (Vec<StoredRun>, Vec<LeftOut>) {
    let held = |run: &StoredRun| {
        let mark = RunMark::of(run);
        let mut later = runs.iter().filter(|later| {
            filter.covers(later.created_at) && later.retried.iter().any(|old| old.is(&mark))
        });
        let retry = later.next()?;
        // The last of a chain holds the scores of all the others.
        let longest = later.fold(retry, |longest, other| {
            match other.retried.len() > longest.retried.len() {
                true => other,
                false => longest,
            }
        });
        Some(LeftOut {
            run: run.name.clone(),
            retry: longest.name.clone(),
        })
    };
    let held: Vec<Option<LeftOut>> = runs
        .iter()
        .map(|run| held(run).filter(|_| filter.covers(run.created_at)))
        .collect();
    let kept = runs.into_iter().zip(&held);
    let kept = kept.filter_map(|(run, held)| held.is_none().then_some(run));
    (kept.collect(), held.into_iter().flatten().collect())
}

#[cfg(test)]
pub(crate) mod samples {
    //! Runs for the tests of this room.

    use super::*;
    use crate::history::RunStatus;
    use crate::history::run_record::RunRecord;

    pub(crate) fn run(
        name: &str,
        hour: i64,
        identity: Option<&str>,
        of: Option<&StoredRun>,
    ) -> StoredRun {
        StoredRun {
            name: name.into(),
            title: None,
            created_at: at(hour),
            command: "score".into(),
            status: RunStatus::Completed,
            traces: 1,
            sessions: 1,
            judged: 1,
            failed: 0,
            failed_signals: 0,
            pending: 0,
            record: RunRecord::default(),
            path: format!("/runs/{name}").into(),
            identity: identity.map(str::to_owned),
            retried: of.map(retried_with).unwrap_or_default(),
        }
    }

    pub(crate) fn at(hour: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(hour * 3600, 0).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{at, run};
    use super::*;
    use crate::history::figures::Target;

    fn all() -> ScoreFilter {
        ScoreFilter::all(Target::Trace)
    }

    /// Names of the runs that are kept, and of those left out with the retry that holds their scores.
    fn split(runs: &[&StoredRun], filter: &ScoreFilter) -> (Vec<String>, Vec<[String; 2]>) {
        let (kept, left_out) =
            leave_out_retried(runs.iter().map(|run| (*run).clone()).collect(), filter);
        let kept = kept.into_iter().map(|run| run.name).collect();
        let left_out = left_out.into_iter().map(|left| [left.run, left.retry]);
        (kept, left_out.collect())
    }

    fn pair(run: &str, retry: &str) -> [String; 2] {
        [run.to_owned(), retry.to_owned()]
    }

    #[test]
    fn the_last_of_a_chain_stands_for_all_of_it() {
        let first = run("first", 1, Some("a"), None);
        let second = run("second", 2, Some("b"), Some(&first));
        let third = run("third", 3, Some("c"), Some(&second));
        let other = run("other", 1, Some("d"), None);
        let (kept, left_out) = split(&[&second, &first, &other, &third], &all());
        assert_eq!(kept, ["other", "third"]);
        assert_eq!(left_out, [pair("second", "third"), pair("first", "third")]);
        // Also where the run between them is not read.
        let (kept, left_out) = split(&[&first, &third], &all());
        assert_eq!(
            (kept.as_slice(), left_out),
            (&["third".to_owned()][..], vec![pair("first", "third")])
        );
        let (kept, left_out) = split(&[&first, &other], &all());
        assert_eq!((kept.len(), left_out.len()), (2, 0));
    }

    #[test]
    fn only_runs_of_the_time_leave_others_out() {
        let first = run("first", 1, Some("a"), None);
        let second = run("second", 2, Some("b"), Some(&first));
        for (from, to, left) in [(None, None, 1), (None, Some(2), 0), (Some(2), None, 0)] {
            let filter = ScoreFilter {
                date_from: from.map(at),
                date_to: to.map(at),
                ..all()
            };
            let (_, left_out) = split(&[&first, &second], &filter);
            assert_eq!(left_out.len(), left, "{filter:?}");
        }
    }

    #[test]
    fn only_the_very_run_is_left_out() {
        let first = run("first", 1, Some("a"), None);
        let second = run("second", 2, Some("b"), Some(&first));
        // The path does not matter: a folder can be moved.
        let moved = StoredRun {
            path: "/elsewhere/first".into(),
            ..first.clone()
        };
        assert_eq!(split(&[&moved, &second], &all()).0, ["second"]);
        // Another run under the old name, also one of the same second.
        let replaced = run("first", 1, Some("z"), None);
        assert_eq!(split(&[&replaced, &second], &all()).0.len(), 2);
        let unmarked = run("first", 1, None, None);
        assert_eq!(split(&[&unmarked, &second], &all()).0.len(), 2);

        // Without an identity, path and time must be those of then.
        let second = run("second", 2, Some("b"), Some(&unmarked));
        assert_eq!(split(&[&unmarked, &second], &all()).0, ["second"]);
        let later = run("first", 3, None, None);
        assert_eq!(split(&[&later, &second], &all()).0.len(), 2);
        let moved = StoredRun {
            path: "/elsewhere/first".into(),
            ..unmarked
        };
        assert_eq!(split(&[&moved, &second], &all()).0.len(), 2);
        assert_eq!(split(&[&first, &second], &all()).0.len(), 2);
    }

    #[test]
    fn a_mark_is_the_same_after_a_round_trip() {
        let first = run("first", 1, None, None);
        let text = serde_json::to_string(&retried_with(&first)).unwrap();
        let back: Vec<RunMark> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, [RunMark::of(&first)]);
    }
}
