//! Sessions that went bad, recovered, or stayed bad.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::read::{Reading, list};
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{
    cell, flag, flags, number, numbers, text, whole_number, whole_numbers,
};
use crate::history::views::each_batch;

/// The states that are told, in their order.
pub(super) const STATES: [&str; 6] = [
    "newly_bad",
    "new_and_bad",
    "still_bad",
    "recovered",
    "worse",
    "better",
];

/// The sessions of a night by one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionChanges {
    /// The metric.
    pub metric: String,
    /// How many reached the threshold before, and don't now.
    pub newly_bad: u64,
    /// How many were not there before, and don't reach it.
    pub new_and_bad: u64,
    /// How many did not reach it before, and went on, and still don't.
    pub still_bad: u64,
    /// How many did not reach it before, and do now.
    pub recovered: u64,
    /// How many have a lower score than before, on the same side of the threshold.
    pub worse: u64,
    /// How many have a higher one.
    pub better: u64,
    /// The worst of each state.
    pub rows: Vec<SessionChange>,
}

/// A session whose score is another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionChange {
    /// Its project.
    pub project_id: Option<String>,
    /// The session.
    pub session_id: String,
    /// `newly_bad`, `new_and_bad`, `still_bad`, `recovered`, `worse` or `better`.
    pub state: String,
    /// The score before.
    pub before: Option<f64>,
    /// The score now.
    pub after: Option<f64>,
    /// The run of the score before.
    pub run_before: Option<String>,
    /// The run of the score now.
    pub run: String,
    /// For how many nights it has been bad, of those that were looked at; null unless it stays bad.
    pub bad_nights: Option<u64>,
}

/// A night of a session, and whether the session reached its threshold then.
type Night = (u64, Option<bool>);

impl Reading<'_> {
    /// Sessions by what became of them.
    pub(super) fn sessions(&self) -> Result<Vec<SessionChanges>, HistoryError> {
        let limit = self.query.limit;
        self.asked.view(
            "_states",
            "SELECT n.project_id, n.target_id AS session_id, n._unit, n.metric, n.run_no, n.run, n.score AS after, \
             p.score AS before, p.run AS run_before, \
             CASE WHEN NOT n.passed AND p.passed THEN 'newly_bad' \
                  WHEN NOT n.passed AND p.run IS NULL THEN 'new_and_bad' \
                  WHEN NOT n.passed AND NOT p.passed THEN 'still_bad' \
                  WHEN NOT n.passed THEN 'newly_bad' \
                  WHEN n.passed AND NOT p.passed THEN 'recovered' \
                  WHEN n.score < p.score THEN 'worse' WHEN n.score > p.score THEN 'better' END AS state \
             FROM (SELECT s.* FROM _now_scores s LEFT ANTI JOIN _untold u ON s._unit = u._unit) n \
             LEFT JOIN _prior_scores p ON n._unit = p._unit AND n.metric = p.metric \
             WHERE n.target_type = 'session' AND n.status = 'SUCCESS'",
        )?;
        let rows = self.asked.rows(&format!(
            "SELECT * FROM (SELECT *, count(*) OVER (PARTITION BY metric, state) AS total, \
             row_number() OVER (PARTITION BY metric, state ORDER BY after, session_id, project_id) AS nth \
             FROM _states WHERE state IS NOT NULL) WHERE nth <= {} ORDER BY metric, state, nth",
            limit.max(1)
        ))?;
        let streaks = self.streaks()?;
        let mut found = Vec::new();
        each_batch(&rows, |batch| {
            let of = |name| text(batch, name);
            let (projects, ids, units) = (of("project_id")?, of("session_id")?, of("_unit")?);
            let (metrics, states) = (of("metric")?, of("state")?);
            let (runs, runs_before) = (of("run")?, of("run_before")?);
            let (before, after) = (numbers(batch, "before")?, numbers(batch, "after")?);
            let (totals, places) = (
                whole_numbers(batch, "total")?,
                whole_numbers(batch, "run_no")?,
            );
            for row in 0..batch.num_rows() {
                let owned = |of| cell(of, row).map(str::to_owned);
                let metric = owned(&metrics).unwrap_or_default();
                let state = owned(&states).unwrap_or_default();
                let key = (owned(&units).unwrap_or_default(), metric.clone());
                let place = whole_number(&places, row).and_then(|run| usize::try_from(run).ok());
                let night = self.views.ancestry().night(place.unwrap_or_default());
                let bad = streaks.get(&key).map(|earlier| bad_nights(night, earlier));
                let change = SessionChange {
                    project_id: owned(&projects),
                    session_id: owned(&ids).unwrap_or_default(),
                    before: number(&before, row),
                    after: number(&after, row),
                    run_before: owned(&runs_before),
                    run: owned(&runs).unwrap_or_default(),
                    bad_nights: bad.filter(|_| state == "still_bad" && self.chained),
                    state,
                };
                let total = whole_number(&totals, row)
                    .unwrap_or_default()
                    .unsigned_abs();
                found.push((metric, total, change));
            }
            Ok(())
        })?;
        let mut changes = by_metric(found);
        if limit == 0 {
            changes
                .iter_mut()
                .for_each(|of_metric| of_metric.rows.clear());
        }
        Ok(changes)
    }

    /// Of sessions that stay bad: their nights before, and whether they reached the threshold then.
    fn streaks(&self) -> Result<HashMap<(String, String), Vec<Night>>, HistoryError> {
        let held = self.held_by(self.now.iter(), &self.now);
        let looked = list(self.before.iter());
        let rows = self.asked.rows(&format!(
            "SELECT u._unit, u.metric, u.run_no, u.passed FROM _united_scores u \
             LEFT SEMI JOIN (SELECT _unit, metric FROM _states WHERE state = 'still_bad') s ON u._unit = s._unit AND u.metric = s.metric \
             WHERE u.target_type = 'session' AND (u.run_no IN ({looked}) OR u.run_no IN ({held}))"
        ))?;
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        each_batch(&rows, |batch| {
            let (units, metrics) = (text(batch, "_unit")?, text(batch, "metric")?);
            let (runs, passed) = (whole_numbers(batch, "run_no")?, flags(batch, "passed")?);
            for row in 0..batch.num_rows() {
                let owned = |of| cell(of, row).unwrap_or_default().to_owned();
                let run = whole_number(&runs, row).and_then(|run| usize::try_from(run).ok());
                let night = self.views.ancestry().night(run.unwrap_or_default());
                let of_session = found.entry((owned(&units), owned(&metrics)));
                of_session.or_default().push((night, flag(&passed, row)));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Puts sessions under their metrics, with counts by state. A row comes with its metric and with how many there are in its
/// state.
pub(super) fn by_metric(
    rows: impl IntoIterator<Item = (String, u64, SessionChange)>,
) -> Vec<SessionChanges> {
    let mut found: BTreeMap<String, SessionChanges> = BTreeMap::new();
    for (metric, total, row) in rows {
        let of_metric = found
            .entry(metric.clone())
            .or_insert_with(|| SessionChanges {
                metric,
                ..SessionChanges::default()
            });
        let count = match row.state.as_str() {
            "newly_bad" => &mut of_metric.newly_bad,
            "new_and_bad" => &mut of_metric.new_and_bad,
            "still_bad" => &mut of_metric.still_bad,
            "recovered" => &mut of_metric.recovered,
            "worse" => &mut of_metric.worse,
            _ => &mut of_metric.better,
        };
        *count = total;
        of_metric.rows.push(row);
    }
    let place = |row: &SessionChange| STATES.iter().position(|state| *state == row.state);
    for changes in found.values_mut() {
        // Within a state they come worst first, and stay so.
        changes.rows.sort_by_key(place);
    }
    found.into_values().collect()
}

/// For how many nights a session has been bad: `now` is the night, and `earlier` are its nights before with whether it
/// reached its threshold, in any order.
pub(super) fn bad_nights(now: u64, earlier: &[Night]) -> u64 {
    let mut earlier = earlier.to_vec();
    earlier.sort_unstable_by(|a, b| b.cmp(a));
    let mut first = now;
    for (night, passed) in earlier {
        if passed != Some(false) {
            break;
        }
        first = first.min(night);
    }
    now - first + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_nights_are_counted_back_to_the_first_of_the_streak() {
        // Bad in nights 3, 5 and now, good in 2, not scored in between.
        let earlier = [
            (2, Some(true)),
            (5, Some(false)),
            (3, Some(false)),
            (1, Some(false)),
        ];
        assert_eq!(bad_nights(9, &earlier), 7);
        assert_eq!(bad_nights(9, &[(8, None), (7, Some(false))]), 1);
        assert_eq!(bad_nights(2, &[]), 1);
    }

    #[test]
    fn sessions_stand_under_their_metric_by_state() {
        let row = |state: &str, id: &str| SessionChange {
            project_id: None,
            session_id: id.into(),
            state: state.into(),
            before: Some(0.5),
            after: Some(0.4),
            run_before: None,
            run: "n".into(),
            bad_nights: None,
        };
        let found = by_metric([
            ("b".to_owned(), 7, row("worse", "x")),
            ("a".to_owned(), 2, row("recovered", "y")),
            ("a".to_owned(), 3, row("newly_bad", "z")),
        ]);
        assert_eq!(
            (found[0].metric.as_str(), found[1].metric.as_str()),
            ("a", "b")
        );
        assert_eq!(
            (found[0].newly_bad, found[0].recovered, found[1].worse),
            (3, 2, 7)
        );
        assert_eq!(found[0].rows[0].session_id, "z");
    }
}
