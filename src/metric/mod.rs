//! Metrics: one file each, plain functions over numbers, no I/O. The registry lists them all.
//! They give the scores that PandaProbe gives.

pub mod agent_consistency;
pub mod agent_reliability;
pub mod coherence;
pub mod loop_detection;
mod metadata;
mod number;
mod registry;
mod rules;
mod signals;
mod vector;

pub use metadata::Metadata;
pub use number::{clamp01, round4, stored_value};
pub use registry::{ALL, CONVERSATION, Level, Method, MetricInfo, find, unjudged};
pub use rules::{Gate, Rules};
pub use signals::{SIGNALS, SessionSignals, SignalWeights, Signals, WeightError};
pub use vector::{NonFinite, cosine_similarity, distance, norm_squared};

/// The threshold of a metric for which none was given.
pub const DEFAULT_THRESHOLD: f64 = 0.5;
