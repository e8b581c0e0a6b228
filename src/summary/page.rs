//! What a report page shows beside the summary.

use serde::Serialize;

use crate::output::WorstSession;
use crate::trace::RowAt;

/// The facts of a run that are in no other part of it.
#[derive(Clone, Debug)]
pub struct PageFacts {
    /// The run's name.
    pub title: String,
    /// The model's name and SHA-256; none for runs without a model.
    pub model: Option<(String, String)>,
    /// What it computed in.
    pub precision: String,
    /// Where.
    pub device: String,
    /// Input files.
    pub inputs: Vec<String>,
    /// The file of given signals.
    pub signals: Option<String>,
}

/// One of the worst sessions, with its traces.
#[derive(Clone, Debug, Serialize)]
pub struct ShownSession {
    /// The session itself.
    #[serde(flatten)]
    pub session: WorstSession,
    /// How many traces are flagged.
    pub flagged: usize,
    /// Traces left out.
    pub rows_hidden: usize,
    /// Its traces, in session order.
    pub rows: Vec<ShownTrace>,
}

/// A trace as the report shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownTrace {
    pub position: u64,
    pub trace_id: String,
    pub started_at: String,
    pub coherence: Option<f64>,
    pub loop_detection: Option<f64>,
    pub confidence: Option<f64>,
    pub tool_correctness: Option<f64>,
    pub step_risk: Option<f64>,
    pub flagged: bool,
    pub input: String,
    pub input_cut: bool,
    pub output: String,
    pub output_cut: bool,
    #[serde(rename = "loop")]
    pub repeats: Option<ShownLoop>,
    #[serde(skip)]
    pub(crate) details: String,
    #[serde(skip)]
    pub(crate) places: (Option<RowAt>, Option<RowAt>),
}

/// The earlier output that a trace repeats.
#[derive(Clone, Debug, Serialize)]
pub struct ShownLoop {
    pub trace_id: String,
    pub position: Option<u64>,
    pub cosine: Option<f64>,
    pub jaccard: Option<f64>,
    pub hybrid: Option<f64>,
    pub output: String,
    pub output_cut: bool,
    #[serde(skip)]
    pub(crate) place: Option<RowAt>,
}
