//! Reads what changed out of the tables of a chain of runs.

use std::collections::{BTreeSet, HashMap};

use super::means::not_comparable;
use super::{
    CONFIDENCE, Changes, LEAST_CHANGE, MOST_NIGHTS, MetricChange, SHOWN_SESSIONS, Seen,
    VolumeChange, Words,
};
use crate::history::ancestry::{Missing, nights_before};
use crate::history::chance::{STEPS, Sums};
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{whole_number, whole_numbers};
use crate::history::views::{Asked, QueryLimits, Views, each_batch};
use crate::history::{CARRIED, StoredRun};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct ChangeQuery<'a> {
    /// The run.
    pub run: &'a StoredRun,
    /// Hold it, and the nights since, against this one and those before; else against the nights before the run.
    pub since: Option<&'a StoredRun>,
    /// Sessions shown of each state.
    pub limit: usize,
    /// The least change of a mean that counts as drift.
    pub least: f64,
    /// What reading may take.
    pub limits: QueryLimits,
}

impl<'a> ChangeQuery<'a> {
    /// A run against the nights before it, as it is asked where nobody says more.
    pub fn of(run: &'a StoredRun) -> Self {
        Self {
            run,
            since: None,
            limit: SHOWN_SESSIONS,
            least: LEAST_CHANGE,
            limits: QueryLimits::default(),
        }
    }
}

/// What changed in a run.
///
/// # Errors
/// [`HistoryError`] if there is nothing to hold it against, or a run can't be read.
pub fn read_changes(query: &ChangeQuery<'_>) -> Result<Changes, HistoryError> {
    Reading::of(query)?.changes()
}

/// The runs of a comparison as places in the views, and the views.
pub(super) struct Reading<'a> {
    pub(super) query: &'a ChangeQuery<'a>,
    pub(super) views: Views,
    pub(super) asked: Asked,
    /// The run, and those since the one that was named.
    pub(super) now: Vec<usize>,
    /// The nights before, the latest first.
    pub(super) before: Vec<usize>,
    /// Whether all are of one chain.
    pub(super) chained: bool,
    pub(super) missing: Option<Missing>,
    /// By night: the runs that hold the rows it replaced.
    pub(super) holders: HashMap<usize, BTreeSet<usize>>,
}

impl<'a> Reading<'a> {
    fn of(query: &'a ChangeQuery<'a>) -> Result<Self, HistoryError> {
        let run = query.run;
        let (mut earlier, mut missing) = nights_before(run, usize::MAX)?;
        let mut since_nights = 0;
        let mut chained = true;
        match query.since {
            None if earlier.is_empty() => {
                let why = missing.map_or("no other run".to_owned(), |missing| missing.told);
                return Err(HistoryError::Refused(format!(
                    "`{}` continues {why}; name the run to hold it against with --since",
                    run.path.display()
                )));
            }
            None => {}
            Some(since) if since.path == run.path => {
                return Err(HistoryError::Refused(
                    "--since names the run itself; name an earlier one".into(),
                ));
            }
            Some(since) => match earlier.iter().position(|night| night.path == since.path) {
                Some(at) => since_nights = at,
                None => {
                    // A run of another chain: its state is that of all of its nights.
                    chained = false;
                    earlier = vec![since.clone()];
                    let (before, gone) = nights_before(since, usize::MAX)?;
                    if before.iter().any(|night| night.path == run.path) {
                        return Err(HistoryError::Refused(format!(
                            "--since names `{}`, a later night of the chain of `{}`: turn them round, or name an earlier one",
                            since.name, run.name
                        )));
                    }
                    earlier.extend(before);
                    missing = gone;
                }
            },
        }
        let mut runs = vec![run.clone()];
        runs.extend(earlier);
        let paths: Vec<_> = runs.iter().map(|run| run.path.clone()).collect();
        let now: Vec<usize> = (0..=since_nights).collect();
        let before: Vec<usize> = (since_nights + 1..runs.len()).take(MOST_NIGHTS).collect();
        let opened: Vec<usize> = now.iter().chain(&before).copied().collect();
        let views = Views::of(runs, true)?;
        let places: Vec<_> = views.runs().iter().map(|run| run.path.clone()).collect();
        if places != paths {
            return Err(HistoryError::Refused(
                "one of these runs is a retry of another, which holds all of its scores; name two others".into(),
            ));
        }
        let views = views.opening(&opened);
        let needed = ["scores", "traces", "sessions", CARRIED];
        let asked = Asked::within(&views, &needed, query.limits)?;
        let mut reading = Self {
            query,
            views,
            asked,
            now,
            before,
            chained,
            missing,
            holders: HashMap::new(),
        };
        reading.check_nights()?;
        reading.find_holders()?;
        reading.make_views()?;
        Ok(reading)
    }

    /// A night says of each trace when it was new. One of an earlier version does not.
    fn check_nights(&self) -> Result<(), HistoryError> {
        let nights = list(self.now.iter().chain(&self.before));
        let query = format!(
            "SELECT DISTINCT run_no FROM _united_{CARRIED} WHERE night IS NULL AND run_no IN ({nights}) ORDER BY run_no"
        );
        let mut silent = None;
        each_batch(&self.asked.rows(&query)?, |batch| {
            silent = silent.or(whole_number(&whole_numbers(batch, "run_no")?, 0));
            Ok(())
        })?;
        let silent = silent.and_then(|run| self.views.runs().get(usize::try_from(run).ok()?));
        match silent {
            None => Ok(()),
            Some(run) => Err(HistoryError::Refused(format!(
                "the table `{CARRIED}` of `{}` does not say in which night its traces were new: an earlier version made it; what \
                 changed can be told of runs that are scored anew",
                run.path.display()
            ))),
        }
    }

    /// Rows of traces that were new in the run's own night: a condition on the table of places.
    fn are_new(&self, nights: &[usize]) -> String {
        let of = |run: &usize| format!("(run_no = {run} AND night = {})", self.night(*run));
        let conditions: Vec<String> = nights.iter().map(of).collect();
        match conditions.is_empty() {
            true => "FALSE".to_owned(),
            false => conditions.join(" OR "),
        }
    }

    fn night(&self, run: usize) -> u64 {
        self.views.ancestry().night(run)
    }

    fn find_holders(&mut self) -> Result<(), HistoryError> {
        let nights = list(self.now.iter().chain(&self.before));
        let query = format!("SELECT DISTINCT later, earlier FROM _taken WHERE later IN ({nights})");
        let mut holders: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        each_batch(&self.asked.rows(&query)?, |batch| {
            let (later, earlier) = (
                whole_numbers(batch, "later")?,
                whole_numbers(batch, "earlier")?,
            );
            for row in 0..batch.num_rows() {
                let place = |of| whole_number(of, row).and_then(|of| usize::try_from(of).ok());
                if let (Some(later), Some(earlier)) = (place(&later), place(&earlier)) {
                    holders.entry(later).or_default().insert(earlier);
                }
            }
            Ok(())
        })?;
        self.holders = holders;
        Ok(())
    }

    /// The runs, other than those of now, that hold rows which these nights replaced.
    pub(super) fn held_by<'r>(
        &self,
        nights: impl Iterator<Item = &'r usize>,
        but: &[usize],
    ) -> String {
        let held: BTreeSet<usize> = nights
            .filter_map(|night| self.holders.get(night))
            .flatten()
            .copied()
            .filter(|run| !but.contains(run))
            .collect();
        list(held.iter())
    }

    /// Views of what counts as now and as before.
    fn make_views(&self) -> Result<(), HistoryError> {
        let (now, before) = (list(self.now.iter()), list(self.before.iter()));
        // As the tables are after these nights, rows that they replaced among themselves left out.
        let state = |nights: &str| {
            format!(
                "SELECT u.* FROM _united_scores u LEFT ANTI JOIN (SELECT earlier AS run_no, _unit FROM _taken WHERE later IN ({nights})) d \
                 ON u.run_no = d.run_no AND u._unit = d._unit WHERE u.run_no IN ({nights}) AND u.data_type = 'NUMERIC'"
            )
        };
        self.asked.view("_now_scores", &state(&now))?;
        self.asked.view("_before_scores", &state(&before))?;
        // What these nights scored again of nights before them, whether those are still there or not.
        let first = self.now.iter().map(|run| self.night(*run)).min();
        let again = match self.chained {
            true => format!(
                "run_no IN ({now}) AND night < {}",
                first.unwrap_or_default()
            ),
            false => "FALSE".to_owned(),
        };
        self.asked.view(
            "_again",
            &format!("SELECT trace_id, _unit FROM _united_{CARRIED} WHERE {again}"),
        )?;
        self.asked.view(
            "_old_traces",
            "SELECT DISTINCT _canonical(trace_id) AS id FROM _again",
        )?;
        let held = self.held_by(self.now.iter(), &self.now);
        const COLUMNS: &str = "run_no, target_type, target_id, metric, _unit, environment, status, passed, model, precision, \
             text_mode, CAST(round(score * 10000) AS BIGINT) AS steps";
        self.asked.view(
            "_sample",
            &format!(
                "SELECT {COLUMNS} FROM _before_scores \
                 UNION ALL SELECT {COLUMNS} FROM _now_scores WHERE target_type = 'session' \
                 UNION ALL SELECT {COLUMNS} FROM (SELECT n.* FROM _now_scores n LEFT ANTI JOIN _old_traces o \
                 ON _canonical(n.target_id) = o.id WHERE n.target_type = 'trace')"
            ),
        )?;
        // What a session that goes on was before.
        let prior = match self.chained {
            true => format!(
                "SELECT u.* FROM _united_scores u LEFT SEMI JOIN (SELECT earlier AS run_no, _unit FROM _taken WHERE later IN ({now})) d \
                 ON u.run_no = d.run_no AND u._unit = d._unit WHERE u.run_no IN ({held}) AND u.target_type = 'session'"
            ),
            false => "SELECT * FROM _before_scores WHERE target_type = 'session'".to_owned(),
        };
        self.asked.view("_prior_scores", &prior)?;
        self.asked.view(
            "_untold",
            "SELECT DISTINCT a._unit FROM _again a LEFT ANTI JOIN _prior_scores p ON a._unit = p._unit",
        )
    }

    fn changes(&self) -> Result<Changes, HistoryError> {
        let labels = self.views.labels();
        let names = |runs: &[usize]| -> Vec<String> {
            runs.iter()
                .filter_map(|run| labels.get(*run).cloned())
                .collect()
        };
        let before = names(&self.before);
        let run = self.query.run.name.clone();
        let words = Words {
            before: &before,
            now: &run,
            least: self.query.least,
        };
        let seen = self.seen()?;
        let mixed = self.mixed_models()?;
        let metrics: Vec<MetricChange> = seen
            .iter()
            .map(|((target, metric), seen)| {
                let change = words.change(metric, Some(*target), seen, false);
                match mixed.get(metric) {
                    None => change,
                    Some(models) => not_comparable(change, models),
                }
            })
            .collect();
        let mut faults =
            vec![words.change("share of quarantined rows", None, &self.quarantine(), true)];
        if let Some(empty) = self.empty(seen.keys().map(|(_, metric)| metric.as_str()))? {
            faults.push(words.change("share of empty texts", None, &empty, true));
        }
        Ok(Changes {
            night: self.views.ancestry().night(0),
            nights: names(&self.now),
            missing: self.missing.as_ref().map(|missing| missing.run.clone()),
            missing_told: self.missing.as_ref().map(|missing| missing.told.clone()),
            volume: self.volume()?,
            untold_sessions: self.untold_sessions()?,
            faults,
            slices: self.slices(&words, &mixed)?,
            sessions: self.sessions()?,
            metrics,
            run: run.clone(),
            before: before.clone(),
        })
    }

    /// Rows that could not be read: each is a draw of its own.
    fn quarantine(&self) -> Seen {
        let told = self.views.told();
        let of = |run: &usize| {
            let mut sums = Sums::default();
            if let Some(told) = told.get(*run) {
                sums.add_sessions(told.quarantined, 1, STEPS);
                sums.add_sessions(told.rows.saturating_sub(told.quarantined), 1, 0);
            }
            sums
        };
        Seen {
            now: self.now.iter().map(of).fold(Sums::default(), Sums::with),
            before: self.before.iter().map(of).collect(),
            ..Seen::default()
        }
    }

    /// What the night brought: traces and sessions that no night before had.
    fn volume(&self) -> Result<Vec<VolumeChange>, HistoryError> {
        // The first night of a chain brings all that there was before.
        let usual = self.before.iter().copied();
        let usual: Vec<usize> = usual
            .filter(|run| self.chained && self.night(*run) > 1)
            .collect();
        let nights: Vec<usize> = self.now.iter().take(1).chain(&usual).copied().collect();
        let runs = self.views.runs();
        let is_night = |run: &usize| {
            let run = runs.get(*run);
            run.is_some_and(|run| run.path.join(CARRIED).is_dir())
        };
        let (nights, others): (Vec<usize>, Vec<usize>) = nights.into_iter().partition(is_night);
        let new = self.are_new(&nights);
        let traces = self.counts(&format!(
            "SELECT run_no AS run, count(*) AS n FROM _united_{CARRIED} WHERE {new} GROUP BY run_no"
        ))?;
        let firsts = |runs: &[usize]| {
            format!(
                "SELECT run_no, _unit FROM _united_sessions WHERE revision = 1 AND run_no IN ({})",
                list(runs.iter())
            )
        };
        // A night that took over rows of others has their sessions, too.
        let sessions = self.counts(&format!(
            "SELECT s.run_no AS run, count(*) AS n FROM ({}) s LEFT SEMI JOIN \
             (SELECT run_no, _unit FROM _united_{CARRIED} WHERE {new}) c ON s.run_no = c.run_no AND s._unit = c._unit GROUP BY s.run_no \
             UNION ALL SELECT run_no AS run, count(*) AS n FROM ({}) GROUP BY run_no",
            firsts(&nights),
            firsts(&others)
        ))?;
        let traces = |run: &usize| match others.contains(run) {
            true => runs.get(*run).map_or(0, |run| run.traces),
            false => traces.get(run).copied().unwrap_or_default(),
        };
        let sessions = |run: &usize| sessions.get(run).copied().unwrap_or_default();
        Ok(vec![
            VolumeChange::of(
                "traces",
                traces(&0),
                usual.iter().map(traces).collect(),
                CONFIDENCE,
            ),
            VolumeChange::of(
                "sessions",
                sessions(&0),
                usual.iter().map(sessions).collect(),
                CONFIDENCE,
            ),
        ])
    }

    /// The column `n` of a query by its column `run`.
    fn counts(&self, query: &str) -> Result<HashMap<usize, u64>, HistoryError> {
        let mut counts: HashMap<usize, u64> = HashMap::new();
        each_batch(&self.asked.rows(query)?, |batch| {
            let (runs, found) = (whole_numbers(batch, "run")?, whole_numbers(batch, "n")?);
            for row in 0..batch.num_rows() {
                let run = whole_number(&runs, row).and_then(|run| usize::try_from(run).ok());
                let count = whole_number(&found, row).unwrap_or_default();
                *counts.entry(run.unwrap_or_default()).or_default() += count.unsigned_abs();
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// Sessions that go on from nights whose scores of them are not there any more.
    fn untold_sessions(&self) -> Result<u64, HistoryError> {
        let counts = self.counts(
            "SELECT 0 AS run, count(DISTINCT n._unit) AS n FROM _now_scores n LEFT SEMI JOIN _untold u ON n._unit = u._unit \
             WHERE n.target_type = 'session' AND n.status = 'SUCCESS'",
        )?;
        Ok(counts.get(&0).copied().unwrap_or_default())
    }
}

/// Numbers for a query; one that no run has where there are none.
pub(super) fn list<'r>(runs: impl Iterator<Item = &'r usize>) -> String {
    let runs: Vec<String> = runs.map(usize::to_string).collect();
    match runs.is_empty() {
        true => u32::MAX.to_string(),
        false => runs.join(", "),
    }
}
