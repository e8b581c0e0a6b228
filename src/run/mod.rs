//! Runs: from a request to a finished run directory.

mod aggregate;
mod directory;
mod embed;
mod engine;
mod error;
mod manifest;
mod quarantine_rows;
mod score;
mod session_rows;
mod signals_file;
mod summary;
mod table_writer;
mod trace_rows;
mod worst;

pub use aggregate::{AggregateRequest, aggregate};
pub use directory::{PartialFile, RunDirectory};
pub use embed::{EmbedRequest, EmbedSummary, embed};
pub use engine::{CacheChoice, EngineRequest, Gpu, Target, load_service};
pub use error::RunError;
pub use score::{Progress, ScoreRequest, score};
pub use summary::{Distribution, Gate, GateResult, MetricSummary, Summary, WorstSession};
pub use worst::ShownSession;

/// What decides a score beside the traces and the model.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Metrics asked for, by registered name.
    pub metrics: Vec<String>,
    /// Thresholds given, by metric.
    pub thresholds: std::collections::BTreeMap<String, f64>,
    /// Traces that loop detection looks back at.
    pub window: usize,
    /// Signal weights.
    pub weights: crate::metric::SignalWeights,
    /// What a JSON cell's text is.
    pub text_mode: crate::text::TextMode,
    /// A session without evaluable trace scores 1 (as the compatible services do) or null.
    pub null_without_evidence: bool,
    /// Minimum means that the run must reach.
    pub gates: Vec<Gate>,
}

impl Rules {
    /// Whether a metric was asked for.
    pub fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|m| m == metric)
    }

    /// Whether any session metric was asked for.
    pub fn wants_sessions(&self) -> bool {
        self.metrics
            .iter()
            .filter_map(|m| crate::metric::find(m))
            .any(|m| m.level == crate::metric::Level::Session)
    }

    /// Whether a trace metric is computed: asked for, or a signal of a session metric.
    pub fn computes(&self, metric: &str) -> bool {
        self.wants(metric) || self.wants_sessions()
    }

    /// The threshold in force for a metric.
    pub fn threshold(&self, metric: &str) -> f64 {
        let given = self.thresholds.get(metric).copied();
        match metric {
            "loop_detection" => crate::metric::loop_detection::threshold(given),
            _ => given.unwrap_or(crate::metric::DEFAULT_THRESHOLD),
        }
    }
}
