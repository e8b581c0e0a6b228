//! Reads what changed out of the tables of a chain of runs.

use std::collections::{BTreeSet, HashMap};

use super::means::not_comparable;
use super::{
    CONFIDENCE, Changes, LEAST_CHANGE, MOST_NIGHTS, MetricChange, SHOWN_SESSIONS, Seen,
    VolumeChange, Words,
};
use crate::history::StoredRun;
use crate::history::ancestry::{Missing, nights_before};
use crate::history::chance::{STEPS, Sums};
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{whole_number, whole_numbers};
use crate::history::views::{Asked, QueryLimits, Views, each_batch};

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
        let needed = ["scores", "traces", "sessions", "_taken"];
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
        reading.find_holders()?;
        reading.make_views()?;
        Ok(reading)
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
        let held = self.held_by(self.now.iter(), &self.now);
        self.asked.view(
            "_old_traces",
            &format!(
                "SELECT DISTINCT _canonical(t.trace_id) AS id FROM _united_traces t LEFT SEMI JOIN \
                 (SELECT earlier AS run_no, _unit FROM _taken WHERE later IN ({now})) d \
                 ON t.run_no = d.run_no AND t._unit = d._unit WHERE t.run_no IN ({held})"
            ),
        )?;
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
        self.asked.view("_prior_scores", &prior)
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
        let nights: Vec<usize> = self
            .now
            .iter()
            .take(1)
            .chain(&self.before)
            .copied()
            .collect();
        let of_nights = list(nights.iter());
        let held = self.held_by(nights.iter(), &[]);
        let mut carried: HashMap<usize, u64> = HashMap::new();
        let mut fresh: HashMap<usize, u64> = HashMap::new();
        let count = |query: &str, into: &mut HashMap<usize, u64>| {
            each_batch(&self.asked.rows(query)?, |batch| {
                let (runs, counts) = (whole_numbers(batch, "run")?, whole_numbers(batch, "n")?);
                for row in 0..batch.num_rows() {
                    let run = whole_number(&runs, row).and_then(|run| usize::try_from(run).ok());
                    let count = whole_number(&counts, row).unwrap_or_default();
                    *into.entry(run.unwrap_or_default()).or_default() += count.unsigned_abs();
                }
                Ok(())
            })
        };
        let taken = format!(
            "SELECT t.later AS run, sum(s.traces) AS n FROM _taken t JOIN (SELECT * FROM _united_sessions WHERE run_no IN ({held})) s \
             ON s.run_no = t.earlier AND s._unit = t._unit WHERE t.later IN ({of_nights}) GROUP BY t.later \
             UNION ALL SELECT later AS run, count(*) AS n FROM _taken WHERE lone AND later IN ({of_nights}) GROUP BY later"
        );
        count(&taken, &mut carried)?;
        let new = format!(
            "SELECT run_no AS run, count(*) AS n FROM _united_sessions WHERE revision = 1 AND run_no IN ({of_nights}) GROUP BY run_no"
        );
        count(&new, &mut fresh)?;
        let runs = self.views.runs();
        let traces = |night: &usize| {
            let all = runs.get(*night).map_or(0, |run| run.traces);
            all.saturating_sub(carried.get(night).copied().unwrap_or_default())
        };
        let sessions = |night: &usize| fresh.get(night).copied().unwrap_or_default();
        // The first night of a chain brings all that there was before.
        let nights = self.before.iter();
        let usual: Vec<usize> = nights
            .copied()
            .filter(|night| self.chained && self.views.ancestry().night(*night) > 1)
            .collect();
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
}

/// Numbers for a query; one that no run has where there are none.
pub(super) fn list<'r>(runs: impl Iterator<Item = &'r usize>) -> String {
    let runs: Vec<String> = runs.map(usize::to_string).collect();
    match runs.is_empty() {
        true => u32::MAX.to_string(),
        false => runs.join(", "),
    }
}
