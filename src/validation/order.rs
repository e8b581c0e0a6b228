//! Units in the order of a score, and how well bad ones come last in it.
//!
//! The area under the curve (AUC) is the share of pairs of a bad and a good unit in which the bad one is worse by the
//! score; an equal pair counts one half. 0.5 is chance, 1 a perfect order, below 0.5 the score points the wrong way.

/// Units from the best to the worst. Those without a value are left out.
#[derive(Clone, Debug)]
pub(super) struct Order {
    units: Vec<u32>,
    /// Ends of runs of equal units, and whether the stratum ends there too.
    ends: Vec<(u32, bool)>,
}

/// How many points a curve has after its first, which is 0.
pub(super) const CURVE: usize = 50;

impl Order {
    /// Of how bad each unit is, NaN for none; only units of one stratum are compared.
    pub fn within(badness: &[f64], strata: &[u32]) -> Self {
        let mut units: Vec<u32> = (0..)
            .zip(badness)
            .filter(|(_, bad)| !bad.is_nan())
            .map(|(at, _)| at)
            .collect();
        let of = |at: &u32| {
            let at = *at as usize;
            let stratum = strata.get(at).copied().unwrap_or_default();
            (stratum, badness.get(at).copied().unwrap_or_default())
        };
        units.sort_unstable_by(|a, b| {
            let ((a_in, a), (b_in, b)) = (of(a), of(b));
            a_in.cmp(&b_in).then(a.total_cmp(&b))
        });
        let mut ends = Vec::new();
        for (at, unit) in units.iter().enumerate() {
            let (stratum, bad) = of(unit);
            match units.get(at + 1).map(of) {
                Some((next, worse)) if next == stratum && worse == bad => {}
                next => {
                    let last = next.is_none_or(|(next, _)| next != stratum);
                    ends.push((at as u32 + 1, last));
                }
            }
        }
        Self { units, ends }
    }

    /// Of how bad each unit is; all are compared.
    pub fn of(badness: &[f64]) -> Self {
        Self::within(badness, &[])
    }

    /// How many units have a value.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// Runs of equal units, each with whether its stratum ends there.
    fn runs(&self) -> impl DoubleEndedIterator<Item = (&[u32], bool)> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end as usize));
        let begins: Vec<usize> = begins.take(self.ends.len()).collect();
        let runs = begins.into_iter().zip(&self.ends);
        runs.map(|(begin, (end, last))| {
            (
                self.units.get(begin..*end as usize).unwrap_or_default(),
                *last,
            )
        })
    }

    /// The AUC where each unit counts so often, and the pairs that it rests on; none without a pair.
    pub fn auc(&self, bad: &[bool], weights: &[u32]) -> Option<f64> {
        let (halves, pairs) = self.halves(bad, weights);
        (pairs > 0).then(|| halves as f64 / (2 * pairs) as f64)
    }

    /// Pairs of a bad and a good unit.
    pub fn pairs(&self, bad: &[bool]) -> u64 {
        self.halves(bad, &vec![1; bad.len()]).1
    }

    /// Twice the pairs in the right order, and all pairs.
    fn halves(&self, bad: &[bool], weights: &[u32]) -> (u64, u64) {
        let (mut halves, mut pairs) = (0, 0);
        let (mut good_before, mut bad_before) = (0, 0);
        let mut begin = 0;
        for (end, last) in &self.ends {
            let (mut good_here, mut bad_here) = (0u64, 0u64);
            let run = self.units.get(begin..*end as usize).unwrap_or_default();
            for unit in run {
                let unit = *unit as usize;
                let weight = u64::from(weights.get(unit).copied().unwrap_or_default());
                match bad.get(unit) {
                    Some(true) => bad_here += weight,
                    _ => good_here += weight,
                }
            }
            halves += bad_here * (2 * good_before + good_here);
            good_before += good_here;
            bad_before += bad_here;
            if *last {
                pairs += good_before * bad_before;
                (good_before, bad_before) = (0, 0);
            }
            begin = *end as usize;
        }
        (halves, pairs)
    }

    /// The share of bad units among the worst `share` of all, rounded up to whole units, and how many these are. Of equal
    /// units at the edge as many count as there is room for, as bad as they are on average.
    pub fn precision(&self, bad: &[bool], share: f64) -> Option<(f64, u64)> {
        let all = self.units();
        let taken = (all as f64 * share).ceil() as usize;
        let found = self.found(bad, taken)?;
        Some((found / taken as f64, taken as u64))
    }

    /// How many bad units are among the worst so many; none of none.
    fn found(&self, bad: &[bool], taken: usize) -> Option<f64> {
        let mut room = taken;
        let mut found = 0.0;
        for (run, _) in self.runs().rev() {
            if room == 0 {
                break;
            }
            let here = run
                .iter()
                .filter(|unit| bad.get(**unit as usize) == Some(&true));
            let share = room.min(run.len()) as f64 / run.len() as f64;
            found += here.count() as f64 * share;
            room -= room.min(run.len());
        }
        (taken > 0).then_some(found)
    }

    /// The share of all bad units that is found by looking at the worst 0, 2, 4 … 100 % of units.
    pub fn curve(&self, bad: &[bool]) -> Vec<f64> {
        let all = self.found(bad, self.units()).unwrap_or_default();
        let at = |step: usize| {
            let taken = self.units() as f64 * step as f64 / CURVE as f64;
            let found = self.found(bad, taken.round() as usize).unwrap_or_default();
            if all > 0.0 { found / all } else { 0.0 }
        };
        (0..=CURVE).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auc(badness: &[f64], bad: &[bool]) -> Option<f64> {
        Order::of(badness).auc(bad, &vec![1; bad.len()])
    }

    #[test]
    fn pairs_in_order_are_counted_and_equal_ones_half() {
        let bad = [true, false, true, false];
        assert_eq!(auc(&[3.0, 1.0, 4.0, 2.0], &bad), Some(1.0));
        assert_eq!(auc(&[1.0, 3.0, 2.0, 4.0], &bad), Some(0.0));
        assert_eq!(auc(&[7.0; 4], &bad), Some(0.5));
        // Of four pairs: 2 > 1, 2 > 1, 1 = 1 twice.
        assert_eq!(auc(&[2.0, 1.0, 1.0, 1.0], &bad), Some(0.75));
        assert_eq!(auc(&[1.0, 2.0], &[true, true]), None);
        // A unit without a value is in no pair.
        assert_eq!(auc(&[f64::NAN, 1.0, 4.0, 2.0], &bad), Some(1.0));
    }

    #[test]
    fn a_weight_is_so_many_units() {
        let order = Order::of(&[1.0, 2.0, 3.0]);
        let bad = [true, false, true];
        assert_eq!(order.auc(&bad, &[1, 1, 3]), Some(0.75));
        assert_eq!(order.auc(&bad, &[1, 0, 3]), None);
    }

    #[test]
    fn only_units_of_one_stratum_are_compared() {
        let bad = [true, false, true, false, true];
        // Worse only because they are longer, but for the last pair.
        let order = Order::within(&[1.0, 1.0, 9.0, 9.0, 10.0], &[1, 1, 2, 2, 2]);
        assert_eq!(order.pairs(&bad), 3);
        assert_eq!(order.auc(&bad, &[1; 5]), Some((0.5 + 0.5 + 1.0) / 3.0));
    }

    #[test]
    fn the_worst_are_counted_and_equal_ones_share_the_last_places() {
        let order = Order::of(&[1.0, 2.0, 5.0, 5.0, 9.0]);
        let bad = [true, false, true, false, true];
        assert_eq!(order.precision(&bad, 0.2), Some((1.0, 1)));
        assert_eq!(order.precision(&bad, 0.21), Some((0.75, 2)));
        assert_eq!(order.precision(&bad, 1.0), Some((0.6, 5)));
        assert_eq!(Order::of(&[]).precision(&[], 0.5), None);
        let curve = order.curve(&bad);
        assert_eq!((curve[0], curve[10], curve[CURVE]), (0.0, 1.0 / 3.0, 1.0));
    }
}
