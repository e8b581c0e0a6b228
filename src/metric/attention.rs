//! The order of sessions for the morning: how unusual each is among all, on the bad side of its signals.
//!
//! For each signal, a session's rank is the share of sessions whose value is less bad, and half of those whose value is
//! equal, of all that have a value; a session without one has the rank 0.5. Its attention is the mean of its ranks by the
//! weights of the signals, in [0, 1]. Ranks need no scale: words, calls and shares add up, and one huge value moves nothing
//! else. What a signal adds is weight × (rank − 0.5); the two that add most explain the place.

use super::session_signal::{SessionSignal, Worse};

/// What a signal adds to the attention of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The number of the signal, in the order in which signals were added.
    pub signal: u16,
    /// Its value.
    pub value: f64,
    /// The share of sessions whose value is less bad, in [0, 1).
    pub above: f64,
    /// Weight × (rank − 0.5), above 0.
    added: f64,
}

/// Sessions on their way to an order; signals come one after the other.
#[derive(Clone, Debug)]
pub struct Ranking {
    sums: Vec<f64>,
    parts: Vec<[Option<Part>; 2]>,
    signals: u16,
    weights: f64,
}

/// The values of a signal in all sessions, to be ranked by.
struct Ranks {
    worse: Worse,
    /// How bad they are, ascending.
    sorted: Vec<f64>,
}

impl Ranks {
    fn of(signal: &SessionSignal, values: &[f64]) -> Self {
        let mut ranks = Self {
            worse: signal.worse,
            sorted: Vec::new(),
        };
        let there = values.iter().copied().filter(|value| !value.is_nan());
        ranks.sorted = there.map(|value| ranks.badness(value)).collect();
        ranks.sorted.sort_unstable_by(f64::total_cmp);
        ranks
    }

    /// Larger is worse.
    fn badness(&self, value: f64) -> f64 {
        match self.worse {
            Worse::More => value,
            Worse::Less => -value,
        }
    }

    fn are_equal(&self) -> bool {
        self.sorted.first() == self.sorted.last()
    }

    /// The share of values that are less bad, and that with half of the equal ones.
    fn of_value(&self, value: f64) -> (f64, f64) {
        let bad = self.badness(value);
        let less = self.sorted.partition_point(|other| *other < bad);
        let equal = self.sorted.partition_point(|other| *other <= bad) - less;
        let all = self.sorted.len() as f64;
        (less as f64 / all, (less as f64 + equal as f64 / 2.0) / all)
    }
}

/// The rank of each value of a signal, 0.5 where there is none; none where the signal is equal in all sessions.
pub fn ranks(signal: &SessionSignal, values: &[f64]) -> Option<Vec<f64>> {
    let ranks = Ranks::of(signal, values);
    let of = |value: &f64| match value.is_nan() {
        true => 0.5,
        false => ranks.of_value(*value).1,
    };
    (!ranks.are_equal()).then(|| values.iter().map(of).collect())
}

/// The order of sessions.
#[derive(Clone, Debug)]
pub struct Order {
    /// The attention of each session.
    pub attention: Vec<f64>,
    /// The place of each, from 1 on.
    pub places: Vec<u32>,
    /// What explains it, the larger part first.
    pub parts: Vec<[Option<Part>; 2]>,
}

impl Ranking {
    /// Of so many sessions.
    pub fn of(sessions: usize) -> Self {
        Self {
            sums: vec![0.0; sessions],
            parts: vec![[None; 2]; sessions],
            signals: 0,
            weights: 0.0,
        }
    }

    /// Adds a signal: its values are those of the sessions, NaN where one has none. A signal that no session has, and one
    /// that is the same in all, orders nothing and is left out.
    pub fn add(&mut self, signal: &SessionSignal, weight: f64, values: &[f64]) {
        let number = self.signals;
        self.signals += 1;
        let ranks = Ranks::of(signal, values);
        if weight == 0.0 || ranks.are_equal() {
            return;
        }
        self.weights += weight;
        let sessions = self.sums.iter_mut().zip(&mut self.parts);
        for ((sum, parts), value) in sessions.zip(values) {
            if value.is_nan() {
                *sum += weight * 0.5;
                continue;
            }
            let (above, rank) = ranks.of_value(*value);
            *sum += weight * rank;
            let part = Part {
                signal: number,
                value: *value,
                above,
                added: weight * (rank - 0.5),
            };
            let larger = |other: &Option<Part>| other.is_none_or(|other| part.added > other.added);
            if part.added <= 0.0 {
                continue;
            }
            if larger(&parts[0]) {
                *parts = [Some(part), parts[0]];
            } else if larger(&parts[1]) {
                parts[1] = Some(part);
            }
        }
    }

    /// The order; sessions of equal attention come in the order of `ties`, whatever that is.
    pub fn finish(self, ties: &[u64]) -> Order {
        let weights = if self.weights > 0.0 {
            self.weights
        } else {
            1.0
        };
        let attention: Vec<f64> = self.sums.iter().map(|sum| sum / weights).collect();
        let mut order: Vec<u32> = (0..).take(attention.len()).collect();
        let key = |at: &u32| {
            let at = *at as usize;
            (
                attention.get(at).copied().unwrap_or_default(),
                ties.get(at).copied().unwrap_or_default(),
            )
        };
        order.sort_unstable_by(|a, b| {
            let ((a, tie_a), (b, tie_b)) = (key(a), key(b));
            b.total_cmp(&a).then(tie_a.cmp(&tie_b))
        });
        let mut places = vec![0; attention.len()];
        for (place, at) in (1..).zip(&order) {
            if let Some(slot) = places.get_mut(*at as usize) {
                *slot = place;
            }
        }
        Order {
            attention,
            places,
            parts: self.parts,
        }
    }
}

impl Part {
    /// In words: `failed tool calls: 4 (more than 97 % of sessions)`.
    pub fn why(&self, signal: &SessionSignal) -> String {
        let value = match signal.is_share {
            true => format!("{:.0} % {}", 100.0 * self.value, signal.counts),
            false => format!("{}: {}", signal.counts, self.value),
        };
        let than = match signal.worse {
            Worse::More => "more",
            Worse::Less => "less",
        };
        // Rounded down: it is never said to be more than it is.
        format!(
            "{value} ({than} than {:.0} % of sessions)",
            (100.0 * self.above).floor()
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::session_signal::SESSION_SIGNALS;
    use super::*;

    fn signal(name: &str) -> &'static SessionSignal {
        let mut all = SESSION_SIGNALS.iter();
        all.find(|signal| signal.name == name).unwrap()
    }

    #[test]
    fn attention_is_the_mean_rank_worked_out_by_hand() {
        let mut ranking = Ranking::of(4);
        // Ranks: 1/8, 4/8, 4/8, 7/8.
        ranking.add(signal("failed_calls"), 1.0, &[0.0, 2.0, 2.0, 5.0]);
        // Less is worse. Ranks among three: 5/6, 3/6, none, 1/6.
        ranking.add(
            signal("vocabulary_richness"),
            2.0,
            &[0.2, 0.5, f64::NAN, 0.9],
        );
        // The same in all: nothing.
        ranking.add(signal("tool_calls"), 5.0, &[3.0; 4]);
        let order = ranking.finish(&[1, 2, 3, 4]);
        let by_hand = [
            (0.125 + 2.0 * 5.0 / 6.0) / 3.0,
            (0.5 + 1.0) / 3.0,
            (0.5 + 1.0) / 3.0,
            (0.875 + 2.0 / 6.0) / 3.0,
        ];
        for (found, expected) in order.attention.iter().zip(by_hand) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        assert_eq!(order.places, [1, 2, 3, 4]);
        let why = order.parts[0][0]
            .unwrap()
            .why(signal("vocabulary_richness"));
        assert_eq!(
            why,
            "20 % of words in outputs are new ones (less than 66 % of sessions)"
        );
        let why = order.parts[3][0].unwrap().why(signal("failed_calls"));
        assert_eq!(why, "failed tool calls: 5 (more than 75 % of sessions)");
        assert_eq!((order.parts[1], order.parts[0][1]), ([None; 2], None));
    }

    proptest! {
        #[test]
        fn the_order_of_rows_changes_no_place(
            values in prop::collection::vec((0..4u8, 0..4u8), 1..40),
            turn in 0..40usize,
        ) {
            let places = |from: usize| {
                let mut rows: Vec<(usize, (u8, u8))> = values.iter().copied().enumerate().collect();
                rows.rotate_left(from % values.len());
                let mut ranking = Ranking::of(rows.len());
                let column = |of: fn(&(u8, u8)) -> u8| -> Vec<f64> {
                    rows.iter().map(|(_, row)| f64::from(of(row))).collect()
                };
                ranking.add(signal("failed_calls"), 1.0, &column(|row| row.0));
                ranking.add(signal("satisfaction"), 0.7, &column(|row| row.1));
                let ties: Vec<u64> = rows.iter().map(|(id, _)| *id as u64).collect();
                let order = ranking.finish(&ties);
                let mut found: Vec<(usize, u32)> =
                    rows.iter().map(|(id, _)| *id).zip(order.places).collect();
                found.sort_unstable();
                found
            };
            prop_assert_eq!(places(0), places(turn));
        }
    }
}
