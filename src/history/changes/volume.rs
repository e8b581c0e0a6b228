//! Whether a night has as many traces as nights usually have.

use serde::Serialize;

use crate::history::chance::{LEAST_NIGHTS, quantile};

/// How many there were in a night, and how many there usually are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeChange {
    /// `traces` or `sessions`.
    pub of: &'static str,
    /// How many the night has.
    pub now: u64,
    /// The nights before, the latest first.
    pub before: Vec<u64>,
    /// Where nights usually are; null with fewer than three nights.
    pub usual: Option<[f64; 2]>,
    /// Whether now is outside.
    pub drifted: bool,
    /// The same in words.
    pub sentence: String,
}

/// Where the next of such counts is with this confidence, as a multiple spreads: of logarithms, and not closer together than
/// chance makes counts. None of fewer than three.
fn usual(before: &[u64], confidence: f64) -> Option<[f64; 2]> {
    if before.len() < LEAST_NIGHTS {
        return None;
    }
    let nights = before.len() as f64;
    let logs: Vec<f64> = before.iter().map(|count| (*count as f64).ln_1p()).collect();
    let mean = logs.iter().sum::<f64>() / nights;
    let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (nights - 1.0);
    let of_chance = 1.0 / mean.exp();
    let reach = quantile(0.5 + confidence / 2.0, nights - 1.0)
        * (spread.max(of_chance) * (1.0 + 1.0 / nights)).sqrt();
    Some([(mean - reach).exp_m1().max(0.0), (mean + reach).exp_m1()])
}

impl VolumeChange {
    pub(super) fn of(of: &'static str, now: u64, before: Vec<u64>, confidence: f64) -> Self {
        let usual = usual(&before, confidence);
        let drifted = usual.is_some_and(|[low, high]| (now as f64) < low || now as f64 > high);
        let sentence = match usual {
            None => format!("{now} {of}: fewer than {LEAST_NIGHTS} nights to hold it against"),
            Some([low, high]) => {
                // What a night like those before would have, which is wider than what they had.
                let range = format!("{low:.0} to {high:.0}, by the last {} nights", before.len());
                match drifted {
                    true if (now as f64) < low => {
                        format!("{now} {of}, fewer than the usual {range}")
                    }
                    true => format!("{now} {of}, more than the usual {range}"),
                    false => format!("{now} {of}, within the usual {range}"),
                }
            }
        };
        Self {
            of,
            now,
            before,
            usual,
            drifted,
            sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_that_of_the_next_of_such_counts() {
        // Logarithms of 1 + count: 8, 9 and 10: mean 9, variance 1. t(0.995, 2) = 9.9248, times the root of 4 / 3.
        let counts = [8.0f64, 9.0, 10.0].map(|log| log.exp_m1().round() as u64);
        let [low, high] = usual(&counts, 0.99).unwrap();
        assert!(low < 1.0);
        let expected = 9.0 + 9.924_8 * (4.0f64 / 3.0).sqrt();
        assert!((high.ln_1p() - expected).abs() < 0.001, "{high}");
        assert_eq!(usual(&counts[..2], 0.99), None);
    }

    #[test]
    fn a_night_that_is_missing_half_of_its_traces_is_seen() {
        let before = vec![1000, 1040, 980, 1010, 995, 1020, 1003];
        let of = |now| VolumeChange::of("traces", now, before.clone(), 0.99);
        assert!(!of(1015).drifted && of(500).drifted && of(2000).drifted);
        assert!(
            of(500)
                .sentence
                .starts_with("500 traces, fewer than the usual 8"),
            "{:?}",
            of(500)
        );
        // Equal counts don't make the next one certain.
        let equal = VolumeChange::of("traces", 108, vec![100; 14], 0.99);
        assert!(!equal.drifted, "{equal:?}");
    }
}
