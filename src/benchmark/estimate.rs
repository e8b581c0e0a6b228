//! A figure, and how far it moves by chance.

use serde::{Deserialize, Serialize};

/// A figure with the interval that holds 95 % of those of samples drawn with replacement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Of all units.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// How many samples are drawn.
const SAMPLES: u64 = 500;

impl Estimate {
    /// Of a figure of so many units, by their numbers. The draws are a fixed sequence.
    pub(super) fn of(units: usize, figure: impl Fn(&[usize]) -> f64) -> Self {
        let all: Vec<usize> = (0..units).collect();
        let mut found: Vec<f64> = (0..SAMPLES)
            .map(|sample| {
                let mut state = sample << 32;
                let drawn: Vec<usize> = all
                    .iter()
                    .map(|_| (next(&mut state) % units.max(1) as u64) as usize)
                    .collect();
                figure(&drawn)
            })
            .collect();
        found.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * (found.len() - 1) as f64).round() as usize;
            found.get(place).copied().unwrap_or(f64::NAN)
        };
        Self {
            value: figure(&all),
            low: at(0.025),
            high: at(0.975),
        }
    }
}

/// The next number of a sequence that looks drawn by chance (SplitMix64).
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_figure_and_narrows_with_more_units() {
        let mean_of = |units: usize| {
            let value = |unit: usize| (unit % 10) as f64;
            Estimate::of(units, |drawn| {
                drawn.iter().map(|unit| value(*unit)).sum::<f64>() / drawn.len() as f64
            })
        };
        let (few, many) = (mean_of(20), mean_of(2000));
        for estimate in [few, many] {
            assert!((estimate.value - 4.5).abs() < 1e-9);
            assert!(estimate.low < 4.5 && estimate.high > 4.5, "{estimate:?}");
        }
        assert!(many.high - many.low < (few.high - few.low) / 5.0);
        assert_eq!(mean_of(20), few);
    }
}
