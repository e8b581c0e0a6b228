//! Signals: the per-trace scores that session metrics fold, and their weights (as in PandaProbe).

use super::Metadata;

/// The four signals with their default weights, in the order in which session metrics add them.
pub const SIGNALS: [(&str, f64); 4] = [
    ("confidence", 1.0),
    ("loop_detection", 1.0),
    ("tool_correctness", 0.8),
    ("coherence", 1.0),
];

/// Scores of spans and outputs that are signals where they are given a weight, in the order in which session metrics add
/// them, after the others. They weigh 0 unless given, and one that weighs 0 is as if it were not there: without weights
/// for them, session metrics are those of PandaProbe.
pub const SPAN_SIGNALS: [&str; 5] = [
    "tool_error_rate",
    "repeated_tool_calls",
    "empty_output",
    "output_truncated",
    "stuck",
];

const ALL: usize = SIGNALS.len() + SPAN_SIGNALS.len();
/// A weight for each signal, in the order of [`SIGNALS`] and [`SPAN_SIGNALS`].
pub(super) type Weights = [f64; ALL];

/// What the details of a session call the risk of each signal, in the order of [`SIGNALS`] and [`SPAN_SIGNALS`].
pub const RISKS: [&str; ALL] = [
    "confidence_risk",
    "loop_risk",
    "tool_risk",
    "coherence_risk",
    "tool_error_rate_risk",
    "repeated_tool_calls_risk",
    "empty_output_risk",
    "output_truncated_risk",
    "stuck_risk",
];

/// The signals of one trace, each in [0, 1] by nature though not enforced; `None` is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// How sure of itself the agent was.
    pub confidence: Option<f64>,
    /// 1 is free of repetition.
    pub loop_detection: Option<f64>,
    /// Were the right tools called?
    pub tool_correctness: Option<f64>,
    /// Does the output stay with the input?
    pub coherence: Option<f64>,
    /// In the order of [`SPAN_SIGNALS`]; 1 is good, as in the metrics of these names.
    pub of_spans: [Option<f64>; SPAN_SIGNALS.len()],
}

impl Signals {
    /// The signals that count, in the order of [`SIGNALS`] and [`SPAN_SIGNALS`]. A NaN counts as missing, and so does
    /// a signal of spans that weighs 0.
    pub(super) fn counted(&self, weights: &Weights) -> [Option<f64>; ALL] {
        let four = [
            self.confidence,
            self.loop_detection,
            self.tool_correctness,
            self.coherence,
        ];
        let mut all = [None; ALL];
        let values = four.iter().chain(&self.of_spans);
        for (at, ((counted, value), weight)) in all.iter_mut().zip(values).zip(weights).enumerate()
        {
            *counted = value.filter(|s| !s.is_nan() && (at < SIGNALS.len() || *weight != 0.0));
        }
        all
    }

    /// The unweighted risks `1 - signal` of signals that count, as metadata shows them.
    pub(super) fn push_risks(&self, weights: &Weights, metadata: &mut Metadata<'_>) {
        for (name, signal) in RISKS.iter().zip(self.counted(weights)) {
            if let Some(signal) = signal {
                metadata.rounded(name, 1.0 - signal);
            }
        }
    }
}

/// The traces of one session in session order, each with its signals.
#[derive(Clone, Copy, Debug)]
pub struct SessionSignals<'a> {
    /// Trace ids, in session order.
    pub trace_ids: &'a [&'a str],
    /// One entry per trace id.
    pub signals: &'a [Signals],
    /// False if no signal source exists at all (as opposed to one that has nothing on these traces).
    pub any_source: bool,
}

impl SessionSignals<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.trace_ids.is_empty() || !self.any_source
    }
}

/// What is wrong with a weight.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the weight of `{signal}` is {weight}; a weight must be a finite number")]
pub struct WeightError {
    signal: String,
    weight: f64,
}

/// Signal weights: the defaults with the user's on top. Names that are no signal are kept for the
/// record and otherwise ignored.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SignalWeights {
    merged: Vec<(String, f64)>,
}

impl Default for SignalWeights {
    fn default() -> Self {
        Self {
            merged: SIGNALS
                .iter()
                .map(|(name, weight)| ((*name).to_owned(), *weight))
                .collect(),
        }
    }
}

impl SignalWeights {
    /// The defaults with `overrides` on top. Zero, negative and large weights are accepted; a signal of spans that
    /// weighs 0 is left out.
    ///
    /// # Errors
    /// [`WeightError`] for a weight that is NaN or infinite.
    pub fn with(overrides: &[(String, f64)]) -> Result<Self, WeightError> {
        let mut weights = Self::default();
        for (signal, weight) in overrides {
            if !weight.is_finite() {
                return Err(WeightError {
                    signal: signal.clone(),
                    weight: *weight,
                });
            }
            match weights.merged.iter_mut().find(|(name, _)| name == signal) {
                Some(entry) => entry.1 = *weight,
                None => weights.merged.push((signal.clone(), *weight)),
            }
        }
        weights
            .merged
            .retain(|(name, weight)| *weight != 0.0 || !SPAN_SIGNALS.contains(&name.as_str()));
        Ok(weights)
    }

    /// All weights by name, defaults first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.merged
            .iter()
            .map(|(name, weight)| (name.as_str(), *weight))
    }

    /// Signals of spans that weigh anything, in their order.
    pub fn of_spans(&self) -> impl Iterator<Item = &'static str> {
        let named = |name: &&str| self.iter().skip(SIGNALS.len()).any(|(n, _)| n == *name);
        SPAN_SIGNALS.into_iter().filter(named)
    }

    /// All weights in the order of [`SIGNALS`] and [`SPAN_SIGNALS`].
    pub(super) fn in_order(&self) -> Weights {
        // The merged list begins with the four signals in this order.
        let mut all = [0.0; ALL];
        for (weight, (_, merged)) in all.iter_mut().zip(self.iter().take(SIGNALS.len())) {
            *weight = merged;
        }
        for (name, merged) in self.iter().skip(SIGNALS.len()) {
            if let Some(at) = SPAN_SIGNALS.iter().position(|signal| *signal == name) {
                all[SIGNALS.len() + at] = merged;
            }
        }
        all
    }

    pub(super) fn push_metadata(&self, metadata: &mut Metadata<'_>) {
        metadata.nested("signal_weights", |object| {
            for (name, weight) in self.iter() {
                object.number(name, weight);
            }
        });
    }
}

/// A sum that loses nothing to the order of its terms in practice (Neumaier's compensation). Long
/// sessions have thousands of terms.
pub(super) fn compensated_sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = sum + term;
        lost += if sum.abs() >= term.abs() {
            (sum - next) + term
        } else {
            (term - next) + sum
        };
        sum = next;
    }
    if lost.is_finite() { sum + lost } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::agent_consistency::agent_consistency;
    use crate::metric::agent_reliability::{agent_reliability, step_risk};
    use crate::metric::spans::OfSpans;

    fn weights(pairs: &[(&str, f64)]) -> SignalWeights {
        let pairs: Vec<(String, f64)> = pairs.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect();
        SignalWeights::with(&pairs).unwrap()
    }

    fn session<'a>(trace_ids: &'a [&'a str], signals: &'a [Signals]) -> SessionSignals<'a> {
        SessionSignals {
            trace_ids,
            signals,
            any_source: true,
        }
    }

    /// A trace with confidence 0.6, loop detection 0.9, and these scores of spans.
    fn trace(tool_errors: Option<f64>, stuck: Option<f64>) -> Signals {
        Signals {
            confidence: Some(0.6),
            loop_detection: Some(0.9),
            of_spans: [tool_errors, None, None, None, stuck],
            ..Signals::default()
        }
    }

    #[test]
    fn signals_of_spans_are_the_metrics_of_spans_in_their_order() {
        assert_eq!(OfSpans::ALL.map(OfSpans::name), SPAN_SIGNALS);
        assert_eq!(SIGNALS.len() + SPAN_SIGNALS.len(), RISKS.len());
    }

    #[test]
    fn the_worst_weighted_signal_is_the_risk_of_a_step() {
        // 1 - 0.6 = 0.4 of confidence, 0.5 * (1 - 0.1) = 0.45 of being stuck, 0.2 * (1 - 0) of failed calls.
        let both = weights(&[("stuck", 0.5), ("tool_error_rate", 0.2)]);
        let risk = step_risk(&trace(Some(0.0), Some(0.1)), &both).unwrap();
        assert!((risk - 0.45).abs() < 1e-12, "{risk}");
        let risk = step_risk(&trace(Some(0.0), Some(0.9)), &both).unwrap();
        assert!((risk - 0.4).abs() < 1e-12, "{risk}");
        // A trace that has nothing but a signal of spans is evaluated too.
        let alone = Signals {
            of_spans: [None, None, None, None, Some(0.25)],
            ..Signals::default()
        };
        assert_eq!(step_risk(&alone, &both), Some(0.375));
        assert_eq!(step_risk(&alone, &weights(&[])), None);
        assert_eq!(
            step_risk(&alone, &weights(&[("tool_error_rate", 1.0)])),
            None
        );
    }

    #[test]
    fn session_scores_with_signals_of_spans_are_those_worked_out_by_hand() {
        let stuck = weights(&[("stuck", 0.8)]);
        let signals = [trace(None, Some(0.25)), trace(None, None)];
        // Steps: max(0.4, 0.1, 0.8 * 0.75 = 0.6), and 0.4 without the signal. The worst 15 % of two are one: 0.6.
        let reliability = agent_reliability(session(&["a", "b"], &signals), &stuck);
        assert_eq!((reliability.score, reliability.flagged), (0.4, vec![0]));
        assert!(
            reliability.metadata.contains(
                r#""a":{"confidence_risk":0.4,"loop_risk":0.1,"stuck_risk":0.75,"step_risk":0.6}"#
            ),
            "{}",
            reliability.metadata
        );
        assert!(
            reliability
                .metadata
                .contains(r#""coherence":1.0,"stuck":0.8}"#)
        );
        // Uncertainty: (1 + 0.1 + 0.6) * 0.4 = 0.68 and (1 + 0.1) * 0.4 = 0.44; the root of their mean square is 0.5727.
        let consistency = agent_consistency(session(&["a", "b"], &signals), &stuck);
        assert_eq!(consistency.score, 0.4273);
    }

    #[test]
    fn a_weight_of_0_is_no_weight_and_without_weights_nothing_changes() {
        let with = [trace(Some(0.0), Some(0.0)), trace(None, Some(0.5))];
        let without = [trace(None, None), trace(None, None)];
        let ids = ["a", "b"];
        let none = SignalWeights::default();
        let zero = weights(&[("stuck", 0.0), ("tool_error_rate", -0.0)]);
        assert_eq!(zero, none);
        for weights in [&none, &zero] {
            assert_eq!(
                agent_reliability(session(&ids, &with), weights),
                agent_reliability(session(&ids, &without), &none)
            );
            assert_eq!(
                agent_consistency(session(&ids, &with), weights),
                agent_consistency(session(&ids, &without), &none)
            );
        }
        let given = weights(&[("stuck", 0.5), ("empty_output", 0.0)]);
        assert_eq!(given.of_spans().collect::<Vec<_>>(), ["stuck"]);
        assert_eq!(none.of_spans().count(), 0);
    }
}
