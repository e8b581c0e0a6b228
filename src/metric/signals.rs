//! Signals: the per-trace scores that session metrics fold, and their weights (as in PandaProbe).

use super::Metadata;

/// The four signals with their default weights, in the order in which session metrics add them.
pub const SIGNALS: [(&str, f64); 4] = [
    ("confidence", 1.0),
    ("loop_detection", 1.0),
    ("tool_correctness", 0.8),
    ("coherence", 1.0),
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
}

impl Signals {
    /// The signals in the order of [`SIGNALS`]. A NaN counts as missing.
    pub fn in_order(&self) -> [Option<f64>; 4] {
        [
            self.confidence,
            self.loop_detection,
            self.tool_correctness,
            self.coherence,
        ]
        .map(|signal| signal.filter(|s| !s.is_nan()))
    }

    /// The unweighted risks `1 - signal`, as metadata shows them.
    pub(super) fn push_risks(&self, metadata: &mut Metadata<'_>) {
        let names = [
            "confidence_risk",
            "loop_risk",
            "tool_risk",
            "coherence_risk",
        ];
        for (name, signal) in names.iter().zip(self.in_order()) {
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
#[derive(Clone, Debug, PartialEq)]
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
    /// The defaults with `overrides` on top. Zero, negative and large weights are accepted.
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
        Ok(weights)
    }

    /// All weights by name, defaults first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.merged
            .iter()
            .map(|(name, weight)| (name.as_str(), *weight))
    }

    /// The weights of the four signals in the order of [`SIGNALS`].
    pub(super) fn in_order(&self) -> [f64; 4] {
        // The merged list begins with the four signals in this order.
        std::array::from_fn(|i| {
            self.merged
                .get(i)
                .map_or(SIGNALS[i].1, |(_, weight)| *weight)
        })
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
