//! The figures of the tests, as textbooks have them.

/// How often a value of the first list is above one of the second; equal ones count half (the area under the curve).
pub(super) fn area(above: &[f64], below: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = above.iter().map(|value| (*value, true)).collect();
    all.extend(below.iter().map(|value| (*value, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut seen, mut wins, mut at) = (0usize, 0.0, 0);
    while at < all.len() {
        let value = all[at].0;
        let tied = all[at..]
            .iter()
            .take_while(|(other, _)| *other == value)
            .count()
            .max(1);
        let ups = all[at..at + tied].iter().filter(|(_, up)| *up).count();
        let downs = tied - ups;
        wins += ups as f64 * (seen as f64 + downs as f64 / 2.0);
        seen += downs;
        at += tied;
    }
    wins / (above.len().max(1) * below.len().max(1)) as f64
}

/// Spearman's rank correlation; equal values share the mean of their ranks. 0 where one side is all equal.
pub(super) fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let sum = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let spread = (sum(&a, &a) * sum(&b, &b)).sqrt();
    match spread > 0.0 {
        true => sum(&a, &b) / spread,
        false => 0.0,
    }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let value = values[order[first]];
        let tied = order[first..]
            .iter()
            .take_while(|at| values[**at] == value)
            .count()
            .max(1);
        let rank = first as f64 + (tied as f64 + 1.0) / 2.0;
        order[first..first + tied]
            .iter()
            .for_each(|at| ranks[*at] = rank);
        first += tied;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_counts_pairs_and_ties_by_half() {
        assert_eq!(area(&[3.0, 4.0], &[1.0, 2.0]), 1.0);
        assert_eq!(area(&[1.0], &[2.0, 3.0]), 0.0);
        assert_eq!(area(&[2.0, 2.0], &[2.0, 2.0]), 0.5);
        assert_eq!(area(&[2.0, 5.0], &[1.0, 3.0]), 0.75);
    }

    #[test]
    fn only_the_order_of_ranks_counts_and_ties_share_theirs() {
        assert_eq!(ranks(&[10.0, 20.0, 20.0, 5.0]), [2.0, 3.5, 3.5, 1.0]);
        assert!((spearman(&[1.0, 2.0, 3.0], &[1.0, 8.0, 27.0]) - 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0, 1.0]), 0.0);
    }
}
