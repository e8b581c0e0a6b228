//! Weights of signals, learnt from labelled sessions: a logistic model over ranks whose weights are never below 0, so that
//! more of what is bad never makes a session look better.
//!
//! It starts from the weights of the order without labels and leaves them only as far as labels give reason to: the
//! penalty is on the distance from these, in the scale that fits best. With few labels the order stays what it was.

/// Ranks, a column a signal, and what sessions they are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examples<'e> {
    /// Rank less 0.5, by signal and session.
    pub columns: &'e [Vec<f64>],
    pub is_bad: &'e [bool],
    /// Those to learn from.
    pub units: &'e [u32],
}

/// How strongly weights are held to the ones without labels, in sessions: so many sessions say as much as the default.
const HELD: f64 = 10.0;
/// More rounds than it has ever taken.
const ROUNDS: usize = 200;
/// A step below this is none.
const STILL: f64 = 1e-7;

/// The weights, by column; `before` are those of the order without labels.
pub(super) fn learn(examples: Examples<'_>, before: &[f64]) -> Vec<f64> {
    // The scale of what was there before.
    let of_before = examples.sums(before);
    let is_bad: Vec<bool> = examples
        .units
        .iter()
        .map(|unit| examples.is_bad_at(*unit))
        .collect();
    let single = [of_before];
    let scale = Fit::of(&single, &is_bad, &[1.0], 0.0).weights;
    let scale = scale.first().copied().unwrap_or_default().max(1e-3);
    let start: Vec<f64> = before.iter().map(|weight| weight * scale).collect();
    let columns: Vec<Vec<f64>> = examples
        .columns
        .iter()
        .map(|column| {
            let of = |unit: &u32| column.get(*unit as usize).copied().unwrap_or_default();
            examples.units.iter().map(of).collect()
        })
        .collect();
    Fit::of(&columns, &is_bad, &start, HELD).weights
}

impl Examples<'_> {
    fn is_bad_at(&self, unit: u32) -> bool {
        self.is_bad.get(unit as usize) == Some(&true)
    }

    /// The weighted sum of each unit to learn from.
    fn sums(&self, weights: &[f64]) -> Vec<f64> {
        let of = |unit: &u32| weighted(self.columns, weights, *unit as usize);
        self.units.iter().map(of).collect()
    }
}

/// The weighted sum of the ranks of a unit.
pub(super) fn weighted(columns: &[Vec<f64>], weights: &[f64], unit: usize) -> f64 {
    let terms = columns.iter().zip(weights);
    terms
        .map(|(column, weight)| weight * column.get(unit).copied().unwrap_or_default())
        .sum()
}

/// A fit by one weight after the other (cyclic coordinate descent with Newton steps).
struct Fit {
    weights: Vec<f64>,
}

impl Fit {
    fn of(columns: &[Vec<f64>], is_bad: &[bool], start: &[f64], held: f64) -> Self {
        let mut weights = start.to_vec();
        let mut sums: Vec<f64> = (0..is_bad.len())
            .map(|unit| weighted(columns, &weights, unit))
            .collect();
        for _ in 0..ROUNDS {
            let mut moved: f64 = 0.0;
            let (slope, curve) = slope_of(&sums, is_bad, &|_| 1.0);
            let step = -slope / curve.max(1e-9);
            sums.iter_mut().for_each(|sum| *sum += step);
            moved = moved.max(step.abs());
            for ((weight, column), from) in weights.iter_mut().zip(columns).zip(start) {
                let value = |unit: usize| column.get(unit).copied().unwrap_or_default();
                let (slope, curve) = slope_of(&sums, is_bad, &value);
                // Without a penalty, a bit of one keeps separable data from running off.
                let held = held.max(1e-3);
                let slope = slope + held * (*weight - from);
                let next = (*weight - slope / (curve + held)).max(0.0);
                let step = next - *weight;
                if step != 0.0 {
                    for (unit, sum) in sums.iter_mut().enumerate() {
                        *sum += step * value(unit);
                    }
                    *weight = next;
                    moved = moved.max(step.abs());
                }
            }
            if moved < STILL {
                break;
            }
        }
        Self { weights }
    }
}

/// The first and the second derivative of the loss by the weight of a column.
fn slope_of(sums: &[f64], is_bad: &[bool], value: &impl Fn(usize) -> f64) -> (f64, f64) {
    let (mut slope, mut curve) = (0.0, 0.0);
    for (unit, (sum, bad)) in sums.iter().zip(is_bad).enumerate() {
        let likely = 1.0 / (1.0 + (-sum).exp());
        let (x, is) = (value(unit), f64::from(u8::from(*bad)));
        slope += (likely - is) * x;
        curve += likely * (1.0 - likely) * x * x;
    }
    (slope, curve)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions that are bad where the first column is above 0, with a second column of noise.
    fn data(count: usize) -> (Vec<Vec<f64>>, Vec<bool>) {
        let noise = |n: usize, times: usize| ((n * times) % 101) as f64 / 100.0 - 0.5;
        let first: Vec<f64> = (0..count).map(|n| noise(n, 37)).collect();
        let second: Vec<f64> = (0..count).map(|n| noise(n, 61)).collect();
        let bad = (0..count)
            .map(|n| first[n] + 0.3 * noise(n, 13) > 0.0)
            .collect();
        (vec![first, second], bad)
    }

    #[test]
    fn what_tells_gets_the_weight_and_nothing_goes_below_zero() {
        let (columns, is_bad) = data(500);
        let units: Vec<u32> = (0..500).collect();
        let examples = Examples {
            columns: &columns,
            is_bad: &is_bad,
            units: &units,
        };
        let weights = learn(examples, &[1.0, 1.0]);
        assert!(weights[0] > 2.0 * weights[1], "{weights:?}");
        // The same signal the other way round counts for nothing.
        let turned: Vec<f64> = columns[0].iter().map(|rank| -rank).collect();
        let examples = Examples {
            columns: &[turned, columns[1].clone()],
            ..examples
        };
        assert!(learn(examples, &[1.0, 1.0])[0] < 1e-9);
    }

    #[test]
    fn few_labels_hardly_change_what_was_there() {
        let (columns, is_bad) = data(500);
        let examples = Examples {
            columns: &columns,
            is_bad: &is_bad,
            units: &[0, 1, 2, 3],
        };
        let weights = learn(examples, &[1.0, 1.0]);
        assert!((weights[0] / weights[1] - 1.0).abs() < 0.2, "{weights:?}");
    }
}
