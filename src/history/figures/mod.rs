//! Figures over stored scores: what they say over time (as in PandaProbe).
//!
//! Pure functions over score records in any order; every result is the same for every order. Sums are
//! exact: scores have 4 decimals, so they are added as whole ten-thousandths.

mod comparison;
mod distribution;
mod history;
mod latest;
mod summary;
mod trend;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use comparison::{Comparison, ComparisonRow, Order, Page, comparison};
pub use distribution::{BucketError, BucketRow, Buckets, LastBucket, distribution};
pub use history::{DEFAULT_HISTORY, HistoryRow, history};
pub use latest::{LatestRow, latest};
pub use summary::{SummaryRow, summary};
pub use trend::{Interval, TrendRow, trend};

use crate::metric::round4;

/// What a score is about. Written `TRACE` or `SESSION`; lower case is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Target {
    /// One trace.
    #[serde(alias = "trace")]
    Trace,
    /// One session.
    #[serde(alias = "session")]
    Session,
}

impl Target {
    /// `trace` or `session`, as tables and flags have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Session => "session",
        }
    }
}

/// How a score came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ScoreStatus {
    /// There is a score.
    Success,
    /// Scoring failed; there is no value.
    Failed,
    /// Not scored yet.
    Pending,
    /// A session's score that would rest on no trace: there is none, and nothing failed.
    NoEvidence,
}

impl ScoreStatus {
    /// `SUCCESS`, `FAILED`, `PENDING` or `NO_EVIDENCE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Pending => "PENDING",
            Self::NoEvidence => "NO_EVIDENCE",
        }
    }
}

/// What kind of value a score is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DataType {
    /// A number in [0, 1].
    Numeric,
    /// True or false.
    Boolean,
    /// One of some words.
    Categorical,
}

impl DataType {
    /// `NUMERIC`, `BOOLEAN` or `CATEGORICAL`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Numeric => "NUMERIC",
            Self::Boolean => "BOOLEAN",
            Self::Categorical => "CATEGORICAL",
        }
    }
}

/// One stored score, as far as figures look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRecord {
    /// What kind of thing was scored.
    pub target: Target,
    /// Project of the trace or session: sessions of one id in two projects are two.
    pub project_id: Option<String>,
    /// Trace id or session id.
    pub target_id: String,
    /// Name of the metric.
    pub metric: String,
    /// Id of the run that made the score.
    pub run: String,
    /// How it came out.
    pub status: ScoreStatus,
    /// What kind of value it is.
    pub data_type: DataType,
    /// The stored number in [0, 1], 4 decimals. None for a failed score and for values that are no number.
    pub value: Option<f64>,
    /// The stored value as text; read only where the scores of one trace or session are asked for.
    pub text: Option<String>,
    /// What the number hangs on: the embedding model with its precision, or the judge's model. Numbers of two models
    /// have two scales. None for scores of people.
    pub model: Option<Arc<str>>,
    /// When the score was made.
    pub created_at: DateTime<Utc>,
}

impl ScoreRecord {
    /// The score: the stored number of a successful numeric score. None for everything else, also for a
    /// number outside [0, 1], which is no score (as in PandaProbe).
    pub fn score(&self) -> Option<f64> {
        let is_numeric = self.status == ScoreStatus::Success && self.data_type == DataType::Numeric;
        self.value
            .filter(|_| is_numeric)
            .map(round4)
            .filter(|score| (0.0..=1.0).contains(score))
    }

    /// The score in ten-thousandths: 0 to 10000.
    fn steps(&self) -> Option<u64> {
        self.score().map(|score| (score * STEPS).round() as u64)
    }
}

const STEPS: f64 = 1e4;

/// The mean of `count` scores that add up to `steps` ten-thousandths; correctly rounded up to some 10^11
/// scores. None for no score.
fn mean(steps: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| steps as f64 / (count as f64 * STEPS))
}

/// Which scores are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreFilter {
    /// Scores of traces or scores of sessions.
    pub target: Target,
    /// `created_at` is this or later.
    pub date_from: Option<DateTime<Utc>>,
    /// `created_at` is earlier than this.
    pub date_to: Option<DateTime<Utc>>,
}

impl ScoreFilter {
    /// All scores of traces, or all of sessions.
    pub fn all(target: Target) -> Self {
        Self {
            target,
            date_from: None,
            date_to: None,
        }
    }

    /// Whether scores of this time are looked at.
    pub fn covers(&self, time: DateTime<Utc>) -> bool {
        self.date_from.is_none_or(|from| time >= from) && self.date_to.is_none_or(|to| time < to)
    }

    /// Whether a score is looked at.
    pub fn admits(&self, record: &ScoreRecord) -> bool {
        record.target == self.target && self.covers(record.created_at)
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Records for the tests of this room.

    use super::*;
    use proptest::prelude::*;

    /// A successful score of session `id`; `hour` counts from Thursday, 1 January 2026.
    pub(crate) fn score(id: &str, metric: &str, value: f64, hour: i64) -> ScoreRecord {
        ScoreRecord {
            target: Target::Session,
            project_id: None,
            target_id: id.to_owned(),
            metric: metric.to_owned(),
            run: format!("run-{hour}"),
            status: ScoreStatus::Success,
            data_type: DataType::Numeric,
            value: Some(value),
            text: None,
            model: None,
            created_at: at(hour),
        }
    }

    pub(crate) fn at(hour: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_767_225_600 + hour * 3600, 0).unwrap()
    }

    pub(crate) fn failed(id: &str, metric: &str, hour: i64) -> ScoreRecord {
        ScoreRecord {
            status: ScoreStatus::Failed,
            value: None,
            ..score(id, metric, 0.0, hour)
        }
    }

    /// Records with many ties, and a second order of the same records.
    pub(crate) fn shuffled() -> impl Strategy<Value = (Vec<ScoreRecord>, Vec<ScoreRecord>)> {
        let record = (0u8..4, 0u8..3, 0u16..=10_000, 0i64..200, 0u8..6, 0u8..2).prop_map(
            |(id, metric, steps, hour, kind, run)| {
                let mut record = score(
                    &format!("s{id}"),
                    &format!("m{metric}"),
                    f64::from(steps) / 1e4,
                    hour / 10,
                );
                record.run = format!("run-{run}");
                match kind {
                    0 => (record.status, record.value) = (ScoreStatus::Failed, None),
                    1 => (record.status, record.value) = (ScoreStatus::Pending, None),
                    2 => record.data_type = DataType::Boolean,
                    3 => record.target = Target::Trace,
                    _ => {}
                }
                record
            },
        );
        prop::collection::vec(record, 0..60)
            .prop_flat_map(|records| (Just(records.clone()), Just(records).prop_shuffle()))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{at, failed, score};
    use super::*;

    #[test]
    fn only_numbers_of_successful_numeric_scores_count() {
        let good = score("s", "m", 0.25, 0);
        assert_eq!(good.score(), Some(0.25));
        for not_one in [
            failed("s", "m", 0),
            ScoreRecord {
                data_type: DataType::Boolean,
                ..good.clone()
            },
            ScoreRecord {
                status: ScoreStatus::Pending,
                ..good.clone()
            },
            score("s", "m", f64::NAN, 0),
            score("s", "m", 4.5, 0),
            score("s", "m", -0.0001, 0),
        ] {
            assert_eq!(not_one.score(), None, "{not_one:?}");
        }
        // What is stored has 4 decimals.
        assert_eq!(score("s", "m", 0.33333, 0).score(), Some(0.3333));
    }

    #[test]
    fn the_filter_is_half_open() {
        let filter = ScoreFilter {
            date_from: Some(at(1)),
            date_to: Some(at(3)),
            ..ScoreFilter::all(Target::Session)
        };
        let admitted: Vec<i64> = (0..5)
            .filter(|hour| filter.admits(&score("s", "m", 0.5, *hour)))
            .collect();
        assert_eq!(admitted, [1, 2]);
        assert!(!ScoreFilter::all(Target::Trace).admits(&score("s", "m", 0.5, 0)));
    }

    #[test]
    fn every_analysis_looks_through_the_filter() {
        let records = [
            score("early", "m", 0.1, 0),
            score("s", "m", 0.5, 1),
            score("late", "m", 0.9, 2),
            ScoreRecord {
                target: Target::Trace,
                ..score("s", "m", 0.7, 1)
            },
        ];
        let filter = ScoreFilter {
            date_from: Some(at(1)),
            date_to: Some(at(2)),
            ..ScoreFilter::all(Target::Session)
        };
        let alone = &records[1..2];
        let all = ScoreFilter::all(Target::Session);
        assert_eq!(summary(&records, &filter), summary(alone, &all));
        assert_eq!(
            trend(&records, &filter, "m", Interval::Hour),
            trend(alone, &all, "m", Interval::Hour)
        );
        let spread = |records, filter| {
            distribution(records, filter, "m", Buckets::default(), LastBucket::Compat)
        };
        assert_eq!(spread(&records[..], &filter), spread(alone, &all));
        assert_eq!(
            history(&records, &filter, "s", 9),
            history(alone, &all, "s", 9)
        );
        assert_eq!(latest(&records, &filter, "s"), latest(alone, &all, "s"));
        let page = Page {
            offset: 0,
            limit: 9,
        };
        let compared = |records, filter| comparison(records, filter, "m", Order::Ascending, page);
        assert_eq!(compared(&records[..], &filter), compared(alone, &all));
    }

    #[test]
    fn the_mean_is_exact() {
        // Ten times 0.1 is not 1 when added one by one.
        assert_eq!(mean(10 * 1000, 10), Some(0.1));
        assert_eq!(mean(0, 0), None);
        assert_eq!(mean(1, 3), Some(0.0001 / 3.0));
    }

    #[test]
    fn every_number_of_4_decimals_is_a_whole_number_of_steps() {
        for steps in 0..=10_000u64 {
            let value: f64 = format!("{}.{:04}", steps / 10_000, steps % 10_000)
                .parse()
                .unwrap();
            assert_eq!(score("s", "m", value, 0).steps(), Some(steps));
            assert_eq!(mean(steps, 1), Some(value));
        }
    }
}
