//! The rules of a run: what decides a score beside the traces and the model.

use serde::{Deserialize, Serialize};

use super::spans::{Measure, OfSpans};
use super::{Method, MetricInfo};

/// What decides a score beside the traces and the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// Metrics asked for, by registered name.
    pub metrics: Vec<String>,
    /// Thresholds given, by metric.
    pub thresholds: std::collections::BTreeMap<String, f64>,
    /// Traces that loop detection looks back at.
    pub window: usize,
    /// Signal weights.
    pub weights: super::SignalWeights,
    /// What a JSON cell's text is.
    pub text_mode: crate::text::TextMode,
    /// A session without evaluable trace scores 1 (as in PandaProbe) or null.
    pub null_without_evidence: bool,
    /// Minimum means that the run must reach.
    pub gates: Vec<Gate>,
}

impl Rules {
    /// Whether a metric was asked for.
    pub fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|m| m == metric)
    }

    /// Whether any session metric was asked for that folds trace signals.
    pub fn wants_sessions(&self) -> bool {
        self.metrics
            .iter()
            .filter_map(|m| super::find(m))
            .any(|m| m.method == super::Method::Aggregate)
    }

    /// Whether a metric is computed: asked for, or a signal of a session metric that the local model can give, or one
    /// of spans that weighs anything.
    pub fn computes(&self, metric: &str) -> bool {
        let local = super::find(metric).is_some_and(|m| m.method == Method::Embedding);
        let signal = || local || self.weights.of_spans().any(|name| name == metric);
        self.wants(metric) || (self.wants_sessions() && signal())
    }

    /// Scores of spans that are computed and weigh anything: signals beside the four.
    pub fn span_signals(&self) -> Vec<&'static str> {
        let weighed = self.weights.of_spans();
        weighed.filter(|name| self.computes(name)).collect()
    }

    /// Whether any metric was asked for that holds outputs against expected ones.
    pub fn compares(&self) -> bool {
        self.metrics
            .iter()
            .filter_map(|m| super::find(m))
            .any(|m| m.method == Method::Comparison)
    }

    /// The metrics that were asked for.
    fn asked(&self) -> impl Iterator<Item = &'static MetricInfo> {
        self.metrics.iter().filter_map(|m| super::find(m))
    }

    /// Whether all metrics that were asked for do without a model: they compare texts, or look at spans.
    pub fn needs_no_model(&self) -> bool {
        self.asked().all(|m| {
            matches!(
                m.method,
                Method::Comparison | Method::Spans | Method::Measure | Method::Signals
            )
        })
    }

    /// Whether any metric that was asked for reads the text of an output, for more than to hold it against an expected one.
    pub fn reads_output(&self) -> bool {
        self.asked().any(|m| match m.method {
            Method::Comparison => false,
            Method::Spans | Method::Measure => m.inputs.contains(&"output"),
            _ => true,
        })
    }

    /// Metrics of spans that are computed.
    pub fn of_spans(&self) -> impl Iterator<Item = OfSpans> {
        let all = OfSpans::ALL.into_iter();
        all.filter(|metric| self.computes(metric.name()))
    }

    /// Metrics that were asked for, and scores of spans that are computed for session metrics.
    fn with_span_signals(&self) -> impl Iterator<Item = &'static MetricInfo> {
        let signals = self.span_signals().into_iter();
        self.asked().chain(signals.filter_map(super::find))
    }

    /// Numbers of spans that were asked for.
    pub fn measures(&self) -> impl Iterator<Item = Measure> {
        let all = Measure::ALL.into_iter();
        all.filter(|measure| self.wants(measure.name()))
    }

    /// Whether any metric that is computed gives traces scores or numbers of their spans: then spans must be readable.
    pub fn scores_spans(&self) -> bool {
        let mut metrics = self.with_span_signals();
        metrics.any(|m| m.inputs.contains(&"spans") && m.method != Method::Signals)
    }

    /// Whether any metric that is computed looks at spans.
    pub fn reads_spans(&self) -> bool {
        self.with_span_signals()
            .any(|m| m.inputs.contains(&"spans"))
    }

    /// Whether any of them has nothing to say without spans.
    pub fn requires_spans(&self) -> bool {
        self.with_span_signals().any(|m| m.inputs == ["spans"])
    }

    /// Whether any metric of spans that is computed looks at the output.
    pub fn digests_output(&self) -> bool {
        self.of_spans()
            .any(|metric| matches!(metric, OfSpans::EmptyOutput | OfSpans::Stuck))
    }

    /// The threshold in force for a metric.
    pub fn threshold(&self, metric: &str) -> f64 {
        let given = self.thresholds.get(metric).copied();
        match metric {
            "loop_detection" => super::loop_detection::threshold(given),
            _ => given.unwrap_or_else(|| {
                super::find(metric).map_or(super::DEFAULT_THRESHOLD, |m| m.default_threshold)
            }),
        }
    }
}

/// A minimum that a metric's mean must reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Registered name.
    pub metric: String,
    /// Least mean over all scored targets.
    pub minimum: f64,
}
