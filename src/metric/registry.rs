//! Every metric nightmill knows. `nightmill metrics` prints this list.

use super::DEFAULT_THRESHOLD;
use super::judged_metric::JudgedMetric;

/// What one score is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// One score a trace.
    Trace,
    /// One score a session.
    Session,
}

impl Level {
    /// `trace` or `session`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Session => "session",
        }
    }
}

/// How a score is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// From embeddings of the local model.
    Embedding,
    /// By folding trace signals.
    Aggregate,
    /// By asking a judge model.
    Judge,
    /// By holding the output against an expected one.
    Comparison,
    /// By counting and comparing spans and outputs.
    Spans,
    /// A number of the spans as it is: no score.
    Measure,
    /// An order of sessions by their signals: no score.
    Signals,
}

impl Method {
    /// `embedding`, `aggregate`, `judge`, `comparison`, `spans`, `measure` or `signals`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Aggregate => "aggregate",
            Self::Judge => "judge",
            Self::Comparison => "comparison",
            Self::Spans => "spans",
            Self::Measure => "measure",
            Self::Signals => "signals",
        }
    }
}

/// One metric of the registry.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// The registered name: flag value, column name, SQL function name.
    pub name: &'static str,
    /// What one score is about.
    pub level: Level,
    /// How a score is made.
    pub method: Method,
    /// The threshold when none is given.
    pub default_threshold: f64,
    /// Trace columns or signals that go in.
    pub inputs: &'static [&'static str],
    /// One line for a reader.
    pub meaning: &'static str,
    /// What asks a judge about a trace; none for all other metrics.
    pub asks: Option<&'static JudgedMetric>,
}

impl MetricInfo {
    /// A metric of single traces that asks a judge.
    pub(super) const fn judged(asks: &'static JudgedMetric, meaning: &'static str) -> Self {
        Self {
            name: asks.name,
            level: Level::Trace,
            method: Method::Judge,
            default_threshold: DEFAULT_THRESHOLD,
            inputs: &["trace"],
            meaning,
            asks: Some(asks),
        }
    }

    /// A metric of single traces that holds their output against an expected one.
    pub(super) const fn comparing(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            level: Level::Trace,
            method: Method::Comparison,
            default_threshold: super::comparison::DEFAULT_THRESHOLD,
            inputs: &["output", "expected"],
            meaning,
            asks: None,
        }
    }

    /// A metric of single traces that counts or compares spans and outputs.
    pub(super) const fn of_spans(
        name: &'static str,
        inputs: &'static [&'static str],
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            level: Level::Trace,
            method: Method::Spans,
            default_threshold: DEFAULT_THRESHOLD,
            inputs,
            meaning,
            asks: None,
        }
    }

    /// A number of the spans of single traces that is no score.
    pub(super) const fn measure(name: &'static str, meaning: &'static str) -> Self {
        Self {
            method: Method::Measure,
            ..Self::of_spans(name, &["spans"], meaning)
        }
    }

    /// Whether it gives scores, which have a threshold; all but plain numbers do.
    pub fn has_scores(&self) -> bool {
        !matches!(self.method, Method::Measure | Method::Signals)
    }
}

/// The metric of whole conversations: a judge reads each session once and scores it on several scales.
pub const CONVERSATION: &str = "conversation";
/// The bar of the judge of conversations unless another is given: 75 of 100.
const CONVERSATION_THRESHOLD: f64 = 0.75;

static CONVERSATION_INFO: MetricInfo = MetricInfo {
    name: CONVERSATION,
    level: Level::Session,
    method: Method::Judge,
    default_threshold: CONVERSATION_THRESHOLD,
    inputs: &["session"],
    meaning: "How well the agent led the whole session, by a judge's weighted scores (1 = excellent throughout).",
    asks: None,
};

/// All metrics, trace metrics first.
pub static ALL: &[&MetricInfo] = &[
    &super::coherence::INFO,
    &super::loop_detection::INFO,
    &super::task_completion::INFO,
    &super::tool_correctness::INFO,
    &super::argument_correctness::INFO,
    &super::step_efficiency::INFO,
    &super::confidence::INFO,
    &super::plan_adherence::INFO,
    &super::plan_quality::INFO,
    &super::factuality::INFO,
    &super::format::INFO,
    &super::tone::INFO,
    &super::spans::TOOL_ERROR_RATE,
    &super::spans::REPEATED_TOOL_CALLS,
    &super::spans::EMPTY_OUTPUT,
    &super::spans::OUTPUT_TRUNCATED,
    &super::stuck::INFO,
    &super::spans::LATENCY,
    &super::spans::TOKENS,
    &super::agent_reliability::INFO,
    &super::agent_consistency::INFO,
    &super::session_signal::INFO,
    &CONVERSATION_INFO,
];

/// The metrics that need nothing but texts and sessions of traces: `--metrics all`. Not all traces have spans.
pub fn of_traces_alone() -> impl Iterator<Item = &'static MetricInfo> {
    let all = ALL.iter().copied();
    all.filter(|metric| {
        !matches!(
            metric.method,
            Method::Comparison | Method::Spans | Method::Measure
        )
    })
}

/// The metrics of a run that names none: those that need nothing but the traces, and no judge.
pub fn unjudged() -> impl Iterator<Item = &'static MetricInfo> {
    of_traces_alone().filter(|metric| metric.method != Method::Judge)
}

/// The metrics of spans: `--metrics spans`.
pub fn of_spans() -> impl Iterator<Item = &'static MetricInfo> {
    let all = ALL.iter().copied();
    all.filter(|metric| matches!(metric.method, Method::Spans | Method::Measure))
}

/// The metrics that hold an output against an expected one.
pub fn comparing() -> impl Iterator<Item = &'static MetricInfo> {
    let all = ALL.iter().copied();
    all.filter(|metric| metric.method == Method::Comparison)
}

/// The metrics of single traces that ask a judge.
pub fn judged() -> impl Iterator<Item = &'static JudgedMetric> {
    ALL.iter().filter_map(|metric| metric.asks)
}

/// The metric of that name.
pub fn find(name: &str) -> Option<&'static MetricInfo> {
    ALL.iter().copied().find(|metric| metric.name == name)
}

/// The judged metric of that name.
pub fn judged_metric(name: &str) -> Option<&'static JudgedMetric> {
    find(name)?.asks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_found_by_its_name() {
        for metric in judged() {
            let found = judged_metric(metric.name).unwrap();
            assert_eq!(found.name, metric.name);
            assert_eq!(find(metric.name).unwrap().method, Method::Judge);
        }
        assert!(judged_metric("coherence").is_none());
        assert_eq!(
            judged().map(|metric| metric.prompts.len()).sum::<usize>(),
            16
        );
    }
}
