//! Sums and weighted means over cases.

use crate::metric::comparison::Compat;

/// The sum of terms: the same for every order of them, as batches may come in any. As the tool: term by term.
pub(super) fn sum(mut terms: Vec<f64>, compat: Compat) -> f64 {
    if compat == Compat::Tool {
        return terms.iter().sum();
    }
    terms.sort_unstable_by(f64::total_cmp);
    // Neumaier's compensation.
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = sum + term;
        lost += match sum.abs() >= term.abs() {
            true => (sum - next) + term,
            false => (term - next) + sum,
        };
        sum = next;
    }
    match lost.is_finite() {
        true => sum + lost,
        false => sum,
    }
}

/// Σ weight × score / Σ weight over pairs of weight and score; 0 where the weights sum to 0.
pub(super) fn weighted_mean(pairs: impl Iterator<Item = (f64, f64)>, compat: Compat) -> f64 {
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let weights = sum(pairs.iter().map(|(weight, _)| *weight).collect(), compat);
    if weights == 0.0 {
        return 0.0;
    }
    let products = pairs.iter().map(|(weight, score)| weight * score);
    sum(products.collect(), compat) / weights
}

/// The plain mean; none of nothing.
pub(super) fn mean(scores: Vec<f64>, compat: Compat) -> Option<f64> {
    let count = count(scores.len());
    (count > 0.0).then(|| sum(scores, compat) / count)
}

/// The share of `some` among `all`; 0 of nothing.
pub(super) fn share(some: usize, all: usize) -> f64 {
    match all {
        0 => 0.0,
        all => count(some) / count(all),
    }
}

/// A count as a number.
pub(super) fn count(of: usize) -> f64 {
    // Exact to 2^53, more than there can be cases.
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let terms = vec![0.1, 1e16, 0.2, -1e16, 0.3];
        let mut turned = terms.clone();
        turned.reverse();
        let forward = sum(terms, Compat::Document);
        assert_eq!(forward.to_bits(), sum(turned, Compat::Document).to_bits());
        assert!((forward - 0.6).abs() < 1e-15, "{forward}");
        assert_eq!(mean(vec![0.1; 10], Compat::Document), Some(0.1));
        assert_ne!(mean(vec![0.1; 10], Compat::Tool), Some(0.1));
    }

    #[test]
    fn no_weight_gives_zero() {
        assert_eq!(
            weighted_mean([(0.0, 1.0)].into_iter(), Compat::Document),
            0.0
        );
        assert_eq!(mean(Vec::new(), Compat::Document), None);
        assert_eq!(share(1, 4), 0.25);
        assert_eq!(share(0, 0), 0.0);
    }
}
