//! Every metric nightmill knows. `nightmill metrics` prints this list.

use super::DEFAULT_THRESHOLD;

/// What one score is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Method {
    /// `embedding` or `aggregate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Aggregate => "aggregate",
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
}

/// All metrics, trace metrics first.
pub const ALL: &[MetricInfo] = &[
    MetricInfo {
        name: "coherence",
        level: Level::Trace,
        method: Method::Embedding,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["input", "output"],
        meaning: "How close in meaning the output is to the input (1 = the same, 0 = unrelated).",
    },
    MetricInfo {
        name: "loop_detection",
        level: Level::Trace,
        method: Method::Embedding,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["output"],
        meaning: "Whether the output repeats one of the last outputs of its session (1 = new, 0 = a repetition).",
    },
    MetricInfo {
        name: "agent_reliability",
        level: Level::Session,
        method: Method::Aggregate,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &[
            "confidence",
            "loop_detection",
            "tool_correctness",
            "coherence",
        ],
        meaning: "How bad the worst steps of the session are (1 = no risky step, 0 = the worst steps failed).",
    },
    MetricInfo {
        name: "agent_consistency",
        level: Level::Session,
        method: Method::Aggregate,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &[
            "confidence",
            "loop_detection",
            "tool_correctness",
            "coherence",
        ],
        meaning: "How steady the agent's confidence is over the session, other signals added (1 = steady).",
    },
];

/// The metric of that name.
pub fn find(name: &str) -> Option<&'static MetricInfo> {
    ALL.iter().find(|metric| metric.name == name)
}
