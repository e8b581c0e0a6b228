//! The targets of a run: which traces or sessions it evaluates, where not all (as in PandaProbe).

use serde::{Deserialize, Serialize};

use super::{SamplingRate, SessionFilters, TraceFilters};

/// Filters of a target type. In JSON the keys `target_type` and `filters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "target_type",
    content = "filters",
    rename_all = "SCREAMING_SNAKE_CASE"
)]
pub enum TargetFilters {
    /// Traces are evaluated.
    Trace(TraceFilters),
    /// Sessions are evaluated, each with all of its traces. Monitors keep signal weights here, which select nothing.
    Session(SessionFilters),
}

impl TargetFilters {
    /// Whether they let every target through.
    pub fn take_all(&self) -> bool {
        match self {
            Self::Trace(filters) => *filters == TraceFilters::default(),
            Self::Session(filters) => {
                let selecting = SessionFilters {
                    signal_weights: None,
                    ..filters.clone()
                };
                selecting == SessionFilters::default()
            }
        }
    }
}

/// What chooses the targets of a run: filters, and a sample of what passes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetChoice {
    /// What targets are, and which of them may be taken.
    #[serde(flatten)]
    pub filters: TargetFilters,
    /// The share that is taken, by the ids of targets. 0 takes none.
    pub sampling_rate: SamplingRate,
    /// The seed of the sample.
    pub seed: u64,
}

impl TargetChoice {
    /// Whether every target is taken, so that there is nothing to choose.
    pub fn takes_all(&self) -> bool {
        self.sampling_rate == SamplingRate::ALL && self.filters.take_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn choice(target: &str, filters: Value, rate: f64) -> TargetChoice {
        let choice =
            json!({"target_type": target, "filters": filters, "sampling_rate": rate, "seed": 0});
        serde_json::from_value(choice).unwrap()
    }

    #[test]
    fn filters_and_rates_choose_and_weights_do_not() {
        for (target, filters, rate, all) in [
            ("TRACE", json!({}), 1.0, true),
            ("TRACE", json!({"tags": []}), 1.0, true),
            ("TRACE", json!({"status": "ERROR"}), 1.0, false),
            ("TRACE", json!({}), 0.5, false),
            ("SESSION", json!({}), 1.0, true),
            (
                "SESSION",
                json!({"signal_weights": {"coherence": 2.0}}),
                1.0,
                true,
            ),
            ("SESSION", json!({"min_trace_count": 1}), 1.0, false),
            (
                "SESSION",
                json!({"signal_weights": {"coherence": 2.0}}),
                0.0,
                false,
            ),
        ] {
            let choice = choice(target, filters, rate);
            assert_eq!(choice.takes_all(), all, "{choice:?}");
        }
    }

    #[test]
    fn a_choice_is_the_same_after_a_round_trip() {
        let choice = choice("SESSION", json!({"user_id": "u", "has_error": true}), 0.25);
        let text = serde_json::to_string(&choice).unwrap();
        assert_eq!(serde_json::from_str::<TargetChoice>(&text).unwrap(), choice);
    }
}
