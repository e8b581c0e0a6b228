//! Metrics: one file each, no I/O: plain functions over numbers, or, where a judge is asked, from the replies so far to
//! the next question or the score. The registry lists them all.
//! They give the scores that PandaProbe gives, and those that compare an output with an expected one the scores that
//! Regtrace gives.

pub mod agent_consistency;
pub mod agent_reliability;
mod argument_correctness;
pub mod attention;
pub mod checked;
pub mod coherence;
pub mod compared;
pub mod comparison;
mod confidence;
pub mod factuality;
pub mod format;
mod judged_metric;
pub mod loop_detection;
mod metadata;
mod number;
mod plan_adherence;
mod plan_quality;
mod registry;
mod rules;
pub mod session_signal;
mod shared_stages;
mod signals;
pub mod spans;
mod step_efficiency;
pub mod stuck;
mod task_completion;
pub mod tone;
mod tool_correctness;
mod vector;

pub use judged_metric::{Judged, JudgedMetric, SYSTEM_MESSAGE, Stage, Step};
pub use metadata::Metadata;
pub use number::{clamp01, push_four_decimals, push_rounded, round4, stored_value};
pub use registry::{
    ALL, CONVERSATION, Level, Method, MetricInfo, comparing, find, judged, judged_metric, of_spans,
    of_traces_alone, unjudged,
};
pub use rules::{Gate, Rules};
pub use signals::{
    RISKS, SIGNALS, SPAN_SIGNALS, SessionSignals, SignalWeights, Signals, WeightError,
};
pub use vector::{NonFinite, cosine_similarity, distance, norm_squared};

/// The threshold of a metric for which none was given.
pub const DEFAULT_THRESHOLD: f64 = 0.5;
