//! Latest: what is now known of one target, a score a metric (as in PandaProbe).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::history::figures::{DataType, ScoreFilter, ScoreRecord, ScoreStatus};
use crate::text::instant;

/// The latest score of one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatestRow {
    /// Name of the metric.
    pub metric: String,
    /// What kind of value it is.
    pub data_type: DataType,
    /// The score in [0, 1]; null if there is none, as for a failed one and for values that are no number.
    pub score: Option<f64>,
    /// The value as text; null for a failed one.
    pub value: Option<String>,
    /// Id of the run that made it.
    pub run: String,
    /// When it was made.
    #[serde(serialize_with = "instant::serialize")]
    pub created_at: DateTime<Utc>,
    /// How it came out.
    pub status: ScoreStatus,
}

/// The latest score of each metric of a target, whatever its status; by metric. Of scores of one time, that of the greatest
/// run id.
pub fn latest<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
    target_id: &str,
) -> Vec<LatestRow> {
    let mut found: BTreeMap<&str, &ScoreRecord> = BTreeMap::new();
    let records = records.into_iter();
    for record in records.filter(|r| r.target_id == target_id && filter.admits(r)) {
        let last = found.entry(&record.metric).or_insert(record);
        if rank(record) > rank(last) {
            *last = record;
        }
    }
    let rows = found.into_values().map(|record| LatestRow {
        metric: record.metric.clone(),
        data_type: record.data_type,
        score: record.score(),
        value: record.text.clone(),
        run: record.run.clone(),
        created_at: record.created_at,
        status: record.status,
    });
    rows.collect()
}

/// Greater is later. What follows the run makes the choice the same in every order of records.
fn rank(record: &ScoreRecord) -> impl Ord {
    (
        record.created_at,
        &record.run,
        record.status,
        record.steps(),
        &record.text,
        record.data_type.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::Target;
    use crate::history::figures::samples::{failed, score, shuffled};
    use proptest::prelude::*;

    #[test]
    fn the_latest_counts_whatever_its_status() {
        let named = ScoreRecord {
            data_type: DataType::Categorical,
            value: None,
            text: Some("good".into()),
            ..score("s", "b", 0.0, 0)
        };
        let records = [
            score("s", "m", 0.5, 1),
            failed("s", "m", 3),
            score("s", "m", 0.9, 2),
            named,
            score("t", "m", 0.1, 9),
        ];
        let sessions = ScoreFilter::all(Target::Session);
        let rows = latest(&records, &sessions, "s");
        assert_eq!(
            serde_json::to_string(&rows).unwrap(),
            concat!(
                r#"[{"metric":"b","data_type":"CATEGORICAL","score":null,"value":"good","run":"run-0","created_at":"2026-01-01T00:00:00Z","status":"SUCCESS"},"#,
                r#"{"metric":"m","data_type":"NUMERIC","score":null,"value":null,"run":"run-3","created_at":"2026-01-01T03:00:00Z","status":"FAILED"}]"#
            )
        );
        assert!(latest(&records, &ScoreFilter::all(Target::Trace), "s").is_empty());
    }

    #[test]
    fn runs_of_one_second_are_told_by_their_ids() {
        let of_run = |run: &str, value| ScoreRecord {
            run: run.into(),
            ..score("s", "m", value, 1)
        };
        let records = [of_run("b", 0.25), of_run("a", 0.75)];
        let rows = latest(&records, &ScoreFilter::all(Target::Session), "s");
        assert_eq!((rows.len(), rows[0].score), (1, Some(0.25)));
    }

    proptest! {
        #[test]
        fn order_does_not_matter((records, other) in shuffled()) {
            let filter = ScoreFilter::all(Target::Session);
            prop_assert_eq!(latest(&records, &filter, "s1"), latest(&other, &filter, "s1"));
        }
    }
}
