//! Trend: the mean score of a metric over time (as in PandaProbe).

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, Duration, NaiveTime, Timelike, Utc};
use serde::{Deserialize, Serialize};

use crate::history::figures::{ScoreFilter, ScoreRecord, mean};
use crate::text::instant;

/// The length of a trend's buckets. All times are UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// From full hour to full hour.
    Hour,
    /// From midnight to midnight.
    #[default]
    Day,
    /// From Monday, midnight, to Monday.
    Week,
}

impl Interval {
    /// The start of the bucket that `time` falls into.
    pub fn start(self, time: DateTime<Utc>) -> DateTime<Utc> {
        let day = time.date_naive();
        let days_back = match self {
            Self::Hour | Self::Day => 0,
            Self::Week => i64::from(day.weekday().num_days_from_monday()),
        };
        let hour = match self {
            Self::Hour => NaiveTime::from_hms_opt(time.hour(), 0, 0).unwrap_or(NaiveTime::MIN),
            Self::Day | Self::Week => NaiveTime::MIN,
        };
        // The first week of the calendar has no Monday.
        day.checked_sub_signed(Duration::days(days_back))
            .unwrap_or(day)
            .and_time(hour)
            .and_utc()
    }
}

/// The scores of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendRow {
    /// Start of the bucket.
    #[serde(serialize_with = "instant::serialize")]
    pub bucket_start: DateTime<Utc>,
    /// Mean score in [0, 1], not rounded.
    pub avg_score: f64,
    /// How many scores; at least 1.
    pub count: u64,
}

/// The buckets of one metric that hold a score, in order of time.
pub fn trend<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
    metric: &str,
    interval: Interval,
) -> Vec<TrendRow> {
    let mut buckets: BTreeMap<DateTime<Utc>, (u64, u64)> = BTreeMap::new();
    for record in records {
        if let Some(steps) = record.steps()
            && record.metric == metric
            && filter.admits(record)
        {
            let (sum, count) = buckets
                .entry(interval.start(record.created_at))
                .or_default();
            *sum += steps;
            *count += 1;
        }
    }
    buckets
        .into_iter()
        .filter_map(|(bucket_start, (sum, count))| {
            Some(TrendRow {
                bucket_start,
                avg_score: mean(sum, count)?,
                count,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::Target;
    use crate::history::figures::samples::{at, failed, score, shuffled};
    use crate::text::{format_instant, parse_instant};
    use proptest::prelude::*;

    fn sessions() -> ScoreFilter {
        ScoreFilter::all(Target::Session)
    }

    #[test]
    fn buckets_begin_on_the_hour_at_midnight_and_on_monday() {
        for (time, hour, day, week) in [
            (
                "2026-01-01T23:59:59.999Z",
                "2026-01-01T23:00:00Z",
                "2026-01-01T00:00:00Z",
                "2025-12-29T00:00:00Z",
            ),
            (
                "2026-01-05T00:00:00Z",
                "2026-01-05T00:00:00Z",
                "2026-01-05T00:00:00Z",
                "2026-01-05T00:00:00Z",
            ),
            (
                "2024-03-03T12:30:00Z",
                "2024-03-03T12:00:00Z",
                "2024-03-03T00:00:00Z",
                "2024-02-26T00:00:00Z",
            ),
        ] {
            let instant = parse_instant(time).unwrap();
            for (interval, start) in [
                (Interval::Hour, hour),
                (Interval::Day, day),
                (Interval::Week, week),
            ] {
                assert_eq!(
                    format_instant(interval.start(instant)),
                    start,
                    "{time} {interval:?}"
                );
            }
        }
    }

    #[test]
    fn only_scores_of_the_metric_count() {
        let records = [
            score("a", "m", 0.1, 1),
            score("b", "m", 0.2, 2),
            score("b", "other", 0.9, 2),
            failed("c", "m", 3),
            failed("c", "m", 30),
            score("d", "m", 1.0, 49),
        ];
        let rows = trend(&records, &sessions(), "m", Interval::Day);
        assert_eq!(
            rows,
            [
                TrendRow {
                    bucket_start: at(0),
                    avg_score: 0.15,
                    count: 2
                },
                TrendRow {
                    bucket_start: at(48),
                    avg_score: 1.0,
                    count: 1
                },
            ]
        );
        assert_eq!(
            serde_json::to_string(&rows[0]).unwrap(),
            r#"{"bucket_start":"2026-01-01T00:00:00Z","avg_score":0.15,"count":2}"#
        );
    }

    #[test]
    fn the_first_days_of_the_calendar_have_a_week() {
        let first = DateTime::<Utc>::MIN_UTC;
        assert!(Interval::Week.start(first) <= first);
    }

    proptest! {
        #[test]
        fn order_does_not_matter((records, other) in shuffled()) {
            for interval in [Interval::Hour, Interval::Day, Interval::Week] {
                let rows = trend(&records, &sessions(), "m1", interval);
                prop_assert_eq!(&rows, &trend(&other, &sessions(), "m1", interval));
                prop_assert!(rows.is_sorted_by(|a, b| a.bucket_start < b.bucket_start));
            }
        }
    }
}
