//! Sums and quantiles that do not depend on the order of their values (as in Connexity).

/// The sum, rounded once: the exact sum of all values, so that their order has no say.
pub(in crate::conversation) fn exact_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    // Partial sums that do not overlap, smallest first; together they are the exact sum.
    let mut partials: Vec<f64> = Vec::new();
    let mut special = 0.0;
    for value in values {
        if !value.is_finite() {
            special += value;
            continue;
        }
        let mut carried = value;
        let mut kept = 0;
        for i in 0..partials.len() {
            let Some(&partial) = partials.get(i) else {
                break;
            };
            let (large, small) = if carried.abs() < partial.abs() {
                (partial, carried)
            } else {
                (carried, partial)
            };
            let sum = large + small;
            let lost = small - (sum - large);
            if lost != 0.0 {
                if let Some(place) = partials.get_mut(kept) {
                    *place = lost;
                }
                kept += 1;
            }
            carried = sum;
        }
        partials.truncate(kept);
        partials.push(carried);
    }
    if special != 0.0 || special.is_nan() {
        return special;
    }
    round_once(&partials)
}

fn round_once(partials: &[f64]) -> f64 {
    let mut rest = partials.iter().rev().copied();
    let mut sum = rest.next().unwrap_or_default();
    while let Some(partial) = rest.next() {
        let before = sum;
        sum = before + partial;
        let lost = partial - (sum - before);
        if lost == 0.0 {
            continue;
        }
        // Half-way between two numbers: what is further down decides to which side the tie goes.
        let next = rest.next().unwrap_or_default();
        if (lost < 0.0 && next < 0.0) || (lost > 0.0 && next > 0.0) {
            let twice = lost * 2.0;
            let other = sum + twice;
            if other - sum == twice {
                sum = other;
            }
        }
        break;
    }
    sum
}

/// The mean; `None` of nothing.
pub(in crate::conversation) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| exact_sum(values.iter().copied()) / values.len() as f64)
}

/// The median; `None` of nothing.
pub(in crate::conversation) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = sorted.get(middle.wrapping_sub(1)).copied()?;
    Some((lower + upper) / 2.0)
}

/// The largest value; `None` of nothing.
pub(in crate::conversation) fn maximum(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// The 19th of the 20-quantiles, exclusive method: position `0.95 * (n + 1)` among the sorted values, linear between
/// neighbours. `None` of fewer than 20 values.
pub(in crate::conversation) fn p95(values: &[f64]) -> Option<f64> {
    const PARTS: usize = 20;
    if values.len() < PARTS {
        return None;
    }
    let sorted = sorted(values);
    let position = (PARTS - 1) * (sorted.len() + 1);
    let (at, share) = (position / PARTS, position % PARTS);
    let lower = sorted.get(at.saturating_sub(1)).copied()?;
    let upper = sorted.get(at).copied()?;
    Some((lower * (PARTS - share) as f64 + upper * share as f64) / PARTS as f64)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_in_any_order() {
        assert_eq!(exact_sum([0.1; 10]), 1.0);
        assert_eq!(exact_sum([1e16, 1.0, -1e16]), 1.0);
        assert_eq!(exact_sum([1.0, 1e100, 1.0, -1e100]), 2.0);
        // 1 + half a step + almost nothing rounds up, minus almost nothing rounds down.
        let half = f64::EPSILON / 2.0;
        assert_eq!(exact_sum([1.0, half, 1e-300]), 1.0 + f64::EPSILON);
        assert_eq!(
            exact_sum([1.0 + f64::EPSILON, half, -1e-300]),
            1.0 + f64::EPSILON
        );
        assert_eq!(exact_sum([]), 0.0);
        assert_eq!(exact_sum([1.0, f64::INFINITY]), f64::INFINITY);
        assert!(exact_sum([1.0, f64::NAN]).is_nan());
        let mut values: Vec<f64> = (0..500)
            .map(|i| f64::from(i * 7919 % 1000) / 97.0)
            .collect();
        let forwards = exact_sum(values.iter().copied());
        values.reverse();
        assert_eq!(exact_sum(values), forwards);
    }

    #[test]
    fn quantiles_of_small_sets() {
        assert_eq!(
            (median(&[]), mean(&[]), maximum(&[]), p95(&[1.0; 19])),
            (None, None, None, None)
        );
        assert_eq!(
            (median(&[3.0, 1.0]), median(&[9.0, 1.0, 2.0])),
            (Some(2.0), Some(2.0))
        );
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(p95(&twenty), Some(19.95));
    }
}
