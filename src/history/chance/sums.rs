//! Sums over the scores of a night, and how far the mean of a night is from the mean of others.
//!
//! Scores of one session hang together: the sessions are what is drawn by chance, so that the spread of a mean is that of
//! sums over sessions. Nights differ among themselves too, by more than their sessions explain (weekdays, releases); that
//! spread is estimated as in DerSimonian and Laird (1986) and taken into the interval. Its degrees of freedom are those of
//! Welch and Satterthwaite. Sums are whole numbers, so that the order of sessions changes no figure.

use super::student;

/// A score of 1 in whole steps.
pub(crate) const STEPS: u64 = 10_000;

/// Fewest sessions on either side that an interval is made of.
pub(crate) const LEAST_SESSIONS: u64 = 5;

/// Fewest nights that say how much nights differ.
pub(crate) const LEAST_NIGHTS: usize = 3;

/// Sums over scores of one night, session by session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Scores.
    pub count: u64,
    /// Sessions that they are of.
    pub sessions: u64,
    /// The sum of all scores, in steps.
    sum: u128,
    /// Over sessions: the square of the sum, sum times count, and the square of the count.
    squares: u128,
    cross: u128,
    sizes: u128,
}

impl Sums {
    /// Adds a session: how many scores it has, and their sum in steps.
    #[cfg(test)]
    pub fn add(&mut self, count: u64, sum: u64) {
        self.add_sessions(1, count, sum);
    }

    /// Adds several sessions that are alike.
    pub fn add_sessions(&mut self, sessions: u64, count: u64, sum: u64) {
        let [times, count, sum] = [sessions, count, sum].map(u128::from);
        self.count += (times * count) as u64;
        self.sessions += sessions;
        self.sum += times * sum;
        self.squares += times * sum * sum;
        self.cross += times * sum * count;
        self.sizes += times * count * count;
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sessions: self.sessions + other.sessions,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            cross: self.cross + other.cross,
            sizes: self.sizes + other.sizes,
        }
    }

    /// The mean in [0, 1]; none without scores.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 / STEPS as f64)
    }

    /// The variance of the mean over sessions; none of fewer than two.
    fn variance(&self) -> Option<f64> {
        if self.sessions < 2 || self.count == 0 {
            return None;
        }
        let (count, sessions) = (self.count as f64, self.sessions as f64);
        let mean = self.sum as f64 / count;
        let squares =
            self.squares as f64 - 2.0 * mean * self.cross as f64 + mean * mean * self.sizes as f64;
        let steps = STEPS as f64;
        Some(squares.max(0.0) / (count * count) * sessions / (sessions - 1.0) / (steps * steps))
    }
}

/// How far two means are apart, with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The later mean less the earlier one.
    pub difference: f64,
    /// The ends of the interval.
    pub low: f64,
    /// The same.
    pub high: f64,
    /// The degrees of freedom behind it.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "tests hold it against known values")
    )]
    pub degrees: f64,
}

/// The mean of now less the mean of the nights before, with the interval that holds the true one with this confidence. None
/// where either side has too few sessions.
pub(crate) fn difference(now: &Sums, nights: &[Sums], confidence: f64) -> Option<Difference> {
    let before = nights
        .iter()
        .fold(Sums::default(), |all, night| all.with(*night));
    if now.sessions < LEAST_SESSIONS || before.sessions < LEAST_SESSIONS {
        return None;
    }
    let (of_before, own) = (before.variance()?, now.variance()?);
    // Few sessions may all be alike by chance: then the spread of the nights before is the better guess.
    let guessed = of_before * before.sessions as f64 / now.sessions as f64;
    let (of_now, degrees_now) = match own >= guessed {
        true => (own, now.sessions as f64 - 1.0),
        false => (guessed, before.sessions as f64 - 1.0),
    };
    let between = between(nights, &before, of_before);
    let total = before.count as f64;
    let shares = nights
        .iter()
        .map(|night| (night.count as f64 / total).powi(2));
    let of_nights = between * (1.0 + shares.sum::<f64>());
    let variance = of_now + of_before + of_nights;
    let difference = now.mean()? - before.mean()?;
    let counted = nights.iter().filter(|night| night.count > 0).count();
    let parts = [
        (of_now, degrees_now),
        (of_before, before.sessions as f64 - 1.0),
        (of_nights, counted as f64 - 1.0),
    ];
    let parts = parts.iter().filter(|(part, _)| *part > 0.0);
    let weight: f64 = parts
        .map(|(part, degrees)| part * part / degrees.max(1.0))
        .sum();
    let degrees = match weight > 0.0 {
        true => variance * variance / weight,
        false => 1.0,
    };
    let reach = match variance > 0.0 {
        true => student::quantile(0.5 + confidence / 2.0, degrees) * variance.sqrt(),
        false => 0.0,
    };
    Some(Difference {
        difference,
        low: difference - reach,
        high: difference + reach,
        degrees,
    })
}

/// The mean of scores with the interval that holds the true one with this confidence; none of too few sessions. It is of
/// scores whose spread is known from themselves alone.
pub(crate) fn mean_interval(sums: &Sums, confidence: f64) -> Option<Difference> {
    if sums.sessions < LEAST_SESSIONS {
        return None;
    }
    let (mean, variance) = (sums.mean()?, sums.variance()?);
    let degrees = sums.sessions as f64 - 1.0;
    let reach = student::quantile(0.5 + confidence / 2.0, degrees) * variance.sqrt();
    Some(Difference {
        difference: mean,
        low: mean - reach,
        high: mean + reach,
        degrees,
    })
}

/// The variance of the means of nights that their sessions don't explain.
fn between(nights: &[Sums], before: &Sums, of_before: f64) -> f64 {
    let spread = of_before * before.sessions as f64;
    let known: Vec<(f64, f64)> = nights
        .iter()
        .filter_map(|night| {
            let guessed = spread / night.sessions as f64;
            let variance = night.variance()?.max(guessed);
            (variance > 0.0).then_some((night.mean()?, 1.0 / variance))
        })
        .collect();
    if known.len() < LEAST_NIGHTS {
        return 0.0;
    }
    laird(&known)
}

/// The estimate of DerSimonian and Laird, of means and their weights (one by the variance of each).
fn laird(known: &[(f64, f64)]) -> f64 {
    let weights: f64 = known.iter().map(|(_, weight)| weight).sum();
    let squares: f64 = known.iter().map(|(_, weight)| weight * weight).sum();
    let mean = known
        .iter()
        .map(|(mean, weight)| mean * weight)
        .sum::<f64>()
        / weights;
    let apart: f64 = known
        .iter()
        .map(|(of_night, weight)| weight * (of_night - mean).powi(2))
        .sum();
    let scale = weights - squares / weights;
    match scale > 0.0 {
        true => ((apart - (known.len() as f64 - 1.0)) / scale).max(0.0),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alone(scores: &[f64]) -> Sums {
        let mut sums = Sums::default();
        for score in scores {
            sums.add(1, (score * STEPS as f64).round() as u64);
        }
        sums
    }

    #[test]
    fn sessions_of_one_score_are_the_test_of_welch() {
        // R's data set `sleep`, moved into [0, 1] by (x + 2) / 10. R: t.test(extra ~ group): t = 1.8608, df = 17.776, and
        // 95 % from -0.2054832 to 3.3654832.
        let first =
            [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0].map(|x| (x + 2.0) / 10.0);
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4].map(|x| (x + 2.0) / 10.0);
        let found = difference(&alone(&second), &[alone(&first)], 0.95).unwrap();
        assert!((found.degrees - 17.776).abs() < 5e-4, "{found:?}");
        assert!((found.low * 10.0 + 0.205_483_2).abs() < 1e-6, "{found:?}");
        assert!((found.high * 10.0 - 3.365_483_2).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn pairs_are_the_paired_test() {
        // The same data as pairs. R: t.test(extra ~ group, paired = TRUE): 95 % from 0.7001142 to 2.4598858.
        let pairs = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4].map(|x| x / 10.0);
        let found = mean_interval(&alone(&pairs), 0.95).unwrap();
        assert!((found.low * 10.0 - 0.700_114_2).abs() < 1e-6, "{found:?}");
        assert!((found.high * 10.0 - 2.459_885_8).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn scores_of_one_session_count_as_one_draw() {
        // Ten sessions of one score, and the same with each score told 8 times: the mean is known no better.
        let scores = [0.1, 0.9, 0.4, 0.6, 0.5, 0.3, 0.8, 0.2, 0.7, 0.5];
        let once = alone(&scores);
        let mut told = Sums::default();
        for score in scores {
            told.add(8, 8 * (score * STEPS as f64).round() as u64);
        }
        assert_eq!((once.mean(), told.count), (told.mean(), 80));
        let (once, told) = (once.variance().unwrap(), told.variance().unwrap());
        assert!((once - told).abs() < 1e-15);
        // Of single scores it is the variance by the book: s² / n.
        let mean = 0.5;
        let s2: f64 = scores.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 9.0;
        assert!((once - s2 / 10.0).abs() < 1e-12);
    }

    #[test]
    fn nights_that_differ_widen_the_interval() {
        // By hand: three means of weight 100: mean 0.5, apart = 100 · 0.02 = 2 · 1, so (2 - 2) / 200 = 0 ...
        assert!(laird(&[(0.4, 100.0), (0.5, 100.0), (0.6, 100.0)]) < 1e-12);
        // ... and of weight 1000: apart 20, scale 2000, (20 - 2) / 2000.
        let found = laird(&[(0.4, 1000.0), (0.5, 1000.0), (0.6, 1000.0)]);
        assert!((found - 0.009).abs() < 1e-12, "{found}");

        let night = |mean: f64| {
            let scores: Vec<f64> = (0..200)
                .map(|at| mean + if at % 2 == 0 { 0.1 } else { -0.1 })
                .collect();
            alone(&scores)
        };
        let steady = difference(&night(0.45), &[0.5; 7].map(night), 0.99).unwrap();
        assert!(steady.high < 0.0, "{steady:?}");
        let moving = [0.4, 0.6, 0.45, 0.55, 0.5, 0.42, 0.58].map(night);
        let moving = difference(&night(0.45), &moving, 0.99).unwrap();
        assert!(moving.high > 0.0, "{moving:?}");
    }

    #[test]
    fn few_sessions_make_no_interval_and_equal_ones_no_certainty() {
        let before = alone(&[0.1, 0.9, 0.4, 0.6, 0.5, 0.3, 0.8, 0.2, 0.7, 0.5]);
        assert_eq!(difference(&alone(&[0.1; 4]), &[before], 0.99), None);
        // Five equal ones, by chance or not.
        let found = difference(&alone(&[0.4; 5]), &[before], 0.99).unwrap();
        assert!(found.low < -0.2 && found.high > 0.0, "{found:?}");
    }

    proptest! {
        #[test]
        fn the_order_of_sessions_changes_nothing(
            (sessions, other) in prop::collection::vec((1u64..50, 0u64..=10_000), 0..40)
                .prop_flat_map(|sessions| (Just(sessions.clone()), Just(sessions).prop_shuffle()))
        ) {
            let sums = |of: &[(u64, u64)]| {
                let mut sums = Sums::default();
                of.iter().for_each(|(count, mean)| sums.add(*count, count * mean));
                sums
            };
            prop_assert_eq!(sums(&sessions), sums(&other));
            let halves = sums(&sessions[..sessions.len() / 2]).with(sums(&sessions[sessions.len() / 2..]));
            prop_assert_eq!(sums(&sessions), halves);
        }
    }
}
