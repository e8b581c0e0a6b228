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
    /// By asking a judge model.
    Judge,
}

impl Method {
    /// `embedding`, `aggregate` or `judge`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Aggregate => "aggregate",
            Self::Judge => "judge",
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

/// The metric of whole conversations: a judge reads each session once and scores it on several scales.
pub const CONVERSATION: &str = "conversation";
/// The bar of the judge of conversations unless another is given: 75 of 100.
const CONVERSATION_THRESHOLD: f64 = 0.75;

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
        name: "task_completion",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "How much of what the user wanted was done, by the trace's outcome (1 = all of it).",
    },
    MetricInfo {
        name: "tool_correctness",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "Whether the right tools were called, none too many and none too few (1 = the right ones).",
    },
    MetricInfo {
        name: "argument_correctness",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "The share of tool calls whose arguments fit the task (1 = all, also without any call).",
    },
    MetricInfo {
        name: "step_efficiency",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "How few steps the trace took beyond those it needed (1 = none).",
    },
    MetricInfo {
        name: "confidence",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "How decided and consistent the agent acted (1 = sure of its way, 0 = lost).",
    },
    MetricInfo {
        name: "plan_adherence",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "Whether the agent followed its own plan (1 = step by step, also without a plan).",
    },
    MetricInfo {
        name: "plan_quality",
        level: Level::Trace,
        method: Method::Judge,
        default_threshold: DEFAULT_THRESHOLD,
        inputs: &["trace"],
        meaning: "How complete and sensible the agent's plan was for the task (1 = also without a plan).",
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
    MetricInfo {
        name: CONVERSATION,
        level: Level::Session,
        method: Method::Judge,
        default_threshold: CONVERSATION_THRESHOLD,
        inputs: &["session"],
        meaning: "How well the agent led the whole session, by a judge's weighted scores (1 = excellent throughout).",
    },
];

/// The metrics of a run that names none: all that need no judge.
pub fn unjudged() -> impl Iterator<Item = &'static MetricInfo> {
    ALL.iter().filter(|metric| metric.method != Method::Judge)
}

/// The metric of that name.
pub fn find(name: &str) -> Option<&'static MetricInfo> {
    ALL.iter().find(|metric| metric.name == name)
}
