//! Summary: one row per metric (as in PandaProbe).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::history::figures::{STEPS, ScoreFilter, ScoreRecord, ScoreStatus, mean};
use crate::text::instant;

/// What the scores of one metric look like. Numbers are null if there is no score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// Name of the metric.
    pub metric: String,
    /// Successful scores of any data type.
    pub success_count: u64,
    /// Failed scores of any data type.
    pub failed_count: u64,
    /// Sessions without anything to score: neither successful nor failed, and in no mean.
    pub no_evidence_count: u64,
    /// Mean score in [0, 1], not rounded.
    pub avg_score: Option<f64>,
    /// Lowest score.
    pub min_score: Option<f64>,
    /// Highest score.
    pub max_score: Option<f64>,
    /// Median score; between two middle scores, their mean.
    pub median_score: Option<f64>,
    /// When the last score of any status was made.
    #[serde(serialize_with = "instant::serialize")]
    pub latest_score_at: DateTime<Utc>,
}

/// One row per metric that has a record, by metric name.
pub fn summary<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
) -> Vec<SummaryRow> {
    let mut metrics: BTreeMap<&str, Gathered> = BTreeMap::new();
    for record in records.into_iter().filter(|r| filter.admits(r)) {
        let gathered = metrics
            .entry(&record.metric)
            .or_insert_with(|| Gathered::new(record.created_at));
        gathered.latest = gathered.latest.max(record.created_at);
        match record.status {
            ScoreStatus::Success => gathered.successes += 1,
            ScoreStatus::Failed => gathered.failures += 1,
            ScoreStatus::NoEvidence => gathered.without_evidence += 1,
            ScoreStatus::Pending => {}
        }
        gathered.steps.extend(record.steps());
    }
    metrics
        .into_iter()
        .map(|(metric, gathered)| gathered.row(metric))
        .collect()
}

struct Gathered {
    successes: u64,
    failures: u64,
    without_evidence: u64,
    latest: DateTime<Utc>,
    /// Scores in ten-thousandths.
    steps: Vec<u64>,
}

impl Gathered {
    fn new(latest: DateTime<Utc>) -> Self {
        Self {
            successes: 0,
            failures: 0,
            without_evidence: 0,
            latest,
            steps: Vec::new(),
        }
    }

    fn row(mut self, metric: &str) -> SummaryRow {
        self.steps.sort_unstable();
        let score = |steps: Option<&u64>| steps.map(|steps| *steps as f64 / STEPS);
        let count = self.steps.len();
        let middle = [count.saturating_sub(1) / 2, count / 2].map(|i| self.steps.get(i));
        SummaryRow {
            metric: metric.to_owned(),
            success_count: self.successes,
            failed_count: self.failures,
            no_evidence_count: self.without_evidence,
            avg_score: mean(self.steps.iter().sum(), count as u64),
            min_score: score(self.steps.first()),
            max_score: score(self.steps.last()),
            median_score: match middle {
                [Some(low), Some(high)] => mean(low + high, 2),
                _ => None,
            },
            latest_score_at: self.latest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::samples::{at, failed, score, shuffled};
    use crate::history::figures::{DataType, Target};
    use proptest::prelude::*;

    const SESSIONS: fn() -> ScoreFilter = || ScoreFilter::all(Target::Session);

    #[test]
    fn counts_are_by_status_and_numbers_by_score() {
        let records = [
            score("a", "m", 0.1, 1),
            score("b", "m", 0.7, 2),
            score("c", "m", 0.2, 3),
            score("d", "m", 0.6, 4),
            failed("e", "m", 5),
            ScoreRecord {
                data_type: DataType::Categorical,
                value: None,
                ..score("f", "m", 0.0, 0)
            },
            ScoreRecord {
                status: ScoreStatus::Pending,
                value: None,
                ..score("g", "m", 0.0, 9)
            },
            score("a", "k", 1.0, 1),
        ];
        let rows = summary(&records, &SESSIONS());
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].metric, "k");
        assert_eq!(
            rows[1],
            SummaryRow {
                metric: "m".into(),
                success_count: 5,
                failed_count: 1,
                no_evidence_count: 0,
                avg_score: Some(0.4),
                min_score: Some(0.1),
                max_score: Some(0.7),
                median_score: Some(0.4),
                latest_score_at: at(9),
            }
        );
    }

    #[test]
    fn a_metric_without_score_has_no_numbers() {
        let rows = summary(&[failed("e", "m", 5)], &SESSIONS());
        assert_eq!(
            serde_json::to_string(&rows).unwrap(),
            r#"[{"metric":"m","success_count":0,"failed_count":1,"no_evidence_count":0,"avg_score":null,"min_score":null,"max_score":null,"median_score":null,"latest_score_at":"2026-01-01T05:00:00Z"}]"#
        );
        assert!(summary(&[], &SESSIONS()).is_empty());
    }

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        let records = [0.9, 0.1, 0.3].map(|value| score("a", "m", value, 0));
        let median = summary(&records, &SESSIONS())[0].median_score;
        assert_eq!(median, Some(0.3));
        let median = summary(&records[..1], &SESSIONS())[0].median_score;
        assert_eq!(median, Some(0.9));
    }

    proptest! {
        #[test]
        fn order_does_not_matter((records, other) in shuffled()) {
            prop_assert_eq!(summary(&records, &SESSIONS()), summary(&other, &SESSIONS()));
        }

        #[test]
        fn the_numbers_are_in_order((records, _) in shuffled()) {
            for row in summary(&records, &SESSIONS()) {
                let numbers = [row.min_score, row.median_score, row.max_score];
                prop_assert!(numbers.is_sorted(), "{row:?}");
                let numbers = [row.min_score, row.avg_score, row.max_score];
                prop_assert!(numbers.is_sorted(), "{row:?}");
            }
        }
    }
}
