//! Partners for expected things among actual ones.

/// Which actual thing fits which expected one, a bit a pair.
pub(super) struct Fits {
    /// Words in a row.
    width: usize,
    words: Vec<u64>,
}

const BITS: usize = u64::BITS as usize;

impl Fits {
    /// Asks `fits(expected, actual)` for every pair.
    pub fn new(expected: usize, actual: usize, mut fits: impl FnMut(usize, usize) -> bool) -> Self {
        let width = actual.div_ceil(BITS);
        let mut words = Vec::with_capacity(expected * width);
        for e in 0..expected {
            for first in (0..actual).step_by(BITS) {
                let candidates = first..actual.min(first + BITS);
                words.push(
                    candidates
                        .rev()
                        .fold(0, |word, a| word << 1 | u64::from(fits(e, a))),
                );
            }
        }
        Self { width, words }
    }

    fn row(&self, expected: usize) -> &[u64] {
        let start = expected * self.width;
        self.words
            .get(start..start + self.width)
            .unwrap_or_default()
    }

    /// Which expected things get no partner if as many as possible get one, and the first ones before later ones.
    ///
    /// Kuhn's algorithm with every search in breadth: a search looks at an actual thing at most once, and what a search
    /// in vain has looked at is of no use to later ones either.
    pub fn unmatched(&self, expected: usize) -> Vec<usize> {
        let mut search = Search {
            fits: self,
            free: vec![u64::MAX; self.width],
            fresh: vec![u64::MAX; self.width],
            partner_of_actual: vec![None; self.width * BITS],
            partner_of_expected: vec![None; expected],
            found_by: vec![0; self.width * BITS],
        };
        let mut useful = vec![u64::MAX; self.width];
        let mut unmatched = Vec::new();
        for e in 0..expected {
            search.fresh.copy_from_slice(&useful);
            match search.augment(e) {
                true => {}
                false => {
                    unmatched.push(e);
                    useful.copy_from_slice(&search.fresh);
                }
            }
        }
        unmatched
    }

    /// How many expected things can get a partner if partners must come in the order of the expected things.
    pub fn most_in_order(&self, expected: usize, actual: usize) -> usize {
        // By actual things so far; a row for the expected things so far, which the next one overwrites.
        let mut most = vec![0_u32; actual + 1];
        for e in 0..expected {
            let row = self.row(e);
            let mut before = 0;
            for a in 0..actual {
                let fits = row
                    .get(a / BITS)
                    .is_some_and(|word| word >> (a % BITS) & 1 == 1);
                let without = most[a + 1];
                let with = if fits { before + 1 } else { 0 };
                before = without;
                most[a + 1] = without.max(most[a]).max(with);
            }
        }
        most.last().map_or(0, |most| *most as usize)
    }
}

struct Search<'a> {
    fits: &'a Fits,
    /// Actual things without partner, a bit each.
    free: Vec<u64>,
    /// Actual things that this search has not looked at.
    fresh: Vec<u64>,
    partner_of_actual: Vec<Option<usize>>,
    partner_of_expected: Vec<Option<usize>>,
    /// The expected thing from which this search came to an actual one.
    found_by: Vec<usize>,
}

impl Search<'_> {
    /// Finds a partner for an expected thing, and others for those that must give theirs away. Says whether there is
    /// one.
    fn augment(&mut self, first: usize) -> bool {
        let mut waiting = vec![first];
        let mut at = 0;
        while let Some(&e) = waiting.get(at) {
            at += 1;
            for (index, &word) in self.fits.row(e).iter().enumerate() {
                let reached = word & self.fresh[index];
                let free = reached & self.free[index];
                if free != 0 {
                    self.free[index] &= !(free & free.wrapping_neg());
                    self.give(e, index * BITS + trailing_zeros(free));
                    return true;
                }
                self.fresh[index] &= !reached;
                let mut left = reached;
                while left != 0 {
                    let a = index * BITS + trailing_zeros(left);
                    left &= left - 1;
                    self.found_by[a] = e;
                    waiting.extend(self.partner_of_actual[a]);
                }
            }
        }
        false
    }

    /// Gives a free actual thing to an expected one, the former partner of that to the one that asked for it, and so
    /// on.
    fn give(&mut self, mut e: usize, mut a: usize) {
        loop {
            self.partner_of_actual[a] = Some(e);
            let Some(former) = self.partner_of_expected[e].replace(a) else {
                return;
            };
            (a, e) = (former, self.found_by[former]);
        }
    }
}

/// As an index.
fn trailing_zeros(word: u64) -> usize {
    word.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether all of these expected things can have partners: tries everything.
    fn can_be_matched(rows: &[u32], taken: u32) -> bool {
        let Some((row, rows)) = rows.split_first() else {
            return true;
        };
        (0..8).any(|a| row & !taken & 1 << a != 0 && can_be_matched(rows, taken | 1 << a))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The first expected thing that can have a partner gets one, then the next beside it, and so on: that is a
        /// largest matching, and the one whose partners come first.
        #[test]
        fn as_many_as_possible_get_a_partner(rows in prop::collection::vec(0..256_u32, 0..8)) {
            let fits = Fits::new(rows.len(), 8, |e, a| rows[e] & 1 << a != 0);
            let mut matched = Vec::new();
            let mut unmatched = Vec::new();
            for (e, row) in rows.iter().enumerate() {
                matched.push(*row);
                if !can_be_matched(&matched, 0) {
                    matched.pop();
                    unmatched.push(e);
                }
            }
            prop_assert_eq!(fits.unmatched(rows.len()), unmatched);
        }
    }

    /// The most pairs in order: tries everything.
    fn in_order(rows: &[u32], from: u32) -> usize {
        let Some((row, rest)) = rows.split_first() else {
            return 0;
        };
        let with = (from..8).filter(|a| row & 1 << a != 0);
        let with = with.map(|a| 1 + in_order(rest, a + 1));
        with.max().unwrap_or(0).max(in_order(rest, from))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_most_pairs_in_order_are_found(rows in prop::collection::vec(0..256_u32, 0..7)) {
            let fits = Fits::new(rows.len(), 8, |e, a| rows[e] & 1 << a != 0);
            prop_assert_eq!(fits.most_in_order(rows.len(), 8), in_order(&rows, 0));
        }
    }

    #[test]
    fn long_chains_of_partners_are_no_trouble() {
        // Each expected thing fits its own place and the one before; the last one fits the first place alone.
        let size = 3000;
        let fits = Fits::new(size, size, |e, a| match e + 1 == size {
            true => a == 0,
            false => a == e || a == e + 1,
        });
        assert!(fits.unmatched(size).is_empty());
    }

    #[test]
    fn many_in_vain_are_no_trouble() {
        // All fit the first half only.
        let size = 2000;
        let fits = Fits::new(size, size, |_, a| a < size / 2);
        assert_eq!(fits.unmatched(size), (size / 2..size).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_expected_is_matched_and_nothing_there_is_not() {
        assert!(Fits::new(0, 3, |_, _| true).unmatched(0).is_empty());
        assert_eq!(Fits::new(2, 0, |_, _| true).unmatched(2), [0, 1]);
    }
}
