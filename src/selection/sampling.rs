//! Sampling of evaluation targets: repeatable, independent of order, and nested (as in PandaProbe).
//!
//! Every id has a rank, a keyed hash of the seed and the id; a sample is the n ids of lowest rank. So
//! the same seed gives the same sample on any machine, and a lower rate a subset of a higher one.

use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::trace::SessionKey;

/// Separates these hashes from every other use of the hash function. Changing it changes samples.
const CONTEXT: &str = "nightmill sampling of evaluation targets, version 1";

/// The seed when none is given.
pub const DEFAULT_SEED: u64 = 0;

/// A sampling rate: the share of targets to evaluate, in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SamplingRate(f64);

/// A number that is no sampling rate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("sampling rate {0} is not in [0, 1]; 1 takes every target, 0.1 one in ten, 0 none")]
pub struct RateError(f64);

impl SamplingRate {
    /// Every target.
    pub const ALL: Self = Self(1.0);

    /// A rate from a number in [0, 1].
    ///
    /// # Errors
    /// [`RateError`] for a number outside [0, 1] and for NaN.
    pub fn new(rate: f64) -> Result<Self, RateError> {
        if (0.0..=1.0).contains(&rate) {
            Ok(Self(rate + 0.0))
        } else {
            Err(RateError(rate))
        }
    }

    /// The rate as a number in [0, 1].
    pub fn get(self) -> f64 {
        self.0
    }

    /// How many of `total` targets are taken: `floor(total * rate)` in f64, at least 1 if the rate is
    /// above 0 and there is a target.
    pub fn count(self, total: usize) -> usize {
        if self.0 == 1.0 {
            return total;
        }
        if self.0 == 0.0 || total == 0 {
            return 0;
        }
        ((total as f64 * self.0).floor() as usize).clamp(1, total)
    }
}

impl Default for SamplingRate {
    fn default() -> Self {
        Self::ALL
    }
}

impl TryFrom<f64> for SamplingRate {
    type Error = RateError;

    fn try_from(rate: f64) -> Result<Self, RateError> {
        Self::new(rate)
    }
}

impl From<SamplingRate> for f64 {
    fn from(rate: SamplingRate) -> Self {
        rate.0
    }
}

/// The place of an id in the sampling order. Lower ranks are taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank([u8; 32]);

/// Ranks ids under one seed.
#[derive(Clone, Debug)]
pub struct Ranking {
    key: [u8; 32],
}

impl Ranking {
    /// The ranking of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            key: blake3::derive_key(CONTEXT, &seed.to_le_bytes()),
        }
    }

    /// The rank of an id. Ids are compared byte for byte: give trace ids in canonical form.
    pub fn rank(&self, id: &str) -> Rank {
        Rank(*blake3::keyed_hash(&self.key, id.as_bytes()).as_bytes())
    }

    /// The sample of a list of distinct ids, in the order of the list.
    pub fn sample<T: AsRef<str>>(&self, ids: Vec<T>, rate: SamplingRate) -> Vec<T> {
        let taken = rate.count(ids.len());
        if taken == ids.len() {
            return ids;
        }
        let mut lowest = Lowest::new(self.clone(), taken);
        ids.iter().for_each(|id| lowest.see(id.as_ref()));
        let cutoff = lowest.cutoff();
        ids.into_iter()
            .filter(|id| cutoff.takes(id.as_ref()))
            .collect()
    }
}

/// Finds the lowest ranks of a stream of distinct ids, of which there are more than fit in memory: 32
/// bytes for each id of the sample. The ids themselves are picked in a second pass, by the
/// [`Cutoff`].
#[derive(Debug)]
pub struct Lowest {
    ranking: Ranking,
    size: usize,
    /// The lowest ranks seen so far, the highest of them on top.
    kept: BinaryHeap<Rank>,
}

impl Lowest {
    /// Looks for the `size` lowest ranks.
    pub fn new(ranking: Ranking, size: usize) -> Self {
        Self {
            ranking,
            size,
            kept: BinaryHeap::new(),
        }
    }

    /// Takes note of an id. Every id must be shown exactly once.
    pub fn see(&mut self, id: &str) {
        let rank = self.ranking.rank(id);
        if self.kept.len() < self.size {
            self.kept.push(rank);
        } else if let Some(mut highest) = self.kept.peek_mut()
            && rank < *highest
        {
            *highest = rank;
        }
    }

    /// What the sample takes, once every id was seen.
    pub fn cutoff(self) -> Cutoff {
        Cutoff {
            highest: self.kept.peek().copied(),
            ranking: self.ranking,
        }
    }
}

/// Tells whether an id belongs to a sample.
#[derive(Clone, Debug)]
pub struct Cutoff {
    ranking: Ranking,
    /// The highest rank taken; none takes nothing.
    highest: Option<Rank>,
}

impl Cutoff {
    /// Whether the sample takes this id.
    pub fn takes(&self, id: &str) -> bool {
        self.highest
            .is_some_and(|highest| self.ranking.rank(id) <= highest)
    }
}

/// The sample of distinct sessions, in no order. Sessions of one id in several projects have one rank; the project then
/// decides.
pub(crate) fn sample_of_sessions<S>(
    mut sessions: Vec<S>,
    key: impl Fn(&S) -> &SessionKey,
    ranking: &Ranking,
    rate: SamplingRate,
) -> Vec<S> {
    let taken = rate.count(sessions.len());
    if taken < sessions.len() {
        sessions.sort_by_cached_key(|session| {
            let key = key(session);
            (ranking.rank(&key.session_id), key.project_id.clone())
        });
        sessions.truncate(taken);
    }
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("trace-{i}")).collect()
    }

    fn rate(rate: f64) -> SamplingRate {
        SamplingRate::new(rate).unwrap()
    }

    #[test]
    fn the_count_is_the_floor_of_the_product_in_f64() {
        for (total, share, count) in [
            (10, 1.0, 10),
            (10, 0.3, 3),
            (10, 0.39, 3),
            (100, 0.29, 28), // 100 * 0.29 is 28.999999999999996
            (10, 0.01, 1),
            (10, 0.0, 0),
            (0, 0.5, 0),
            (0, 1.0, 0),
            (1, 1e-300, 1),
        ] {
            assert_eq!(rate(share).count(total), count, "{total} * {share}");
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for wrong in [-0.1, 1.0001, f64::NAN, f64::INFINITY] {
            assert!(SamplingRate::new(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<SamplingRate>("1.5").is_err());
        assert_eq!(serde_json::to_string(&rate(0.25)).unwrap(), "0.25");
        assert!(rate(-0.0).get().is_sign_positive());
    }

    #[test]
    fn samples_stay_the_same_from_version_to_version() {
        let sample = Ranking::new(DEFAULT_SEED).sample(ids(20), rate(0.2));
        assert_eq!(sample, ["trace-7", "trace-14", "trace-18", "trace-19"]);
    }

    #[test]
    fn seeds_give_different_samples() {
        let [a, b] = [0, 1].map(|seed| Ranking::new(seed).sample(ids(100), rate(0.5)));
        assert_ne!(a, b);
    }

    #[test]
    fn ids_share_no_rank_by_concatenation() {
        let (a, b) = (Ranking::new(1), Ranking::new(11));
        assert_ne!(a.rank("1x"), b.rank("x"));
        assert_ne!(a.rank("x"), b.rank("x"));
    }

    proptest! {
        #[test]
        fn samples_have_the_right_size_and_keep_the_order(count in 0usize..200, share in 0.0..=1.0f64, seed: u64) {
            let all = ids(count);
            let sample = Ranking::new(seed).sample(all.clone(), rate(share));
            prop_assert_eq!(sample.len(), rate(share).count(count));
            let in_order: Vec<String> = all.into_iter().filter(|id| sample.contains(id)).collect();
            prop_assert_eq!(sample, in_order);
        }

        #[test]
        fn a_lower_rate_gives_a_subset(count in 1usize..200, a in 0.0..=1.0f64, b in 0.0..=1.0f64, seed: u64) {
            let ranking = Ranking::new(seed);
            let small: BTreeSet<String> = ranking.sample(ids(count), rate(a.min(b))).into_iter().collect();
            let large: BTreeSet<String> = ranking.sample(ids(count), rate(a.max(b))).into_iter().collect();
            prop_assert!(small.is_subset(&large));
        }

        #[test]
        fn order_does_not_matter(mut shuffled in Just(ids(60)).prop_shuffle(), share in 0.0..=1.0f64) {
            let ranking = Ranking::new(7);
            let mut sample = ranking.sample(std::mem::take(&mut shuffled), rate(share));
            let mut expected = ranking.sample(ids(60), rate(share));
            sample.sort();
            expected.sort();
            prop_assert_eq!(sample, expected);
        }

        #[test]
        fn the_stream_takes_the_lowest_ranks(count in 0usize..100, size in 0usize..120) {
            let ranking = Ranking::new(3);
            let mut lowest = Lowest::new(ranking.clone(), size);
            ids(count).iter().for_each(|id| lowest.see(id));
            let cutoff = lowest.cutoff();
            let taken: BTreeSet<String> = ids(count).into_iter().filter(|id| cutoff.takes(id)).collect();
            let mut sorted = ids(count);
            sorted.sort_by_key(|id| ranking.rank(id));
            sorted.truncate(size);
            prop_assert_eq!(taken, sorted.into_iter().collect::<BTreeSet<_>>());
        }
    }
}
