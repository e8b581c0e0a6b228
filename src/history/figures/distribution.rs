//! Distribution: how the scores of a metric spread over [0, 1] (as in PandaProbe).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::figures::{ScoreFilter, ScoreRecord};
use crate::metric::round4;

/// The number of buckets of a distribution: 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Buckets(u32);

/// A number of buckets that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} buckets can't be; ask for 1 to 100")]
pub struct BucketError(u32);

impl TryFrom<u32> for Buckets {
    type Error = BucketError;

    fn try_from(count: u32) -> Result<Self, BucketError> {
        match count {
            1..=100 => Ok(Self(count)),
            _ => Err(BucketError(count)),
        }
    }
}

impl From<Buckets> for u32 {
    fn from(buckets: Buckets) -> Self {
        buckets.0
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self(10)
    }
}

/// Where a score of exactly 1 goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBucket {
    /// Into a bucket of its own after the last one, from 1 to 1, as PandaProbe reports it.
    #[default]
    Compat,
    /// Into the last bucket.
    Closed,
}

/// The scores of one bucket: `bucket_min <= score < bucket_max`, except where both are 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketRow {
    /// Lower end, 4 decimals.
    pub bucket_min: f64,
    /// Upper end, 4 decimals.
    pub bucket_max: f64,
    /// How many scores; at least 1.
    pub count: u64,
}

/// The buckets of one metric that hold a score, lowest first. A score v falls into bucket
/// floor(v * buckets) of the f64 product: where that is not exact, a score on a boundary may fall into
/// the bucket below, as in PandaProbe.
pub fn distribution<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
    metric: &str,
    buckets: Buckets,
    last: LastBucket,
) -> Vec<BucketRow> {
    let count = f64::from(buckets.0);
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for record in records {
        if let Some(score) = record.score()
            && record.metric == metric
            && filter.admits(record)
        {
            let bucket = match last {
                LastBucket::Closed if score == 1.0 => buckets.0 - 1,
                _ => (score * count).floor() as u32,
            };
            *counts.entry(bucket).or_default() += 1;
        }
    }
    let end = |bucket: u32| round4((f64::from(bucket) / count).min(1.0));
    counts
        .into_iter()
        .map(|(bucket, count)| BucketRow {
            bucket_min: end(bucket),
            bucket_max: end(bucket + 1),
            count,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::Target;
    use crate::history::figures::samples::{failed, score, shuffled};
    use proptest::prelude::*;

    fn rows(values: &[f64], buckets: u32, last: LastBucket) -> Vec<(f64, f64, u64)> {
        let mut records: Vec<ScoreRecord> = values.iter().map(|v| score("s", "m", *v, 0)).collect();
        records.push(failed("s", "m", 0));
        records.push(score("s", "other", 0.5, 0));
        distribution(
            &records,
            &ScoreFilter::all(Target::Session),
            "m",
            buckets.try_into().unwrap(),
            last,
        )
        .iter()
        .map(|row| (row.bucket_min, row.bucket_max, row.count))
        .collect()
    }

    #[test]
    fn a_score_of_one_has_its_own_bucket_or_closes_the_last() {
        let values = [0.0, 0.0999, 0.1, 0.95, 1.0, 1.0];
        assert_eq!(
            rows(&values, 10, LastBucket::Compat),
            [(0.0, 0.1, 2), (0.1, 0.2, 1), (0.9, 1.0, 1), (1.0, 1.0, 2)]
        );
        assert_eq!(
            rows(&values, 10, LastBucket::Closed),
            [(0.0, 0.1, 2), (0.1, 0.2, 1), (0.9, 1.0, 3)]
        );
        assert_eq!(rows(&[1.0], 1, LastBucket::Compat), [(1.0, 1.0, 1)]);
        assert_eq!(rows(&[1.0, 0.3], 1, LastBucket::Closed), [(0.0, 1.0, 2)]);
    }

    #[test]
    fn ends_have_4_decimals() {
        assert_eq!(
            rows(&[0.4, 0.7], 3, LastBucket::Compat),
            [(0.3333, 0.6667, 1), (0.6667, 1.0, 1)]
        );
    }

    #[test]
    fn the_product_is_taken_in_f64() {
        // 0.29 * 100 is 28.999999999999996.
        assert_eq!(rows(&[0.29], 100, LastBucket::Compat), [(0.28, 0.29, 1)]);
    }

    #[test]
    fn there_are_1_to_100_buckets() {
        for wrong in [0, 101] {
            assert_eq!(Buckets::try_from(wrong), Err(BucketError(wrong)));
        }
        assert_eq!(u32::from(Buckets::default()), 10);
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_nothing_is_lost((records, other) in shuffled(), buckets in 1u32..=100) {
            let filter = ScoreFilter::all(Target::Session);
            let buckets: Buckets = buckets.try_into().unwrap();
            for last in [LastBucket::Compat, LastBucket::Closed] {
                let rows = distribution(&records, &filter, "m1", buckets, last);
                prop_assert_eq!(&rows, &distribution(&other, &filter, "m1", buckets, last));
                let scores = records.iter().filter(|r| r.metric == "m1" && filter.admits(r) && r.score().is_some());
                prop_assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), scores.count() as u64);
                prop_assert!(rows.is_sorted_by(|a, b| a.bucket_min < b.bucket_min));
            }
        }
    }
}
