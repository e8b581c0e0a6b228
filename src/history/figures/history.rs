//! History: the scores of one session, one after the other (as in PandaProbe).

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::history::figures::{ScoreFilter, ScoreRecord, ScoreStatus};
use crate::text::instant;

/// How many rows when no number is given.
pub const DEFAULT_HISTORY: usize = 50;

/// One score of the session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryRow {
    /// Name of the metric.
    pub metric: String,
    /// The score in [0, 1]; null if there is none, as for a failed one.
    pub score: Option<f64>,
    /// Id of the run that made it.
    pub run: String,
    /// When it was made.
    #[serde(serialize_with = "instant::serialize")]
    pub created_at: DateTime<Utc>,
    /// How it came out.
    pub status: ScoreStatus,
}

/// The first `limit` scores of a target, oldest first; at one time by metric, then run.
pub fn history<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
    target_id: &str,
    limit: usize,
) -> Vec<HistoryRow> {
    let mut rows: Vec<&ScoreRecord> = records
        .into_iter()
        .filter(|record| record.target_id == target_id && filter.admits(record))
        .collect();
    rows.sort_by(|a, b| {
        let key = |r: &ScoreRecord| (r.created_at, r.status, r.steps());
        (a.created_at, &a.metric, &a.run)
            .cmp(&(b.created_at, &b.metric, &b.run))
            .then_with(|| key(a).cmp(&key(b)))
    });
    rows.into_iter()
        .take(limit)
        .map(|record| HistoryRow {
            metric: record.metric.clone(),
            score: record.score(),
            run: record.run.clone(),
            created_at: record.created_at,
            status: record.status,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::Target;
    use crate::history::figures::samples::{failed, score, shuffled};
    use proptest::prelude::*;

    #[test]
    fn oldest_first_and_failed_ones_without_score() {
        let records = [
            score("s", "m", 0.5, 3),
            failed("s", "m", 2),
            score("s", "b", 0.4, 1),
            score("s", "a", 0.3, 1),
            score("t", "m", 0.9, 0),
        ];
        let sessions = ScoreFilter::all(Target::Session);
        let rows = history(&records, &sessions, "s", DEFAULT_HISTORY);
        let seen: Vec<(&str, Option<f64>)> =
            rows.iter().map(|r| (r.metric.as_str(), r.score)).collect();
        assert_eq!(
            seen,
            [
                ("a", Some(0.3)),
                ("b", Some(0.4)),
                ("m", None),
                ("m", Some(0.5))
            ]
        );
        assert_eq!(
            serde_json::to_string(&rows[2]).unwrap(),
            r#"{"metric":"m","score":null,"run":"run-2","created_at":"2026-01-01T02:00:00Z","status":"FAILED"}"#
        );
        assert_eq!(history(&records, &sessions, "s", 2), rows[..2]);
        let traces = ScoreFilter::all(Target::Trace);
        assert!(history(&records, &traces, "s", 2).is_empty());
    }

    proptest! {
        #[test]
        fn order_does_not_matter((records, other) in shuffled(), limit in 0usize..30) {
            let filter = ScoreFilter::all(Target::Session);
            prop_assert_eq!(history(&records, &filter, "s1", limit), history(&other, &filter, "s1", limit));
        }
    }
}
