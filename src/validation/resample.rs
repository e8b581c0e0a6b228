//! Samples of the units of a run, drawn again with replacement: how far a figure moves by chance.
//!
//! Drawn are clusters, not units: sessions of one task succeed and fail together, and say less than as many sessions of
//! different tasks. The draws are a fixed sequence, so that the same data has the same interval on every machine.

use rayon::prelude::*;
use serde::Serialize;

/// A figure with the interval that holds 95 % of the resampled ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Of the units as they are.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// How units are drawn.
#[derive(Clone, Debug)]
pub(super) struct Resamples {
    /// The cluster of each unit.
    pub cluster_of: Vec<u32>,
    pub clusters: u32,
    /// How many samples there are.
    pub count: usize,
    /// Which sequence of draws it is: that of another run is another one.
    sequence: u64,
}

/// The most samples, and the fewest for large data.
const MOST: usize = 1000;
const FEWEST: usize = 200;
/// How many units all samples of a figure may count together.
const UNITS: usize = 20_000_000;

impl Resamples {
    /// Of units in these clusters; fewer samples of more units.
    pub fn of(cluster_of: Vec<u32>, clusters: u32, sequence: u64) -> Self {
        let count = (UNITS / cluster_of.len().max(1)).clamp(FEWEST, MOST);
        Self {
            cluster_of,
            clusters,
            count,
            sequence,
        }
    }

    /// How often each unit is in each sample.
    pub fn drawn(&self) -> Vec<Vec<u32>> {
        let samples = (0..self.count).into_par_iter();
        samples.map(|sample| self.weights(sample)).collect()
    }

    /// How often each unit is in a sample.
    fn weights(&self, sample: usize) -> Vec<u32> {
        let mut drawn = vec![0u32; self.clusters as usize];
        let mut random = SplitMix((self.sequence << 32) | sample as u64);
        for _ in 0..self.clusters {
            if let Some(times) = drawn.get_mut(random.below(self.clusters) as usize) {
                *times += 1;
            }
        }
        let of = |cluster: &u32| drawn.get(*cluster as usize).copied().unwrap_or_default();
        self.cluster_of.iter().map(of).collect()
    }
}

/// The interval of resampled figures, NaN where a sample has none; none with fewer than half of them.
pub(super) fn interval(value: f64, samples: &[f64]) -> Option<Estimate> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| !v.is_nan()).collect();
    if sorted.is_empty() || sorted.len() * 2 < samples.len() {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len() - 1;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (place.floor() as usize, place.ceil() as usize);
        let (below, above) = (sorted.get(below)?, sorted.get(above)?);
        Some(below + (above - below) * place.fract())
    };
    Some(Estimate {
        value,
        low: at(0.025)?,
        high: at(0.975)?,
    })
}

/// SplitMix64 (Steele, Lea and Flood 2014): a sequence that no version of a library changes, since published intervals
/// hang on it.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, all about equally likely.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_a_cluster_are_drawn_together_and_samples_have_as_many_clusters() {
        let resamples = Resamples::of(vec![0, 0, 1, 2, 2, 2], 3, 0);
        let mut seen = std::collections::BTreeSet::new();
        for sample in 0..50 {
            let weights = resamples.weights(sample);
            assert_eq!(weights[0], weights[1]);
            assert!(weights[3] == weights[4] && weights[4] == weights[5]);
            assert_eq!(weights[0] + weights[2] + weights[3], 3);
            seen.insert(weights);
        }
        assert!(seen.len() > 5);
        assert_eq!(resamples.weights(7), resamples.weights(7));
    }

    #[test]
    fn an_interval_leaves_out_two_and_a_half_percent_at_either_end() {
        let samples: Vec<f64> = (0..=1000).map(|n| f64::from(n) / 1000.0).collect();
        let found = interval(0.4, &samples).unwrap();
        assert_eq!((found.value, found.low, found.high), (0.4, 0.025, 0.975));
        assert_eq!(interval(0.4, &[f64::NAN, f64::NAN, 0.3]), None);
    }

    #[test]
    fn the_first_numbers_are_those_that_are_published() {
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
